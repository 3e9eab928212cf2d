"""Measure how long statements take, and compare them."""

from __future__ import annotations

from tangrad.utils.benchmark.compare import Compare
from tangrad.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    select_unit,
    unit_to_english,
)
from tangrad.utils.benchmark.timer import Timer, timer

__all__ = [
    "Compare",
    "Measurement",
    "TaskSpec",
    "Timer",
    "select_unit",
    "timer",
    "unit_to_english",
]
