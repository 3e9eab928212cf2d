"""Discrete Fourier transforms: near those of double precision for any length, stride and batch."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.plugin import find_op
from tangrad_cpu import _kernels

# Beside the largest number of a result. The error of a fast transform grows with the root of the
# logarithm of its length (Schatzman, "Accuracy of the discrete Fourier transform and the fast
# Fourier transform", 1996); 3 units were found here, and 5 where a convolution takes its place.
UNITS = 12
# Powers, products of small primes, primes below and above what a pass takes, and products with
# these; those from 256 on that are multiples of 256 are transformed one signal after the other.
LENGTHS = [*range(1, 24), 31, 37, 60, 61, 64, 67, 97, 100, 128, 134, 169, 240, 256, 257, 400]
LENGTHS += [441, 512, 625, 768, 1000, 1009, 1024, 1250, 2018, 4096, 5000, 8191]
COMPLEX = {"float32": "complex64", "float64": "complex128"}


def drawn(seed: int, dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    g = np.random.default_rng(seed)
    x = g.standard_normal(shape)
    return (x + 1j * g.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def laid_out(x: np.ndarray[Any, Any], layout: str) -> tangrad.Tensor:
    """Return the numbers as a tensor: contiguous, in the opposite order, or between others."""
    if layout == "opposite":
        return tangrad.from_numpy(x.T.copy()).permute(*reversed(range(x.ndim)))
    if layout == "spread":
        between = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
        between[..., ::2] = x
        return tangrad.from_numpy(between)[..., ::2]
    return tangrad.from_numpy(x)


def check(found: tangrad.Tensor, expected: np.ndarray[Any, Any]) -> None:
    made = found.numpy()
    assert made.shape == expected.shape
    limit = UNITS * np.finfo(made.dtype).eps * np.abs(expected).max(initial=0)
    assert np.abs(made - expected).max(initial=0) <= limit


LAYOUTS = st.sampled_from(["contiguous", "opposite", "spread"])
NORMS = st.sampled_from(["backward", "ortho", "forward"])


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(LENGTHS),
    st.sampled_from([1, 3, 16, 19]),
    st.sampled_from(list(COMPLEX)),
    LAYOUTS,
    st.sampled_from([0, 1]),
    NORMS,
)
def test_one_dimension(n: int, batch: int, dtype: str, layout: str, dim: int, norm: Any) -> None:
    shape = (n, batch) if dim == 0 else (batch, n)
    z, x = drawn(n, COMPLEX[dtype], *shape), drawn(n, dtype, *shape)
    wide, real = z.astype("complex128"), x.astype("float64")
    spectrum = np.fft.rfft(real, axis=dim)
    half = spectrum.astype(COMPLEX[dtype])
    of_z, of_x, of_half = (laid_out(a, layout) for a in (z, x, half))
    check(tangrad.fft.fft(of_z, dim=dim, norm=norm), np.fft.fft(wide, axis=dim, norm=norm))
    check(tangrad.fft.ifft(of_z, dim=dim, norm=norm), np.fft.ifft(wide, axis=dim, norm=norm))
    check(tangrad.fft.rfft(of_x, dim=dim, norm=norm), np.fft.rfft(real, axis=dim, norm=norm))
    check(tangrad.fft.fft(of_x, dim=dim, norm=norm), np.fft.fft(real, axis=dim, norm=norm))
    back = np.fft.irfft(spectrum, n, dim, norm=norm)
    check(tangrad.fft.irfft(of_half, n, dim, norm=norm), back)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 5, 8, 16, 20, 67]), min_size=3, max_size=3),
    st.sampled_from(list(COMPLEX)),
    LAYOUTS,
    st.sampled_from([(0, 1, 2), (2, 0), (1,), (1, 2), (0, 1)]),
    NORMS,
)
def test_several_dimensions(shape: Any, dtype: str, layout: str, dims: Any, norm: Any) -> None:
    z, x = drawn(1, COMPLEX[dtype], *shape), drawn(2, dtype, *shape)
    wide, real = z.astype("complex128"), x.astype("float64")
    of_z, of_x = laid_out(z, layout), laid_out(x, layout)
    check(tangrad.fft.fftn(of_z, dim=dims, norm=norm), np.fft.fftn(wide, axes=dims, norm=norm))
    check(tangrad.fft.ifftn(of_z, dim=dims, norm=norm), np.fft.ifftn(wide, axes=dims, norm=norm))
    check(tangrad.fft.rfftn(of_x, dim=dims, norm=norm), np.fft.rfftn(real, axes=dims, norm=norm))
    if norm == "backward":
        both_sides = find_op("_fft_r2c")(of_x, dims, 0, False)
        check(both_sides, np.fft.fftn(real, axes=dims))
    spectrum = np.fft.rfftn(real, axes=dims)
    sizes = [shape[d] for d in dims]
    given_ = laid_out(spectrum.astype(COMPLEX[dtype]), layout)
    back = np.fft.irfftn(spectrum, sizes, dims, norm=norm)
    check(tangrad.fft.irfftn(given_, sizes, dims, norm=norm), back)


def test_the_imaginary_parts_that_a_real_signal_lacks_are_not_read() -> None:
    for n in (8, 9, 512, 1009):
        z = drawn(n, "complex64", 3, n // 2 + 1)
        clean = z.copy()
        clean[:, 0] = clean[:, 0].real
        z[:, 0] += 5j
        if n % 2 == 0:
            clean[:, -1] = clean[:, -1].real
            z[:, -1] = z[:, -1].real + 7j
        found, expected = (tangrad.fft.irfft(tangrad.from_numpy(a), n) for a in (z, clean))
        assert found.equal(expected)


@pytest.mark.parametrize("n", [1, 16, 60, 512, 1009])
def test_numbers_that_are_not_finite_stay_in_their_signal(n: int) -> None:
    for bad in (np.nan, np.inf):
        z = drawn(n, "complex64", 20, n)
        expected = tangrad.fft.fft(tangrad.from_numpy(z.copy()))
        z[7, n // 2] = bad
        found = tangrad.fft.fft(tangrad.from_numpy(z))
        others = [i for i in range(20) if i != 7]
        assert found[others].equal(expected[others])
        assert not found[7].isfinite().any()
        x = z.real.copy()
        real = tangrad.fft.rfft(tangrad.from_numpy(x))
        assert real[others].isfinite().all()
        assert not real[7].isfinite().any()


def test_signals_of_other_scales_do_not_disturb_each_other() -> None:
    x = drawn(1, "float32", 20, 100)
    x[::2] *= np.float32(1e20)
    found = tangrad.fft.rfft(tangrad.from_numpy(x)).numpy()
    for row, made in zip(x, found, strict=True):
        expected = np.fft.rfft(row.astype("float64"))
        assert np.abs(made - expected).max() <= UNITS * 1.2e-7 * np.abs(expected).max()


def test_empty_batches_and_results_of_other_strides() -> None:
    assert tangrad.fft.fft(tangrad.zeros(0, 8)).shape == (0, 8)
    assert tangrad.fft.rfft(tangrad.zeros(3, 0, 8)).shape == (3, 0, 5)
    z = tangrad.from_numpy(drawn(1, "complex64", 6, 8))
    out = tangrad.zeros(8, 12, dtype=tangrad.complex64)[:, ::2].T
    tangrad.fft.fft(z, out=out)
    assert out.equal(tangrad.fft.fft(z))
    assert tangrad.fft.fft(z[:1].expand(6, 8)).equal(tangrad.fft.fft(z[:1]).expand(6, 8))


def test_results_do_not_depend_on_the_threads() -> None:
    before = tangrad.get_num_threads()
    shapes = [(200, 300), (3, 1 << 16), (40, 1009), (1, 40000), (1, 10007)]
    signals = [tangrad.from_numpy(drawn(i, "complex64", *s)) for i, s in enumerate(shapes)]
    found = []
    try:
        for threads in (1, 2, 5):
            tangrad.set_num_threads(threads)
            results = [tangrad.fft.fft2(z) for z in signals]
            results += [tangrad.fft.fft(z.real) for z in signals]
            results += [tangrad.fft.irfft(z) for z in signals]
            found.append([x.numpy().tobytes() for x in results])
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_missing_working_memory_is_an_error() -> None:
    z = tangrad.from_numpy(drawn(1, "complex64", 1, 1 << 16))
    calls = (
        lambda: tangrad.fft.fft(z),
        lambda: tangrad.fft.fft(z.expand(20, -1)),
        lambda: tangrad.fft.irfft2(z),
    )
    for call in calls:
        for number in (0, 1):
            _kernels.fail_scratch_after(number)
            try:
                with pytest.raises(MemoryError, match="working space"):
                    call()
            finally:
                _kernels.fail_scratch_after(-1)
        call()


def test_more_lengths_than_plans_are_kept() -> None:
    for n in (*range(100, 150), 100):
        z = drawn(n, "complex64", 2, n)
        check(tangrad.fft.fft(tangrad.from_numpy(z)), np.fft.fft(z.astype("complex128")))


LEVEL = """
import numpy as np, tangrad
g = np.random.default_rng(1)
for dtype in ("complex64", "complex128"):
    for n in (5, 16, 60, 67, 100, 256, 512, 1009):
        for batch in (1, 19):
            z = (g.standard_normal((batch, n)) + 1j * g.standard_normal((batch, n))).astype(dtype)
            x = z.real.copy()
            spectrum = np.fft.rfft(x.astype("float64"))
            pairs = [
                (tangrad.fft.fft(tangrad.from_numpy(z)), np.fft.fft(z.astype("complex128"))),
                (tangrad.fft.ifft(tangrad.from_numpy(z.T.copy()), dim=0).T,
                 np.fft.ifft(z.astype("complex128"))),
                (tangrad.fft.rfft(tangrad.from_numpy(x)), spectrum),
                (tangrad.fft.irfft(tangrad.from_numpy(spectrum.astype(dtype)), n),
                 np.fft.irfft(spectrum, n)),
            ]
            for found, expected in pairs:
                error = np.abs(found.numpy() - expected).max()
                assert error <= 12 * np.finfo(dtype).eps * np.abs(expected).max(), (n, batch)
"""


@pytest.mark.parametrize("level", [name for name, runs in _kernels.levels().items() if runs])
def test_every_level(level: str) -> None:
    environment = {**os.environ, "TANGRAD_CPU_ISA": level}
    subprocess.run([sys.executable, "-c", LEVEL], env=environment, check=True, timeout=120)
