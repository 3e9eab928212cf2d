"""Device "c99", on which a program is laid out: it has kernels, whose calls are kept, not run."""
