"""Ask the emulator that this process runs on, and tell it what shall go wrong."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache


@cache
def _library() -> ctypes.CDLL | None:
    try:
        found = ctypes.CDLL("libcuda.so.1")
        found.tangrad_emulator_calls.restype = ctypes.c_ulonglong
        found.tangrad_emulator_allocations.restype = ctypes.c_ulonglong
        found.tangrad_emulator_last_fault.restype = ctypes.c_char_p
        found.tangrad_emulator_called.restype = ctypes.c_char_p
    except (OSError, AttributeError):
        return None
    return found


def _running() -> ctypes.CDLL:
    found = _library()
    if found is None:
        raise RuntimeError(
            "this process does not run on the emulator; start it by `python -m "
            "tangrad_cuda_emulator`, or with the variables of tangrad_cuda_emulator.environment()"
        )
    return found


def is_running() -> bool:
    """Say whether the driver library of this process is the emulator's."""
    return _library() is not None


def fail(what: str = "") -> None:
    """Have calls of the driver fail from now on; what was told before no longer holds.

    Args:
        what: ``NAME:N`` for the N-th call from now, ``NAME:N+`` for it and all later ones, with
            ``:CODE`` for an error other than the usual of that function; several are parted by
            commas; nothing ends all failures.

    Raises:
        ValueError: `what` is none of these.
        RuntimeError: this process does not run on the emulator.
    """
    if not _running().tangrad_emulator_fail(what.encode()):
        raise ValueError(
            f"{what!r}: calls that shall fail are written NAME:N, NAME:N+ or NAME:N:CODE"
        )


def calls(function: str) -> int:
    """Return how often a function of the driver was called, since ``fail`` was called if it was.

    Args:
        function: its name as ``cuda.h`` has it, such as "cuLaunchKernel".

    Raises:
        RuntimeError: this process does not run on the emulator.
    """
    return int(_running().tangrad_emulator_calls(function.encode()))


def called() -> dict[str, int]:
    """Return how often each function of the driver was called that was, as `calls` tells of one.

    Raises:
        RuntimeError: this process does not run on the emulator.
    """
    text: bytes = _running().tangrad_emulator_called()
    pairs = (line.split() for line in text.decode().splitlines())
    return {function: int(times) for function, times in pairs}


def allocations() -> int:
    """Return how many pieces of memory the driver holds or knows, pinned memory included.

    Raises:
        RuntimeError: this process does not run on the emulator.
    """
    return int(_running().tangrad_emulator_allocations())


def watch_races(watch: bool = True) -> None:
    """Have kernels that are interpreted fail where threads of theirs race, or no longer.

    Raises:
        RuntimeError: this process does not run on the emulator.
    """
    _running().tangrad_emulator_races(int(watch))


@dataclass(frozen=True)
class Traffic:
    """Tell what requests of warps for memory cost.

    Attributes:
        requests: how many there were.
        sectors: pieces of 32 bytes that they touched, each request by itself.
        ideal: what as many bytes without a gap would have touched.
    """

    requests: int
    sectors: int
    ideal: int


def traffic(kernel: str) -> tuple[Traffic, Traffic]:
    """Return what all launches of a kernel that was interpreted loaded and stored so far.

    Args:
        kernel: its name.

    Raises:
        KeyError: no kernel of that name has run in the interpreter.
        RuntimeError: this process does not run on the emulator.
    """
    counts = (ctypes.c_ulonglong * 6)()
    if not _running().tangrad_emulator_traffic(kernel.encode(), counts):
        raise KeyError(f"no kernel {kernel!r} has run in the interpreter (engine='ptx')")
    return Traffic(*counts[:3]), Traffic(*counts[3:])


def last_fault() -> str:
    """Return what was wrong with the kernel or the image that failed last; "" when none did.

    Raises:
        RuntimeError: this process does not run on the emulator.
    """
    said: bytes = _running().tangrad_emulator_last_fault()
    return said.decode("utf-8", "replace")
