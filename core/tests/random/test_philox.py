"""Philox: known answers, exact definitions, distributions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tangrad.random import philox

SEEDS = st.integers(-(2**63), 2**64 - 1)
OFFSETS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_cipher_gives_the_published_answers(counter, key, expected):
    lanes = philox.philox4x32(tuple(np.array([c], np.uint32) for c in counter), key)
    assert tuple(int(lane[0]) for lane in lanes) == expected


@settings(max_examples=50, deadline=None)
@given(SEEDS, OFFSETS, st.integers(0, 40), st.integers(0, 9))
def test_a_word_depends_on_seed_and_counter_only(seed, offset, n, skipped):
    words = philox.random_uint32(seed, offset, n + 4 * skipped)
    assert words.dtype == np.uint32
    later = philox.random_uint32(seed, (offset + skipped) % 2**64, n)
    assert np.array_equal(words[4 * skipped :], later)


def test_a_long_draw_is_many_short_ones():
    n = 4 * philox._BLOCKS_AT_ONCE + 3
    start = 2**64 - 5
    words = philox.random_uint32(9, start, n)
    ends = philox.random_uint32(9, (start + philox._BLOCKS_AT_ONCE - 1) % 2**64, 7)
    assert np.array_equal(words[-7:], ends)


def test_seed_and_offset_use_all_64_bits():
    streams = [(1, 0), (1 << 32, 0), (0, 1 << 32), (0, 1 << 63), (0, 7), (-1, 0)]
    drawn = {philox.random_uint32(seed, offset, 4).tobytes() for seed, offset in streams}
    assert len(drawn) == len(streams)


@pytest.mark.parametrize(("words", "counters"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_a_counter_serves_four_words(words, counters):
    assert philox.counters_for(words) == counters


def test_each_kind_states_its_words():
    assert philox.words_for("normal float64", 3) == 12
    assert philox.words_for("uniform float16", 3) == 3
    assert philox.words_for("randint", 3) == 6


def test_uniform_is_an_exact_function_of_the_words():
    words = [int(w) for w in philox.random_uint32(5, 6, 20)]
    single = philox.uniform(5, 6, 20)
    double = philox.uniform(5, 6, 10, "float64")
    assert single.dtype == np.float32
    assert [float(u) for u in single] == [(w >> 8) * 2.0**-24 for w in words]
    pairs = zip(words[::2], words[1::2], strict=True)
    assert [float(u) for u in double] == [((hi << 32 | lo) >> 11) * 2.0**-53 for lo, hi in pairs]


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_a_uniform_of_few_bits_never_rounds_up_to_one(dtype, bits):
    values = philox.uniform(0, 0, 100_000, dtype)
    assert values.dtype == (np.float16 if dtype == "float16" else np.float32)
    assert float(values.max()) == 1 - 2.0**-bits
    words = philox.random_uint32(0, 0, 100_000) >> np.uint32(32 - bits)
    assert np.array_equal(values.astype(np.float64), words * 2.0**-bits)


def test_normals_of_half_precision_are_those_of_single_rounded():
    exact = philox.normal(4, 0, 1000).astype(np.float16)
    assert np.abs(philox.normal(4, 0, 1000, "float16") - exact).max() < 0.004


def test_the_expression_language_draws_the_same_numbers():
    special = pytest.importorskip("tangrad.expr.special")
    seed, offset = 123456789012345, 2**33 + 7
    drawn = special.philox_uniform(np.int64(seed), np.int64(offset), np.arange(1000))
    assert np.array_equal(drawn, philox.uniform(seed, offset, 1000))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_normal_depends_on_its_own_words_only(dtype):
    many = philox.normal(1, 0, 100, dtype)
    per_counter = 4 // philox.words_for(f"normal {dtype}", 1)
    assert np.array_equal(philox.normal(1, 7, 20, dtype), many[7 * per_counter :][:20])
    assert many.dtype == dtype


def moments(values):
    values = values.astype(np.float64)
    centred = (values - values.mean()) / values.std()
    return values.mean(), values.var(), (centred**3).mean(), (centred**4).mean()


N = 200_000


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (philox.uniform, (0.5, 1 / 12, 0, 1.8)),
        (philox.normal, (0, 1, 0, 3)),
        (lambda s, o, n, d: philox.exponential(s, o, n, 1.0, d), (1, 1, 2, 9)),
    ],
    ids=["uniform", "normal", "exponential"],
)
def test_moments_are_those_of_the_distribution(draw, expected, dtype):
    # 6 standard errors of the widest of these estimates, the exponential's kurtosis.
    tolerance = (0.02, 0.05, 0.15, 1.5)
    for got, want, near in zip(moments(draw(3, 0, N, dtype)), expected, tolerance, strict=True):
        assert abs(got - want) < near


def test_normals_follow_the_distribution_function():
    values = np.sort(philox.normal(11, 0, N).astype(np.float64))
    cdf = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in values[::50]])
    assert np.abs(cdf - np.arange(0, N, 50) / N).max() < 1.95 / math.sqrt(N)


def test_exponentials_scale_and_are_finite_and_not_negative():
    values = philox.exponential(3, 0, N, rate=4.0)
    assert np.isfinite(values).all()
    assert not np.signbit(values).any()
    assert abs(values.mean() - 0.25) < 0.01


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**64))
def test_randint_is_the_high_half_of_the_product(seed, low, width):
    high = min(low + width, 2**63 if low < 0 else 2**64)
    drawn = philox.randint(seed, 0, 5, low, high)
    integers = [int(r) for r in philox.random_uint64(seed, 0, 5)]
    expected = [low + math.floor(Fraction(r * (high - low), 2**64)) for r in integers]
    assert [int(v) for v in drawn] == expected


def test_randint_hits_every_value_equally():
    counts = np.bincount(philox.randint(0, 0, N, 0, 7), minlength=7)
    chi_square = ((counts - N / 7) ** 2 / (N / 7)).sum()
    assert chi_square < 27.9  # 0.9999 quantile, 6 degrees of freedom


@pytest.mark.parametrize(("low", "high"), [(3, 3), (4, 3), (0, 2**64 + 1), (-1, 2**64)])
def test_an_impossible_range_is_refused(low, high):
    with pytest.raises(RuntimeError, match=str(high)):
        philox.randint(0, 0, 1, low, high)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_bernoulli_is_true_with_its_probability(p):
    drawn = philox.bernoulli(5, 0, p, N)
    assert drawn.dtype == bool
    assert abs(drawn.mean() - p) < 0.01
    assert p not in (0.0, 1.0) or drawn.mean() == p


def test_bernoulli_takes_a_probability_per_value():
    assert philox.bernoulli(5, 0, np.array([0.0, 1.0, 0.0]), 3).tolist() == [False, True, False]


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(0, 200))
def test_randperm_is_a_permutation(seed, n):
    drawn = philox.randperm(seed, 0, n)
    assert drawn.dtype == np.int64
    assert sorted(drawn.tolist()) == list(range(n))


def test_randperm_reaches_all_permutations_equally():
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(6000):
        order = tuple(philox.randperm(seed, 0, 3).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert max(abs(count - 1000) for count in counts.values()) < 150


def test_no_values_are_drawn_without_error():
    for draw in (philox.random_uint32, philox.uniform, philox.normal, philox.randperm):
        assert draw(0, 0, 0).shape == (0,)
