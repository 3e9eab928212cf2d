"""Extreme values and distances where NaN and infinity take part."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tangrad

torch = pytest.importorskip("torch")
VALUES = {
    "one NaN": [1.0, math.nan, 3.0],
    "two NaNs": [math.nan, 2.0, math.nan],
    "ties": [3.0, 1.0, 3.0, 1.0],
    "infinities": [math.inf, math.inf, -math.inf],
}


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_gradient_of_an_extreme_of_all_goes_to_the_elements_that_are_it(
    values: list[float], name: str
) -> None:
    grads = []
    for lib in (tangrad, torch):
        x = lib.tensor(values, dtype=lib.float64, requires_grad=True)
        getattr(x, name)().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


def _distances(lib: Any, name: str, rows: list[list[float]]) -> Any:
    x = lib.tensor(rows, requires_grad=True)
    made = lib.cdist(x, x.detach(), p=0) if name == "cdist" else lib.pdist(x, p=0)
    made.nansum().backward()
    return made.tolist(), x.grad.tolist()


@pytest.mark.parametrize("name", ["cdist", "pdist"])
def test_the_distance_that_counts_differences_knows_none_between_infinities(name: str) -> None:
    rows = [[math.inf, 1.0, 0.5], [math.inf, 2.0, 0.5], [-math.inf, 1.0, 0.25], [0.0, 1.0, 0.5]]
    ours, theirs = (_distances(lib, name, rows) for lib in (tangrad, torch))
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize("place", [0, 1, 2, 20, 63])
def test_the_variance_beside_an_infinite_element_is_no_number(
    name: str, dtype: str, place: int
) -> None:
    x = tangrad.arange(64.0).remainder(5).index_fill(0, tangrad.tensor(place), math.inf)
    for given in (x, x.reshape(4, 16).t(), x[None].expand(2, 64)):
        made = getattr(tangrad, name)(given.to(getattr(tangrad, dtype)))
        assert tangrad.isnan(made if isinstance(made, tangrad.Tensor) else made[0])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_the_slope_of_mish_is_finite_for_all_finite_numbers(dtype: str) -> None:
    kind = getattr(tangrad, dtype)
    most = tangrad.finfo(kind).max
    x = tangrad.tensor([most, most / 2, -most, -most / 2], dtype=kind, requires_grad=True)
    tangrad.nn.functional.mish(x).sum().backward()
    assert x.grad.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("scale", [1e-4, 1e-3, 1.0, 300.0, 1e4])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_cosine_of_halves_has_the_derivative_of_the_cosine(scale: float, dtype: str) -> None:
    kind = getattr(tangrad, dtype)
    first = (tangrad.tensor([1.0, 2.0, -1.0]) * scale).to(kind).requires_grad_()
    second = (tangrad.tensor([1.0, 1.0, 1.0]) * scale).to(kind)
    tangrad.nn.functional.cosine_similarity(first, second, 0).backward()
    exact = first.detach().double().requires_grad_()
    tangrad.nn.functional.cosine_similarity(exact, second.double(), 0).backward()
    assert first.grad.double().allclose(exact.grad, rtol=1e-2, atol=1e-7)


def test_the_cosine_of_vectors_whose_norm_overflows_is_pytorchs() -> None:
    found = []
    for lib in (tangrad, torch):
        x = lib.tensor([1e20, 2e20, -1e20], requires_grad=True)
        y = lib.nn.functional.cosine_similarity(x, x.detach().flip(0), 0)
        y.backward()
        found.append((y.tolist(), x.grad.tolist()))
    assert found[0] == found[1]
