"""The files that are written: names, weights, the C file and its header."""
