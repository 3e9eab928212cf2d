"""Averages within a subgroup, by PyTorch's path."""

from tangrad_distributed.training.local_sgd import PostLocalSGDState as PostLocalSGDState
from tangrad_distributed.training.local_sgd import post_localSGD_hook as post_localSGD_hook
