"""Layers whose weights are mostly zeros."""
