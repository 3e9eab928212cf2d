"""Stretches of a program that are no ops, told to whoever watches: loading of data, for example."""

from __future__ import annotations

from typing import Any

# Read before anything else is done: while nobody watches, a stretch costs that look.
watchers: tuple[Any, ...] = ()


def watch_phases(watcher: Any) -> None:
    """Tell an object of every stretch that a part of the program announces, in all threads.

    Args:
        watcher: has `enter_phase(name) -> token`, `leave_phase(token)`, and
            `done_elsewhere(name, process, began, ended)` for what another process did: its number,
            and seconds by `time.perf_counter`, which on one machine is one clock.
    """
    global watchers
    watchers = (*watchers, watcher)


def unwatch_phases(watcher: Any) -> None:
    """Tell it no longer.

    Raises:
        ValueError: it is told nothing.
    """
    global watchers
    left = list(watchers)
    left.remove(watcher)
    watchers = tuple(left)


def phase_is_watched() -> bool:
    """Return whether anybody is told of stretches, so that others spare the work."""
    return bool(watchers)


class phase:
    """Context manager around a stretch of the program.

    Args:
        name: what those who watch call it.
    """

    __slots__ = ("_entered", "name")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self._entered = [(watcher, watcher.enter_phase(self.name)) for watcher in watchers]

    def __exit__(self, *exc: object) -> None:
        for watcher, token in reversed(self._entered):
            watcher.leave_phase(token)


def done_elsewhere(name: str, process: int, began: float, ended: float) -> None:
    """Tell those who watch of what another process did."""
    for watcher in watchers:
        watcher.done_elsewhere(name, process, began, ended)
