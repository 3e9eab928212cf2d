"""Define pooling: the greatest or average element of windows."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tangrad
from tangrad.ops.nn.convolution import convolution, in_format_of, repeated
from tangrad.ops.nn.fusing import fuses
from tangrad.ops.nn.pooling_windows import (
    WITH_PADDING,
    WITHOUT_PADDING,
    max_pool_backward,
    placed,
    window_average,
)
from tangrad.plugin import Ints, at_all_sizes, composite, find_op, numel_of, op

slice_ = find_op("slice")


@at_all_sizes
def _pooled_size(n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    """Count window positions; with ceil_mode a last one may reach out, if it starts inside."""
    reach = n + 2 * p - d * (k - 1) - 1
    count = (reach + (s - 1 if ceil_mode else 0)) // s + 1
    return count - 1 if ceil_mode and (count - 1) * s >= n + p else count


def _pooled_sizes(
    sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Ints:
    each = zip(sizes, kernel, stride, padding, dilation, strict=True)
    return tuple([_pooled_size(n, k, s, p, d, ceil_mode) for n, k, s, p, d in each])


def check_pool(
    name: str,
    self: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> None:
    if self.dtype.name == "bool" or self.dtype.is_complex:
        raise NotImplementedError(f"{name} is not implemented for {self.dtype}")
    _check_windows(name, self.shape, kernel_size, stride, padding, dilation, ceil_mode)


def _check_windows(
    name: str,
    shape: Ints,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> None:
    spatial = len(kernel_size)
    if len(shape) not in (spatial + 1, spatial + 2):
        raise RuntimeError(
            f"{name}: Expected {spatial + 1}D or {spatial + 2}D tensor, but got: {list(shape)}"
        )
    if 0 in shape[1 if len(shape) == spatial + 2 else 0 :]:
        raise RuntimeError(
            f"{name}: Expected {spatial + 1}D or {spatial + 2}D (batch mode) tensor with non-batch "
            f"dimensions of positive length, but got: {list(shape)}"
        )
    for k, s, p, d in zip(kernel_size, stride, padding, dilation, strict=True):
        if k < 1 or s < 1 or p < 0 or p > k // 2 or d < 1:
            _refuse_windows(name, kernel_size, stride, padding, dilation)
    out = _pooled_sizes(shape[-spatial:], kernel_size, stride, padding, dilation, ceil_mode)
    for n in out:
        if n < 1:
            raise RuntimeError(
                f"{name}: Given input size: {list(shape)}. Calculated output size: "
                f"{list(out)}. Output size is too small"
            )


def _refuse_windows(
    name: str, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> None:
    if any(k < 1 for k in kernel_size) or any(s < 1 for s in stride):
        raise RuntimeError(
            f"{name}: kernel size and stride should be greater than zero, got kernel_size "
            f"{list(kernel_size)} and stride {list(stride)}"
        )
    if any(d < 1 for d in dilation):
        raise RuntimeError(f"dilation should be greater than zero, got {list(dilation)} ({name})")
    if any(p < 0 or p > k // 2 for p, k in zip(padding, kernel_size, strict=True)):
        raise RuntimeError(
            "pad should be at most half of effective kernel size, but got "
            f"pad={list(padding)}, kernel_size={list(kernel_size)} ({name})"
        )


def _lowest(np: Any, dtype: Any) -> Any:
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -np.inf


def _max_pool_reference(
    np: Any,
    self: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> Any:
    spatial = len(kernel_size)
    sizes = self.shape[-spatial:]
    out = _pooled_sizes(sizes, kernel_size, stride, padding, dilation, ceil_mode)
    lead = self.shape[:-spatial]
    grown = [
        (p, max(0, (o - 1) * s + (k - 1) * d + 1 - n - p))
        for n, o, k, s, p, d in zip(sizes, out, kernel_size, stride, padding, dilation, strict=True)
    ]
    x = np.pad(self, [*((0, 0) for _ in lead), *grown], constant_values=_lowest(np, self.dtype))
    taps = list(np.ndindex(*kernel_size))
    values = np.full((*lead, *out), _lowest(np, self.dtype), self.dtype)
    chosen = np.zeros(values.shape, np.int64)
    for number, tap in enumerate(taps):
        seen = tuple(
            slice(i * d, i * d + (o - 1) * s + 1, s)
            for i, d, o, s in zip(tap, dilation, out, stride, strict=True)
        )
        value = np.ascontiguousarray(x[(..., *seen)])
        # A NaN wins, and the last of several.
        np.copyto(chosen, number, where=(value > values) | (value != value))
        np.maximum(values, value, out=values)
    places = np.stack([_places(np, tap, sizes, out, stride, padding, dilation) for tap in taps])
    positions = np.arange(numel_of(out))
    flat = chosen.reshape((numel_of(lead), numel_of(out)))
    found = places.reshape(len(taps), -1)[flat, positions]
    return values, found.reshape(values.shape)


def _places(
    np: Any, tap: Ints, sizes: Ints, out: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Any:
    """Give the flat position in the unpadded input that a tap of every window looks at."""
    grid = np.ogrid[tuple(slice(n) for n in out)]
    flat = np.zeros(out, np.int64)
    for axis, n in enumerate(sizes):
        place = grid[axis] * stride[axis] + tap[axis] * dilation[axis] - padding[axis]
        flat = flat * n + np.clip(place, 0, n - 1)
    return flat


@at_all_sizes
def max_pool_vjp(
    g: Any,
    self_meta: Any,
    indices: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
) -> Any:
    """Give each gradient to where the greatest element was; a kernel size of () is adaptive."""
    if fuses(g, indices) and len(stride) <= 3:
        return max_pool_backward(
            g, indices, tuple(self_meta.shape), kernel_size, stride, padding, dilation
        )
    return placed(g, indices, self_meta.shape, stride)


def max_pool_jvp(self_t: Any, kernel_size: Ints, result1: Any) -> Any:
    """Take the tangents of the greatest elements."""
    lead = self_t.ndim - len(kernel_size)
    tangent = self_t.flatten(lead).gather(lead, result1.flatten(lead))
    return tangent.reshape(result1.shape), None


def _max_pool_batch(size: int, dims: Any, self: Any, kernel_size: Ints, *args: Any) -> Any:
    x = self.movedim(dims[0], 0)
    if x.ndim == len(kernel_size) + 2:
        return max_pool_with_indices(x, kernel_size, *args), (0, 0)
    flat = max_pool_with_indices(x.flatten(0, 1), kernel_size, *args)
    return tuple(y.unflatten(0, (size, x.shape[1])) for y in flat), (0, 0)


max_pool_with_indices = op(
    "max_pool_with_indices(Tensor self, int[] kernel_size, int[] stride, int[] padding,"
    " int[] dilation, bool ceil_mode) -> (Tensor values, Tensor indices)",
    dtypes="integral floating",
    check=lambda self, kernel_size, stride, padding, dilation, ceil_mode: check_pool(
        f"max_pool{len(kernel_size)}d", self, kernel_size, stride, padding, dilation, ceil_mode
    ),
    shape=lambda self, kernel_size, stride, padding, dilation, ceil_mode: (
        [
            (
                *self.shape[: -len(kernel_size)],
                *_pooled_sizes(
                    self.shape[-len(kernel_size) :],
                    kernel_size,
                    stride,
                    padding,
                    dilation,
                    ceil_mode,
                ),
            )
        ]
        * 2
    ),
    dtype=lambda self: [self.dtype, "int64"],
    reference=_max_pool_reference,
    vjp={
        "self": lambda g0, self_meta, kernel_size, stride, padding, dilation, result1: max_pool_vjp(
            g0, self_meta, result1, kernel_size, stride, padding, dilation
        )
    },
    jvp=max_pool_jvp,
    batch=lambda size, dims, self, kernel_size, stride, padding, dilation, ceil_mode: (
        _max_pool_batch(size, dims, self, kernel_size, stride, padding, dilation, ceil_mode)
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 5), (2, 2), (2, 2), (0, 0), (1, 1), False),
        s(s.tensor(2, 4, 5), (3, 2), (2, 1), (1, 1), (1, 2), True),
    ],
    oracle=lambda torch, x, *args: torch.ops.aten.max_pool2d_with_indices(x, *args),
    doc="Take the greatest element of every window, and its flat position in the input.",
)


def _values_shape(self: Any, kernel_size: Ints, *geometry: Any) -> Ints:
    spatial = len(kernel_size)
    return (*self.shape[:-spatial], *_pooled_sizes(self.shape[-spatial:], kernel_size, *geometry))


def _values_vjp(g: Any, self: Any, kernel_size: Ints, *geometry: Any) -> Any:
    places = max_pool_with_indices(self.detach(), kernel_size, *geometry)[1]
    return max_pool_vjp(g, self, places, kernel_size, *geometry[:3])


def _values_jvp(self: Any, self_t: Any, kernel_size: Ints, *geometry: Any) -> Any:
    places = max_pool_with_indices(self.detach(), kernel_size, *geometry)[1]
    return max_pool_jvp(self_t, kernel_size, places)[0]


# What nobody asks for the positions of, and no gradient needs them.
max_pool_values = op(
    "max_pool_values(Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] dilation,"
    " bool ceil_mode) -> Tensor",
    dtypes="integral floating",
    check=lambda self, kernel_size, stride, padding, dilation, ceil_mode: check_pool(
        f"max_pool{len(kernel_size)}d", self, kernel_size, stride, padding, dilation, ceil_mode
    ),
    shape=lambda self, kernel_size, stride, padding, dilation, ceil_mode: _values_shape(
        self, kernel_size, stride, padding, dilation, ceil_mode
    ),
    decompose=lambda self, kernel_size, stride, padding, dilation, ceil_mode: max_pool_with_indices(
        self, kernel_size, stride, padding, dilation, ceil_mode
    )[0],
    vjp={
        "self": lambda g, self, kernel_size, stride, padding, dilation, ceil_mode: _values_vjp(
            g, self, kernel_size, stride, padding, dilation, ceil_mode
        )
    },
    jvp=lambda self, self_t, kernel_size, stride, padding, dilation, ceil_mode: _values_jvp(
        self, self_t, kernel_size, stride, padding, dilation, ceil_mode
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 5), (2, 2), (2, 2), (0, 0), (1, 1), False),
        s(s.tensor(2, 4, 5), (3, 2), (2, 1), (1, 1), (1, 2), True),
        s(s.tensor(2, 4, 40, strided=True), (2, 3), (2, 2), (0, 1), (2, 1), False),
    ],
    oracle=lambda torch, x, *args: torch.ops.aten.max_pool2d_with_indices(x, *args)[0],
    doc="Take the greatest element of every window.",
)

_POOL_ERRORS = "kernel size|stride should not be zero|greater than zero|positive"


def _steps(stride: Any, kernel: Ints, spatial: int) -> Ints:
    """Return the strides; where none are given, windows do not overlap."""
    if stride is None or (isinstance(stride, (tuple, list)) and not stride):
        return kernel
    return repeated("stride", stride, spatial)


def hashable(argument: Any) -> Any:
    return tuple(argument) if isinstance(argument, list) else argument


def _windows(
    spatial: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return kernel size, stride, padding and dilation for every dimension."""
    return _known_windows(spatial, *map(hashable, (kernel_size, stride, padding, dilation)))


