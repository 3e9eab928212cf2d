"""`tangrad.jit`: traced functions and modules, and the archive they are saved to."""
