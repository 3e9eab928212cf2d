"""Level 8: the device's kernels against what the device itself can do, measured in one run.

The peak of memory is that of its own copies (bytes read and written), the peak of arithmetic that
of its best product of matrices. Nothing fails by being slow: the figures are the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import tangrad
from tangrad_testing.levels.check import Check, Device, NotApplicable
from tangrad_testing.levels.kernels import own_kernels

ELEMENTS = 2**20
SIDES = (128, 256, 512)
SECONDS = 0.15
# Ops by how they are measured: (calls on x, y; how many tensors are read and written).
STREAMING: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "add_plain": (lambda x, y: x + y, 3),
    "mul": (lambda x, y: x * y, 3),
    "exp": (lambda x, y: x.exp(), 2),
    "tanh": (lambda x, y: x.tanh(), 2),
    "relu": (lambda x, y: x.relu(), 2),
    "where": (lambda x, y: tangrad.where(x > 0, x, y), 3),
    "sum": (lambda x, y: x.sum(), 1),
    "mean": (lambda x, y: x.mean(), 1),
    "amax": (lambda x, y: x.view(1024, -1).amax(1), 1),
    "argmax": (lambda x, y: x.view(1024, -1).argmax(1), 1),
    "cumsum": (lambda x, y: x.view(1024, -1).cumsum(1), 2),
    "_softmax": (lambda x, y: x.view(1024, -1).softmax(1), 2),
}


@dataclass(frozen=True)
class Figure:
    """How fast one op is.

    Attributes:
        op: what was measured.
        rate: how much in a second.
        unit: of what.
        share: of the device's own peak.
    """

    op: str
    rate: float
    unit: str
    share: float


def checks(device: Device) -> Iterator[Check]:
    """Yield the one check of this level."""
    if not device.driver.meta:
        yield Check(8, "speed", "its kernels are measured against its own peak", partial(measured))


def measured(device: Device) -> None:
    """Measure, to see that it can be done.

    Raises:
        NotApplicable: the device has no kernels to measure.
    """
    if not figures(device):
        raise NotApplicable("it has no kernel that this level measures")


def figures(device: Device) -> list[Figure]:
    """Measure the device's own kernels in float32; the slowest, by share of the peak, first."""
    own = {op for op, dtypes in own_kernels(device).items() if "float32" in dtypes}
    found = []
    streaming = {op: how for op, how in STREAMING.items() if op in own}
    if streaming:
        x, y = (tangrad.rand(ELEMENTS).to(device.name) for _ in range(2))
        target = tangrad.empty_like(x)
        peak = 8 * ELEMENTS / seconds(device, lambda: target.copy_(x))
        for op, (call, passes) in streaming.items():
            rate = 4 * passes * ELEMENTS / seconds(device, partial(call, x, y))
            found.append(Figure(op, rate / 1e9, "GB/s", rate / peak))
    if "mm" in own:
        rates = {}
        for side in SIDES:
            a = tangrad.rand(side, side).to(device.name)
            rates[side] = 2 * side**3 / seconds(device, partial(tangrad.mm, a, a))
        best = max(rates.values())
        found += [
            Figure(f"mm {side}x{side}", rate / 1e9, "GFLOP/s", rate / best)
            for side, rate in rates.items()
        ]
    return sorted(found, key=lambda figure: figure.share)


def seconds(device: Device, call: Callable[[], Any]) -> float:
    """Return the least time of a call among several, with the wait for it."""
    best, started = float("inf"), time.perf_counter()
    while True:
        device.driver.synchronize()
        before = time.perf_counter()
        call()
        device.driver.synchronize()
        after = time.perf_counter()
        best = min(best, after - before)
        if after - started > SECONDS:
            return best
