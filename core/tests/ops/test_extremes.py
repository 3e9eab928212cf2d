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
