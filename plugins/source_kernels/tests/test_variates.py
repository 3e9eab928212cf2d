"""Poisson, gamma and binomial numbers are those of every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tangrad

SHAPES = tangrad.tensor([0.1, 0.5, 1.0, 2.0, 9.0, 0.0] * 5)
COUNTS = tangrad.tensor([0.0, 3.0, 100.0, 50.0, 1000.0, 7.0])
CHANCES = tangrad.tensor([0.5, 0.25, 0.75, 0.01, 0.4, 1.0])
DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "poisson": lambda to, g: tangrad.poisson(to(SHAPES * 40), generator=g),
    "gamma": lambda to, g: tangrad._standard_gamma(to(SHAPES), generator=g),
    "binomial": lambda to, g: tangrad.binomial(to(COUNTS), to(CHANCES), generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64, tangrad.float16])
def test_numbers_are_those_of_the_reference(device: str, name: str, dtype: tangrad.dtype) -> None:
    drawn = []
    for where in (device, "reference"):
        generator = tangrad.Generator(device=where).manual_seed(5)
        drawn.append(DRAWS[name](lambda x, d=where: x.to(dtype).to(d), generator).cpu().double())
    assert drawn[0].allclose(drawn[1], rtol=1e-6 if dtype is not tangrad.float16 else 1e-3)


def test_a_negative_mean_is_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="non-negative.*element 1"):
        tangrad.poisson(tangrad.tensor([1.0, -1.0], device=device)).cpu()


def test_what_is_no_distribution_gives_nan(device: str) -> None:
    count, chance = (tangrad.tensor(v, device=device) for v in ([5.0, -1.0], [1.5, 0.5]))
    assert tangrad.binomial(count, chance).isnan().all().item()
