"""PyTorch's oddities: modules and names that exist because programs written for it ask for them."""
