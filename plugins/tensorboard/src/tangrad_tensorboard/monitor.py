"""Events that programs log and handlers get, counters that log themselves: `torch.monitor`."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = [
    "Aggregation",
    "Event",
    "EventHandlerHandle",
    "Stat",
    "TensorboardEventHandler",
    "data_value_t",
    "log_event",
    "register_event_handler",
    "unregister_event_handler",
]

STAT_EVENT = "torch.monitor.Stat"
data_value_t = str | float | int | bool


class Aggregation(enum.Enum):
    """What a `Stat` tells of the values of a window."""

    NONE = 0
    VALUE = 1
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6


_AGGREGATED: dict[Aggregation, Callable[[list[float]], float]] = {
    Aggregation.VALUE: lambda values: values[-1],
    Aggregation.MEAN: lambda values: sum(values) / len(values),
    Aggregation.COUNT: len,
    Aggregation.SUM: sum,
    Aggregation.MAX: max,
    Aggregation.MIN: min,
}


class Event:
    """Something that happened.

    Args:
        name: what.
        timestamp: when.
        data: {name: text, number or bool}.

    Raises:
        TypeError: `data` holds anything else, or `timestamp` is no time.
    """

    def __init__(self, name: str, timestamp: datetime, data: dict[str, data_value_t]) -> None:
        if not isinstance(timestamp, datetime):
            raise TypeError(f"Event: expected a datetime, got {type(timestamp).__name__}")
        wrong = {k: v for k, v in data.items() if not isinstance(v, (str, float, int))}
        if wrong:
            raise TypeError(f"Event: data must be texts, numbers and bools, got {wrong}")
        self.name, self.timestamp, self.data = name, timestamp, dict(data)

    def __repr__(self) -> str:
        return f"Event(name={self.name!r}, timestamp={self.timestamp!r}, data={self.data!r})"


class EventHandlerHandle:
    """What `register_event_handler` returns, to take the handler away by.

    Args:
        handler: the handler.
    """

    def __init__(self, handler: Callable[[Event], None]) -> None:
        self.handler = handler


_handlers: list[EventHandlerHandle] = []


def register_event_handler(handler: Callable[[Event], None]) -> EventHandlerHandle:
    """Have a function called with every event that is logged.

    Args:
        handler: the function.
    """
    handle = EventHandlerHandle(handler)
    _handlers.append(handle)
    return handle


def unregister_event_handler(handle: EventHandlerHandle) -> None:
    """Take a handler away; one that is not there any more is no error."""
    if handle in _handlers:
        _handlers.remove(handle)


def log_event(e: Event) -> None:
    """Hand an event to all handlers.

    Args:
        e: the event.
    """
    for handle in list(_handlers):
        handle.handler(e)


class Stat:
    """Collect values, and log an event of what they are together when a window of time is over.

    Windows are told by the clock alone: the event of one is logged with the first value after it,
    or by `get`. What is left when the object goes is logged, too.

    Args:
        name: of the values.
        aggregations: what is to be told of them.
        window_size: how long a window is.
        max_samples: so many values end a window early, and those after it until its time is over
            are dropped; -1 for no end.

    Raises:
        ValueError: `window_size` is not positive, or an aggregation is NONE.
    """

    def __init__(
        self,
        name: str,
        aggregations: Sequence[Aggregation],
        window_size: timedelta,
        max_samples: int = -1,
        *,
        _clock: Callable[[], float] = time.time,
    ) -> None:
        if window_size <= timedelta(0):
            raise ValueError(f"Stat: window_size must be positive, got {window_size}")
        if Aggregation.NONE in aggregations:
            raise ValueError("Stat: Aggregation.NONE tells nothing")
        self.name = name
        self._aggregations = tuple(dict.fromkeys(aggregations))
        self._size, self._most, self._clock = window_size.total_seconds(), max_samples, _clock
        self._lock = threading.Lock()
        self._values: list[float] = []
        self._window = self._now()

    def _now(self) -> int:
        return int(self._clock() // self._size)

    @property
    def count(self) -> int:
        """How many values the current window has."""
        return len(self._values)

    def add(self, v: float) -> None:
        """Add a value to the current window."""
        self._close_past_window()
        full = None
        with self._lock:
            if self._most >= 0 and len(self._values) >= self._most:
                return
            self._values.append(float(v))
            if len(self._values) == self._most:
                full = self._event()
        if full is not None:
            log_event(full)

    def get(self) -> dict[Aggregation, float]:
        """Return what the values of the current window are together; nothing for none."""
        self._close_past_window()
        with self._lock:
            return self._told()

    def _told(self) -> dict[Aggregation, float]:
        if not self._values:
            return {}
        return {a: float(_AGGREGATED[a](self._values)) for a in self._aggregations}

    def _event(self) -> Event:
        data: dict[str, data_value_t] = {
            f"{self.name}.{a.name.lower()}": value for a, value in self._told().items()
        }
        return Event(STAT_EVENT, datetime.fromtimestamp(self._clock(), UTC), data)

    def _close_past_window(self) -> None:
        event = None
        with self._lock:
            now = self._now()
            if now != self._window:
                event = self._ended()
                self._window = now
        if event is not None:
            log_event(event)

    def _ended(self) -> Event | None:
        """Return the event of the window, unless there was one, and begin another."""
        told = self._most >= 0 and len(self._values) >= self._most
        event = self._event() if self._values and not told else None
        self._values = []
        return event

    def __del__(self) -> None:
        if getattr(self, "_values", None):
            event = self._ended()
            if event is not None:
                log_event(event)


class TensorboardEventHandler:
    """Write the values of `Stat` events as scalars.

    Args:
        writer: a `SummaryWriter`.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        """Write the numbers of an event; other events are left alone."""
        if event.name != STAT_EVENT:
            return
        for name, value in event.data.items():
            self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())