@lru_cache(maxsize=256, typed=True)
def _known_windows(
    spatial: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Ints, Ints, Ints, Ints]:
    kernel = repeated("kernel_size", kernel_size, spatial)
    return (
        kernel,
        _steps(stride, kernel, spatial),
        repeated("padding", padding, spatial),
        repeated("dilation", dilation, spatial),
    )


def _max_pool(spatial: int, input: Any, *geometry: Any) -> Any:
    *sizes, ceil_mode = geometry
    values, indices = max_pool_with_indices(input, *_windows(spatial, *sizes), ceil_mode)
    if input.is_contiguous():
        return values, indices
    return in_format_of(values, input), in_format_of(indices, input)


def _max_pool_alone(spatial: int, input: Any, *geometry: Any) -> Any:
    """Take the greatest elements; their positions only where the gradient will ask for them."""
    if input.requires_grad and tangrad.is_grad_enabled():
        return _max_pool(spatial, input, *geometry)[0]
    *sizes, ceil_mode = geometry
    values = max_pool_values(input, *_windows(spatial, *sizes), ceil_mode)
    return values if input.is_contiguous() else in_format_of(values, input)


@composite(
    "max_pool1d(Tensor input, any kernel_size, any stride=None, any padding=0, any dilation=1,"
    " bool ceil_mode=False, bool return_indices=False) -> Tensor",
    dtypes="integral floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 5), 2),
        s(s.tensor(2, 5, strided=True), 3, 2, 1, 1, True, return_indices=True),
    ],
    oracle="nn.functional.max_pool1d",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4), 0), RuntimeError, _POOL_ERRORS),
    ],
)
def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    """Take the greatest element of windows of signals (N, C, L) or (C, L).

    Args:
        stride: the distance of windows (default: kernel_size).
        padding: how many elements below all others to add on each side.
        ceil_mode: let a last window reach out of the input.
        return_indices: also give the flat position of each result in its signal.
    """
    pool = _max_pool if return_indices else _max_pool_alone
    return pool(1, input, kernel_size, stride, padding, dilation, ceil_mode)


