"""Special functions: `torch.special`."""
