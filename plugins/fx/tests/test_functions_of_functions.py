"""`scan`, `associative_scan` and `map`: as PyTorch's, with derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import _fake_associative_scan
from torch._higher_order_ops.scan import _fake_scan

import tangrad
from tangrad._higher_order_ops import associative_scan, cond, map, scan, while_loop


def same(got: Any, expected: Any) -> None:
    """Assert that nested results are equal."""
    pairs = zip(
        tangrad.utils._pytree.tree_leaves(got),
        torch.utils._pytree.tree_leaves(expected),
        strict=True,
    )
    for ours, theirs in pairs:
        tangrad.testing.assert_close(ours, tangrad.from_numpy(theirs.numpy()))


def step(carried, x):  # type: ignore[no-untyped-def]
    return {"sum": carried["sum"] + x[0]}, (carried["sum"] * x[1], x[0].sum())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_scan_carries_and_stacks_as_pytorchs(dim: int, reverse: bool) -> None:
    xs = torch.randn(3, 3), torch.randn(3, 3)
    expected = _fake_scan(step, {"sum": torch.zeros(3)}, xs, dim, reverse)
    given = tuple(tangrad.from_numpy(x.numpy()) for x in xs)
    same(scan(step, {"sum": tangrad.zeros(3)}, given, dim=dim, reverse=reverse), expected)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("mode", ["pointwise", "generic"])
def test_an_associative_scan_gives_running_results(mode: str, length: int, reverse: bool) -> None:
    def affine(a, b):  # type: ignore[no-untyped-def]
        return {"gain": a["gain"] * b["gain"], "shift": a["shift"] * b["gain"] + b["shift"]}

    xs = {"gain": torch.rand(2, length), "shift": torch.rand(2, length)}
    given = {name: tangrad.from_numpy(x.numpy()) for name, x in xs.items()}
    expected = _fake_associative_scan(affine, xs, 1, reverse)
    same(associative_scan(affine, given, 1, reverse, combine_mode=mode), expected)


def test_a_generic_function_gets_whole_slices() -> None:
    matrices = tangrad.rand(5, 2, 2)
    found = associative_scan(lambda a, b: a @ b, matrices, 0, combine_mode="generic")
    expected = tangrad.linalg.multi_dot(list(matrices))
    tangrad.testing.assert_close(found[-1], expected)


def test_a_map_stacks_what_the_function_makes_of_slices() -> None:
    x, y = tangrad.rand(3, 2), tangrad.rand(2)
    found = map(lambda row, y: {"sum": row + y, "dot": row @ y}, x, y)
    tangrad.testing.assert_close(found["sum"], x + y)
    tangrad.testing.assert_close(found["dot"], x @ y)


def test_loops_have_derivatives() -> None:
    x = tangrad.rand(4, 3, dtype=tangrad.float64, requires_grad=True)
    start = tangrad.rand(3, dtype=tangrad.float64, requires_grad=True)

    def loops(start, x):  # type: ignore[no-untyped-def]
        last, all_ = scan(lambda c, row: (c * row, c.sin()), start, x)
        return last, all_, associative_scan(lambda a, b: a * b, x, 0), map(tangrad.exp, x)

    assert tangrad.autograd.gradcheck(loops, (start, x))


def test_branches_and_loops_of_the_core_are_there_too() -> None:
    from tangrad._higher_order_ops.while_loop import while_loop as by_module

    assert (cond, while_loop) == (tangrad.cond, tangrad.while_loop)
    assert by_module is while_loop


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: scan(None, x, x), "expected a function"),
        (lambda x: scan(lambda c, r: (c, r), x[0], x, dim=2), "need dimension 2"),
        (lambda x: scan(lambda c, r: (c.sum(), r), x[0], x), "carry on what it is given"),
        (lambda x: scan(lambda c, r: (c, r), [], x), "init must hold tensors"),
        (lambda x: scan(lambda c, r: (c, r), x[0], (x, x[:1])), "same number of slices"),
        (lambda x: map(tangrad.exp, x[:0]), "not 0"),
        (lambda x: associative_scan(lambda a, b: (a, b), x, 0), "nest its result"),
    ],
)
def test_bad_arguments_are_named(call: Any, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        call(tangrad.ones(2, 2))
