# cython: language_level=3
"""The loop that runs graphs."""