@composite(
    "max_pool1d_with_indices(Tensor input, any kernel_size, any stride=None, any padding=0,"
    " any dilation=1, bool ceil_mode=False, bool return_indices=False) -> Tensor",
    dtypes="integral floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 5), 2),
        s(s.tensor(2, 5, strided=True), 3, 2, 1, 1, True),
    ],
    oracle="nn.functional.max_pool1d_with_indices",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4), 0), RuntimeError, _POOL_ERRORS),
    ],
)
def max_pool1d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    """Take the greatest element of windows, and its flat position; see `max_pool1d`."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode)


@composite(
    "max_pool2d(Tensor input, any kernel_size, any stride=None, any padding=0, any dilation=1,"
    " bool ceil_mode=False, bool return_indices=False) -> Tensor",
    dtypes="integral floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 4), 2),
        s(s.tensor(2, 5, 4), (3, 2), (2, 1), 1, 1, True),
        s(s.tensor(1, 1, 5, 5), 2, 2, 0, 2, return_indices=True),
        s(s.tensor(0, 1, 4, 4), 2),
    ],
    oracle="nn.functional.max_pool2d",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4), 0), RuntimeError, _POOL_ERRORS),
        (s(s.tensor(1, 1, 4, 4), 2, 2, 2), RuntimeError, "half of effective kernel size"),
        (s(s.tensor(1, 1, 2, 2), 3), RuntimeError, "Output size is too small"),
        (s(s.tensor(4, 4), 2), RuntimeError, "Expected 3D or 4D"),
    ],
)
def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    """Take the greatest element of windows of images (N, C, H, W) or (C, H, W).

    Args:
        stride: the distance of windows (default: kernel_size).
        padding: how many elements below all others to add on each side.
        ceil_mode: let a last window reach out of the input.
        return_indices: also give the flat position of each result in its image.
    """
    pool = _max_pool if return_indices else _max_pool_alone
    return pool(2, input, kernel_size, stride, padding, dilation, ceil_mode)


@composite(
    "max_pool2d_with_indices(Tensor input, any kernel_size, any stride=None, any padding=0,"
    " any dilation=1, bool ceil_mode=False, bool return_indices=False) -> Tensor",
    dtypes="integral floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 4), 2),
        s(s.tensor(2, 5, 4), (3, 2), (2, 1), 1, 1, True),
    ],
    oracle="nn.functional.max_pool2d_with_indices",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4), 0), RuntimeError, _POOL_ERRORS),
    ],
)
def max_pool2d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    """Take the greatest element of windows, and its flat position; see `max_pool2d`."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode)


