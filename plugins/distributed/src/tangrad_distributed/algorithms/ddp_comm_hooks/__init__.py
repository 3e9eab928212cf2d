"""Communication hooks, by PyTorch's paths."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from tangrad_distributed.algorithms.ddp_comm_hooks import debugging_hooks as debugging_hooks
from tangrad_distributed.algorithms.ddp_comm_hooks import default_hooks as default_hooks
from tangrad_distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_localSGD_hook
from tangrad_distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD_hook

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


class DDPCommHookType(Enum):
    """Name the hooks that come with the package; each partial is a value of its own."""

    ALLREDUCE = partial(default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(default_hooks.bf16_compress_hook)
    POWER_SGD = partial(powerSGD_hook.powerSGD_hook)
    POWER_SGD_RANK2 = partial(powerSGD_hook.powerSGD_hook)  # noqa: PIE796
    BATCHED_POWER_SGD = partial(powerSGD_hook.batched_powerSGD_hook)
    BATCHED_POWER_SGD_RANK2 = partial(powerSGD_hook.batched_powerSGD_hook)  # noqa: PIE796
    NOOP = partial(debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Let one of the hooks average a model's gradients.

    Args:
        comm_hook_type: which.
        model: a `DistributedDataParallel`.
        state: of the hook; None has PowerSGD make its own, of the rank that its name says.
    """
    name = comm_hook_type.name
    if "POWER_SGD" in name and state is None:
        rank = 2 if name.endswith("RANK2") else 1
        state = powerSGD_hook.PowerSGDState(model.process_group, rank)
    model.register_comm_hook(state, comm_hook_type.value)
