"""Compute on the CPU with vectorised, threaded kernels: device `cpu` of tangrad."""
