"""What of a thread's state a graph relies on."""

from __future__ import annotations

from typing import Any

import tangrad

__all__ = ["state_of_thread"]


def state_of_thread() -> tuple[Any, ...]:
    """Return grad mode, inference mode, and what tensors are made as where nothing is said."""
    return (
        tangrad.is_grad_enabled(),
        tangrad.is_inference_mode_enabled(),
        tangrad.get_default_dtype(),
        tangrad.get_default_device(),
        tangrad.are_deterministic_algorithms_enabled(),
    )
