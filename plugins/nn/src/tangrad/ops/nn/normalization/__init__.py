"""Normalization: over layers, groups, channels and batches."""
