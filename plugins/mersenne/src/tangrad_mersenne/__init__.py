"""The random engine `mt19937`, by which tangrad draws the numbers that PyTorch's CPU draws."""

from tangrad_mersenne.engine import MersenneTwister

__all__ = ["MersenneTwister"]

# The version of the plugin interface that this was made for.
API = 1
