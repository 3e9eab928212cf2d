"""Communication hooks, by PyTorch's paths."""

from tangrad_distributed.algorithms.ddp_comm_hooks import default_hooks as default_hooks
from tangrad_distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD_hook
