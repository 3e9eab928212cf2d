"""What new tensors are made of: dtype, stride, and the numbers of sequences."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tangrad
from tangrad.ops.creation import diagonals


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, tangrad.bool),
        (3, tangrad.int64),
        (1.5, tangrad.float32),
        (1j, tangrad.complex64),
    ],
)
def test_full_takes_the_dtype_of_its_number(value: Any, dtype: Any) -> None:
    assert tangrad.full((2,), value).dtype == dtype


def test_arange_is_integral_only_if_all_its_numbers_are() -> None:
    assert tangrad.arange(3).dtype == tangrad.int64
    assert tangrad.arange(0, 1.5).dtype == tangrad.float32


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((1, 7, 2), [1, 3, 5]),
        ((5, 0, -2), [5, 3, 1]),
        ((2, 2), []),
        ((0, 1, 0.25), [0, 0.25, 0.5, 0.75]),
    ],
)
def test_arange_leaves_out_its_end(args: Any, expected: Any) -> None:
    assert tangrad.arange(*args).tolist() == expected


def test_arange_is_exact_beyond_float64() -> None:
    start = 2**53 + 1
    assert tangrad.arange(start, start + 2).tolist() == [start, start + 1]


def test_linspace_hits_both_ends() -> None:
    spaced = tangrad.linspace(0.1, 0.7, 5, dtype=tangrad.float64).tolist()
    assert (spaced[0], spaced[-1]) == (0.1, 0.7)


def test_like_keeps_the_order_of_dimensions_in_memory() -> None:
    x = tangrad.zeros(4, 3, 2).permute(2, 0, 1)
    assert tangrad.zeros_like(x).stride() == x.stride()
    sliced = tangrad.zeros(4, 6, 2)[:, ::2].permute(2, 0, 1)
    assert tangrad.zeros_like(sliced).stride() == (1, 6, 2)


def test_channels_last_needs_four_dimensions() -> None:
    made = tangrad.empty(2, 3, 4, 5, memory_format=tangrad.channels_last)
    assert made.stride() == (60, 1, 15, 3)
    with pytest.raises(RuntimeError, match="rank 4"):
        tangrad.empty(2, 3, memory_format=tangrad.channels_last)


def test_new_tensors_take_dtype_and_device_of_self() -> None:
    x = tangrad.zeros(1, dtype=tangrad.float64)
    made = [x.new_zeros(2), x.new_ones(2), x.new_full((2,), 3), x.new_empty(2)]
    assert all(m.dtype == x.dtype and m.device == x.device for m in made)


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        tangrad.zeros(2, -1)


@pytest.mark.usefixtures("vectorised_torch")
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "int32", "int64"]
)
@pytest.mark.parametrize("ends", [(-3.7, 9.1), (8, -8), (26, -52), (0.1, 0.1)], ids=str)
def test_evenly_spaced_numbers_have_the_bits_of_pytorch(agree, dtype, ends) -> None:
    def program(t: Any) -> Any:
        made = [t.linspace(*ends, steps, dtype=getattr(t, dtype)) for steps in (1, 2, 51, 1203)]
        return [(t.view_as_real(x) if x.is_complex() else x).double().tolist() for x in made]

    agree(program, tolerance=0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_powers_with_evenly_spaced_exponents_have_the_bits_of_pytorch(agree, dtype) -> None:
    def program(t: Any) -> Any:
        made = [t.logspace(-1.7, 2.3, n, 3.1, dtype=getattr(t, dtype)) for n in (1, 2, 51, 700)]
        made += [
            t.logspace(*x, dtype=getattr(t, dtype)) for x in ((-60, 60, 7), (3, -0.3, 40, 0.5))
        ]
        return [x.double().tolist() for x in made]

    agree(program, tolerance=0)


@pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
def test_places_of_a_triangle_are_the_same_listed_or_by_a_mask(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = getattr(tangrad, name)
    cases = [(r, c, k) for r in range(4) for c in range(4) for k in range(-4, 5)]
    listed = [make(*case).tolist() for case in cases]
    monkeypatch.setattr(diagonals, "_FEW", -1)
    assert [make(*case).tolist() for case in cases] == listed
    assert listed == [getattr(torch, name)(*case).tolist() for case in cases]
