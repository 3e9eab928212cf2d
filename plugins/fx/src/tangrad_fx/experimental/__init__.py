"""Tracing below autograd, and what is asked of symbolic sizes."""
