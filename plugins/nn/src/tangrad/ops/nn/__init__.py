"""What layers and losses compute: `torch.nn.functional`."""
