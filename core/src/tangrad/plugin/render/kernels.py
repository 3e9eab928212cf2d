"""What an op computes, for those who make kernels of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tangrad.ops.definition import registry
from tangrad.plugin.render.folds import Fold
from tangrad.plugin.render.pointwise import PointwiseOp, pointwise_ops


def describe(op: Any) -> PointwiseOp | Fold | None:
    """Return what an op computes, as `DeviceDriver.kernel_for` is asked about it.

    Returns:
        None for an op that is neither pointwise nor a reduction nor a scan: its meaning is tensor
        code or a function of NumPy, and its kernel is written by hand.
    """
    if op.kind == "pointwise":
        return PointwiseOp.of(op)
    return Fold(op) if op.kind in ("reduction", "scan") else None


def definitions() -> Iterator[Any]:
    """Yield the definitions of the core's ops, the usual derived ones among them.

    Their `key` and `fingerprint` are what a backend compares that is compiled ahead of time.
    """
    yield from (op.definition for op in registry.load_all().values())
    yield from (described.op.definition for described in pointwise_ops())