@composite(
    "max_pool3d(Tensor input, any kernel_size, any stride=None, any padding=0, any dilation=1,"
    " bool ceil_mode=False, bool return_indices=False) -> Tensor",
    dtypes="integral floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 3, 4, 4), 2),
        s(s.tensor(2, 4, 3, 4), (2, 3, 2), (2, 1, 1), 1, 1, True),
        s(s.tensor(1, 1, 3, 3, 4, strided=True), 2, 1, 0, (2, 1, 1), return_indices=True),
        s(s.tensor(0, 1, 2, 4, 4), 2),
    ],
    oracle="nn.functional.max_pool3d",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4, 4), 0), RuntimeError, _POOL_ERRORS),
        (s(s.tensor(4, 4), 2), RuntimeError, "Expected 4D or 5D"),
        (s(s.tensor(1, 1, 4, 4, 4), 2, (1, 1)), RuntimeError, "stride"),
    ],
)
def max_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    """Take the greatest element of windows of volumes (N, C, D, H, W) or (C, D, H, W).

    Args:
        stride: the distance of windows (default: kernel_size).
        padding: how many elements below all others to add on each side.
        ceil_mode: let a last window reach out of the input.
        return_indices: also give the flat position of each result in its volume.
    """
    pool = _max_pool if return_indices else _max_pool_alone
    return pool(3, input, kernel_size, stride, padding, dilation, ceil_mode)


