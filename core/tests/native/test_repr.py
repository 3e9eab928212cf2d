"""Printed tensors look as in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tangrad

DTYPES = (
    "float32",
    "float64",
    "float16",
    "int64",
    "int32",
    "uint8",
    "bool",
    "complex64",
    "complex128",
)
SHAPES = ((), (1,), (4,), (0,), (2, 0), (3, 4), (2, 2, 3), (1, 1100), (40, 30), (2, 3, 1, 2))


def values(shape: tuple[int, ...], dtype: str, scale: float) -> Any:
    random = np.random.Generator(np.random.Philox(len(shape)))
    drawn = np.asarray(random.normal(size=shape) * scale)
    if dtype.startswith("complex"):
        drawn = drawn + 1j * random.normal(size=shape)
    return np.asarray(np.abs(drawn) if dtype == "uint8" else drawn, dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_laid_out_as_in_torch(shape: tuple[int, ...], dtype: str) -> None:
    for scale in (1.0, 100.0):
        a = values(shape, dtype, scale)
        expected = repr(torch.from_numpy(a)).replace("torch.", "tangrad.")
        assert repr(tangrad.from_numpy(a)) == expected


@pytest.mark.parametrize("numbers", [
    [1e-9, 1.0], [1e10, 1.0], [float("nan"), 1.0], [float("inf"), -1.5], [1.0, 2.0], [-0.0, 0.0],
    [12345678.0], [1e-30],
], ids=str)  # fmt: skip
def test_notation_is_chosen_as_in_torch(numbers: list[float]) -> None:
    assert repr(tangrad.tensor(numbers)) == repr(torch.tensor(numbers)).replace(
        "torch.", "tangrad."
    )


@pytest.mark.parametrize("make", [
    lambda T: T.ones(2, requires_grad=True),
    lambda T: T.ones(2, requires_grad=True) * 2,
    lambda T: T.ones(2, requires_grad=True).sum(),
    lambda T: T.ones(2, 2, dtype=T.float64).t(),
    lambda T: T.empty(2, 3, device="meta"),
    lambda T: T.ones(2, dtype=T.bfloat16),
    lambda T: T.ones(3).exp().max(0),
    lambda T: T.ones(2).size(),
])  # fmt: skip
def test_what_stands_behind_the_values_is_the_same(make: Any) -> None:
    expected = repr(make(torch)).replace("torch.", "tangrad.")
    assert repr(make(tangrad)) == expected
