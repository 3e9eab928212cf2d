"""Seeds and states of the devices' generators; a seed gives the numbers that it gives on `cpu`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tangrad.random import get_default_generator
from tangrad_cuda.namespace._place import index_of, usable
from tangrad_cuda.namespace.devices import device_count

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generator(device: Any = None) -> Any:
    return get_default_generator(f"cuda:{index_of(None if device == 'cuda' else device)}")


def generators() -> tuple[Any, ...]:
    """Return the default generator of each device."""
    return tuple(_generator(index) for index in range(device_count()))


def get_rng_state(device: Any = "cuda") -> Any:
    """Return the state of a device's generator, a uint8 tensor on the host."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[Any]:
    """Return the states of all devices' generators."""
    return [generator.get_state() for generator in generators()]


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Set the state of a device's generator to what `get_rng_state` returned."""
    _generator(device).set_state(new_state.cpu())


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Set the states of all devices' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator; without a GPU nothing happens."""
    if usable():
        _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; without a GPU nothing happens."""
    for generator in generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator unforeseeably."""
    if usable():
        _generator().seed()


def seed_all() -> None:
    """Seed all devices' generators unforeseeably, with the same seed."""
    found = generators()
    if found:
        manual_seed_all(found[0].seed())


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return int(_generator().initial_seed())
