"""Derivatives of products that are scattered into places, where factors are zero."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import tangrad
from tangrad.autograd import gradgradcheck

VALUES = (0.0, 0.5, -2.0)


def _multiplied(self: Any, src: Any) -> Any:
    index = tangrad.tensor([0, 0, 0, 1])
    return self.scatter_reduce(0, index, src, "prod")


@pytest.mark.parametrize("first", VALUES)
def test_second_derivatives_are_those_of_the_product(first: float) -> None:
    for factors in product(VALUES, repeat=3):
        self = tangrad.tensor([first, 3.0], dtype=tangrad.float64, requires_grad=True)
        src = tangrad.tensor([*factors, 0.0], dtype=tangrad.float64, requires_grad=True)

        def plain(s: Any, x: Any) -> Any:
            return tangrad.stack([s[0] * x[0] * x[1] * x[2], s[1] * x[3]]).sum()

        ours, exact = (
            tangrad.func.jacrev(tangrad.func.grad(function, (0, 1)), (0, 1))(self, src)
            for function in (lambda s, x: _multiplied(s, x).sum(), plain)
        )
        for row, wanted in zip(ours, exact, strict=True):
            for block, right in zip(row, wanted, strict=True):
                assert tangrad.equal(block, right), (factors, block, right)


def test_second_derivatives_pass_the_check_by_differences() -> None:
    self = tangrad.tensor([2.0, 3.0], dtype=tangrad.float64, requires_grad=True)
    src = tangrad.tensor([0.0, 0.0, 4.0, 5.0], dtype=tangrad.float64, requires_grad=True)
    assert gradgradcheck(_multiplied, (self, src))
