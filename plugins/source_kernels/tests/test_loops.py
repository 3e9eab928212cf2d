"""Loops, folds and scans made from definitions, on blocks of one lane and of several."""

from __future__ import annotations

import warnings

import pytest
import torch
from beside_torch import assert_same, both

import tangrad
from tangrad.plugin import FallbackWarning

DTYPES = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "complex64")
pytestmark = pytest.mark.filterwarnings(f"error::{FallbackWarning.__module__}.FallbackWarning")


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 64, 1000])
def test_contiguous_operands_of_any_length_are_added(device: str, size: int) -> None:
    (a, x), (b, y) = both(device, size), both(device, size, seed=1)
    assert_same(x + y, a + b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_may_be_broadcast_transposed_and_numbers(device: str, dtype: str) -> None:
    (a, x), (b, y) = both(device, 5, 7, dtype=dtype), both(device, 7, 5, dtype=dtype, seed=1)
    assert_same(x * y.t(), a * b.t())
    assert_same(x * y[:, :1].t() * 2, a * b[:, :1].t() * 2)
    assert_same(x[::2, 1:] * y[1, 2], a[::2, 1:] * b[1, 2])


def test_a_gradient_is_one_kernel(device: str) -> None:
    a, x = both(device, 6, 5)
    a.requires_grad_()
    x.requires_grad_()
    torch.nn.functional.gelu(a).sum().backward()
    tangrad.nn.functional.gelu(x).sum().backward()
    assert_same(x.grad, a.grad)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", ["bool", "uint8", "float16", "complex64"])
def test_a_copy_converts_and_changes_the_layout(device: str, source: str, target: str) -> None:
    a, x = both(device, 4, 6, dtype=source)
    if source.startswith(("float", "bfloat", "complex")):
        a, x = a.abs() if "complex" not in source else a, x.abs() if "complex" not in source else x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that imaginary parts are discarded
        expected = torch.empty(6, 4, dtype=getattr(torch, target)).copy_(a.t())
    found = tangrad.empty(6, 4, dtype=getattr(tangrad, target), device=device).copy_(x.t())
    assert_same(found, expected)


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 300), (40, 1, 30), (2, 700, 3), (1, 5000, 1)])
@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_sums_over_any_dimensions(device: str, shape: tuple[int, ...], dims) -> None:
    a, x = both(device, *shape)
    assert_same(x.sum(dims), a.double().sum(dims).float())
    assert_same(x.transpose(0, 2).amax(dims), a.transpose(0, 2).amax(dims))
    assert_same(x.var(dims, correction=0), a.var(dims, correction=0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [1, 2, 33, 500, 3000])
def test_the_place_of_an_extreme_is_its_first(device: str, length: int) -> None:
    a, x = both(device, 3, length, dtype="int32")
    a, x = a.clamp(-3, 3), x.clamp(-3, 3)
    expected = torch.from_numpy(a.numpy().argmax(1))
    assert_same(x.argmax(1), expected)
    assert_same(x.t().argmax(0), expected)


@pytest.mark.parametrize("dtype", ["int64", "float16", "bfloat16", "complex64", "bool"])
def test_folds_of_other_dtypes(device: str, dtype: str) -> None:
    a, x = both(device, 9, 40, dtype=dtype)
    assert_same(x.sum(1), a.sum(1), rtol=1e-2, atol=1e-2)
    assert_same((x != 0).all(1), (a != 0).all(1))


@pytest.mark.parametrize("length", [1, 7, 40, 333])
@pytest.mark.parametrize("dim", [0, 1])
def test_scans_along_any_dimension(device: str, length: int, dim: int) -> None:
    a, x = both(device, length, 3)
    a, x = (a.t(), x.t()) if dim else (a, x)
    assert_same(x.cumsum(dim), a.cumsum(dim), rtol=1e-5, atol=1e-5)
    values, places = x.cummax(dim)
    expected = a.cummax(dim)
    assert_same(values, expected.values)
    assert_same(places, expected.indices)


def test_an_integer_divided_by_zero_is_told(device: str) -> None:
    x = tangrad.arange(4, device=device)
    with pytest.raises(RuntimeError, match="ZeroDivisionError: floor_divide"):
        print(x // 0)
    assert (x // 2).tolist() == [0, 0, 1, 1]
