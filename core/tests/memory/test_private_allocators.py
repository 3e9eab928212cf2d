"""Memory of a device that comes from another allocator than the device's own for a while."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.plugin import allocator_of, private_allocator, use_allocator

DEVICE = tangrad.device("loopback:0")


def held(allocator: object) -> int:
    stats: dict[str, int] = allocator.memory_stats()  # type: ignore[attr-defined]
    return stats["allocated_bytes.all.current"]


def test_memory_goes_back_to_the_allocator_that_gave_it() -> None:
    own, other = allocator_of(DEVICE), private_allocator(DEVICE)
    before = held(own)
    assert use_allocator(DEVICE, other) is own
    x = tangrad.empty(1000, device=DEVICE)
    assert use_allocator(DEVICE, own) is other
    assert held(other) >= 4000
    assert held(own) == before
    y = tangrad.empty(1000, device=DEVICE)
    assert held(own) > before
    del x, y
    assert (held(own), held(other)) == (before, 0)


def test_an_allocator_lives_as_long_as_its_memory() -> None:
    own = use_allocator(DEVICE, private_allocator(DEVICE))
    x = tangrad.empty(4, device=DEVICE)
    use_allocator(DEVICE, own)
    x.copy_(tangrad.arange(4.0))
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_devices_without_memory_of_their_own_have_none(device: str) -> None:
    with pytest.raises(RuntimeError, match="no memory of its own"):
        private_allocator(tangrad.device(device))
