"""Generators of random numbers in scripts."""

import io

import pytest
import torch

import tangrad

pytestmark = pytest.mark.filterwarnings("ignore")


def drawn(x: tangrad.Tensor, seed: int):
    generator = tangrad.Generator()
    generator.manual_seed(seed)
    first = tangrad.empty_like(x).normal_(0.0, 1.0, generator=generator)
    other = tangrad.Generator(device="cpu")
    other.manual_seed(seed)
    return first, tangrad.rand(2, generator=other), other.initial_seed()


def given(x: tangrad.Tensor, generator: tangrad.Generator):
    return x + tangrad.rand(2, generator=generator)


def test_a_script_makes_generators_and_seeds_them():
    scripted = tangrad.jit.script(drawn)
    x = tangrad.zeros(3)
    for found, wanted in zip(scripted(x, 7), drawn(x, 7), strict=True):
        assert found == wanted if isinstance(found, int) else tangrad.equal(found, wanted)
    file = io.BytesIO()
    scripted.save(file)
    again = tangrad.jit.load(io.BytesIO(file.getvalue()))(x, 7)
    assert tangrad.equal(again[0], scripted(x, 7)[0])
    theirs = torch.jit.load(io.BytesIO(file.getvalue()))
    first, second = theirs(torch.zeros(3), 7), theirs(torch.zeros(3), 7)
    assert torch.equal(first[0], second[0])


def test_pytorchs_archives_with_generators_are_read():
    def made(x: torch.Tensor):
        generator = torch.Generator()
        generator.manual_seed(3)
        return torch.rand(2, generator=generator) + x

    file = io.BytesIO()
    torch.jit.save(torch.jit.script(made), file)
    loaded = tangrad.jit.load(io.BytesIO(file.getvalue()))
    assert tangrad.equal(loaded(tangrad.zeros(2)), loaded(tangrad.zeros(2)))


def test_a_generator_is_an_argument():
    scripted = tangrad.jit.script(given)
    one, other = (tangrad.Generator().manual_seed(5) for _ in range(2))
    assert tangrad.equal(scripted(tangrad.zeros(2), one), given(tangrad.zeros(2), other))
