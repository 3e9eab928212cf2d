"""Max pooling finds the values and positions that the reference device finds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.ops.nn.pooling.adaptive import adaptive_max_pool
from tangrad.ops.nn.pooling.greatest import max_pool_values, max_pool_with_indices
from tangrad.ops.nn.pooling.one_pass import max_pool_backward
from tangrad_cpu import _kernels


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
    st.booleans(),
    st.data(),
)
def test_agrees_with_the_reference(
    spatial: int, dtype: str, ceil_mode: bool, data: st.DataObject
) -> None:
    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(spatial))

    kernel, stride, dilation = sizes(1, 4), sizes(1, 3), sizes(1, 2)
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    more = sizes(0, 600 if spatial == 1 else 40 if spatial == 2 else 4)
    size = tuple(r + m for r, m in zip(reach, more, strict=True))
    shape = (*data.draw(st.sampled_from([(1,), (2, 3), (0, 2)])), *size)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    order = data.draw(st.permutations(range(len(shape))))
    x = _few_values(rng, [shape[d] for d in order], data).to(getattr(tangrad, dtype))
    x = x.permute(tuple(np.argsort(order).tolist()))
    geometry = (kernel, stride, padding, dilation, ceil_mode)
    _check_max_pool(x, geometry)


def _check_max_pool(x, geometry):
    """Compare values and places with the reference's, and values alone with those."""
    got = max_pool_with_indices(x, *geometry)
    expected = max_pool_with_indices(x.to("reference"), *geometry)
    np.testing.assert_array_equal(got[0].float().numpy(), expected[0].cpu().float().numpy())
    np.testing.assert_array_equal(got[1].numpy(), expected[1].cpu().numpy())
    alone = max_pool_values(x, *geometry)
    np.testing.assert_array_equal(alone.float().numpy(), got[0].float().numpy())


def _few_values(rng: np.random.Generator, shape: list[int], data: st.DataObject) -> tangrad.Tensor:
    """Give a tensor of few values, so that many are equal."""
    choices = np.array([-np.inf, np.nan, -1.5, 0.5, 2.0])
    shares = data.draw(st.sampled_from([(0, 0, 1, 1, 1), (3, 1, 1, 1, 1), (1, 0, 0, 0, 0)]))
    return tangrad.from_numpy(rng.choice(choices, shape, p=np.array(shares) / sum(shares)))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3), st.sampled_from(["float32", "float64", "float16", "bfloat16"]), st.data())
def test_adaptive_windows_agree_with_the_reference(
    spatial: int, dtype: str, data: st.DataObject
) -> None:
    most = 300 if spatial == 1 else 40 if spatial == 2 else 12
    size = [data.draw(st.integers(1, most)) for _ in range(spatial)]
    wanted = tuple(
        n // data.draw(st.integers(1, n))
        if data.draw(st.booleans())
        else data.draw(st.integers(1, 9))
        for n in size
    )
    shape = [*data.draw(st.sampled_from([(1,), (2, 3)])), *size]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    order = data.draw(st.permutations(range(len(shape))))
    x = _few_values(rng, [shape[d] for d in order], data).to(getattr(tangrad, dtype))
    x = x.permute(tuple(np.argsort(order).tolist()))
    got = adaptive_max_pool(x, wanted)
    expected = adaptive_max_pool(x.to("reference"), wanted)
    np.testing.assert_array_equal(got[0].float().numpy(), expected[0].cpu().float().numpy())
    np.testing.assert_array_equal(got[1].numpy(), expected[1].cpu().numpy())


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = tangrad.randn(8, 30, 57, 55)
    before = _kernels.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 4):
            _kernels.set_num_threads(threads)
            pooled = max_pool_with_indices(x, (3, 3), (2, 2), (1, 1), (1, 1), False)
            more = (max_pool_values(x, (3, 3), (2, 2), (1, 1), (1, 1), False),)
            more += tuple(adaptive_max_pool(x, (7, 5)))
            found.append([y.numpy().tobytes() for y in (*pooled, *more)])
    finally:
        _kernels.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("calls", [0, 1])
def test_missing_working_memory_is_an_error(calls: int) -> None:
    x = tangrad.randn(2, 3, 8, 8).bfloat16()
    _kernels.fail_scratch_after(calls)
    try:
        with pytest.raises(MemoryError, match="working space"):
            max_pool_with_indices(x, (2, 2), (2, 2), (0, 0), (1, 1), False)
    finally:
        _kernels.fail_scratch_after(-1)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: max_pool_values(x, (2, 2), (2, 2), (0, 0), (1, 1), False),
        lambda x: adaptive_max_pool(x, (3, 3)),
    ],
)
def test_missing_memory_for_whole_rows_is_an_error(
    pool: Callable[[tangrad.Tensor], object],
) -> None:
    x = tangrad.randn(2, 3, 8, 8)
    _kernels.fail_scratch_after(0)
    try:
        with pytest.raises(MemoryError, match="working space"):
            pool(x)
    finally:
        _kernels.fail_scratch_after(-1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("padding", [0, 9])
def test_wide_windows_find_the_first_greatest_and_the_last_nan(dtype: str, padding: int) -> None:
    rng = np.random.default_rng(3)
    values = rng.choice([-np.inf, -1.5, 0.5, 2.0], (3, 40, 61))
    values[1, rng.integers(0, 40, 30), rng.integers(0, 61, 30)] = np.nan
    values[2] = -np.inf
    x = tangrad.from_numpy(values).to(getattr(tangrad, dtype))
    geometry = ((19, 20), (19, 20), (padding, padding), (1, 2), False)
    got = max_pool_with_indices(x, *geometry)
    expected = max_pool_with_indices(x.to("reference"), *geometry)
    np.testing.assert_array_equal(got[0].float().numpy(), expected[0].cpu().float().numpy())
    np.testing.assert_array_equal(got[1].numpy(), expected[1].cpu().numpy())


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["float32", "float64", "bfloat16"]),
    st.sampled_from([1, 3, 4, 7, 8, 16, 19, 35]),
    st.booleans(),
    st.data(),
)
def test_windows_of_pictures_with_channels_last_agree_with_the_reference(
    dtype: str, channels: int, ceil_mode: bool, data: st.DataObject
) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return (data.draw(st.integers(low, high)), data.draw(st.integers(low, high)))

    kernel, stride, dilation, more = pair(1, 4), pair(1, 3), pair(1, 2), pair(0, 9)
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
    sizes = [(k - 1) * d + 1 + m for k, d, m in zip(kernel, dilation, more, strict=True)]
    shape = [data.draw(st.integers(1, 3)), *sizes, channels]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = _few_values(rng, shape, data).to(getattr(tangrad, dtype))
    if data.draw(st.booleans()):
        x = x.repeat_interleave(2, 2)[:, :, ::2]
    geometry = ((*kernel, 1), (*stride, 1), (*padding, 0), (*dilation, 1), ceil_mode)
    _check_max_pool(x, geometry)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.sampled_from(["float32", "float64", "bfloat16", "int32"]), st.data())
def test_gradients_are_added_where_the_greatest_were(
    spatial: int, dtype: str, data: st.DataObject
) -> None:
    sizes = [data.draw(st.integers(1, 6)) for _ in range(spatial)]
    outs = [data.draw(st.integers(1, 5)) for _ in range(spatial)]
    lead = data.draw(st.sampled_from([(), (1,), (2, 3), (0, 2)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    places = tangrad.from_numpy(rng.integers(0, int(np.prod(sizes)), (*lead, *outs)))
    grad = tangrad.from_numpy(rng.integers(-9, 9, (*lead, *outs))).to(getattr(tangrad, dtype))
    if data.draw(st.booleans()):
        order = tuple(reversed(range(grad.ndim)))
        grad, places = (t.permute(order).contiguous().permute(order) for t in (grad, places))
    ones = (1,) * spatial
    given_ = (grad, places, (*lead, *sizes), ones, ones, (0,) * spatial, ones)
    # Whole numbers, whose sums are exact in any order.
    found = max_pool_backward(*given_)
    assert found.equal(max_pool_backward.definition.decompose(*given_))


@pytest.mark.parametrize("place", [-1, 6, 1 << 40])
def test_a_place_outside_of_the_plane_is_an_error(place: int) -> None:
    places = tangrad.tensor([[[0, place]]])
    with pytest.raises(IndexError, match="none of the 6 elements"):
        max_pool_backward(tangrad.ones(1, 1, 2), places, (1, 2, 3), (1, 2), (1, 1), (0, 0), (1, 1))


def test_adaptive_windows_of_one_size_keep_channels_last() -> None:
    x = tangrad.rand(2, 5, 6, 9).contiguous(memory_format=tangrad.channels_last)
    wanted = tangrad.nn.functional.adaptive_max_pool2d(x.contiguous(), (2, 3))
    found = tangrad.nn.functional.adaptive_max_pool2d(x, (2, 3))
    assert found.equal(wanted)
    assert found.is_contiguous(memory_format=tangrad.channels_last)
    leaves = [x.clone().requires_grad_(), x.contiguous().requires_grad_()]
    for leaf in leaves:
        tangrad.nn.functional.adaptive_max_pool2d(leaf, (2, 3)).square().sum().backward()
    assert leaves[0].grad.equal(leaves[1].grad)


@settings(max_examples=120, deadline=None)
@given(st.integers(1, 3), st.sampled_from(["float32", "float64"]), st.data())
def test_averages_of_windows_agree_with_the_reference(
    spatial: int, dtype: str, data: st.DataObject
) -> None:
    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(spatial))

    functions = tangrad.nn.functional
    shape = (*data.draw(st.sampled_from([(1,), (2, 3)])), *sizes(4, 9))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = tangrad.from_numpy(rng.standard_normal(shape).astype(dtype))
    if data.draw(st.booleans()):
        outs = sizes(1, 6)
        form = getattr(functions, f"adaptive_avg_pool{spatial}d")
        given_: tuple[object, ...] = (outs,)
    else:
        kernel = sizes(1, 4)
        padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
        form = getattr(functions, f"avg_pool{spatial}d")
        given_ = (kernel, sizes(1, 3), padding, data.draw(st.booleans()), data.draw(st.booleans()))
    leaves = [x.clone().requires_grad_(), x.to("reference").requires_grad_()]
    found = []
    for leaf in leaves:
        y = form(leaf, *given_)
        seed = tangrad.arange(y.numel()).remainder(5).reshape(y.shape).to(y.dtype).to(y.device)
        found.append((y.detach(), tangrad.autograd.grad(y, leaf, seed)[0]))
    for mine, other in zip(*found, strict=True):
        near = 40 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(mine.numpy(), other.cpu().numpy(), rtol=near, atol=near)
