"""Average parameters within growing groups, by PyTorch's path."""

from tangrad_distributed.local_sgd import HierarchicalModelAverager as HierarchicalModelAverager
