"""Average windows dimension by dimension or in one call, and pool images where they lie."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.convolution import in_format_of, ordered_channels_last
from tangrad.ops.nn.fusing import plain_on_host, unseen
from tangrad.ops.nn.pooling.one_pass import WITH_PADDING, bounds, window_average
from tangrad.ops.nn.weighted_lines import Band, kept, summed_lines
from tangrad.plugin import Ints

# Elements of images channels last from which no device is asked for one call.
_MOST_TURNED = 4096
# Windows along a dimension whose matrix is worth making, element by element.
_MOST_WINDOWS = 1 << 15


def lies_last(input: Any, spatial: int) -> bool:
    """Whether a tensor is of images in the host's memory, channels last, that ops may see so."""
    return (
        spatial == 2
        and input.ndim == 4
        and not input.is_contiguous()
        and plain_on_host(input)
        and ordered_channels_last(input)
        and all(type(n) is int for n in input.shape)
    )


def of_lines(input: Any, spatial: int) -> bool:
    """Whether averages of windows are best taken as sums along one dimension after the other."""
    return (
        input.ndim > spatial
        and plain_on_host(input)
        and all(type(n) is int for n in input.shape)
        and (input.is_contiguous() or lies_last(input, spatial))
    )


def _windows(size: int, out: int, kernel: Ints, stride: int, padding: int) -> Band:
    rows = bounds(size, out, 0, kernel, (stride,), (padding,), WITH_PADDING)
    return Band(
        tuple(begin for begin, _, _ in rows),
        tuple((1.0,) * max(end - begin, 0) for begin, end, _ in rows),
    )


def _counts(
    sizes: Ints,
    outs: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    divisor: int,
    dtype: Any,
    device: Any,
) -> Any:
    """Return how many elements each window has, as a number where all have as many."""
    product: Any = 1.0
    for d, (n, out) in enumerate(zip(sizes, outs, strict=True)):
        found = [count for _, _, count in bounds(n, out, d, kernel, stride, padding, divisor)]
        if len({*found}) == 1:
            product = product * float(found[0])
            continue
        along = tangrad.tensor(list(map(float, found)), dtype=dtype, device=device)
        product = product * along.reshape((-1,) + (1,) * (len(outs) - 1 - d))
    return product


def average_of_lines(
    input: Any, outs: Ints, kernel: Ints, stride: Ints, padding: Ints, divisor: int
) -> Any:
    """Average windows as `window_average` does: sums along each dimension, one division."""
    first = input.ndim - len(outs)
    sizes = tuple(map(int, tuple(input.shape)[first:]))
    x = input.to(tangrad.float32) if input.dtype.itemsize < 4 else input
    if max(outs) > _MOST_WINDOWS:
        found = window_average(x, outs, kernel, stride, padding, divisor)
        return in_format_of(found.to(input.dtype), input)
    for d, out in enumerate(outs):
        x = summed_lines(x, first + d, _windows, out, kernel[d : d + 1], stride[d], padding[d])
    if divisor > 0:
        x = x / divisor
    else:
        given = (sizes, outs, kernel, stride, padding, divisor, x.dtype, x.device)
        x = x / kept(_counts, *given)
    return x if x.dtype == input.dtype else x.to(input.dtype)


def average_of_few(input: Any, *window: Any) -> Any:
    """Average windows of elements so few that the device does it in one call; None elsewhere.

    The call gives the bits of `average_of_lines`, which takes the same arguments.
    """
    own = unseen("window_average", input)
    if own is None or input.is_contiguous():
        return own and own(input, *window)
    outs, kernel, stride, padding, divisor = window
    if input.numel() > _MOST_TURNED or not lies_last(input, len(kernel)):
        return None
    volumes, windows = as_volume(input, (kernel, stride, padding, padding))
    found = own(volumes, (*outs, input.shape[1]), *windows[:3], divisor)
    return None if found is None else found.permute((0, 3, 1, 2))


def as_volume(input: Any, windows: Any) -> tuple[Any, Any]:
    """Return images as volumes (N, H, W, C), and windows of one channel each in them.

    Args:
        windows: size, stride, padding and dilation, of two dimensions each.
    """
    size, stride, padding, dilation = windows
    return input.permute((0, 2, 3, 1)), ((*size, 1), (*stride, 1), (*padding, 0), (*dilation, 1))