@composite(
    "max_pool3d_with_indices(Tensor input, any kernel_size, any stride=None, any padding=0,"
    " any dilation=1, bool ceil_mode=False, bool return_indices=False) -> Tensor",
    dtypes="integral floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 3, 4, 4), 2),
        s(s.tensor(2, 4, 3, 4), (2, 3, 2), (2, 1, 1), 1, 1, True),
    ],
    oracle="nn.functional.max_pool3d_with_indices",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4, 4), 0), RuntimeError, _POOL_ERRORS),
    ],
)
def max_pool3d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    """Take the greatest element of windows, and its flat position; see `max_pool3d`."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode)


def _covered(n: int, k: int, s: int, p: int, out: int, with_padding: bool) -> list[int]:
    """Count, for every window position, the elements by which its sum is divided."""
    low, high = (0, n + p) if with_padding else (0, n)
    counts = []
    for i in range(out):
        start = i * s - p
        stop = min(start + k, high)
        counts.append(stop - (start if with_padding else max(start, low)))
    return counts


@lru_cache(maxsize=256)
def _averages(
    sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, with_padding: bool
) -> tuple[Ints, Ints, list[list[int]], int | None]:
    """Say how windows lie.

    Returns:
        The sizes of the result, what to pad by, by how many elements the sums along every
        dimension are divided, and by how many altogether if it is the same number everywhere.
    """
    out = _pooled_sizes(sizes, kernel, stride, padding, (1,) * len(sizes), ceil_mode)
    geometry = list(zip(sizes, kernel, stride, padding, out, strict=True))
    grown = [(p, max(0, (o - 1) * s + k - n - p)) for n, k, s, p, o in geometry]
    counts = [_covered(n, k, s, p, o, with_padding) for n, k, s, p, o in geometry]
    even = all(len(set(row)) == 1 for row in counts)
    pads = tuple([n for pair in reversed(grown) for n in pair])
    return out, pads, counts, numel_of([row[0] for row in counts]) if even else None


@lru_cache(maxsize=256, typed=True)
def _average_windows(
    name: str,
    spatial: int,
    shape: Ints,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    divisor_override: int | None,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Check the arguments of an average; return sizes of the result, of windows, steps, padding."""
    kernel, step, padding, ones = _known_windows(spatial, kernel_size, stride, padding, 1)
    _check_windows(name, shape, kernel, step, padding, ones, ceil_mode)
    if divisor_override == 0:
        raise RuntimeError(f"{name}: divisor must be not zero")
    sizes = shape[-spatial:]
    if spatial == 3 and any(n < k for n, k in zip(sizes, kernel, strict=True)):
        raise RuntimeError(
            f"{name}: input image {list(sizes)} smaller than kernel size {list(kernel)}"
        )
    return _pooled_sizes(sizes, kernel, step, padding, ones, ceil_mode), kernel, step, padding


