"""Writes in place beside a checkpoint meet the gradients of PyTorch, or its refusal."""

from __future__ import annotations

from importlib import import_module

import pytest

WRITTEN = "modified by an inplace operation"
VIEWED = ("being modified inplace", "has been modified inplace")


def outcome(compute):
    """Return numbers, or that a program was refused because of a write."""
    try:
        return [g if g is None else g.tolist() for g in compute()]
    except RuntimeError as error:
        if not any(reason in str(error) for reason in (WRITTEN, *VIEWED)):
            raise
        return "refused"


def checkpointed(t, function, *args, **kwargs):
    run = import_module(f"{t.__name__}.utils.checkpoint").checkpoint
    return run(function, *args, use_reentrant=False, **kwargs)


@pytest.mark.parametrize("written", ["input", "input without gradient", "leaf", "inside", "output"])
def test_write_beside_a_checkpoint(agree, written):
    def program(t):
        x = t.tensor([1.0, 2.0], requires_grad=True)
        a, b = x * 1, t.ones(2)

        def square(p, q):
            if written == "inside":
                p = p.mul_(2)
            return (p * q).sin()

        y = checkpointed(t, square, x if written == "leaf" else a, b)
        with t.no_grad():
            target = {"leaf": x, "input": a, "input without gradient": b, "output": y}
            target.get(written, t.ones(2)).add_(1)
        return outcome(lambda: t.autograd.grad(y.sum(), x))

    agree(program)


def test_checkpoint_in_a_checkpoint_keeps_no_argument(agree):
    def program(t):
        x = t.tensor([1.0, 2.0], requires_grad=True)
        kept = []

        def count(value):
            kept.append(1)
            return value

        def outer(a):
            return checkpointed(t, lambda b: b.sin().exp(), a * 2) * 3

        with t.autograd.graph.saved_tensors_hooks(count, lambda value: value):
            y = checkpointed(t, outer, x)
        return len(kept), outcome(lambda: t.autograd.grad(y.sum(), x))

    agree(program)
