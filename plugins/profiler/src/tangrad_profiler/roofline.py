"""Each op against what the machine would allow: operations, bytes, and time at the limit."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tangrad_profiler.flops import flops_of
from tangrad_profiler.limits import Limits
from tangrad_profiler.trace import OP, Trace

_SIZE = {
    "float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "float16": 2, "bfloat16": 2,
    "int16": 2, "uint8": 1, "int8": 1, "bool": 1,
}  # fmt: skip


class Point(NamedTuple):
    """All calls of one op with arguments of the same shapes.

    Attributes:
        name, shapes, calls: which calls, and how many.
        seconds: their own time. flops, nbytes: of one call.
        least: seconds of one call at the machine's limit.
    """

    name: str
    shapes: str
    calls: int
    seconds: float
    flops: int
    nbytes: int
    least: float

    @property
    def share(self) -> float:
        """How much of the limit is reached; 1 is all."""
        return self.least * self.calls / self.seconds if self.seconds else 0.0

    @property
    def lost(self) -> float:
        """Seconds above the limit."""
        return max(0.0, self.seconds - self.least * self.calls)


@cache
def kind_of(name: str) -> str:
    """Return an op's kind ("pointwise", "reduction", ...), "" for what is no op.

    A fused derivative is of the kind of what it derives; an op with several forms of that of one.
    """
    from tangrad.plugin import find_op, has_op

    for plain in (name, name.removesuffix("_"), name.removesuffix("_backward")):
        if has_op(plain):
            op = find_op(plain)
            kinds = [member.kind for member in op.definition.members or ()]
            return "pointwise" if "pointwise" in kinds else str(op.kind)
    return ""


def work_of(name: str, signature: tuple[Any, ...]) -> tuple[int, int]:
    """Return (operations, bytes) of a call, from the shapes of its arguments; zeros if unknown.

    Known are ops that go by elements, folds, and what has a formula of operations. Bytes are those
    of all tensor arguments and of a result, which is as large as the largest of them in ops that go
    by elements, (rows, columns) in products, and next to nothing in folds.
    """
    shapes, dtypes, _ = signature
    tensors = [(s, d) for s, d in zip(shapes, dtypes, strict=False) if d]
    flat: list[tuple[list[int], str]] = []
    for shape, dtype in tensors:
        flat += (
            [(s, dtype) for s in shape]
            if shape and isinstance(shape[0], list)
            else [(shape, dtype)]
        )
    flops = flops_of(name, signature)
    kind = kind_of(name)
    if not flat or not (flops or kind in ("pointwise", "reduction")):
        return 0, 0
    read = sum(prod(s) * _SIZE.get(d, 4) for s, d in flat)
    largest = max(prod(s) * _SIZE.get(d, 4) for s, d in flat)
    elements = max(prod(s) for s, _ in flat)
    if kind == "reduction":
        return flops or elements, read
    if name in ("mm", "bmm", "addmm", "linear", "mv") and flops:
        first = flat[1][0] if name == "addmm" else flat[0][0]
        inner = max(first[-1], 1)
        return flops, read + flops // (2 * inner) * 4
    return flops or elements, read + largest


def roofline(trace: Trace, limits: Limits) -> list[Point]:
    """Return the points of a trace that has shapes, those that lose most first."""
    e = trace.events
    chosen = np.flatnonzero((e["kind"] == OP) & (e["signature"] >= 0))
    if not len(chosen):
        return []
    keys = e["name"][chosen] * len(trace.signatures) + e["signature"][chosen]
    found, group = np.unique(keys, return_inverse=True)
    own = np.bincount(group, trace.own[chosen])
    counts = np.bincount(group)
    points = []
    for g, key in enumerate(found.tolist()):
        name, number = trace.names[key // len(trace.signatures)], key % len(trace.signatures)
        signature = trace.signatures[number]
        flops, nbytes = work_of(name, signature)
        if nbytes:
            shapes = " ".join(str(s) for s, d in zip(*signature[:2], strict=False) if d)
            least = limits.seconds(flops, nbytes)
            points.append(Point(name, shapes, int(counts[g]), own[g] / 1e9, flops, nbytes, least))
    return sorted(points, key=lambda p: -p.lost)
