"""Random numbers of the CPU's kernels: bits of the definition, whatever the level or threads."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tangrad
from tangrad.random import philox
from tangrad_cpu import _kernels

SEED = 20261122
# Not a multiple of any block, piece or vector; large enough for several tasks.
COUNT = 3 * 16384 + 1021
LEVELS = [name for name, runs in _kernels.levels().items() if runs]
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")


def on_both(draw: Any) -> tuple[Any, Any]:
    """Return what a function of a device draws on the CPU and on the reference device."""
    drawn = []
    for device in ("cpu", "reference"):
        tangrad.manual_seed(SEED)
        tangrad.rand(5, device=device)  # a start that is not the stream's
        drawn.append(draw(device).to("cpu"))
    return drawn[0], drawn[1]


def empty(dtype: str, device: str, count: int = COUNT) -> Any:
    return tangrad.empty(count, dtype=getattr(tangrad, dtype), device=device)


def as_doubles(x: Any) -> Any:
    if x.dtype.is_complex:
        x = tangrad.view_as_real(x)
    return x.double().numpy()


def units_apart(a: Any, b: Any, dtype: str) -> float:
    """Return the largest distance in units in the last place of `dtype`."""
    bits = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype]
    x, y = as_doubles(a), as_doubles(b)
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(y), 1e-30))) - bits)
    return float((np.abs(x - y) / unit).max())


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64", "complex128"])
def test_uniform_has_the_bits_of_the_definition(dtype: str) -> None:
    a, b = on_both(lambda device: empty(dtype, device).uniform_(-1.5, 2.25))
    assert bool((a == b).all())


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_is_within_three_units_of_the_definition(dtype: str) -> None:
    """Single precision: the bound is 3 units, and 2 but for one value in ten million."""
    a, b = on_both(lambda device: empty(dtype, device).normal_())
    assert units_apart(a, b, dtype) <= 3
    assert float((a == b).float().mean()) > 0.6


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_normal_takes_a_value_for_each_part(dtype: str) -> None:
    a, b = on_both(lambda device: empty(dtype, device).normal_(0.0, 2.0))
    assert units_apart(a, b, {"complex64": "float32", "complex128": "float64"}[dtype]) <= 4


@pytest.mark.parametrize("dtype", FLOATS)
def test_exponential_is_within_two_units_of_the_definition(dtype: str) -> None:
    a, b = on_both(lambda device: empty(dtype, device).exponential_(1.7))
    assert units_apart(a, b, dtype) <= 2


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("bounds", [(0, 7), (-3, 100000), (0, 2**63 - 1), (-(2**63), 2**63 - 1)])
def test_integers_have_the_bits_of_the_definition(dtype: str, bounds: tuple[int, int]) -> None:
    low, high = bounds
    if dtype == "bool":
        low, high = 0, 2
    elif dtype in INTEGERS:
        kind = tangrad.iinfo(getattr(tangrad, dtype))
        low, high = max(low, kind.min), min(high, kind.max + 1)
    else:  # what lies beyond is rounded, with a warning, or refused
        exact = round(2 / tangrad.finfo(getattr(tangrad, dtype)).eps)
        low, high = max(low, -exact), min(high, exact)
    a, b = on_both(lambda device: empty(dtype, device, 5001).random_(low, high))
    assert bool((a == b).all())


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
@pytest.mark.parametrize("n", [0, 1, 2, 8, 9, 63, 65, 1024, 1025, 5000, 16384, 16385, 70000])
def test_permutation_is_that_of_the_definition(dtype: str, n: int) -> None:
    a, b = on_both(lambda device: tangrad.randperm(n, dtype=getattr(tangrad, dtype), device=device))
    assert bool((a == b).all())


# Of 2**20 keys of these seeds, two begin with the same 44 bits: no item of the kernel holds more.
@pytest.mark.parametrize("seed", [56, 58])
def test_permutation_of_keys_that_begin_alike_is_that_of_the_definition(seed: int) -> None:
    leading = np.sort(philox.random_uint64(seed, 0, 1 << 20) >> np.uint64(20))
    assert (leading[1:] == leading[:-1]).any()
    tangrad.manual_seed(seed)
    found = tangrad.randperm(1 << 20).numpy()
    np.testing.assert_array_equal(found, philox.randperm(seed, 0, 1 << 20))


def test_permutation_fills_a_vector_with_gaps() -> None:
    def drawn(device: str) -> tangrad.Tensor:
        wide = tangrad.zeros(3 * 5000, dtype=tangrad.int64, device=device)
        tangrad.randperm(5000, out=wide[::3])
        return wide

    a, b = on_both(drawn)
    assert bool((a == b).all())


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("p", [0.0, 2.0**-24, 0.3, 1.0])
def test_bernoulli_has_the_bits_of_the_definition(dtype: str, p: float) -> None:
    a, b = on_both(lambda device: empty(dtype, device).bernoulli_(p))
    assert bool((a == b).all())


@pytest.mark.parametrize("dtype", FLOATS)
def test_bernoulli_of_probabilities(dtype: str) -> None:
    a, b = on_both(lambda device: empty(dtype, device).uniform_().bernoulli())
    assert bool((a == b).all())
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(RuntimeError, match="p_in"):
            tangrad.full((3,), wrong, dtype=getattr(tangrad, dtype)).bernoulli()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("most", [0.5, 24.0, 60.0, 2000.0])
def test_poisson_draws_the_counts_of_the_definition(dtype: str, most: float) -> None:
    def draw(device: str) -> Any:
        means = tangrad.linspace(0, most, 1500, dtype=tangrad.float64, device="cpu")
        return tangrad.poisson(means.to(getattr(tangrad, dtype)).to(device))

    a, b = on_both(draw)
    assert bool((a == b).all())


def test_poisson_refuses_what_is_no_mean() -> None:
    for wrong in (-1.0, float("nan")):
        with pytest.raises(RuntimeError, match="non-negative"):
            tangrad.poisson(tangrad.tensor([1.0, wrong]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_and_its_gradient_draw_the_same_mask(dtype: str) -> None:
    def draw(device: str) -> Any:
        x = empty(dtype, device).uniform_(0.5, 2)  # no zeros: they tell what is dropped
        x[3], x[4], x[5] = float("inf"), float("nan"), -0.0
        x.requires_grad_()
        y = tangrad.nn.functional.dropout(x, 0.3)
        (grad,) = tangrad.autograd.grad(y, x, tangrad.ones_like(y))
        return tangrad.stack([y.detach(), grad])

    a, b = on_both(draw)
    same = (a == b) | ((a != a) & (b != b))
    assert bool(same.all())
    kept = a[1] != 0
    assert abs(float(kept.float().mean()) - 0.7) < 0.02
    assert bool((kept == (a[0] != 0))[6:].all())


def test_gradient_of_permuted_dropout_goes_by_position() -> None:
    """The mask belongs to positions in row-major order, not to places in memory."""

    def draw(device: str) -> Any:
        g = tangrad.arange(60.0, device=device).reshape(3, 4, 5).permute(2, 0, 1) + 1
        x = tangrad.ones(5, 3, 4, device=device, requires_grad=True)
        y = tangrad.nn.functional.dropout(x, 0.5)
        return tangrad.autograd.grad(y, x, g)[0]

    a, b = on_both(draw)
    assert bool((a == b).all())


def test_elements_of_a_view_go_by_position() -> None:
    def draw(device: str) -> Any:
        wide = tangrad.zeros(40, 50, 30, device=device)
        wide.permute(2, 0, 1)[:, ::3].uniform_()
        return wide

    a, b = on_both(draw)
    assert bool((a == b).all())


def test_large_seeds_and_offsets_keep_all_their_bits() -> None:
    generator = tangrad.Generator().manual_seed(2**64 - 12345)
    generator.set_offset(2**64 - 7)
    drawn = tangrad.rand(100, generator=generator)
    expected = philox.uniform(2**64 - 12345, 2**64 - 7, 100)
    assert (drawn.numpy() == expected).all()


PROGRAM = f"""
import hashlib
import tangrad
from tangrad_cpu import _kernels
for threads in (1, 2, 4):
    tangrad.rand(1)
    _kernels.set_num_threads(threads)
    tangrad.manual_seed({SEED})
    x = tangrad.rand({4 * COUNT})
    drawn = [x, tangrad.randperm(70000), tangrad.nn.functional.dropout(x, 0.3)]
    drawn += [tangrad.randint(-5, 5, ({COUNT},)), x.bernoulli(), tangrad.randn({4 * COUNT})]
    drawn[-1] = drawn[-1] + tangrad._standard_gamma(x * 3)
    digests = [hashlib.sha256(d.numpy().tobytes()).hexdigest() for d in drawn]
    print(_kernels.level(), *digests)
