"""What programs for torchrun import, by PyTorch's paths."""
