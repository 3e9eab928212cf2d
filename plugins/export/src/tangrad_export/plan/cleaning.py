"""Steps that are not needed, norms folded into convolutions, and rectifiers joined to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tangrad_export.program.buffers import Buffer
from tangrad_export.steps.base import Step
from tangrad_export.steps.control_flow import Else, EndBranch, If, runs_of
from tangrad_export.steps.layers import Scaled
from tangrad_export.steps.loops import Loop
from tangrad_export.steps.products import Convolution

__all__ = ["fold_norms", "join_rectifiers", "without_unused"]


def without_unused(steps: list[Step], results: set[Buffer]) -> list[Step]:
    """Return the steps without those whose results nothing reads, and without empty branches."""
    kept = _needed(steps, results)
    while len(shorter := _without_empty_branches(kept)) < len(kept):
        kept = _needed(shorter, results)
    return kept


def _without_empty_branches(steps: list[Step]) -> list[Step]:
    kept: list[Step] = []
    for step in steps:
        if isinstance(step, EndBranch):
            if kept and isinstance(kept[-1], Else):
                kept.pop()
            if kept and isinstance(kept[-1], If):
                kept.pop()
                continue
        kept.append(step)
    return kept


def _needed(steps: list[Step], results: set[Buffer]) -> list[Step]:
    needed = set(results)
    kept = []
    for step in reversed(steps):
        written = step.written_buffers()
        lasts = any(b.kind != "arena" or b in needed for b in written)
        if written and not lasts:
            continue
        kept.append(step)
        needed |= step.buffers()
    return kept[::-1]


def _users(steps: list[Step]) -> dict[Buffer, list[Step]]:
    found: dict[Buffer, list[Step]] = {}
    for step in steps:
        for buffer in step.buffers():
            found.setdefault(buffer, []).append(step)
    return found


def _same_elements(loop: Loop, buffer: Buffer, given: int = 1) -> bool:
    """Tell whether a loop reads a whole buffer once, as it writes its result."""
    loads = [a for a in loop.body.loads if a.ref.buffer is buffer]
    if len(loads) != given or len(loop.stores) != 1:
        return False
    store = loop.stores[0][0]
    return loads[0].strides == store.strides and loads[0].ref.offset == store.ref.offset == 0


def fold_norms(steps: list[Step], results: set[Buffer], constant: Any) -> list[Step]:
    """Return the steps with norms by known statistics folded into the convolutions before them.

    Args:
        steps: in their order; convolutions are changed.
        results: buffers that the caller sees.
        constant: makes a constant of an array, and returns its place.
    """
    users, runs, gone = _users(steps), runs_of(steps), set()
    for step in steps:
        if not isinstance(step, Convolution):
            continue
        y, _, w, bias, _ = step.refs
        assert y is not None
        assert w is not None
        following = [s for s in users[y.buffer] if s is not step]
        if y.buffer in results or len(following) != 1 or y.offset:
            continue
        norm = following[0]
        if runs[id(norm)] != runs[id(step)]:
            continue
        if not isinstance(norm, Scaled) or not _same_elements(norm, y.buffer):
            continue
        if w.buffer.kind != "weight" or (bias is not None and bias.buffer.kind != "weight"):
            continue
        own = w.buffer.value.detach().contiguous().numpy().astype(np.float64)
        shift = norm.shift
        if bias is not None:
            shift = shift + norm.scale * bias.buffer.value.detach().numpy().astype(np.float64)
        scaled = own * norm.scale.reshape(-1, *[1] * (own.ndim - 1))
        step.refs[2] = constant(scaled.astype(np.float32), f"{w.buffer.name} with its norm")
        step.refs[3] = constant(shift.astype(np.float32), f"{w.buffer.name}: shift of its norm")
        step.refs[0] = norm.stores[0][0].ref
        gone.add(id(norm))
    return [s for s in steps if id(s) not in gone]


def join_rectifiers(steps: list[Step], results: set[Buffer]) -> list[Step]:
    """Return the steps with rectifiers joined to the convolutions before them."""
    users, runs, gone = _users(steps), runs_of(steps), set()
    for step in steps:
        if not isinstance(step, Convolution):
            continue
        y = step.refs[0]
        assert y is not None
        following = [s for s in users[y.buffer] if s is not step]
        if y.buffer in results or len(following) != 1 or y.offset:
            continue
        loop = following[0]
        if runs[id(loop)] != runs[id(step)]:
            continue
        if type(loop) is not Loop or not _same_elements(loop, y.buffer):
            continue
        if [e.function.title for e in loop.body.evaluations] != ["relu"] or loop.refs[0] is None:
            continue
        if loop.refs[0].dtype != "float32":
            continue
        step.refs[0] = loop.stores[0][0].ref
        step.numbers[-1] = 1
        gone.add(id(loop))
    return [s for s in steps if id(s) not in gone]
