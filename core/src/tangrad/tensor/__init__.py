"""Python parts of Tensor: text, indexing, construction, copies, symbolic sizes."""
