"""`tangrad.jit`: programs recorded as graphs, rewritten and run."""
