"""Random ops draw from the Philox stream of a generator, and advance it by what they used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tangrad
from tangrad.nn import functional as F
from tangrad.random import philox


def seeded(seed: int) -> Any:
    return tangrad.Generator().manual_seed(seed)


def test_a_generator_of_another_type_of_device_is_refused() -> None:
    own, other = tangrad.Generator("reference"), seeded(3)
    x = tangrad.empty(5, device="reference")
    tangrad.randn(3, device="meta", generator=other)
    taken = other.get_offset()
    # Calls like one before are planned in C, and none of them leads past the question.
    for _ in range(3):
        x.normal_(generator=own)
        tangrad.rand(3, device="reference", generator=own)
    expected = "Expected a 'reference' device type for generator but found 'cpu'"
    for _ in range(2):
        with pytest.raises(RuntimeError, match=expected):
            x.normal_(generator=other)
        with pytest.raises(RuntimeError, match=expected):
            tangrad.rand(3, device="reference", generator=other)
        with pytest.raises(RuntimeError, match=expected):
            tangrad.randperm(3, device="reference", generator=other)
        with pytest.raises(RuntimeError, match="make it by Generator.device='cpu'"):
            tangrad.empty(5).uniform_(generator=own)
    assert other.get_offset() == taken


def test_one_seed_gives_one_stream() -> None:
    assert tangrad.rand(5, generator=seeded(3)).tolist() == philox.uniform(3, 0, 5).tolist()


def test_a_second_call_goes_on_where_the_first_ended() -> None:
    generator = seeded(3)
    tangrad.rand(5, generator=generator)
    following = philox.uniform(3, philox.counters_for(5), 4).tolist()
    assert tangrad.rand(4, generator=generator).tolist() == following


@pytest.mark.parametrize(
    "draw",
    [
        lambda: tangrad.rand(3),
        lambda: tangrad.randn(3),
        lambda: tangrad.randint(0, 100, (3,)),
        lambda: tangrad.randperm(10),
        lambda: tangrad.empty(3).exponential_(),
        lambda: F.dropout(tangrad.ones(20)),
    ],
)
def test_manual_seed_repeats_a_call(draw: Any) -> None:
    tangrad.manual_seed(7)
    first = draw().tolist()
    second = draw().tolist()
    tangrad.manual_seed(7)
    assert draw().tolist() == first
    assert second != first


def test_dropout_keeps_the_mean_and_drops_the_same_in_backward() -> None:
    x = tangrad.ones(10_000, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert set(np.unique(y.detach().numpy())) == {np.float32(0), np.float32(4 / 3)}
    assert abs(y.mean().item() - 1) < 0.02
    assert x.grad.tolist() == y.tolist()


@pytest.mark.parametrize("seed", [2**63 - 1, 2**63, 2**64 - 1, -1])
def test_dropout_has_a_derivative_for_every_seed(seed: int) -> None:
    tangrad.manual_seed(seed)
    x = tangrad.ones(100, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert x.grad.equal(y)


@pytest.mark.parametrize("form", ["channels_last", "transposed", "strided"])
def test_dropout_keeps_the_strides_of_a_dense_input(form: str) -> None:
    x = tangrad.rand(2, 3, 4, 5) + 1
    x = {
        "channels_last": x.contiguous(memory_format=tangrad.channels_last),
        "transposed": x.transpose(0, 3),
        "strided": x[..., ::2],
    }[form].requires_grad_()
    dropped = tangrad.nn.functional.dropout(x, 0.5)
    assert dropped.stride() == (tangrad.empty_like(x)).stride()
    assert ((dropped == 0) | (dropped == 2 * x)).all()
    assert 0 < (dropped == 0).sum() < x.numel()
    (slopes,) = tangrad.autograd.grad(dropped.sum(), x)
    assert ((slopes == 0) == (dropped == 0)).all()


def test_dropout_does_nothing_outside_of_training() -> None:
    x = tangrad.ones(3)
    assert F.dropout(x, 0.5, training=False) is x


def test_randint_stays_in_its_range() -> None:
    drawn = tangrad.randint(-2, 3, (1000,))
    assert sorted(set(drawn.tolist())) == [-2, -1, 0, 1, 2]
    assert drawn.dtype == tangrad.int64


def test_multinomial_without_replacement_draws_nothing_twice() -> None:
    drawn = tangrad.multinomial(tangrad.tensor([0.1, 0.0, 0.3, 0.6]), 3)
    assert sorted(drawn.tolist()) == [0, 2, 3]


def test_multinomial_with_replacement_compares_no_draw_with_every_weight() -> None:
    weights = tangrad.tensor([[0.0, 2.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    tangrad.manual_seed(3)
    drawn = tangrad.multinomial(weights, 500, replacement=True)
    tangrad.manual_seed(3)
    points = tangrad.rand(2, 500)
    edges = (weights / weights.sum(1, keepdim=True)).cumsum(1)
    assert drawn.equal((points.unsqueeze(2) >= edges.unsqueeze(1)).sum(2).clamp(max=3))
    # A table of all comparisons would have 10^11 elements.
    assert tangrad.multinomial(tangrad.ones(300_000), 300_000, replacement=True).max() < 300_000


def test_multinomial_follows_its_weights() -> None:
    tangrad.manual_seed(0)
    drawn = tangrad.multinomial(tangrad.tensor([1.0, 3.0]), 4000, replacement=True)
    assert abs(drawn.to(tangrad.float32).mean().item() - 0.75) < 0.03


def test_a_bernoulli_of_one_is_one() -> None:
    assert tangrad.ones(100).bernoulli().sum().item() == 100
    with pytest.raises(RuntimeError, match="p_in"):
        tangrad.full((1,), 1.5).bernoulli()


@pytest.mark.parametrize(("name", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_uniform_numbers_of_half_precision_stay_below_one(name: str, bits: int) -> None:
    drawn = tangrad.rand(20_000, dtype=getattr(tangrad, name))
    assert drawn.max().item() == 1 - 2.0**-bits


def test_the_mean_of_complex_normal_numbers_is_added_to_both_parts() -> None:
    drawn = tangrad.empty(3, dtype=tangrad.complex64).normal_(5.0, 0.0)
    assert drawn.tolist() == [5 + 5j] * 3


@pytest.mark.parametrize(
    "draw",
    [
        lambda t, x: t.normal(x, x.abs()),
        lambda t, x: t.normal(x, 1.0),
        lambda t, x: t.normal(0.0, x.abs()),
        lambda t, x: t.bernoulli(x.abs()),
    ],
)
def test_drawing_passes_gradients_of_zero(agree: Any, draw: Any) -> None:
    def gradient(t: Any) -> Any:
        x = t.tensor([0.25, 0.5], requires_grad=True)
        return t.autograd.grad(draw(t, x).sum(), x)

    agree(gradient)


@pytest.mark.usefixtures("mt19937")
def test_a_sequential_engine_writes_into_out(agree: Any) -> None:
    def program(t: Any) -> Any:
        out = t.empty(0)
        t.manual_seed(1)
        returned = t.bernoulli(t.full((3,), 0.5), out=out)
        return out, returned is out

    agree(program)
    with pytest.raises(RuntimeError, match="range"):
        tangrad.empty(2).uniform_(2.0, 1.0)
