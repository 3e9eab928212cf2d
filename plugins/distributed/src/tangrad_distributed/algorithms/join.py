"""Ranks with different numbers of batches, by PyTorch's path."""

from tangrad_distributed.join import Join as Join
