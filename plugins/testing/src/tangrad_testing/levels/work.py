"""Work that a device does while the caller goes on: queued copies, and events that tell of them."""

from __future__ import annotations

import time
from typing import Any

from tangrad_testing.levels.check import Device, NotApplicable

EVENTS = ("record_event", "query_event", "synchronize_event")
PIECE = 2**22
# Below this, waiting for work cannot be told from not waiting.
SHORTEST_WAIT = 0.02
# More than half have to lie: a busy machine keeps a thread waiting now and then.
TRIES = 9


def require_events(device: Device) -> Any:
    """Return the driver.

    Raises:
        NotApplicable: it has no events.
    """
    device.require_own_memory()
    if any(getattr(device.driver, name) is None for name in EVENTS):
        raise NotApplicable("it has no events: work is done when a call returns")
    return device.driver


def give_work(device: Device, a: int, b: int, amount: int) -> None:
    """Queue copies there and back."""
    for _ in range(amount):
        device.driver.copy_within(b, 0, a, 0, PIECE)
        device.driver.copy_within(a, 0, b, 0, PIECE)


def work_that_takes_a_while(device: Device, a: int, b: int) -> tuple[int, float]:
    """Return (how many copies, how long one waits for them at least).

    Raises:
        NotApplicable: there is never anything to wait for.
    """
    amount = 4
    while amount <= 1024:
        waited = wait_for_copies(device, a, b, amount)
        if waited > SHORTEST_WAIT:
            return amount, min(waited, *(wait_for_copies(device, a, b, amount) for _ in range(2)))
        amount *= 4
    raise NotApplicable("its copies are done when they return: there is nothing to wait for")


def wait_for_copies(device: Device, a: int, b: int, amount: int) -> float:
    """Return how long one waits for some copies that were given before."""
    device.driver.synchronize()
    give_work(device, a, b, amount)
    started = time.perf_counter()
    device.driver.synchronize()
    return time.perf_counter() - started
