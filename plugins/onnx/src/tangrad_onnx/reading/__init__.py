"""From a file to a module: protobuf, checks, Python code."""
