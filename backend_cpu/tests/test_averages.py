"""Averages of windows in one call have the bits of sums along each dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
import tangrad.nn.functional as F
from tangrad.ops.nn.pooling.channels_last import average_of_lines
from tangrad.ops.nn.pooling.one_pass import window_average, window_average_backward
from tangrad.utils._python_dispatch import TorchDispatchMode
from tangrad_cpu import _kernels


def drawn_windows(data: st.DataObject, spatial: int) -> tuple[list[int], tuple[Any, ...]]:
    """Draw sizes of volumes, and windows that lie in them; some are adaptive."""
    most = {1: 70, 2: 20, 3: 7}[spatial]
    sizes = [data.draw(st.integers(1, most)) for _ in range(spatial)]
    if data.draw(st.booleans()):
        outs = tuple(data.draw(st.integers(1, most)) for _ in range(spatial))
        return sizes, (outs, (), (1,) * spatial, (0,) * spatial, 0)
    kernel = tuple(data.draw(st.integers(1, min(n, 5))) for n in sizes)
    stride = tuple(data.draw(st.integers(1, 4)) for _ in sizes)
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
    outs = tuple(
        (n + 2 * p - k) // s + 1 for n, k, s, p in zip(sizes, kernel, stride, padding, strict=True)
    )
    return sizes, (outs, kernel, stride, padding, data.draw(st.sampled_from([0, -1, 3])))


def drawn(rng: np.random.Generator, shape: Any, dtype: str) -> np.ndarray[Any, Any]:
    """Draw numbers, a few of which are zero or no finite ones."""
    x = rng.standard_normal(shape).astype(dtype)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], dtype)
    return np.where(rng.random(shape) < 0.05, rng.choice(special, shape), x).astype(dtype)


def bits(x: Any) -> tuple[bytes, bytes]:
    """Return numbers to the bit, any NaN being as good as another."""
    array = x.detach().contiguous().numpy()
    nan = np.isnan(array)
    return np.where(nan, 0, array).tobytes(), nan.tobytes()


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([(1,), (3, 2), (0, 2), ()]),
    st.integers(0, 2**31),
    st.data(),
)
def test_one_call_has_the_bits_of_sums_along_each_dimension(
    spatial: int, dtype: str, lead: tuple[int, ...], seed: int, data: st.DataObject
) -> None:
    sizes, window = drawn_windows(data, spatial)
    rng = np.random.default_rng(seed)
    lead = lead or (2,)
    order = data.draw(st.permutations(range(len(lead) + spatial)))
    shape = [*lead, *sizes]
    x = tangrad.from_numpy(drawn(rng, [shape[d] for d in order], dtype))
    x = x.permute(tuple(np.argsort(order).tolist()))
    one = x.clone().requires_grad_()
    lines = x.contiguous().clone().requires_grad_()
    got, expected = window_average(one, *window), average_of_lines(lines, *window)
    assert bits(got) == bits(expected)
    g = tangrad.from_numpy(drawn(rng, tuple(got.shape), dtype))
    got.backward(g)
    expected.backward(g)
    assert bits(one.grad) == bits(lines.grad)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.sampled_from(["float32", "float64"]), st.data())
def test_agrees_with_the_reference(spatial: int, dtype: str, data: st.DataObject) -> None:
    sizes, window = drawn_windows(data, spatial)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    x = tangrad.from_numpy(rng.standard_normal((2, 3, *sizes)).astype(dtype))
    rtol = 1e-5 if dtype == "float32" else 1e-12
    got, expected = window_average(x, *window), window_average(x.to("reference"), *window)
    np.testing.assert_allclose(got.numpy(), expected.cpu().numpy(), rtol, rtol)
    g = tangrad.from_numpy(rng.standard_normal(tuple(got.shape)).astype(dtype))
    given_ = (tuple(sizes), *window[1:])
    back = window_average_backward(g, *given_)
    wanted = window_average_backward(g.to("reference"), *given_)
    np.testing.assert_allclose(back.numpy(), wanted.cpu().numpy(), rtol, rtol)


class Recorder(TorchDispatchMode):
    """A mode that writes down the ops of a program, as the device is called."""

    sees_forms = True

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.name)
        return func(*args, **(kwargs or {}))


POOLS = {
    "avg_pool1d": ((2, 3, 17), lambda x: F.avg_pool1d(x, 3, 2, 1, True, False)),
    "avg_pool2d": ((2, 3, 9, 8), lambda x: F.avg_pool2d(x, [3, 2], 2, 1, True)),
    "channels last": ((2, 3, 9, 8), lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=2)),
    "avg_pool3d": ((1, 2, 5, 4, 6), lambda x: F.avg_pool3d(x, 2, padding=1)),
    "adaptive_avg_pool1d": ((2, 17), lambda x: F.adaptive_avg_pool1d(x, 5)),
    "adaptive_avg_pool2d": ((2, 3, 9, 8), lambda x: F.adaptive_avg_pool2d(x, [4, None])),
    "adaptive_avg_pool3d": ((2, 5, 4, 6), lambda x: F.adaptive_avg_pool3d(x, 3)),
}


@pytest.mark.parametrize("name", POOLS)
def test_a_small_pool_is_one_call_that_gives_the_recorded_bits(name: str) -> None:
    shape, pool = POOLS[name]
    x = tangrad.randn(*shape)
    if name == "channels last":
        x = x.contiguous(memory_format=tangrad.channels_last)
    x.requires_grad_()
    alone = pool(x)
    with Recorder() as recorder:
        seen = pool(x)
    assert "_weighted_lines" in recorder.names
    assert alone.stride() == seen.stride()
    assert bits(alone) == bits(seen)
    seed = tangrad.randn(*alone.shape)
    (one,), (other,) = (tangrad.autograd.grad(y, x, seed) for y in (alone, seen))
    assert bits(one) == bits(other)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = tangrad.randn(8, 30, 57, 55)
    before, window = _kernels.get_num_threads(), ((28, 27), (3, 3), (2, 2), (0, 0), 0)
    found = []
    try:
        for threads in (1, 2, 4):
            _kernels.set_num_threads(threads)
            y = window_average(x, *window)
            found.append(
                (bits(y), bits(window_average_backward(y, tuple(x.shape)[2:], *window[1:])))
            )
    finally:
        _kernels.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_missing_working_memory_is_an_error(calls: int) -> None:
    x = tangrad.randn(2, 3, 8, 8).transpose(2, 3)
    _kernels.fail_scratch_after(calls)
    try:
        with pytest.raises(MemoryError, match="window_average"):
            window_average(x, (4, 4), (2, 2), (2, 2), (0, 0), 0)
    finally:
        _kernels.fail_scratch_after(-1)


def test_windows_of_another_number_of_dimensions_are_refused() -> None:
    x = tangrad.randn(2, 3, 8, 8)
    with pytest.raises(RuntimeError, match=r"window_average: .* 1 to 3 dimensions"):
        window_average(x, (4, 4), (2,), (2, 2), (0, 0), 0)


@pytest.mark.parametrize("shape", [(2, 16, 16, 16), (2, 32, 16, 16), (2, 4, 6, 8, 8), (8,) * 5])
def test_limits_of_one_call_are_not_seen_in_the_bits(shape: tuple[int, ...]) -> None:
    spatial = len(shape) - 2
    x = tangrad.tensor(drawn(np.random.default_rng(4), shape, "float32"))
    outs, twos = tuple(n // 2 for n in shape[2:]), (2,) * spatial
    wanted = average_of_lines(x, outs, twos, twos, (0,) * spatial, 0)
    found = getattr(F, f"avg_pool{spatial}d")(x, 2)
    assert bits(found) == bits(wanted)
