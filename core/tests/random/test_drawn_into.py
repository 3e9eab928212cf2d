"""Tensors that random numbers are drawn into, and those that are made for them."""

from __future__ import annotations

import pytest
import torch

import tangrad

IN_PLACE = {
    "random_": (), "uniform_": (), "normal_": (), "cauchy_": (), "log_normal_": (),
    "exponential_": (), "geometric_": (0.5,), "bernoulli_": (), "bernoulli_ of 0.3": (0.3,),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_expanded_tensor_is_refused(name):
    with pytest.raises(RuntimeError, match="unsupported operation: more than one element"):
        getattr(tangrad.ones(1, 3).expand(3, 3), name.partition(" ")[0])(*IN_PLACE[name])


MADE = {
    "rand": lambda t: t.rand(3),
    "randn": lambda t: t.randn(3, requires_grad=True),
    "randint": lambda t: t.randint(3, (3,)),
    "randint between": lambda t: t.randint(1, 3, (3,), dtype=t.float32),
    "randperm": lambda t: t.randperm(3),
    "rand_like": lambda t: t.rand_like(t.ones(3)),
    "randn_like": lambda t: t.randn_like(t.ones(3)),
    "randint_like": lambda t: t.randint_like(t.ones(3), 3),
    "given": lambda t: t.randn(3, out=t.empty(3)),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_for_numbers_is_new(name):
    found, wanted = (MADE[name](library)._version for library in (tangrad, torch))
    assert found == wanted


def test_bernoulli_numbers_fit_every_dtype():
    ones = tangrad.ones(3)
    for dtype in (tangrad.bool, tangrad.uint8, tangrad.float64):
        out = tangrad.zeros(3, dtype=dtype)
        assert tangrad.bernoulli(ones, out=out) is out
        assert out.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["meta", "reference"])
def test_a_generator_s_state_is_on_the_host_whatever_the_default_device(name):
    with tangrad.device(name):
        state = tangrad.get_rng_state()
        assert state.device.type == tangrad.Generator().get_state().device.type == "cpu"
        first = tangrad.rand(3, device="cpu").tolist()
        tangrad.set_rng_state(state)
        assert tangrad.rand(3, device="cpu").tolist() == first
