"""With the mt19937 engine, distributions draw the numbers that PyTorch's draw on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tangrad

pytestmark = pytest.mark.usefixtures("vectorised_torch")


@pytest.fixture(autouse=True)
def mersenne() -> Iterator[None]:
    tangrad.random.set_engine("mt19937")
    yield
    tangrad.random.set_engine("philox")


def test_distributions_draw_what_pytorchs_draw_and_keep_their_gradients() -> None:
    def program(t: Any) -> list[Any]:
        t.manual_seed(5)
        a = t.tensor([0.5, 2.0, 7.0], dtype=t.float64, requires_grad=True)
        d = t.distributions
        drawn = [d.Gamma(a, a).rsample(), d.Beta(a, 2 * a).rsample(), d.Dirichlet(a).rsample()]
        drawn += [d.StudentT(a).rsample(), d.Chi2(a).rsample()]
        sum(x.square().sum() for x in drawn).backward()
        counts = [d.Poisson(a).sample(), d.NegativeBinomial(a, 0.5).sample()]
        counts.append(d.Binomial(9, 0.3).sample())
        return [x.tolist() for x in (*drawn, *counts, a.grad)]

    # PyTorch's gradient of a gamma number is an approximation of three places.
    for ours, theirs in zip(program(tangrad), program(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)
