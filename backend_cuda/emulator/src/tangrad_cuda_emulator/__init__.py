"""A stand-in for the CUDA driver, by which programs for a GPU run and are checked without one.

Only ``libcuda.so.1`` is replaced: whatever calls the driver, pycuda and NVRTC among others, is the
real thing.  The loader has to find the stand-in first, so a program is started with an environment
that says so::

    python -m tangrad_cuda_emulator --devices 2 --races program.py

or, from Python, ``subprocess.run(command, env={**os.environ, **environment(devices=2)})``.
"""

from __future__ import annotations

from tangrad_cuda_emulator.control import (
    Traffic,
    allocations,
    called,
    calls,
    fail,
    is_running,
    last_fault,
    traffic,
    watch_races,
)
from tangrad_cuda_emulator.settings import environment, library_folder

__all__ = [
    "Traffic",
    "allocations",
    "called",
    "calls",
    "environment",
    "fail",
    "is_running",
    "last_fault",
    "library_folder",
    "traffic",
    "watch_races",
]
