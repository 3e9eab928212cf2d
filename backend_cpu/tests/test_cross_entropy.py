"""Cross entropy in one call: the values and gradients of log-softmax and its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.nn import functional as F
from tangrad.plugin import pop_observer, push_observer
from tangrad_cpu import _kernels

TOLERANCE = {"float32": 2e-6, "float64": 1e-14}


def drawn(seed: int, dtype: str, rows: int, classes: int, layout: str = "rows") -> Any:
    numbers = 4 * np.random.default_rng(seed).standard_normal((classes, 2 * rows)).astype(dtype)
    if layout == "columns":
        return tangrad.from_numpy(numbers[:, :rows].copy()).t()
    x = tangrad.from_numpy(numbers.reshape(2 * rows, classes).copy())
    return x[:rows] if layout == "rows" else x[::2]


def classes_of(seed: int, rows: int, classes: int, ignored: float, step: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    found = np.where(rng.random(rows * step) < ignored, -100, rng.integers(0, classes, rows * step))
    return tangrad.from_numpy(found)[::step]


def both(library: Any, scores: Any, target: Any, reduction: str) -> list[Any]:
    """Return the loss and its gradient by the scores."""
    x = scores.detach().requires_grad_()
    loss = library.nn.functional.cross_entropy(x, target, reduction=reduction)
    return [loss.detach(), *library.autograd.grad(loss, [x])]


def close(got: Any, expected: Any, dtype: str) -> None:
    want = np.asarray(expected)
    size = TOLERANCE[dtype] * (1 + np.abs(want[np.isfinite(want)]).max(initial=0))
    np.testing.assert_allclose(np.asarray(got), want, rtol=TOLERANCE[dtype], atol=size)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([1, 2, 8, 17, 700]),
    st.sampled_from([1, 2, 10, 15, 16, 17, 33, 1000]),
    st.sampled_from(sorted(TOLERANCE)),
    st.sampled_from(["rows", "columns", "strided"]),
    st.sampled_from(["mean", "sum"]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([1, 2]),
)
def test_values_and_gradients_are_pytorchs(
    rows: int, classes: int, dtype: str, layout: str, reduction: str, ignored: float, step: int
) -> None:
    x, target = (
        drawn(rows, dtype, rows, classes, layout),
        classes_of(1, rows, classes, ignored, step),
    )
    got = both(tangrad, x, target, reduction)
    wide = torch.from_numpy(x.numpy().astype("float64"))
    expected = both(torch, wide, torch.from_numpy(target.numpy()), reduction)
    for found, want in zip(got, expected, strict=True):
        close(found, want, dtype)


class Watch:
    def __init__(self) -> None:
        self.names: list[str] = []

    def enter_call(self, op: Any, args: Any) -> None:
        self.names.append(op.name)

    def leave_call(self, op: Any, token: Any, result: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("options", "dtype", "one"),
    [
        ({}, "float32", True),
        ({"ignore_index": 3, "reduction": "sum"}, "float64", True),
        ({"reduction": "none"}, "float32", True),
        ({"label_smoothing": 0.1}, "float32", False),
        ({"weight": tangrad.ones(10)}, "float32", False),
        ({}, "bfloat16", False),
    ],
)
def test_the_usual_call_is_one_op(options: Any, dtype: str, one: bool) -> None:
    x, target = drawn(0, "float32", 8, 10).to(getattr(tangrad, dtype)), classes_of(0, 8, 10, 0)
    watch = Watch()
    push_observer(watch)
    try:
        F.cross_entropy(x, target, **options)
    finally:
        pop_observer(watch)
    assert ("cross_entropy_elements" in watch.names) is one
    assert ("_log_softmax" in watch.names) is not one


def parts(scores: Any, target: Any, reduction: str, ignored: int = -100) -> list[Any]:
    """Return the loss and its gradient as the ops make them that what records calls is shown."""
    x = scores.detach().requires_grad_()
    loss = F.nll_loss(x.log_softmax(1), target, reduction=reduction, ignore_index=ignored)
    return [loss.detach(), *tangrad.autograd.grad(loss, [x], tangrad.ones_like(loss))]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([1, 3, 64, 300]),
    st.one_of(st.integers(1, 80), st.sampled_from([1000, 1024, 1039, 1040, 1041, 2063, 4096])),
    st.sampled_from(sorted(TOLERANCE)),
    st.sampled_from(["rows", "columns", "strided"]),
    st.sampled_from(["mean", "sum", "none"]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.booleans(),
)
def test_values_and_gradients_are_those_of_the_parts_to_the_bit(
    rows: int,
    classes: int,
    dtype: str,
    layout: str,
    reduction: str,
    ignored: float,
    strange: bool,
) -> None:
    x, target = drawn(7, dtype, rows, classes, layout), classes_of(8, rows, classes, ignored)
    if strange:
        x[:, classes // 2] = float("-inf")
        x[0, 0] = float("nan")
    got = [y.numpy().tobytes() for y in one_call(x, target, reduction)]
    assert got == [y.numpy().tobytes() for y in parts(x, target, reduction)]


def one_call(scores: Any, target: Any, reduction: str) -> list[Any]:
    """Return the loss and its gradient."""
    x = scores.detach().requires_grad_()
    loss = F.cross_entropy(x, target, reduction=reduction)
    return [loss.detach(), *tangrad.autograd.grad(loss, [x], tangrad.ones_like(loss))]


def test_a_large_gradient_is_that_of_the_parts_to_the_bit() -> None:
    x, target = drawn(9, "float32", 90, 32_768), classes_of(9, 90, 32_768, 0.1)
    got = [y.numpy().tobytes() for y in one_call(x, target, "mean")]
    assert got == [y.numpy().tobytes() for y in parts(x, target, "mean")]


def test_second_derivatives_are_pytorchs() -> None:
    x, target = drawn(3, "float64", 6, 5), classes_of(3, 6, 5, 0.3)
    found = []
    for library, scores, chosen in (
        (tangrad, x, target),
        (torch, torch.from_numpy(x.numpy()), torch.from_numpy(target.numpy())),
    ):
        leaf = scores.detach().requires_grad_()
        loss = library.nn.functional.cross_entropy(leaf * leaf, chosen)
        (first,) = library.autograd.grad(loss, [leaf], create_graph=True)
        found.append(library.autograd.grad((first**2).sum(), [leaf])[0])
    close(found[0], found[1], "float64")


def test_a_row_of_infinities_gives_what_pytorch_gives() -> None:
    x = np.array([[0.0, -np.inf, 1.0], [np.inf, 0.0, 1.0], [-np.inf] * 3], "float32")
    for target in ([0, 1, 2], [1, -100, -100], [0, -100, 0]):
        chosen = np.array(target)
        got = both(tangrad, tangrad.from_numpy(x), tangrad.from_numpy(chosen), "mean")
        expected = both(torch, torch.from_numpy(x), torch.from_numpy(chosen), "mean")
        for found, want in zip(got, expected, strict=True):
            np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-6)


@pytest.mark.parametrize("wrong", [10, -1])
def test_a_class_that_does_not_exist_is_refused(wrong: int) -> None:
    target = tangrad.tensor([0, wrong, 3])
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
        F.cross_entropy(tangrad.zeros(3, 10), target)
    with pytest.raises(ValueError, match="batch_size"):
        F.cross_entropy(tangrad.zeros(3, 10), target[:2])


@pytest.mark.parametrize("shape", [(40_000, 33), (300, 32_768), (7, 50_257)])
def test_results_do_not_depend_on_the_number_of_threads(shape: tuple[int, int]) -> None:
    before = tangrad.get_num_threads()
    x, target = drawn(4, "float32", *shape), classes_of(4, *shape, 0.1)
    found = []
    try:
        for threads in (1, 4):
            tangrad.set_num_threads(threads)
            found.append([y.numpy().tobytes() for y in both(tangrad, x, target, "mean")])
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1]


def test_missing_working_memory_is_an_error() -> None:
    x, target = drawn(5, "float32", 40, 9, "columns")[::2], classes_of(5, 20, 9, 0)
    expected = F.cross_entropy(x, target)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="working space"):
            F.cross_entropy(x, target)
    finally:
        _kernels.fail_scratch_after(-1)
    assert F.cross_entropy(x, target) == expected
