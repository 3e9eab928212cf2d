"""The mt19937 engine against PyTorch's CPU: the same bits of the same seed."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad

pytestmark = pytest.mark.usefixtures("vectorised_torch")

SHAPES = [(), (1,), (3,), (15,), (16,), (17,), (31,), (32,), (5, 7), (2, 0, 3), (33, 9), (4, 1, 64)]
FLOATS = ["float16", "bfloat16", "float32", "float64"]


@pytest.fixture(autouse=True)
def mersenne() -> Iterator[None]:
    tangrad.random.set_engine("mt19937")
    yield
    tangrad.random.set_engine("philox")


def torch_uses_mkl() -> bool:
    """Tell whether PyTorch draws bernoulli_ and exponential_ by MKL here, as on Intel's."""
    torch.manual_seed(7)
    return (
        not torch.empty(8, dtype=torch.float64)
        .bernoulli_(0.3)
        .equal(torch.tensor([1.0, 1, 0, 0, 0, 0, 1, 0], dtype=torch.float64))
    )


def bits(x: Any) -> tuple[Any, ...]:
    """Return dtype, shape and values, in which every NaN is one."""
    values = x.detach().tolist()
    return str(x.dtype).rpartition(".")[2], tuple(x.shape), repr(values)


def agree(program: Callable[[Any], Any], seed: int = 7) -> None:
    """Run a program in both, twice; compare results and the states after them."""
    torch.manual_seed(seed)
    tangrad.manual_seed(seed)
    for _ in range(2):
        assert bits(program(tangrad)) == bits(program(torch))
    assert tangrad.get_rng_state().tolist() == torch.get_rng_state().tolist()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_uniform_and_normal_numbers(shape: tuple[int, ...], dtype: str) -> None:
    agree(lambda t: t.rand(shape, dtype=getattr(t, dtype)))
    agree(lambda t: t.randn(shape, dtype=getattr(t, dtype)))
    agree(lambda t: t.empty(shape, dtype=getattr(t, dtype)).uniform_(-0.1, 0.37))
    agree(lambda t: t.empty(shape, dtype=getattr(t, dtype)).uniform_(10_000.0, 10_001.0))
    agree(lambda t: t.empty(shape, dtype=getattr(t, dtype)).normal_(2.0, 3.0))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_complex_numbers(shape: tuple[int, ...], dtype: str) -> None:
    agree(lambda t: t.rand(shape, dtype=getattr(t, dtype)))
    agree(lambda t: t.randn(shape, dtype=getattr(t, dtype)))


@pytest.mark.parametrize("seed", [0, 1, -1, 2**32 - 1, 2**32, 2**63 - 1, 67280421310721])
def test_seeds(seed: int) -> None:
    agree(lambda t: t.randn(40), seed)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_functions_of_uniform_and_normal_numbers(shape: tuple[int, ...], dtype: str) -> None:
    agree(lambda t: t.empty(shape, dtype=getattr(t, dtype)).cauchy_(1.0, 2.5))
    agree(lambda t: t.empty(shape, dtype=getattr(t, dtype)).cauchy_(float("inf"), 2.5))
    agree(lambda t: t.empty(shape, dtype=getattr(t, dtype)).log_normal_(0.5, 2.0))
    agree(lambda t: t.empty(shape, dtype=getattr(t, dtype)).geometric_(0.3))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_whole_numbers_of_trials(dtype: str) -> None:
    agree(lambda t: t.empty(50, dtype=getattr(t, dtype)).geometric_(0.3))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("inplace", [False, True])
def test_random_slopes(dtype: str, inplace: bool) -> None:
    def program(t: Any) -> Any:
        x = (t.arange(60) % 7 - 3).reshape(4, 15).to(getattr(t, dtype)).div(4).requires_grad_()
        y = t.nn.functional.rrelu(x * 1, 0.1, 0.7, training=True, inplace=inplace)
        y.sum().backward()
        return t.stack([y.detach(), x.grad])

    agree(program)


def test_many_normal_numbers() -> None:
    agree(lambda t: t.randn(100_003))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool", *FLOATS])
def test_integers(dtype: str) -> None:
    agree(lambda t: t.empty(50, dtype=getattr(t, dtype)).random_())
    if dtype != "bool":
        agree(lambda t: t.empty(50, dtype=getattr(t, dtype)).random_(3, 100))
        agree(lambda t: t.randint(1, 90, (4, 5), dtype=getattr(t, dtype)))


