"""Seeds of 64 bits, which programs that seed nothing draw, reach graphs with all their bits."""

import pytest

import tangrad
from tangrad import nn

SEEDS = [7, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", [nn.Dropout, lambda: lambda x: tangrad.rand_like(x) * x])
def test_compiled_draws_are_eager_s(seed, make):
    function, x = make(), tangrad.linspace(1, 2, 6, requires_grad=True)

    def losses(call):
        tangrad.manual_seed(seed)
        return [tangrad.autograd.grad(call(x).sum(), x)[0].tolist() for _ in range(4)]

    assert losses(tangrad.compile(function)) == losses(function)
