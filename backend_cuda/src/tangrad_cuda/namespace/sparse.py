"""Hold the name: sparse tensors on GPUs are those of `tangrad.sparse`."""
