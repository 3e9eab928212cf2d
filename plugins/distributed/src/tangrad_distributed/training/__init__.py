"""Training on several ranks: averaged gradients, optimizers in parts, ranks that have no more."""
