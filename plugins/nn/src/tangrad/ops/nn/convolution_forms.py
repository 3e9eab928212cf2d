"""Define the convolutions as PyTorch calls them: by number of dimensions, with bias and options.

Each is a few lines on the three kernels of `tangrad.ops.nn.convolution`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tangrad
from tangrad.ops.nn.convolution import (
    check_geometry,
    convolution,
    convolution_input,
    in_format_of,
    repeated,
)
from tangrad.ops.nn.convolution_biased import convolution_biased
from tangrad.ops.nn.convolution_channels_last import of_channels_last
from tangrad.ops.nn.fusing import fuses, unseen
from tangrad.plugin import Ints, Ints1, Ints2, Ints3, Tensor, composite, get_intercept, warn_once


def _same_padding(input: Any, kernel: Ints, stride: Ints, dilation: Ints) -> tuple[Any, Ints]:
    """Pad so that the result has the size of the input; an odd total puts more at the end."""
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    extra = [n for total in reversed(totals) for n in (0, total % 2)]
    if any(extra):
        warn_once(
            "Using padding='same' with even kernel lengths and odd dilation may require a "
            "zero-padded copy of the input be created"
        )
        input = tangrad.constant_pad_nd(input, tuple(extra), 0)
    return input, tuple(total // 2 for total in totals)


def _with_batch(name: str, input: Any, weight: Any, spatial: int) -> tuple[Any, bool]:
    if weight.ndim != spatial + 2:
        raise RuntimeError(
            f"{name}: expected {spatial + 2}D weight, got shape {list(weight.shape)}"
        )
    if input.ndim not in (spatial + 1, spatial + 2):
        raise RuntimeError(
            f"Expected {spatial + 1}D (unbatched) or {spatial + 2}D (batched) input to {name}, "
            f"but got input of size: {list(input.shape)}"
        )
    batched = input.ndim == spatial + 2
    return (input if batched else input.unsqueeze(0)), batched


def _with_bias(result: Any, bias: Any, spatial: int, channels: int) -> Any:
    if bias is None:
        return result
    if tuple(bias.shape) != (channels,):
        raise RuntimeError(
            f"expected bias to be 1-dimensional with {channels} elements, but got bias of size "
            f"{list(bias.shape)} instead"
        )
    if bias.dtype != result.dtype:
        raise RuntimeError(
            f"Input type ({result.dtype}) and bias type ({bias.dtype}) should be the same"
        )
    return result + bias.reshape((channels,) + (1,) * spatial)


def _adds_bias(x: Any, weight: Any, bias: Any) -> bool:
    """Whether the device adds a bias while it makes the result."""
    if bias.dtype != x.dtype or tuple(bias.shape) != tuple(weight.shape)[:1]:
        return False
    own = unseen("convolution_biased", x, weight, bias)
    return fuses(x, weight, bias) if own is None else bool(own(x))


def _conv(
    name: str,
    spatial: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    x, batched = _with_batch(name, input, weight, spatial)
    stride = repeated("stride", stride, spatial)
    dilation = repeated("dilation", dilation, spatial)
    if padding == "valid":
        padding = 0
    if padding == "same":
        x, padding = _same_padding(x, tuple(weight.shape)[2:], stride, dilation)
    if isinstance(padding, str):
        raise RuntimeError(f"Invalid padding string: '{padding}', expected 'same' or 'valid'")
    padding = repeated("padding", padding, spatial)
    windows = (stride, padding, dilation, groups)
    result = None if x.is_contiguous() else of_channels_last(x, weight, bias, *windows)
    if result is not None:
        return result if batched else result.squeeze(0)
    if bias is not None and _adds_bias(x, weight, bias):
        result = convolution_biased(x, weight, bias, stride, padding, dilation, groups)
    else:
        result = convolution(x, weight, stride, padding, dilation, groups)
        result = _with_bias(result, bias, spatial, weight.shape[0])
    result = in_format_of(result, x, weight)
    return result if batched else result.squeeze(0)


@composite(
    dtypes="floating complex",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 2, 5), s.tensor(3, 2, 2), s.tensor(3)),
        s(s.tensor(2, 5), s.tensor(2, 1, 3), None, 2, 1, 1, 2),
        s(s.tensor(1, 1, 6), s.tensor(1, 1, 2), None, 1, "same", 3),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3, 4), s.tensor(3, 2, 2)), RuntimeError, "channels"),
        (s(s.tensor(4), s.tensor(3, 2, 2)), RuntimeError, "Expected 2D"),
        (s(s.tensor(1, 1, 2), s.tensor(1, 1, 3)), RuntimeError, "Kernel size can't be greater"),
        (s(s.tensor(1, 1, 4), s.tensor(1, 1, 3), None, 0), RuntimeError, "stride"),
    ],
)
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Correlate signals with kernels.

    Args:
        input: (N, C, L) or (C, L).
        weight: (O, C / groups, k).
        bias: (O).
        padding: a number, "same" or "valid".
    """
    return _conv("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@composite(
    dtypes="floating complex",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 2, 4, 3), s.tensor(3, 2, 2, 2), s.tensor(3)),
        s(s.tensor(2, 4, 4), s.tensor(2, 1, 3, 2), None, (2, 1), (1, 0), 1, 2),
        s(s.tensor(1, 1, 4, 5), s.tensor(1, 1, 2, 3), s.tensor(1), 1, "same", 1),
        s(s.tensor(1, 1, 5, 5), s.tensor(1, 1, 2, 2), None, 1, "valid", 2),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 2, 4, 4), s.tensor(3, 1, 2, 2)), RuntimeError, "channels"),
        (s(s.tensor(4, 4), s.tensor(3, 1, 2, 2)), RuntimeError, "Expected 3D"),
        (
            s(s.tensor(1, 1, 4, 4), s.tensor(1, 1, 2, 2), None, 2, "same"),
            RuntimeError,
            "strided convolutions",
        ),
        (
            s(s.tensor(1, 1, 4, 4), s.tensor(1, 1, 2, 2), s.tensor(2)),
            RuntimeError,
            "expected bias to be 1-dimensional",
        ),
    ],
)
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Correlate images with kernels.

    Args:
        input: (N, C, H, W) or (C, H, W).
        weight: (O, C / groups, kH, kW).
        bias: (O).
        padding: a number, a pair, "same" or "valid".
    """
    return _conv("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@composite(
    dtypes="floating complex",
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 3, 4, 3), s.tensor(3, 2, 2, 2, 1), s.tensor(3)),
        s(s.tensor(2, 4, 4, 3), s.tensor(2, 1, 3, 2, 1), None, (2, 1, 1), (1, 0, 0), 1, 2),
        s(s.tensor(1, 1, 4, 3, 2), s.tensor(1, 1, 2, 3, 1), s.tensor(1), 1, "same", 1),
        s(s.tensor(0, 1, 3, 3, 3), s.tensor(1, 1, 2, 2, 2), None, 1, "valid", 2),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 2, 4, 4, 4), s.tensor(3, 1, 2, 2, 2)), RuntimeError, "channels"),
        (s(s.tensor(4, 4), s.tensor(3, 1, 2, 2, 2)), RuntimeError, "Expected 4D"),
        (
            s(s.tensor(1, 1, 2, 2, 2), s.tensor(1, 1, 3, 3, 3)),
            RuntimeError,
            "Kernel size can't be greater",
        ),
    ],
)
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Correlate volumes with kernels.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        weight: (O, C / groups, kD, kH, kW).
        bias: (O).
        padding: a number, a triple, "same" or "valid".
    """
    return _conv("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@composite(
    dtypes="floating",
    samples=lambda s: [
        s(s.tensor(5, 2, 3), s.tensor(2, 3, 4), s.tensor(4)),
        s(s.tensor(3, 1, 2, strided=True), s.tensor(3, 2, 2), s.tensor(2), 1),
    ],
    errors=lambda s: [
        (s(s.tensor(5, 2), s.tensor(2, 3, 4), s.tensor(4)), RuntimeError, "3 dims"),
        (s(s.tensor(5, 2, 2), s.tensor(2, 3, 4), s.tensor(4)), RuntimeError, "does not match"),
    ],
)
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Correlate sequences stored time first.

    Args:
        input: (T, N, C).
        weight: (k, C, O).
        bias: (O).
        pad: zeros on both ends of the sequence.

    Returns:
        A tensor of shape (T + 2 pad - k + 1, N, O).
    """
    if input.ndim != 3:
        raise RuntimeError(
            f"conv_tbc: Input must have 3 dims: time, batch, channel, got {_of(input)}"
        )
    if weight.ndim != 3:
        raise RuntimeError(f"conv_tbc: Weight tensor must have 3 dims, got {_of(weight)}")
    if bias.ndim != 1:
        raise RuntimeError(f"conv_tbc: Bias must be 1-D, got {_of(bias)}")
    if input.shape[2] != weight.shape[1]:
        raise RuntimeError(
            f"conv_tbc: Input dim 2 (input channels) does not match dim 1 of the weight: "
            f"{_of(input)} and {_of(weight)}"
        )
    if bias.shape[0] != weight.shape[2]:
        raise RuntimeError(
            f"conv_tbc: Bias size must equal dim 2 of the weight (output channels): {_of(bias)} "
            f"and {_of(weight)}"
        )
    convolved = convolution(
        input.permute((1, 2, 0)), weight.permute((2, 1, 0)), (1,), (pad,), (1,), 1
    )
    return convolved.permute((2, 0, 1)) + bias


def _of(x: Any) -> list[int]:
    return list(x.shape)


def _transposed_sizes(
    name: str,
    shape: Ints,
    weight: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    output_padding: Ints,
    groups: int,
) -> Ints:
    """Check the shapes of an input and a weight, and return the sizes of the result."""
    check_geometry(
        name,
        stride=stride,
        padding=padding,
        dilation=dilation,
        output_padding=output_padding,
    )
    if not 1 <= groups <= weight[0] or weight[0] % groups:
        raise RuntimeError(
            f"Given transposed=1, expected weight of at least {groups} (groups) at dimension 0 and "
            f"divisible by it, but got weight of size {list(weight)}"
        )
    if shape[1] != weight[0]:
        raise RuntimeError(
            f"Given transposed=1, weight of size {list(weight)}, expected input{list(shape)} to "
            f"have {weight[0]} channels, but got {shape[1]} channels instead"
        )
    if any(o >= max(s, d) for o, s, d in zip(output_padding, stride, dilation, strict=True)):
        raise RuntimeError(
            "output padding must be smaller than either stride or dilation, but got "
            f"output_padding={list(output_padding)}, stride={list(stride)}, "
            f"dilation={list(dilation)}"
        )
    lengths = zip(shape[2:], stride, padding, dilation, weight[2:], output_padding, strict=True)
    sizes = tuple((n - 1) * s - 2 * p + d * (k - 1) + o + 1 for n, s, p, d, k, o in lengths)
    if any(n < 1 for n in sizes):
        raise RuntimeError(
            f"Given input size per channel: {list(shape)[2:]}. Calculated output size per "
            f"channel: {list(sizes)}. Output size is too small"
        )
    return sizes


_known_sizes = lru_cache(maxsize=256, typed=True)(_transposed_sizes)


def _conv_transpose(
    spatial: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: int,
    dilation: Ints,
) -> Any:
    name = f"conv_transpose{spatial}d"
    x, batched = _with_batch(name, input, weight, spatial)
    if x.dtype != weight.dtype:
        raise RuntimeError(
            f"{name}: Input type ({x.dtype}) and weight type ({weight.dtype}) should be the same"
        )
    window = (
        repeated("stride", stride, spatial),
        repeated("padding", padding, spatial),
        repeated("dilation", dilation, spatial),
    )
    extra = repeated("output_padding", output_padding, spatial)
    # Sizes of a program that is recorded may be symbols, which nothing is to be kept by.
    sizes_of = _known_sizes if get_intercept() is None else _transposed_sizes
    sizes = sizes_of(name, tuple(x.shape), tuple(weight.shape), *window, extra, groups)
    channels = weight.shape[1] * groups
    shape = (x.shape[0], channels, *sizes)
    result = convolution_input(weight, x, shape, *window, groups)
    result = in_format_of(_with_bias(result, bias, spatial, channels), x, weight)
    return result if batched else result.squeeze(0)


@composite(
    dtypes="floating complex",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 2, 3), s.tensor(2, 3, 2), s.tensor(3)),
        s(s.tensor(2, 3), s.tensor(2, 1, 3), None, 2, 1, 1, 2),
        s(s.tensor(1, 1, 3, strided=True), s.tensor(1, 1, 2), None, 1, 0, 1, 1, 2),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 2, 2), s.tensor(3, 1, 2)), RuntimeError, "channels"),
        (s(s.tensor(1, 2, 2), s.tensor(2, 1, 2), None, 2, 0, 2), RuntimeError, "output padding"),
    ],
)
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints1 = 1,
    padding: Ints1 = 0,
    output_padding: Ints1 = 0,
    groups: int = 1,
    dilation: Ints1 = 1,
) -> Tensor:
    """Apply the adjoint of conv1d in its input ("transposed convolution").

    Args:
        input: (N, C, L) or (C, L).
        weight: (C, O / groups, k).
        bias: (O).
        output_padding: elements added at the far end of the result.
    """
    return _conv_transpose(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@composite(
    dtypes="floating complex",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 2, 2, 3), s.tensor(2, 3, 2, 2), s.tensor(3)),
        s(s.tensor(2, 2, 2), s.tensor(2, 1, 3, 2), None, 2, 1, 1, 2),
        s(s.tensor(1, 1, 3, 3), s.tensor(1, 1, 2, 2), None, 1, 0, 0, 1, 2),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 2, 2, 2), s.tensor(3, 1, 2, 2)), RuntimeError, "channels"),
        (
            s(s.tensor(1, 1, 2, 2), s.tensor(1, 1, 2, 2), stride=[1, 1, 1]),
            RuntimeError,
            "expected stride to be a single integer",
        ),
    ],
)
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints2 = 1,
    padding: Ints2 = 0,
    output_padding: Ints2 = 0,
    groups: int = 1,
    dilation: Ints2 = 1,
) -> Tensor:
    """Apply the adjoint of conv2d in its input ("transposed convolution").

    Args:
        input: (N, C, H, W) or (C, H, W).
        weight: (C, O / groups, kH, kW).
        bias: (O).
        output_padding: rows and columns added at the far end of the result.
    """
    return _conv_transpose(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@composite(
    dtypes="floating complex",
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 2, 3, 2), s.tensor(2, 2, 2, 2, 1), s.tensor(2)),
        s(s.tensor(2, 2, 2, 1), s.tensor(2, 1, 3, 2, 3), None, 2, 1, 1, 2),
        s(s.tensor(1, 1, 2, 2, 3), s.tensor(1, 1, 2, 2, 1), None, 1, 0, 0, 1, (1, 2, 1)),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 2, 2, 2, 2), s.tensor(3, 1, 2, 2, 2)), RuntimeError, "channels"),
    ],
)
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints3 = 1,
    padding: Ints3 = 0,
    output_padding: Ints3 = 0,
    groups: int = 1,
    dilation: Ints3 = 1,
) -> Tensor:
    """Apply the adjoint of conv3d in its input ("transposed convolution").

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        weight: (C, O / groups, kD, kH, kW).
        bias: (O).
        output_padding: planes, rows and columns added at the far end of the result.
    """
    return _conv_transpose(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )
