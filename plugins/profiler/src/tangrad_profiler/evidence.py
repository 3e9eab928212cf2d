"""What advice is made of, and how it tells times and shares."""

from __future__ import annotations

from typing import NamedTuple

from tangrad_profiler.limits import Limits
from tangrad_profiler.memory import Blocks
from tangrad_profiler.roofline import Point
from tangrad_profiler.trace import Trace
from tangrad_profiler.views import Group


class Advice(NamedTuple):
    """One suggestion.

    Attributes:
        text: the sentence, with its figures. share: of the time (or the peak) that it is about.
        view: the page's view that shows it.
    """

    text: str
    share: float
    view: str


class Evidence(NamedTuple):
    """What advice is made of; parts that were not recorded are empty."""

    trace: Trace
    groups: list[Group]
    blocks: Blocks | None
    points: list[Point]
    limits: Limits | None

    @property
    def wall(self) -> int:
        """Nanoseconds from the first event to the last."""
        e = self.trace.events
        return int(e["end"].max() - e["start"].min())


def span(ns: float) -> str:
    """Return nanoseconds in words."""
    return f"{ns / 1e6:.1f} ms" if ns < 1e9 else f"{ns / 1e9:.1f} s"


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return "less than 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"
