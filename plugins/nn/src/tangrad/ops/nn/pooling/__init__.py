"""Pooling: the greatest element, the average or another summary of windows."""
