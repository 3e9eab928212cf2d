"""What a profile was recorded on, in words."""

from __future__ import annotations

import os
import platform
from functools import cache

import tangrad


def this_machine() -> str:
    """Return the processor, its cores, the threads that ops have now, and versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{_processor()} with {cores} cores, {tangrad.get_num_threads()} threads for an op, "
        f"Python {platform.python_version()}, tangrad {tangrad.__version__}"
    )


@cache
def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as listing:
            lines = (line.partition(":") for line in listing)
            return next(value.strip() for key, _, value in lines if key.strip() == "model name")
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