@pytest.mark.parametrize("bits_of_range", [1, 8, 27, 28, 29, 31, 32, 33, 48, 62])
def test_ranges_of_integers(bits_of_range: int) -> None:
    agree(lambda t: t.randint(-5, 2**bits_of_range - 1, (7,)))
    agree(lambda t: t.randint(2**bits_of_range, (7,)))


@pytest.mark.parametrize("n", [0, 1, 2, 10, 1000])
def test_permutations(n: int) -> None:
    agree(lambda t: t.randperm(n))


def test_numbers_lie_in_the_order_of_memory() -> None:
    agree(lambda t: t.empty(3, 4).t().uniform_())
    agree(lambda t: t.empty(5, 6, 7).permute(2, 0, 1)[1:].normal_())
    agree(lambda t: t.empty(6, 8)[:, ::2].random_(0, 1000))


def test_probabilities_of_tensors() -> None:
    agree(lambda t: t.bernoulli(t.linspace(0, 1, 40)))
    agree(lambda t: t.bernoulli(t.linspace(0, 1, 40, dtype=t.float64)))
    agree(lambda t: t.bernoulli(t.linspace(0, 1, 40, dtype=t.bfloat16)))
    agree(lambda t: t.bernoulli(t.linspace(0, 1, 40).reshape(5, 8).t()))


def test_choice_with_replacement() -> None:
    weights = [[0.1, 3.0, 0.0, 2.0], [1.0, 1.0, 5.0, 0.25]]
    agree(lambda t: t.multinomial(t.tensor(weights), 9, replacement=True))


@pytest.mark.skipif(torch_uses_mkl(), reason="PyTorch draws these by MKL on Intel's processors")
def test_what_pytorch_draws_otherwise_on_intel() -> None:
    for dtype in FLOATS:
        agree(lambda t, d=dtype: t.empty(40, dtype=getattr(t, d)).bernoulli_(0.3))
        agree(lambda t, d=dtype: t.empty(40, dtype=getattr(t, d)).exponential_(0.7))
        agree(lambda t, d=dtype: t.nn.functional.dropout(t.ones(40, dtype=getattr(t, d)), 0.3))
    agree(lambda t: t.empty(30, dtype=t.int64).bernoulli_(0.5))
    agree(lambda t: t.multinomial(t.tensor([0.1, 3.0, 0.0, 2.0]), 3))
    agree(lambda t: t.multinomial(t.tensor([[0.1, 3.0], [2.0, 1.0]]), 1, replacement=True))


@pytest.mark.parametrize(
    "name",
    "uniform_ normal_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_".split(),
)
def test_initialisers(name: str) -> None:
    agree(lambda t: getattr(t.nn.init, name)(t.empty(20, 30)))


@pytest.mark.parametrize("bounds", [(-2.0, 2.0), (0.1, 0.4), (2.0, 3.0), (-3.0, -2.0)])
def test_cut_off_normal_numbers(bounds: tuple[float, float]) -> None:
    agree(lambda t: t.nn.init.trunc_normal_(t.empty(20, 30), 0.1, 1.2, *bounds))


def test_numbers_like_other_tensors() -> None:
    agree(lambda t: t.normal(t.arange(20.0), t.arange(1.0, 21.0)))
    agree(lambda t: t.randn_like(t.ones(2, 3, 4, 5).to(memory_format=t.channels_last)))
    agree(lambda t: t.rand_like(t.ones(4, 5).t()))
    agree(lambda t: t.randint_like(t.ones(4, 5), 3, 9))
    agree(lambda t: t.randint_like(t.ones(4, 5), high=9))
    with pytest.raises(TypeError, match="missing 1 required positional arguments: 'high'"):
        tangrad.randint_like(tangrad.ones(4, 5))


def test_modules_start_with_the_weights_of_pytorch() -> None:
    agree(lambda t: t.nn.Linear(13, 7).weight)
    agree(lambda t: t.nn.Conv2d(3, 4, 3).bias)
    agree(lambda t: t.nn.Embedding(5, 6).weight)


