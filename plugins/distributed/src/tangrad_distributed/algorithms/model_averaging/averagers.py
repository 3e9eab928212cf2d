"""Average parameters every few steps, by PyTorch's path."""

from tangrad_distributed.training.local_sgd import ModelAverager as ModelAverager
from tangrad_distributed.training.local_sgd import PeriodicModelAverager as PeriodicModelAverager
