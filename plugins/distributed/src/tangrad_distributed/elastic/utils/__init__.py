"""What programs for torchrun are given, by PyTorch's paths."""