def test_state_moves_between_the_two() -> None:
    torch.manual_seed(3)
    torch.randn(5)  # leaves a number for the next call
    tangrad.set_rng_state(tangrad.tensor(torch.get_rng_state().tolist(), dtype=tangrad.uint8))
    assert bits(tangrad.randn(7)) == bits(torch.randn(7))
    torch.set_rng_state(torch.tensor(tangrad.get_rng_state().tolist(), dtype=torch.uint8))
    assert bits(tangrad.rand(700)) == bits(torch.rand(700))


def test_generators_keep_their_engine() -> None:
    generator = tangrad.Generator().manual_seed(5)
    twin, copy = generator.clone_state(), pickle.loads(pickle.dumps(generator))
    expected = torch.rand(3, generator=torch.Generator().manual_seed(5))
    for one in (generator, twin, copy):
        assert one.engine == "mt19937"
        assert bits(tangrad.rand(3, generator=one)) == bits(expected)
    with pytest.raises(NotImplementedError, match="no counters"):
        generator.get_offset()
    with tangrad.random.fork_rng():
        tangrad.rand(3)
    agree(lambda t: t.rand(3))


def test_gradients_pass_the_mask_that_was_drawn() -> None:
    x = tangrad.ones(50, requires_grad=True)
    y = tangrad.nn.functional.dropout(x, 0.5)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.equal(y.detach())


def test_other_devices_draw_the_same() -> None:
    def draw(device: str) -> Any:
        generator = tangrad.Generator(device).manual_seed(1)
        return tangrad.randn(20, generator=generator, device=device).cpu()

    assert draw("cpu").equal(draw("reference"))
    assert tangrad.randn(3, device="meta").is_meta


@pytest.mark.parametrize(
    "fill",
    [
        lambda x: x.random_(),
        lambda x: x.cauchy_(),
        lambda x: x.log_normal_(),
        lambda x: x.geometric_(0.25),
    ],
)
@pytest.mark.parametrize("randomness", ["same", "different"])
def test_vmap_fills_by_every_distribution_as_pytorch(
    fill: Callable[[Any], Any], randomness: str
) -> None:
    agree(lambda t: t.vmap(fill, randomness=randomness)(t.zeros(3, 5)))
    with pytest.raises(RuntimeError, match="randomness error mode"):
        tangrad.vmap(fill)(tangrad.zeros(3, 5))
    shared = tangrad.zeros(5)
    with pytest.raises(RuntimeError, match="inplace randomness on an unbatched tensor"):
        tangrad.vmap(lambda x: fill(shared) + x, randomness="different")(tangrad.zeros(3, 5))


@pytest.mark.parametrize("chunk_size", [1, 2, 4])
def test_chunks_of_a_vmap_draw_the_same(chunk_size: int) -> None:
    def program(t: Any) -> Any:
        def noisy(x: Any) -> Any:
            return x + t.rand_like(x)

        mapped = t.vmap(noisy, randomness="same", chunk_size=chunk_size)
        return t.stack([*mapped(t.zeros(5, 3)), t.rand(3)])

    agree(program)


def test_bernoulli_fills_transposed_tensors_in_their_order() -> None:
    agree(lambda t: t.bernoulli(t.zeros(4, 6).t(), 0.5))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_vmap_draws_what_it_draws_in_pytorch(randomness: str) -> None:
    found = []
    for lib in (tangrad, torch):
        lib.manual_seed(1)
        noisy = lib.vmap(lambda x: x.clone().uniform_(), randomness=randomness)
        found.append(noisy(lib.ones(3, 2)).tolist())
    assert found[0] == found[1]


def test_engines_are_named() -> None:
    assert tangrad.random.get_engine() == "mt19937"
    with pytest.raises(ValueError, match="philox, mt19937"):
        tangrad.random.set_engine("xorshift")
    with pytest.raises(RuntimeError, match="wrong size"):
        tangrad.set_rng_state(tangrad.zeros(16, dtype=tangrad.uint8))
    with pytest.raises(RuntimeError, match="get_state"):
        tangrad.set_rng_state(tangrad.zeros(5056, dtype=tangrad.uint8))


