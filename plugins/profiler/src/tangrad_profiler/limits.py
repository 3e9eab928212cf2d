"""What this machine can do at best: measured, not looked up."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import tangrad

_SIZES = (1 << 14, 1 << 18, 1 << 21, 1 << 25)  # bytes that a pass over memory touches


class Limits(NamedTuple):
    """Limits of the host's device, with the threads that it has now.

    Attributes:
        flops: floating-point operations in a second, of a large float32 product.
        bandwidth: [(bytes touched, bytes in a second)], for ever larger memory.
        call: seconds that a small call takes.
    """

    flops: float
    bandwidth: tuple[tuple[int, float], ...]
    call: float

    def bandwidth_of(self, nbytes: float) -> float:
        """Return the bytes in a second at which so many bytes may pass."""
        return next(
            (rate for size, rate in self.bandwidth if nbytes <= size), self.bandwidth[-1][1]
        )

    def seconds(self, flops: float, nbytes: float) -> float:
        """Return the least time for so many operations and bytes."""
        return max(flops / self.flops, nbytes / self.bandwidth_of(nbytes))


def _best(work: Callable[[], Any], least: float = 0.02) -> float:
    """Return the shortest of several times of a call, in seconds."""
    work()
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < least:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


@cache
def limits() -> Limits:
    """Measure this machine, in a third of a second; once in a process."""
    with tangrad.no_grad():
        a = tangrad.ones(768, 768)
        c = tangrad.empty(768, 768)
        flops = 2 * 768**3 / _best(lambda: tangrad.mm(a, a, out=c), 0.1)
        rates = []
        for nbytes in _SIZES:
            x = tangrad.ones(nbytes // 8)  # half is read, half is written
            y = tangrad.empty_like(x)
            rates.append((nbytes, nbytes / _best(partial(tangrad.neg, x, out=y))))
        small = tangrad.ones(4)
        call = _best(lambda: [tangrad.neg(small) for _ in range(100)]) / 100
    # A larger memory is never the faster one: measurements are noisy.
    falling = [(size, max(rate for _, rate in rates[k:])) for k, (size, _) in enumerate(rates)]
    return Limits(flops, tuple(falling), call)
