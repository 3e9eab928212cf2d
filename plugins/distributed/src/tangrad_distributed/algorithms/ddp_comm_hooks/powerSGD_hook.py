"""PowerSGD, by PyTorch's path."""

from tangrad_distributed.communication_hooks import PowerSGDState as PowerSGDState
from tangrad_distributed.communication_hooks import powerSGD_hook as powerSGD_hook
