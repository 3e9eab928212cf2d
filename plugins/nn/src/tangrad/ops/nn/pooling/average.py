"""Define averages of windows."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tangrad
from tangrad.ops.nn.convolution import convolution, in_format_of
from tangrad.ops.nn.fusing import fuses
from tangrad.ops.nn.pooling.channels_last import average_of_few, average_of_lines, of_lines
from tangrad.ops.nn.pooling.one_pass import WITH_PADDING, WITHOUT_PADDING, window_average
from tangrad.ops.nn.pooling.sizes import (
    POOL_ERRORS,
    check_windows,
    hashable,
    known_windows,
    pooled_sizes,
)
from tangrad.plugin import Ints, Tensor, composite, find_op, get_intercept, numel_of

slice_ = find_op("slice")


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
    out = pooled_sizes(sizes, kernel, stride, padding, (1,) * len(sizes), ceil_mode)
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
    count_include_pad: bool,
    divisor_override: int | None,
) -> tuple[Ints, Ints, Ints, Ints, int]:
    """Check the arguments of an average; return those of `window_average`."""
    kernel, step, padding, ones = known_windows(spatial, kernel_size, stride, padding, 1)
    check_windows(name, shape, kernel, step, padding, ones, ceil_mode)
    if divisor_override == 0:
        raise RuntimeError(f"{name}: divisor must be not zero")
    sizes = shape[-spatial:]
    if spatial == 3 and any(n < k for n, k in zip(sizes, kernel, strict=True)):
        raise RuntimeError(
            f"{name}: input image {list(sizes)} smaller than kernel size {list(kernel)}"
        )
    ends = pooled_sizes(sizes, kernel, step, padding, ones, ceil_mode)
    least = WITH_PADDING if count_include_pad else WITHOUT_PADDING
    return ends, kernel, step, padding, divisor_override or least


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
    shape = input.shape
    if list in (type(kernel_size), type(stride), type(padding)):
        kernel_size, stride, padding = hashable(kernel_size, stride, padding)
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    # Sizes of a program that is recorded may be symbols, which nothing is to be kept by.
    laid = _average_windows if get_intercept() is None else _average_windows.__wrapped__
    window = laid(name, spatial, shape, *given)
    if is_floating and (divisor_override or 1) > 0:
        found = average_of_few(input, *window)
        if found is not None:
            return found
        if fuses(input):
            return in_format_of(window_average(input, *window), input)
        if of_lines(input, spatial):
            return average_of_lines(input, *window)
    kernel, step, padding = window[1:4]
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
    dtypes="floating",
    method=False,
    samples=lambda s: [s(s.tensor(1, 2, 5), 2), s(s.tensor(2, 5), 3, 2, 1, True, False)],
    oracle="nn.functional.avg_pool1d",
    errors=lambda s: [(s(s.tensor(1, 1, 4), 0), RuntimeError, POOL_ERRORS)],
)
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Average windows of signals (N, C, L) or (C, L)."""
    return _avg_pool(
        "avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None
    )


@composite(
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
        (s(s.tensor(1, 1, 4, 4), 0), RuntimeError, POOL_ERRORS),
        (s(s.tensor(1, 1, 4, 4), 2, 2, 2), RuntimeError, "half of (effective )?kernel size"),
        (s(s.tensor(1, 1, 4, 4), 2, divisor_override=0), RuntimeError, "divisor must be not zero"),
    ],
)
def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
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
        (s(s.tensor(1, 1, 4, 4, 4), 0), RuntimeError, POOL_ERRORS),
        (s(s.tensor(4, 4), 2), RuntimeError, "Expected 4D or 5D|must be"),
        (s(s.tensor(1, 1, 4, 4, 4), 2, divisor_override=0), RuntimeError, "must be not zero"),
    ],
)
def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
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
