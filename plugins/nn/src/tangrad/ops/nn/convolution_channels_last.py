"""Define what convolutions of images do whose channels are neighbours in memory.

Windows of one element are a product with the weight; depthwise and other windows have kernels of
their own, which lay no image out anew.
"""

from __future__ import annotations

from typing import Any

from tangrad.ops.nn.convolution import (
    LEAST_MAPS,
    _out_sizes,
    check_convolution,
    convolution,
    convolution_input,
    convolution_weight,
    ordered_channels_last,
)
from tangrad.ops.nn.fusing import plain_on_host
from tangrad.ops.nn.linear import linear
from tangrad.plugin import Ints, batched_front, op

# Fewer channels fill no vector: images are faster laid out anew, row by row, and back.
LEAST_DEPTHWISE = 16


def of_channels_last(
    x: Any, weight: Any, bias: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """Return the convolution of images that lie channels last, None where another way is taken.

    Args:
        x: (N, C, H, W), not contiguous. weight: (O, C / groups, kH, kW). bias: (O), or None.
        stride: the windows' distance, as `padding` and `dilation` for both dimensions.
        groups: of channels.
    """
    if x.ndim != 4 or not ordered_channels_last(x):
        return None
    shape, channels = tuple(weight.shape), x.shape[1]
    given = (weight,) if bias is None else (weight, bias)
    if (
        not plain_on_host(x, *given)
        or any(y.dtype != x.dtype for y in given)
        or not x.dtype.itemsize > 2
    ):
        return None
    if bias is not None and tuple(bias.shape) != shape[:1]:
        return None
    pixels = x.permute((0, 2, 3, 1))
    if shape[1:] == (channels, 1, 1) and groups == 1 and stride == (1, 1) and padding == (0, 0):
        return linear(pixels, weight.reshape(shape[:2]), bias).permute((0, 3, 1, 2))
    if groups == 1 and shape[0] >= LEAST_MAPS and not x.dtype.is_complex:
        check_convolution(x, weight, stride, padding, dilation, groups)
        result = convolution_channels_last(pixels, weight, stride, padding, dilation)
        return (result if bias is None else result + bias).permute((0, 3, 1, 2))
    if shape[:2] != (channels, 1) or groups != channels or x.dtype.is_complex:
        return None
    if channels < LEAST_DEPTHWISE:
        return None
    check_convolution(x, weight, stride, padding, dilation, groups)
    taps = weight.squeeze(1).permute((1, 2, 0))
    result = depthwise_channels_last(pixels, taps, stride, padding, dilation)
    return (result if bias is None else result + bias).permute((0, 3, 1, 2))


def _images(pixels: Any) -> Any:
    return pixels.permute((0, 3, 1, 2))


def _kernels(weight: Any) -> Any:
    return weight.permute((2, 0, 1)).unsqueeze(1)


def _decomposed(input: Any, weight: Any, *windows: Ints) -> Any:
    result = convolution(_images(input), _kernels(weight), *windows, input.shape[3])
    return result.permute((0, 2, 3, 1))


def _shape(input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    samples, *sizes, channels = input.shape
    return (samples, *_out_sizes(sizes, weight.shape[:2], stride, padding, dilation), channels)


def _by_input(g: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    reach = tuple(d * (k - 1) for d, k in zip(dilation, tuple(weight.shape)[:2], strict=True))
    beyond = tuple(r - p for r, p in zip(reach, padding, strict=True))
    if stride == (1, 1) and min(beyond) >= 0:
        return depthwise_channels_last(g, weight.flip((0, 1)), stride, beyond, dilation)
    n, height, width, channels = input.shape
    shape = (n, channels, height, width)
    windows = (stride, padding, dilation, channels)
    return convolution_input(_kernels(weight), _images(g), shape, *windows).permute((0, 2, 3, 1))


def _by_weight(g: Any, input: Any, weight: Any, *windows: Ints) -> Any:
    height, width, channels = weight.shape
    shape = (channels, 1, height, width)
    found = convolution_weight(_images(input), _images(g), shape, *windows, channels)
    return found.squeeze(1).permute((1, 2, 0))


def _batch(size: int, dims: Any, input: Any, weight: Any, *windows: Ints) -> Any:
    if dims[1] is None:
        x = input.movedim(dims[0], 0)
        flat = depthwise_channels_last(x.flatten(0, 1), weight, *windows)
        return flat.unflatten(0, (size, x.shape[1])), 0
    x = batched_front(input, dims[0], size).movedim(0, 3).flatten(3, 4)
    taps = weight.movedim(dims[1], 2).flatten(2, 3)
    wide = depthwise_channels_last(x, taps, *windows)
    return wide.unflatten(3, (size, -1)), 3


depthwise_channels_last = op(
    "depthwise_channels_last(Tensor input, Tensor weight, int[] stride, int[] padding,"
    " int[] dilation) -> Tensor",
    dtypes="floating",
    shape=_shape,
    decompose=_decomposed,
    vjp={
        "input": lambda g, input_meta, weight, stride, padding, dilation: _by_input(
            g, input_meta, weight.conj(), stride, padding, dilation
        ),
        "weight": lambda g, input, weight_meta, stride, padding, dilation: _by_weight(
            g, input.conj(), weight_meta, stride, padding, dilation
        ),
    },
    linear=("input", "weight"),
    batch=_batch,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 4, 5, 3), s.tensor(3, 2, 3), (1, 1), (1, 0), (1, 1)),
        s(s.tensor(1, 5, 4, 5), s.tensor(2, 3, 5), (2, 1), (1, 2), (2, 1)),
        s(s.tensor(1, 3, 3, 2, strided=True), s.tensor(1, 1, 2), (2, 2), (0, 0), (1, 1)),
        s(s.tensor(1, 4, 4, 70), s.tensor(3, 3, 70), (1, 1), (1, 1), (1, 1)),
        s(s.tensor(0, 3, 3, 2), s.tensor(2, 2, 2), (1, 1), (0, 0), (1, 1)),
    ],
    oracle=lambda torch, x, w, stride, padding, dilation: torch.nn.functional.conv2d(
        x.permute(0, 3, 1, 2),
        w.permute(2, 0, 1).unsqueeze(1),
        None,
        stride,
        padding,
        dilation,
        x.shape[3],
    ).permute(0, 2, 3, 1),
    doc="""Correlate each channel of images (N, H, W, C) with its own kernel of (kH, kW, C).

    The channels are neighbours in memory, of the images and of the result.
    """,
)