def _avg_pool(
    name: str,
    spatial: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    is_floating = input.is_floating_point()
    if not (is_floating or input.dtype == tangrad.int64):
        raise NotImplementedError(
            f"{name} is not implemented for {input.dtype}; convert to a floating-point dtype"
        )
    shape, one_pass = tuple(input.shape), fuses(input)
    given = (*map(hashable, (kernel_size, stride, padding)), ceil_mode, divisor_override)
    # Sizes of a program that is recorded may be symbols, which nothing is to be kept by.
    laid = _average_windows if one_pass else _average_windows.__wrapped__
    ends, kernel, step, padding = laid(name, spatial, shape, *given)
    if is_floating and (divisor_override or 1) > 0 and one_pass:
        least = WITH_PADDING if count_include_pad else WITHOUT_PADDING
        pooled = window_average(input, ends, kernel, step, padding, divisor_override or least)
        return in_format_of(pooled, input)
    sizes, lead, ones = shape[-spatial:], shape[:-spatial], (1,) * spatial
    out, grown, counts, even = _averages(sizes, kernel, step, padding, ceil_mode, count_include_pad)
    # Sums of narrow floats are kept in float32: one rounding, at the end.
    wide = input.to(tangrad.float32) if input.dtype.itemsize < 4 else input
    x = wide.reshape((numel_of(lead), 1, *sizes))
    if any(grown):
        x = tangrad.constant_pad_nd(x, grown, 0)
    taps = tangrad.ones((1, 1, *kernel), dtype=x.dtype, device=x.device)
    summed = convolution(x, taps, step, (0,) * spatial, ones, 1)
    summed = slice_(summed, 2, 0, out[0], 1)
    divisor = even if divisor_override is None else divisor_override
    result = _divided(summed.reshape((*lead, *out)), counts, divisor)
    return in_format_of(result if wide is input else result.to(input.dtype), input)


def _divided(sums: Any, counts: list[list[int]], divisor: int | None) -> Any:
    """Divide the sums of windows by a number, or else by how many elements each of them has."""
    mode = None if sums.is_floating_point() else "trunc"
    if divisor is not None:
        return sums / divisor if mode is None else tangrad.div(sums, divisor, rounding_mode=mode)
    product = sums.new_ones(())
    for axis, row in enumerate(counts):
        along = tangrad.tensor(row, dtype=sums.dtype, device=sums.device)
        product = product * along.reshape((-1,) + (1,) * (len(counts) - 1 - axis))
    return tangrad.div(sums, product, rounding_mode=mode)


@composite(
    "avg_pool1d(Tensor input, any kernel_size, any stride=(), any padding=0,"
    " bool ceil_mode=False, bool count_include_pad=True) -> Tensor",
    dtypes="floating",
    method=False,
    samples=lambda s: [s(s.tensor(1, 2, 5), 2), s(s.tensor(2, 5), 3, 2, 1, True, False)],
    oracle="nn.functional.avg_pool1d",
    errors=lambda s: [(s(s.tensor(1, 1, 4), 0), RuntimeError, _POOL_ERRORS)],
)
def avg_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Any:
    """Average windows of signals (N, C, L) or (C, L)."""
    return _avg_pool(
        "avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None
    )


@composite(
    "avg_pool2d(Tensor input, any kernel_size, any stride=None, any padding=0,"
    " bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
    strict_out_dtype=True,
    out=True,
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 4), 2),
        s(s.tensor(2, 5, 4), (3, 2), (2, 1), 1, True, False),
        s(s.tensor(1, 1, 5, 5), 2, 2, 1, True),
        s(s.tensor(1, 1, 4, 4), 2, divisor_override=3),
    ],
    oracle="nn.functional.avg_pool2d",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4), 0), RuntimeError, _POOL_ERRORS),
        (s(s.tensor(1, 1, 4, 4), 2, 2, 2), RuntimeError, "half of (effective )?kernel size"),
        (s(s.tensor(1, 1, 4, 4), 2, divisor_override=0), RuntimeError, "divisor must be not zero"),
    ],
)
def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """Average windows of images (N, C, H, W) or (C, H, W).

    Args:
        count_include_pad: divide by the window size also where it covers padding.
        divisor_override: divide by this instead.
    """
    return _avg_pool(
        "avg_pool2d",
        2,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


@composite(
    "avg_pool3d(Tensor input, any kernel_size, any stride=None, any padding=0,"
    " bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
    strict_out_dtype=True,
    out=True,
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 3, 4, 4), 2),
        s(s.tensor(2, 3, 5, 4), (2, 3, 2), (1, 2, 1), 1, True, False),
        s(s.tensor(1, 1, 3, 3, 5), 2, 2, 1, True),
        s(s.tensor(1, 1, 2, 4, 4, strided=True), 2, divisor_override=3),
    ],
    oracle="nn.functional.avg_pool3d",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4, 4), 0), RuntimeError, _POOL_ERRORS),
        (s(s.tensor(4, 4), 2), RuntimeError, "Expected 4D or 5D|must be"),
        (s(s.tensor(1, 1, 4, 4, 4), 2, divisor_override=0), RuntimeError, "must be not zero"),
    ],
)
def avg_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """Average windows of volumes (N, C, D, H, W) or (C, D, H, W).

    Args:
        count_include_pad: divide by the window size also where it covers padding.
        divisor_override: divide by this instead.
    """
    return _avg_pool(
        "avg_pool3d",
        3,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )
