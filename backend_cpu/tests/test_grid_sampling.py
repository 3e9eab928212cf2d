"""Samples at positions and their gradients in one pass, against the sums of taps they stand for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.nn.grid_sampling_taps import sampled
from tangrad.plugin import find_op
from tangrad_cpu import _kernels

backward = find_op("_grid_sampled_backward")
MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


def stored(x: np.ndarray[Any, Any], layout: str) -> tangrad.Tensor:
    """Return a tensor that lies in memory as a layout says."""
    t = tangrad.from_numpy(x)
    if layout == "last":
        return t.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "turned":
        order = tuple(reversed(range(t.ndim)))
        return t.permute(order).contiguous().permute(order)
    if layout == "apart":
        return t.repeat_interleave(2, -1)[..., ::2]
    return t


def operands(
    seed: int, dtype: str, lead: tuple[int, int], sizes: tuple[int, ...], outs: tuple[int, ...]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    g = np.random.default_rng(seed)
    x = g.standard_normal((*lead, *sizes)).astype(dtype)
    grid = g.uniform(-3.2, 3.2, (lead[0], *outs, len(sizes))).astype(dtype)
    flat = grid.reshape(-1)
    # Borders and centers exactly, and what is no place at all.
    few = g.random(flat.size) < 0.2
    named = np.array([-1, 1, 0, 0.5, np.nan, np.inf, -np.inf, 1e30, -1e30, 7, -9], dtype)
    flat[few] = g.choice(named, int(few.sum()))
    return x, grid


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from(["float32", "float64"]),
    st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 3, 5, 8, 16, 17, 33, 70])),
    st.lists(st.integers(1, 6), min_size=2, max_size=3),
    st.data(),
)
def test_samples_are_the_sums_of_taps(
    seed: int, dtype: str, lead: tuple[int, int], sizes: list[int], data: Any
) -> None:
    volume = len(sizes) == 3
    outs = data.draw(st.lists(st.integers(1, 7), min_size=len(sizes), max_size=len(sizes)))
    mode = data.draw(st.sampled_from(MODES[: 2 if volume else 3]))
    padding, align = data.draw(st.sampled_from(PADDINGS)), data.draw(st.booleans())
    layouts = st.sampled_from(["plain", "last", "turned", "apart"])
    x, grid = operands(seed, dtype, lead, tuple(sizes), tuple(outs))
    mine, places = stored(x, data.draw(layouts)), stored(grid, data.draw(layouts))
    wanted = sampled.definition.decompose(mine, places, mode, padding, align)
    found = sampled(mine, places, mode, padding, align)
    assert found.stride() == wanted.contiguous().stride()
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())

    # Gradients by positions that are no numbers are none either.
    grid = np.where(np.abs(grid) < 100, grid, np.asarray(0.25, dtype))
    places = stored(grid, data.draw(layouts))
    g = np.random.default_rng(seed).standard_normal(tuple(found.shape)).astype(dtype)
    weight = stored(g, data.draw(layouts))
    by_input, by_grid = data.draw(st.booleans()), data.draw(st.booleans())
    given_ = (weight, mine, places, mode, padding, align, by_input, by_grid)
    expected = backward.definition.decompose(*given_)
    eps = float(np.finfo(dtype).eps)
    for mine_, theirs in zip(backward(*given_), expected, strict=True):
        assert mine_.shape == theirs.shape
        scale = 1 + float(np.abs(theirs.numpy()).max(initial=0))
        near = 64 * eps * scale * max(sizes) * max(4, int(np.prod(outs)))
        np.testing.assert_allclose(mine_.numpy(), theirs.numpy(), rtol=0, atol=near)


@pytest.mark.parametrize(
    ("mode", "padding", "align"), list(itertools.product(MODES, PADDINGS, (False, True)))
)
def test_few_positions_of_a_large_image_are_those_of_the_taps(
    mode: str, padding: str, align: bool
) -> None:
    x, grid = operands(3, "float32", (2, 19), (40, 31), (1, 5))
    given_ = (tangrad.from_numpy(x), tangrad.from_numpy(grid), mode, padding, align)
    np.testing.assert_array_equal(
        sampled(*given_).numpy(), sampled.definition.decompose(*given_).numpy()
    )


def test_an_element_beside_the_image_is_nothing_times_no_weight() -> None:
    x = tangrad.full((1, 5, 2, 2), float("inf"))
    grid = tangrad.tensor([[[[5.0, 5.0], [0.0, -1.25], [float("nan"), 0.0]]]])
    assert sampled(x, grid, "bilinear", "zeros", False).tolist() == [
        [[[0.0, float("inf"), 0.0]]] * 5
    ]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 0, 4, 4), (2, 3, 4, 4)])
def test_samples_of_nothing_are_nothing(dtype: str, shape: tuple[int, ...]) -> None:
    x = tangrad.ones(shape, dtype=getattr(tangrad, dtype), requires_grad=True)
    grid = tangrad.zeros(shape[0], 0, 3, 2, dtype=x.dtype, requires_grad=True)
    found = tangrad.nn.functional.grid_sample(x, grid, align_corners=False)
    assert tuple(found.shape) == (*shape[:2], 0, 3)
    for leaf, g in zip((x, grid), tangrad.autograd.grad(found.sum(), (x, grid)), strict=True):
        assert g.shape == leaf.shape
        assert not g.count_nonzero()


@pytest.mark.parametrize("mode", MODES)
def test_second_gradients_are_those_of_the_taps(mode: str) -> None:
    x, grid = operands(5, "float64", (1, 2), (4, 5), (2, 3))
    grid = np.clip(np.nan_to_num(grid, posinf=0.3, neginf=0.2), -0.9, 0.9)
    leaves = [tangrad.from_numpy(a).requires_grad_() for a in (x, grid)]
    assert tangrad.autograd.gradgradcheck(lambda a, b: sampled(a, b, mode, "zeros", False), leaves)


def test_a_tensor_off_alignment_is_sampled() -> None:
    raw = np.zeros(4 * 300 + 1, np.uint8)[1:].view(np.float32)
    raw[:] = np.random.default_rng(0).standard_normal(300)
    x = tangrad.from_numpy(raw.reshape(1, 3, 10, 10))
    grid = tangrad.rand(1, 4, 4, 2)
    found = sampled(x, grid, "bilinear", "border", True)
    assert found.equal(sampled(x.clone(), grid, "bilinear", "border", True))


def test_bits_do_not_depend_on_the_threads() -> None:
    before = tangrad.get_num_threads()
    x, grid = (tangrad.from_numpy(a) for a in operands(1, "float32", (3, 130), (9, 11), (40, 41)))
    found = []
    try:
        for threads in (1, 2, 5):
            _kernels.set_num_threads(threads)
            y = sampled(x, grid, "bicubic", "reflection", False)
            pair = backward(y, x, grid, "bilinear", "reflection", False, True, True)
            found.append([t.numpy().tobytes() for t in (y, *pair)])
    finally:
        tangrad.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_a_failed_allocation_leaves_an_error() -> None:
    x, grid = (tangrad.from_numpy(a) for a in operands(1, "float32", (1, 5), (9, 11), (40, 41)))
    turned = grid.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    y = sampled(x, turned, "bilinear", "zeros", False)
    seen = 0
    for calls in range(12):
        _kernels.fail_scratch_after(calls)
        try:
            sampled(x, turned, "bilinear", "zeros", False)
            backward(y, x, turned, "bilinear", "zeros", False, True, True)
        except MemoryError:
            seen += 1
        finally:
            _kernels.fail_scratch_after(-1)
    assert seen >= 4
