"""Group normalization of the CPU's kernels: against the reference, in both orders of memory."""

from __future__ import annotations

import numpy as np
import pytest

import tangrad

NAN, INF = float("nan"), float("inf")


def _on(
    device: str, values: list[np.ndarray], groups: int, last: bool, turned: bool
) -> list[np.ndarray]:
    x, weight, bias, g = (tangrad.tensor(v, device=device) for v in values)
    form = tangrad.channels_last if x.ndim == 4 else tangrad.channels_last_3d
    if last:
        x = x.contiguous(memory_format=form)
    if turned:
        g = g.contiguous(memory_format=form)
    leaves = [t.detach().requires_grad_() for t in (x, weight, bias)]
    result = tangrad.nn.functional.group_norm(leaves[0], groups, *leaves[1:])
    if last and not x.is_contiguous():
        assert result.is_contiguous(memory_format=form)
    found = [result.detach(), *tangrad.autograd.grad(result, leaves, g)]
    return [t.to("cpu").numpy() for t in found]


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    shapes = (shape, shape[1:2], shape[1:2], shape)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(25))
def test_channels_last_give_what_the_reference_gives(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    groups, inside = rng.integers(1, 6), rng.integers(1, 30)
    area = rng.integers(2, 12, 2 + seed % 2)
    shape = (int(rng.integers(1, 4)), int(groups * inside), *(int(n) for n in area))
    values = _drawn(rng, shape, dtype)
    values[0] += 100 * (seed % 3)
    last = seed % 5 > 0
    found = _on("cpu", values, int(groups), last, seed % 4 > 1)
    expected = _on("reference", [v.astype("float64") for v in values], int(groups), False, False)
    scale = 1e-3 if seed % 3 else 2e-5
    for a, b in zip(found, expected, strict=True):
        tolerance = scale * np.abs(b).max() if dtype == "float32" else 1e-9 * np.abs(b).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def test_large_samples_are_cut_in_pieces_and_do_not_depend_on_threads() -> None:
    values = _drawn(np.random.default_rng(1), (2, 24, 90, 91), "float32")
    before, found = tangrad.get_num_threads(), []
    try:
        for threads in (1, 3):
            tangrad.set_num_threads(threads)
            found.append(_on("cpu", values, 4, True, True))
    finally:
        tangrad.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    expected = _on("reference", [v.astype("float64") for v in values], 4, False, False)
    for a, b in zip(found[0], expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())


@pytest.mark.parametrize("value", [NAN, INF])
def test_what_is_not_finite_stays_in_its_group(value: float) -> None:
    values = _drawn(np.random.default_rng(2), (2, 6, 5, 7), "float32")
    values[0][1, 2, 3, 4] = value
    result = _on("cpu", values, 3, True, True)[0]
    assert np.isnan(result[1, 2:4]).any()
    rest = np.ones((2, 6), bool)
    rest[1, 2:4] = False
    assert np.isfinite(result[rest]).all()
    assert (np.isnan(result) == np.isnan(_on("cpu", values, 3, False, False)[0])).all()
