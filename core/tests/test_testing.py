"""`tangrad.testing` against `torch.testing`: the same verdicts, with the same words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tangrad
import tangrad.testing

NAN, INF = float("nan"), float("inf")

COMPARISONS: list[Callable[[Any], tuple[Any, ...] | dict[str, Any]]] = [
    lambda t: (t.tensor([1.0, 2, 3]), t.tensor([1.0, 2.5, 3])),
    lambda t: (t.tensor([1, 2, 3]), t.tensor([1, 5, 3])),
    lambda t: (t.tensor([1.0, 2, 3]), t.tensor([1.0, 2.5, 3]), {"rtol": 0, "atol": 0}),
    lambda t: (t.tensor([1.0, 2, 3]), t.tensor([1.0, 2.5, 3]), {"rtol": 0.0, "atol": 0.1}),
    lambda t: (t.tensor([[1.0, 2], [3, 4]]), t.tensor([[1.0, 2], [3, 9]])),
    lambda t: (t.tensor(1.0), t.tensor(2.0)),
    lambda t: (t.tensor([1.0, 2]), t.tensor([1.0, 2, 3])),
    lambda t: (t.tensor([1.0, 2]), t.tensor([1, 2])),
    lambda t: (t.tensor([1.0, 2]), t.tensor([1, 2]), {"check_dtype": False}),
    lambda t: (t.tensor([1.0, 2]), t.tensor([1, 3]), {"check_dtype": False}),
    lambda t: (t.tensor([1 + 2j]), t.tensor([1 + 3j])),
    lambda t: (t.tensor([True, False]), t.tensor([True, True])),
    lambda t: (t.tensor([200], dtype=t.uint8), t.tensor([100], dtype=t.uint8)),
    lambda t: (t.tensor([1.0], dtype=t.float16), t.tensor([1.01], dtype=t.float16)),
    lambda t: (t.tensor([1.0], dtype=t.bfloat16), t.tensor([1.01], dtype=t.bfloat16)),
    lambda t: (t.tensor([NAN]), t.tensor([NAN])),
    lambda t: (t.tensor([NAN]), t.tensor([NAN]), {"equal_nan": True}),
    lambda t: (t.tensor([INF, 1.0]), t.tensor([INF, 2.0])),
    lambda t: (t.tensor([INF]), t.tensor([-INF])),
    lambda t: (t.tensor([0.0]), t.tensor([1.0])),
    lambda t: (t.tensor([1.0]), t.tensor([0.0])),
    lambda t: (t.ones(2, 3).t(), t.ones(3, 2), {"check_stride": True}),
    lambda t: (t.empty(0), t.empty(0)),
    lambda t: (t.empty(2, device="meta"), t.empty(2, device="meta")),
    lambda t: (t.empty(2, device="meta"), t.empty(3, device="meta")),
    lambda t: (t.nn.Parameter(t.ones(1)), t.ones(1)),
    lambda t: (1, 2),
    lambda t: (1.0, 1.0000001),
    lambda t: (1.0, 2.0),
    lambda t: (1, 1.0),
    lambda t: (1, 1.0, {"check_dtype": False}),
    lambda t: (0.0, 1e-9),
    lambda t: (1.0, 0.0),
    lambda t: (NAN, NAN),
    lambda t: (NAN, NAN, {"equal_nan": True}),
    lambda t: (1 + 1j, 1 + 2j),
    lambda t: (True, False),
    lambda t: (None, 1),
    lambda t: (None, None),
    lambda t: ("a", "a"),
    lambda t: ([1], 1),
    lambda t: ([1, 2], [1]),
    lambda t: ([1, 2], [1, 3]),
    lambda t: ((1,), [1]),
    lambda t: ({"a": 1}, {"b": 1}),
    lambda t: ({"a": 1}, [1]),
    lambda t: ({"a": [1, {"x": 2}]}, {"a": [1, {"x": 3}]}),
    lambda t: ({"a": t.ones(1)}, {"a": t.zeros(1)}),
    lambda t: (np.array([1.0]), np.array([2.0])),
    lambda t: (np.float32(1), np.float32(2)),
    lambda t: (t.ones(1), t.zeros(1), {"msg": "other"}),
    lambda t: (t.ones(1), t.zeros(1), {"msg": lambda text: f"see: {text}"}),
    lambda t: (t.ones(1), t.ones(1), {"rtol": 0.1}),
    lambda t: (t.ones(1), t.ones(1), {"atol": 0.1}),
]


def outcome(library: Any, function: Callable[[Any], Any]) -> Any:
    try:
        function(library)
    except Exception as error:
        return type(error), str(error).replace("torch.", "tangrad.")
    return None


@pytest.mark.parametrize("index", range(len(COMPARISONS)))
def test_assert_close_says_what_pytorch_says(index: int) -> None:
    def compare(t: Any) -> None:
        *inputs, last = COMPARISONS[index](t)
        options = last if isinstance(last, dict) and set(last) <= OPTIONS and inputs[1:] else None
        t.testing.assert_close(*inputs, *([] if options else [last]), **(options or {}))

    assert outcome(tangrad, compare) == outcome(torch, compare)


OPTIONS = {"rtol", "atol", "equal_nan", "check_dtype", "check_stride", "msg"}


def test_strangers_and_subclasses_are_refused() -> None:
    with pytest.raises(TypeError, match="No comparison pair"):
        tangrad.testing.assert_close(tangrad.ones(1), [1.0])
    with pytest.raises(TypeError, match="No comparison pair"):
        tangrad.testing.assert_close(object(), object())
    with pytest.raises(TypeError, match="Parameter"):
        tangrad.testing.assert_close(
            tangrad.nn.Parameter(tangrad.ones(1)), tangrad.ones(1), allow_subclasses=False
        )


def test_devices_are_compared_and_brought_together() -> None:
    there = tangrad.ones(2, device="reference")
    with pytest.raises(AssertionError, match="attribute 'device'"):
        tangrad.testing.assert_close(there, tangrad.ones(2))
    tangrad.testing.assert_close(there, tangrad.ones(2), check_device=False)
    with pytest.warns(FutureWarning):
        tangrad.testing.assert_allclose(tangrad.ones(2), np.ones(2))


numbers = st.floats(width=32)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), st.booleans())
def test_any_numbers(pairs: list[tuple[float, float]], equal_nan: bool) -> None:
    def compare(t: Any) -> None:
        a, b = (t.tensor(list(column)) for column in zip(*pairs, strict=True))
        t.testing.assert_close(a, b, equal_nan=equal_nan)

    ours, theirs = outcome(tangrad, compare), outcome(torch, compare)
    assert (ours is None) == (theirs is None)
    if ours is not None:
        assert ours[1].splitlines()[:3] == theirs[1].splitlines()[:3]


WRONG = [
    {"dtype": "int64", "low": 5, "high": 3},
    {"dtype": "int64", "requires_grad": True},
    {"dtype": "uint8", "low": -5, "high": -3},
    {"dtype": "float32", "low": NAN},
    {"dtype": "float32", "low": 1, "high": 0},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_make_tensor_refuses_what_pytorch_refuses(options: dict[str, Any]) -> None:
    def make(t: Any) -> None:
        t.testing.make_tensor(3, device="cpu", **{**options, "dtype": getattr(t, options["dtype"])})

    assert outcome(tangrad, make) == outcome(torch, make)
    assert outcome(tangrad, make) is not None


@pytest.mark.parametrize(
    "name", ["bool", "uint8", "int8", "int64", "float16", "bfloat16", "float32", "complex64"]
)
def test_make_tensor_keeps_to_its_interval(name: str) -> None:
    dtype = getattr(tangrad, name)
    x = tangrad.testing.make_tensor((50, 3), dtype=dtype, device="cpu", exclude_zero=True)
    assert x.dtype == dtype
    assert x.shape == (50, 3)
    assert bool((x != 0).all())
    y = tangrad.testing.make_tensor(4, 5, dtype=dtype, device="cpu", noncontiguous=True)
    assert y.shape == (4, 5)
    assert not y.is_contiguous()
    if not dtype.is_complex and name != "bool":
        z = tangrad.testing.make_tensor(99, dtype=dtype, device="cpu", low=2, high=4)
        assert bool(((z >= 2) & (z <= 4)).all())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tangrad.testing.make_tensor(2, dtype=dtype, device="meta")


def test_make_tensor_draws_from_all_of_a_dtype() -> None:
    limits = tangrad.finfo(tangrad.float32)
    x = tangrad.testing.make_tensor(
        200, dtype=tangrad.float32, device="cpu", low=limits.min, high=limits.max
    )
    assert bool(x.isfinite().all())
    assert bool((x.abs() > 1e37).any())


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_allclose_takes_numbers_and_sizes_and_its_wider_tolerances(agree):
    def program(t):
        found = [None]
        check = t.testing.assert_allclose
        check(t.ones(2, 3).shape[1:], t.ones(3).shape)
        check(1.0, 1.0 + 9e-6)
        check(t.ones(2), t.ones(2, dtype=t.float64) + 5e-5)
        for far in (t.ones(2) + 1e-3, t.ones(2, dtype=t.float64) + 2e-3):
            with pytest.raises(AssertionError):
                check(t.ones(2), far)
        return found

    agree(program)
