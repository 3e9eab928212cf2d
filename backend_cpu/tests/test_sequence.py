"""Evenly spaced numbers agree with the reference bit by bit, at the edges of blocks and tasks."""

from __future__ import annotations

import pytest

import tangrad

SIZES = (0, 1, 2, 3, 255, 256, 257, 70_001)


def vector(n, dtype, device, step):
    return tangrad.zeros(n * step, dtype=dtype, device=device)[::step]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "bounds"),
    [
        (tangrad.int64, (-7, 2**40)),
        (tangrad.int8, (0, 0)),
        (tangrad.float32, (0.1, -0.3)),
        (tangrad.float64, (2, 3)),
        (tangrad.bfloat16, (-1, 0.25)),
    ],
)
def test_arange_agrees_with_the_reference(n, step, dtype, bounds):
    start, each = bounds
    found, expected = (
        tangrad.ops._sequence(vector(n, dtype, device, step), start, each).cpu()
        for device in ("cpu", "reference")
    )
    assert tangrad.equal(found, expected)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64, tangrad.float16])
def test_linspace_agrees_with_the_reference(n, step, dtype):
    found, expected = (
        tangrad.linspace(-1.3, 7.7, n, out=vector(n, dtype, device, step)).cpu()
        for device in ("cpu", "reference")
    )
    assert tangrad.equal(found, expected)
    if n > 1:
        ends = tangrad.tensor([-1.3, 7.7], dtype=dtype)
        assert tangrad.equal(found[[0, -1]], ends)
