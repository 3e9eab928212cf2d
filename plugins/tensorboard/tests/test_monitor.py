"""`torch.monitor`: events reach handlers, counters tell of windows of time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tangrad.monitor import (
    Aggregation,
    Event,
    Stat,
    TensorboardEventHandler,
    log_event,
    register_event_handler,
    unregister_event_handler,
)


@pytest.fixture
def logged() -> Iterator[list[Event]]:
    """The events that are logged during a test."""
    events: list[Event] = []
    handle = register_event_handler(events.append)
    yield events
    unregister_event_handler(handle)


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_events_reach_handlers_until_they_are_taken_away(logged: list[Event]) -> None:
    others: list[Event] = []
    handle = register_event_handler(others.append)
    event = Event("x", datetime(2026, 1, 1), {"a": 1, "b": "text", "c": True})
    log_event(event)
    unregister_event_handler(handle)
    log_event(event)
    assert (len(logged), len(others)) == (2, 1)
    with pytest.raises(TypeError, match="texts, numbers and bools"):
        Event("x", datetime(2026, 1, 1), {"a": [1]})  # type: ignore[dict-item]


def test_a_window_that_is_over_is_told_once(logged: list[Event]) -> None:
    clock = Clock()
    every = [a for a in Aggregation if a is not Aggregation.NONE]
    stat = Stat("s", every, timedelta(seconds=10), _clock=clock)
    for value in (3.0, 1.0, 2.0):
        stat.add(value)
    assert stat.count == 3
    assert stat.get()[Aggregation.MEAN] == 2.0
    clock.now = 11.0
    stat.add(5.0)
    assert [e.name for e in logged] == ["torch.monitor.Stat"]
    expected = {"value": 2.0, "mean": 2.0, "count": 3.0, "sum": 6.0, "max": 3.0, "min": 1.0}
    assert logged[0].data == {f"s.{name}": value for name, value in expected.items()}
    assert stat.count == 1


def test_a_full_window_is_told_early_and_drops_the_rest(logged: list[Event]) -> None:
    clock = Clock()
    stat = Stat("s", [Aggregation.COUNT], timedelta(seconds=10), 2, _clock=clock)
    for _ in range(4):
        stat.add(1.0)
    assert [e.data for e in logged] == [{"s.count": 2.0}]
    clock.now = 10.0
    stat.add(1.0)
    assert (len(logged), stat.count) == (1, 1)


def test_what_is_left_is_told_at_the_end(logged: list[Event]) -> None:
    stat = Stat("s", [Aggregation.SUM], timedelta(seconds=10), _clock=Clock())
    stat.add(4.0)
    del stat
    assert [e.data for e in logged] == [{"s.sum": 4.0}]


def test_stats_become_scalars() -> None:
    written: list[Any] = []

    class Writer:
        def add_scalar(self, name: str, value: float, walltime: float) -> None:
            written.append((name, value, walltime))

    handler = TensorboardEventHandler(Writer())
    time = datetime(2026, 1, 1)
    handler(Event("torch.monitor.Stat", time, {"s.sum": 4.0}))
    handler(Event("other", time, {"x": 1}))
    assert written == [("s.sum", 4.0, time.timestamp())]


def test_windows_and_aggregations_without_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match="window_size must be positive"):
        Stat("s", [Aggregation.SUM], timedelta(0))
    with pytest.raises(ValueError, match="tells nothing"):
        Stat("s", [Aggregation.NONE], timedelta(1))
