"""Branches and loops of a step of training: computed forward, and once more on the way back.

Nothing is kept for the way back but what goes in, since how much a loop would keep is known when it
runs. A branch takes its side again, with the derivative behind it. A loop goes back round by round,
and computes the values of each round from the first ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad_export.program.control_flow import Inside, branch, loop, rounds
from tangrad_export.steps.control_flow import Else, EndBranch, If

__all__ = ["differentiated"]

Runner = Any  # of `training.py`, which asks here


def differentiated(runner: Runner, node: Any) -> tuple[Tensor, ...]:
    """Add a branch or a loop whose derivative can be added later, and return its results.

    Args:
        runner: of the graph around it.
        node: the call.

    Raises:
        ExportError: it has something that cannot be written.
    """
    call, *parts = runner.parts_of(node)
    if call is branch:
        pred, true, false, operands = parts
        found = _Branch.apply(runner, pred, true, false, *operands)
    else:
        condition, body, carried, additional = parts
        found = _Loop.apply(runner, condition, body, len(carried), *carried, *additional)
    made: tuple[Tensor, ...] = found if isinstance(found, tuple) else (found,)
    return made


def _leaves(operands: Sequence[Any], needed: Sequence[bool]) -> list[Any]:
    """Return operands cut off from what computed them; those that are needed as leaves."""
    return [
        x.detach().requires_grad_(need) if isinstance(x, Tensor) else x
        for x, need in zip(operands, needed, strict=True)
    ]


def _gradients(outputs: Sequence[Any], inputs: Sequence[Any], grads: Sequence[Any]) -> list[Any]:
    """Return the gradients of inputs that require one, given those of outputs."""
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    pairs = [
        (y, g) for y, g in zip(outputs, grads, strict=True) if y.requires_grad and g is not None
    ]
    found: Sequence[Any] = [None] * len(wanted)
    if pairs and wanted:
        ys, gs = zip(*pairs, strict=True)
        found = tangrad.autograd.grad(ys, wanted, gs, allow_unused=True)
    with tangrad.no_grad():
        return [
            tangrad.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)
        ]


def _spread(found: Sequence[Any], needed: Sequence[bool]) -> list[Any]:
    """Return gradients at the places of those that are needed, None elsewhere."""
    rest = iter(found)
    return [next(rest) if need else None for need in needed]


def _mark_whole(ctx: Any, results: Sequence[Tensor]) -> None:
    ctx.mark_non_differentiable(*(t for t in results if not _varies(t)))


def _varies(t: Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


class _Branch(tangrad.autograd.Function):
    @staticmethod
    def forward(ctx: Any, runner: Runner, pred: Any, true: Any, false: Any, *operands: Any) -> Any:
        ctx.parts = runner, pred, true, false, operands
        results = branch(runner, pred, true, false, operands)
        _mark_whole(ctx, results)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        runner, pred, true, false, operands = ctx.parts
        needed = ctx.needs_input_grad[4:]
        inside = Inside(runner, "cond")
        results: list[Tensor] = []
        for marker, graph in ((If([inside.place(pred)]), true), (Else(), false)):
            inside.mark(marker)
            given = _leaves(operands, needed)
            with tangrad.enable_grad():
                outputs = inside.run(graph, given)
            found = _gradients(outputs, given, grads)
            if graph is true:
                results = inside.new(found)
            inside.copy(results, found)
        inside.mark(EndBranch())
        return (None, None, None, None, *_spread(results, needed))


class _Loop(tangrad.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, runner: Runner, condition: Any, body: Any, count: int, *operands: Any
    ) -> Any:
        inside = Inside(runner, "while_loop")
        carried, additional = operands[:count], operands[count:]
        if not any(ctx.needs_input_grad[4:]):
            return loop(runner, condition, body, carried, additional)
        zero = tangrad.zeros((), dtype=tangrad.int64, device="c99")
        taken, *results = rounds(
            inside,
            lambda values: inside.run(condition, [*values[1:], *additional])[0],
            lambda values: [values[0] + 1, *inside.run(body, [*values[1:], *additional])],
            [zero, *carried],
        )
        ctx.parts = runner, body, carried, additional, taken
        _mark_whole(ctx, results)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        runner, body, carried, additional, taken = ctx.parts
        inside = Inside(runner, "while_loop")
        varies = [_varies(t) for t in carried]
        wanted = ctx.needs_input_grad[4 + len(carried) :]
        zero = tangrad.zeros((), dtype=tangrad.int64, device="c99")
        first = [tangrad.zeros_like(x) for x, need in zip(additional, wanted, strict=True) if need]
        behind = [g for g, v in zip(grads, varies, strict=True) if v]

        def back(values: list[Tensor]) -> list[Tensor]:
            before = values[0] - 1
            _, *state = rounds(
                inside,
                lambda at: at[0] < before,
                lambda at: [at[0] + 1, *inside.run(body, [*at[1:], *additional])],
                [zero, *carried],
            )
            given = _leaves([*state, *additional], [*varies, *wanted])
            with tangrad.enable_grad():
                outputs = inside.run(body, given)
            following = _spread(values[1 : 1 + len(behind)], varies)
            found = _gradients(outputs, given, following)
            sums = zip(values[1 + len(behind) :], found[len(behind) :], strict=True)
            return [before, *found[: len(behind)], *(a + b for a, b in sums)]

        with tangrad.no_grad():
            _, *found = rounds(inside, lambda at: at[0] > 0, back, [taken, *behind, *first])
        of_carried = _spread(found[: len(behind)], varies)
        return (None, None, None, None, *of_carried, *_spread(found[len(behind) :], wanted))
