"""What a derivative masks is zero, even where the gradient that arrives is inf or NaN."""

from __future__ import annotations

import pytest
import torch

import tangrad

MASKS = {
    "relu": lambda lib, x: lib.relu(x),
    "relu6": lambda lib, x: lib.nn.functional.relu6(x),
    "hardtanh": lambda lib, x: lib.nn.functional.hardtanh(x),
    "threshold": lambda lib, x: lib.nn.functional.threshold(x, 0.5, 0.0),
    "clamp": lambda lib, x: lib.clamp(x, 0, 3),
    "clamp_min": lambda lib, x: x.clamp(min=0.5),
    "where": lambda lib, x: lib.where(x > 0, x, x.detach()),
    "masked_fill": lambda lib, x: x.masked_fill(x < 0, 0.0),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("arriving", ["inf", "nan"])
def test_a_masked_gradient_is_zero(name, arriving):
    found = []
    for library in (torch, tangrad):
        x = library.tensor([-1.0, 1.0], dtype=library.float64, requires_grad=True)
        upstream = library.full((2,), float(arriving), dtype=library.float64)
        MASKS[name](library, x).backward(upstream)
        found.append(torch.tensor(x.grad.tolist()))
    torch.testing.assert_close(found[1], found[0], equal_nan=True)
    assert found[0][0] == 0


@pytest.mark.parametrize("name", MASKS)
def test_a_masked_tangent_is_zero(name):
    x = tangrad.tensor([-1.0, 1.0], dtype=tangrad.float64)
    moving = tangrad.full((2,), float("inf"), dtype=tangrad.float64)
    _, tangent = tangrad.func.jvp(lambda t: MASKS[name](tangrad, t), (x,), (moving,))
    assert tangent[0] == 0


def test_gradient_of_a_root_of_a_rectifier():
    x = tangrad.tensor([-1.0, 4.0], requires_grad=True)
    tangrad.relu(x).sqrt().sum().backward()
    assert x.grad.tolist() == [0, 0.25]
