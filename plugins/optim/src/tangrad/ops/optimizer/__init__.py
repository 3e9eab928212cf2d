"""Ops of optimizers: whole steps, all parameters at once."""
