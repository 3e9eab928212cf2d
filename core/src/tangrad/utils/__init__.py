"""Things that stand beside tensors and networks: data loading and removable hooks."""

from __future__ import annotations

import sys
from typing import Any

_SUBMODULES = (
    "_pytree",
    "benchmark",
    "checkpoint",
    "collect_env",
    "cpp_extension",
    "data",
    "deterministic",
    "dlpack",
    "flop_counter",
    "gradients",
    "hooks",
    "model_zoo",
    "tensorboard",
)


def __getattr__(name: str) -> Any:
    if name == "swap_tensors":
        from tangrad.utils.swap import swap_tensors

        return swap_tensors
    if name not in _SUBMODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    __import__(f"{__name__}.{name}")
    return sys.modules[f"{__name__}.{name}"]
