"""Optimizers of several ranks, by PyTorch's path."""

from tangrad_distributed.absent import absent
from tangrad_distributed.training.local_sgd import PostLocalSGDOptimizer as PostLocalSGDOptimizer
from tangrad_distributed.training.sharded_optimizer import (
    ZeroRedundancyOptimizer as ZeroRedundancyOptimizer,
)

_RPC = "it needs remote calls (torch.distributed.rpc), which are not here"
DistributedOptimizer = absent("optim", "DistributedOptimizer", _RPC)
as_functional_optim = absent("optim", "as_functional_optim", "optimizers have no functional form")

__all__ = [
    "DistributedOptimizer",
    "PostLocalSGDOptimizer",
    "ZeroRedundancyOptimizer",
    "as_functional_optim",
]
