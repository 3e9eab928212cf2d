"""Weights as layers hold them: in groups that share a scale, or packed for kernels."""
