"""What lies on top of collectives, by PyTorch's paths."""

from tangrad_distributed.algorithms import ddp_comm_hooks as ddp_comm_hooks
from tangrad_distributed.algorithms import model_averaging as model_averaging
from tangrad_distributed.training.join import Join as Join