# Of any windows -----------------------------------------------------------------------------------


def _whole(input: Any, weight: Any, *windows: Ints) -> Any:
    return convolution(_images(input), weight, *windows, 1).permute((0, 2, 3, 1))


def _whole_shape(input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    samples, *sizes, _ = input.shape
    found = _out_sizes(sizes, tuple(weight.shape)[2:], stride, padding, dilation)
    return (samples, *found, weight.shape[0])


def _whole_by_input(
    g: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints
) -> Any:
    reach = tuple(d * (k - 1) for d, k in zip(dilation, tuple(weight.shape)[2:], strict=True))
    beyond = tuple(r - p for r, p in zip(reach, padding, strict=True))
    if stride == (1, 1) and min(beyond) >= 0 and input.shape[3] >= LEAST_MAPS:
        turned = weight.flip((2, 3)).transpose(0, 1)
        return convolution_channels_last(g, turned, stride, beyond, dilation)
    n, height, width, channels = input.shape
    windows = (stride, padding, dilation, 1)
    found = convolution_input(weight, _images(g), (n, channels, height, width), *windows)
    return found.permute((0, 2, 3, 1))


def _whole_by_weight(g: Any, input: Any, weight: Any, *windows: Ints) -> Any:
    return convolution_weight(_images(input), _images(g), weight.shape, *windows, 1)


def _whole_batch(size: int, dims: Any, input: Any, weight: Any, *windows: Ints) -> Any:
    if dims[1] is None:
        x = input.movedim(dims[0], 0)
        flat = convolution_channels_last(x.flatten(0, 1), weight, *windows)
        return flat.unflatten(0, (size, x.shape[1])), 0
    x = batched_front(input, dims[0], size).movedim(0, 3).flatten(3, 4)
    taps = weight.movedim(dims[1], 0).flatten(0, 1)
    wide = convolution(_images(x), taps, *windows, size)
    return wide.unflatten(1, (size, -1)).permute((1, 0, 3, 4, 2)), 0


convolution_channels_last = op(
    "convolution_channels_last(Tensor input, Tensor weight, int[] stride, int[] padding,"
    " int[] dilation) -> Tensor",
    dtypes="floating",
    shape=_whole_shape,
    decompose=_whole,
    vjp={
        "input": lambda g, input_meta, weight, stride, padding, dilation: _whole_by_input(
            g, input_meta, weight, stride, padding, dilation
        ),
        "weight": lambda g, input, weight_meta, stride, padding, dilation: _whole_by_weight(
            g, input, weight_meta, stride, padding, dilation
        ),
    },
    linear=("input", "weight"),
    batch=_whole_batch,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 4, 5, 3), s.tensor(4, 3, 2, 3), (1, 1), (1, 0), (1, 1)),
        s(s.tensor(1, 5, 4, 5), s.tensor(3, 5, 2, 3), (2, 1), (1, 2), (2, 1)),
        s(s.tensor(1, 3, 3, 2, strided=True), s.tensor(2, 2, 1, 1), (2, 2), (0, 0), (1, 1)),
        s(s.tensor(1, 3, 17, 4), s.tensor(33, 4, 3, 3), (1, 1), (1, 1), (1, 1)),
        s(s.tensor(0, 3, 3, 2), s.tensor(3, 2, 2, 2), (1, 1), (0, 0), (1, 1)),
    ],
    oracle=lambda torch, x, w, stride, padding, dilation: torch.nn.functional.conv2d(
        x.permute(0, 3, 1, 2), w, None, stride, padding, dilation
    ).permute(0, 2, 3, 1),
    doc="""Correlate images (N, H, W, C) with a weight (O, C, kH, kW), to (N, H', W', O).

    The channels are neighbours in memory, of the images and of the result.
    """,
)