def test_the_environment_chooses() -> None:
    program = "import tangrad; tangrad.manual_seed(7); print(tangrad.rand(2).tolist())"
    torch.manual_seed(7)
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TANGRAD_RNG": "mt19937"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == str(torch.rand(2).tolist())
    refused = subprocess.run(
        [sys.executable, "-c", "import tangrad; tangrad.rand(2)"],
        env={**os.environ, "TANGRAD_RNG": "dice"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TANGRAD_RNG" in refused.stderr
    assert "philox, mt19937" in refused.stderr


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("rand"), st.integers(0, 40), st.sampled_from(FLOATS)),
            st.tuples(st.just("randn"), st.integers(0, 40), st.sampled_from(FLOATS)),
            st.tuples(st.just("randperm"), st.integers(0, 20), st.just("int64")),
        ),
        max_size=12,
    ),
    st.integers(0, 2**64 - 1),
)
def test_any_order_of_draws(draws: list[tuple[str, int, str]], seed: int) -> None:
    torch.manual_seed(seed)
    tangrad.manual_seed(seed)
    for name, n, dtype in draws:
        ours = getattr(tangrad, name)(n, dtype=getattr(tangrad, dtype))
        assert bits(ours) == bits(getattr(torch, name)(n, dtype=getattr(torch, dtype)))
    assert tangrad.get_rng_state().tolist() == torch.get_rng_state().tolist()


def probabilities(t: Any, dtype: str) -> Any:
    return t.tensor([i / 64 for i in range(1, 41)], dtype=getattr(t, dtype)).view(4, 10)


REJECTED: dict[str, Callable[[Any, str], Any]] = {
    "gamma": lambda t, d: t._standard_gamma(probabilities(t, d) * 5),
    "poisson": lambda t, d: t.poisson(probabilities(t, d) * 60),
    "binomial": lambda t, d: t.binomial((probabilities(t, d) * 90).round(), probabilities(t, d)),
    "dirichlet": lambda t, d: t._sample_dirichlet(probabilities(t, d) * 3),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", REJECTED)
def test_numbers_by_rejection_are_those_of_pytorch(kind: str, dtype: str) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        tangrad.manual_seed(seed)
        for _ in range(3):
            theirs = REJECTED[kind](torch, dtype).numpy()
            ours = REJECTED[kind](tangrad, dtype).numpy()
            np.testing.assert_allclose(ours, theirs, rtol=3e-7 if dtype == "float32" else 1e-14)
        assert tangrad.get_rng_state().tolist() == torch.get_rng_state().tolist()


def test_no_parameter_is_tried_for_ever() -> None:
    nan, inf = math.nan, math.inf
    half = tangrad.tensor([0.5] * 3)
    assert (
        str(tangrad.binomial(tangrad.tensor([nan, inf, -1.0]), half).tolist()) == "[nan, nan, 0.0]"
    )
    assert (
        str(tangrad._standard_gamma(tangrad.tensor([nan, inf, -1.0])).tolist()) == "[nan, inf, nan]"
    )
    assert tangrad.poisson(tangrad.tensor([inf])).item() == inf
    with pytest.raises(RuntimeError, match="invalid Poisson rate"):
        tangrad.poisson(tangrad.tensor([nan]))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("normal", "float16"),
        ("normal", "float32"),
        ("gamma", "float32"),
        ("poisson", "float32"),
        ("binomial", "float32"),
    ],
)
def test_many_numbers_take_no_longer_than_in_pytorch(kind: str, dtype: str) -> None:
    import time

    def draw(t: Any) -> None:
        x = t.full((30_000,), 8.0, dtype=getattr(t, dtype))
        if kind == "normal":
            x.normal_()
        elif kind == "gamma":
            t._standard_gamma(x)
        elif kind == "poisson":
            t.poisson(x)
        else:
            t.binomial(x, t.full_like(x, 0.25))

    def seconds(t: Any) -> float:
        best = math.inf
        for _ in range(5):
            begin = time.perf_counter()
            draw(t)
            best = min(best, time.perf_counter() - begin)
        return best

    # One number after the other in Python took a hundred times as long.
    assert seconds(tangrad) < 10 * seconds(torch)


def test_no_numbers_are_drawn_for_what_has_no_memory() -> None:
    def program(t: Any) -> Any:
        huge = t.randn(240_000, 240_000, device="meta")
        huge.uniform_()
        assert tuple(huge.shape) == (240_000, 240_000)
        return t.rand(3)

    agree(program)
