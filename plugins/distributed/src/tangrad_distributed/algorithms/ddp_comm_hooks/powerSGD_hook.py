"""PowerSGD, by PyTorch's path."""

from tangrad_distributed.training.power_sgd import PowerSGDState as PowerSGDState
from tangrad_distributed.training.power_sgd import batched_powerSGD_hook as batched_powerSGD_hook
from tangrad_distributed.training.power_sgd import powerSGD_hook as powerSGD_hook
