"""See every op below recording: `__torch_dispatch__` modes."""

from __future__ import annotations

from tangrad.dispatch.python_dispatch import TorchDispatchMode

__all__ = ["TorchDispatchMode"]