"""


def test_levels_and_threads_draw_the_same_bits() -> None:
    """Normal numbers, the last, are the same for any threads; levels may contract differently."""
    seen = {}
    for level in LEVELS:
        environment = {**os.environ, "TANGRAD_CPU_ISA": level}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines()]
        assert [line[0] for line in lines] == [level] * 3
        assert lines[0] == lines[1] == lines[2], "results depend on the number of threads"
        seen[level] = lines[0][1:-1]
    assert all(digests == seen[LEVELS[0]] for digests in seen.values())


def test_moments_of_the_distributions() -> None:
    tangrad.manual_seed(1)
    n = 400_000
    x = tangrad.randn(n)
    assert abs(float(x.mean())) < 5 / n**0.5
    assert abs(float((x * x).mean()) - 1) < 8 / n**0.5
    assert abs(float((x**4).mean()) - 3) < 0.1
    assert abs(float((x[1:] * x[:-1]).mean())) < 5 / n**0.5
    u = tangrad.rand(n)
    assert 0 <= float(u.min()) < 1e-4
    assert 1 - 1e-4 < float(u.max()) < 1
    assert abs(float(u.mean()) - 0.5) < 2 / n**0.5
    e = tangrad.empty(n).exponential_(2.0)
    assert float(e.min()) >= 0
    assert abs(float(e.mean()) - 0.5) < 3 / n**0.5


def test_no_working_memory_is_an_error() -> None:
    shapes = tangrad.ones(1000)
    calls = {
        "randperm": lambda: tangrad.randperm(1000),
        "_standard_gamma": lambda: tangrad._standard_gamma(shapes),
    }
    for name, call in calls.items():
        call()
        _kernels.fail_scratch_after(0)
        try:
            with pytest.raises(MemoryError, match=name):
                call()
        finally:
            _kernels.fail_scratch_after(-1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", ["_standard_gamma", "_sample_dirichlet"])
def test_gamma_numbers_are_those_of_the_definition(name: str, dtype: str) -> None:
    """Some of 30,000 numbers are drawn four times; those of shapes near zero would underflow."""
    op = getattr(tangrad, name)
    for shape in ((30000,), (40, 5), (3,), (0, 4)):
        a = np.random.default_rng(1).uniform(0.02, 9, shape).astype(dtype)
        given = tangrad.from_numpy(np.stack([a, a], -1))[..., 0]
        found = op(given, generator=tangrad.Generator("cpu").manual_seed(SEED)).numpy()
        expected = op.definition.reference(np, a, SEED, 0)
        assert found.dtype == dtype
        # What is drawn is the exponential of a logarithm, whose error it multiplies.
        near = max(4 * np.finfo(dtype).eps, 1e-13)
        np.testing.assert_allclose(found, expected, rtol=near)


def test_gamma_numbers_of_odd_shapes() -> None:
    a = tangrad.tensor([0.0, float("nan"), 1e-30, 1e30, float("inf")])
    drawn = tangrad._standard_gamma(a)
    assert drawn[0] == 0
    assert drawn[2] == tangrad.finfo(tangrad.float32).tiny
    assert abs(float(drawn[3]) / 1e30 - 1) < 1e-6
