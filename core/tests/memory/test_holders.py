"""An out-of-memory error says whether releasing something would have helped, and how much."""

from __future__ import annotations

from typing import Any

import pytest

import tangrad
from tangrad.plugin import allocator_of

MIB = 2**20


def refusal(allocator: Any, limit: int, nbytes: int) -> str:
    """Return what is said where so many bytes do not fit into a limit."""
    allocator.set_limit(limit)
    try:
        with pytest.raises(tangrad.OutOfMemoryError) as raised:
            tangrad.empty(nbytes, dtype=tangrad.uint8)
    finally:
        allocator.set_limit(None)
    return str(raised.value)


def test_how_much_less_would_have_been_enough_is_told() -> None:
    allocator = allocator_of("cpu")
    held = tangrad.empty(60 * MIB, dtype=tangrad.uint8)
    allocator.empty_cache()
    reserved = allocator.memory_stats()["reserved_bytes.all.current"]
    assert "40.00 MiB less held would have been enough." in refusal(
        allocator, reserved + 10 * MIB, 50 * MIB
    )
    # The limit may be below what is held already.
    assert "55.00 MiB less held would have been enough." in refusal(
        allocator, reserved - 5 * MIB, 50 * MIB
    )
    assert held.numel() == 60 * MIB


def test_what_no_release_would_make_room_for_is_told() -> None:
    told = refusal(allocator_of("cpu"), 30 * MIB, 50 * MIB)
    assert "There are 30.00 MiB in all: nothing to release is enough." in told
