"""The planted faults as mutants of loopback."""

from __future__ import annotations

from functools import partial

from tangrad_testing.mutants import (
    planted_indices,
    planted_kernels,
    planted_lifetime,
    planted_memory,
    planted_ops,
    planted_order,
    planted_streams,
    planted_values,
)
from tangrad_testing.mutants.campaign import Mutant
from tangrad_testing.mutants.fault import PLANTED

SOURCES = (
    planted_memory, planted_lifetime, planted_indices, planted_order, planted_streams,
    planted_kernels, planted_values, planted_ops,
)  # fmt: skip


def planted() -> list[Mutant]:
    """Return all of them."""
    return [
        Mutant(name, (made.__doc__ or "").strip(), "loopback", partial(stand_in, made))
        for name, made in PLANTED.items()
    ]


def stand_in(made: type) -> None:
    """Have the entry point of loopback lead to another class; nothing is open yet."""
    from tangrad_testing import loopback

    loopback.Loopback = made  # type: ignore[misc,assignment]
