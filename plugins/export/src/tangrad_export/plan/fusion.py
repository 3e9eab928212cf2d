"""Loops that are joined: pointwise ops over the same elements become one body."""

from __future__ import annotations

from typing import Any

from tangrad_export.program.buffers import Buffer
from tangrad_export.steps.base import Step
from tangrad_export.steps.control_flow import Marker
from tangrad_export.steps.folds import Reduction
from tangrad_export.steps.loops import Access, Body, Evaluation, Loop
from tangrad_export.steps.reports import Guard

__all__ = ["fuse"]

_MOST = 24


def fuse(steps: list[Step], results: set[Buffer]) -> list[Step]:
    """Return the steps with loops joined to those that use what they compute.

    A loop joins the next one that reads its result, where both go over the same elements in the
    same way, nothing in between uses what they write, no branch or loop begins or ends in between,
    and the body stays short. A copy of what an op computes then counts as that op.

    Args:
        steps: in their order; loops are changed.
        results: buffers that the caller sees.
    """
    made = list(steps)
    users: dict[Buffer, list[int]] = {}
    for k, step in enumerate(made):
        for buffer in step.buffers():
            users.setdefault(buffer, []).append(k)
    gone: set[int] = set()
    for k, step in enumerate(made):
        if not isinstance(step, Loop) or len(step.stores) != 1:
            continue
        access, evaluation, result = step.stores[0]
        buffer = access.ref.buffer
        if buffer.kind != "arena" or buffer in results or users[buffer][0] != k:
            continue
        later = [j for j in users[buffer] if j > k]
        if len(later) != 1:
            continue
        user = made[later[0]]
        between = [made[j] for j in range(k + 1, later[0]) if j not in gone]
        reads = step.read_buffers()
        if any(isinstance(other, Marker) for other in between):
            continue
        if any(other.written_buffers() & reads for other in between):
            continue
        if step.errors is not None and any(isinstance(other, Guard) for other in between):
            continue
        if user.written_buffers() & reads and not isinstance(user, Loop):
            continue
        if not _joined(step, access, evaluation, result, user):
            continue
        gone.add(k)
        for read in reads:
            users[read] = sorted({later[0] if j == k else j for j in users[read]})
    return [step for k, step in enumerate(made) if k not in gone]


def _joined(first: Loop, access: Access, evaluation: Evaluation, result: int, user: Step) -> bool:
    """Put the body of a loop in front of that of its user; return whether it could be."""
    if isinstance(user, Loop):
        return _into_loop(first, access, evaluation, result, user)
    if isinstance(user, Reduction):
        return _into_reduction(first, access, evaluation, result, user)
    return False


def _replaced(body: Body, access: Access, value: tuple[Any, ...]) -> None:
    for evaluation in body.evaluations:
        evaluation.inputs = [
            value if given[0] == "load" and given[1] == access else given
            for given in evaluation.inputs
        ]


def _into_loop(
    first: Loop, access: Access, evaluation: Evaluation, result: int, user: Loop
) -> bool:
    if first.shape != user.shape or first.body.indexed or user.body.indexed:
        return False
    if len(first.body.evaluations) + len(user.body.evaluations) > _MOST:
        return False
    loads = [a for a in user.body.loads if a.ref.buffer is access.ref.buffer]
    if loads != [access] or any(s[0].ref.buffer is access.ref.buffer for s in user.stores):
        return False
    # What the user writes may be read by the first in another order only if it is at one place.
    for store, _, _ in user.stores:
        for load in first.body.loads:
            if load.ref.buffer is store.ref.buffer and load != store:
                return False
    if [e.function.title for e in user.body.evaluations] == ["copy"]:
        user.title, user.origin = first.title, first.origin
    _replaced(user.body, access, ("value", evaluation, result))
    user.body.evaluations[:0] = first.body.evaluations
    user.errors = user.errors or first.errors
    user.settle()
    return True


def _into_reduction(
    first: Loop, access: Access, evaluation: Evaluation, result: int, user: Reduction
) -> bool:
    if first.body.indexed or first.body.divides or len(first.body.evaluations) > _MOST // 2:
        return False
    loads = [a for a in user.accesses() if a.ref.buffer is access.ref.buffer]
    if len(loads) != 1:
        return False
    load = loads[0]
    order = _order(first.shape, access.strides, (*user.kept, *user.folded), load.strides)
    if order is None or load.ref != access.ref:
        return False
    moved: dict[Access, Access] = {}
    for own in first.body.loads:
        moved[own] = Access(own.ref, tuple(0 if d is None else own.strides[d] for d in order))
    for part in first.body.evaluations:
        part.inputs = [
            ("load", moved[given[1]]) if given[0] == "load" else given for given in part.inputs
        ]
    if isinstance(user.element, Access):
        user.element = (evaluation, result)
    else:
        _replaced(user.body, load, ("value", evaluation, result))
    user.body.evaluations[:0] = first.body.evaluations
    user.settle()
    return True


def _order(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...], steps: Any
) -> list[int | None] | None:
    """Return which dimension of a loop each dimension of another is, by sizes and strides."""
    own = {}
    for d, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if size != 1:
            if (size, stride) in own or stride == 0:
                return None
            own[size, stride] = d
    found: list[int | None] = []
    for size, stride in zip(wanted, steps, strict=True):
        if size == 1:
            found.append(None)
        elif (size, stride) in own:
            found.append(own.pop((size, stride)))
        else:
            return None
    return None if own else found
