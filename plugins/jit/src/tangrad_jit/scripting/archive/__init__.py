"""TorchScript archives: reading and writing."""
