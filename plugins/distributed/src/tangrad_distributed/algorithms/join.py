"""Ranks with different numbers of batches, by PyTorch's path."""

from tangrad_distributed.training.join import Join as Join
from tangrad_distributed.training.join import Joinable as Joinable
from tangrad_distributed.training.join import JoinHook as JoinHook
