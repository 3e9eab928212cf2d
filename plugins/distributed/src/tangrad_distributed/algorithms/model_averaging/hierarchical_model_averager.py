"""Average parameters within growing groups, by PyTorch's path."""

from tangrad_distributed.training.local_sgd import (
    HierarchicalModelAverager as HierarchicalModelAverager,
)
