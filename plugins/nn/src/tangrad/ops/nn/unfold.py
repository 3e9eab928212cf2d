"""Define the rearrangements between an image and its patches, pixels and channels."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.nn.convolution import in_format_of, ordered_channels_last
from tangrad.plugin import Ints, Tensor, composite, find_op, numel_of, op

constant_pad_nd = find_op("constant_pad_nd")

# Sliding windows of an image as the columns of a matrix, and back ---------------------------------


def _positions(sizes: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Ints:
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(sizes, kernel, dilation, padding, stride, strict=True)
    )


def _check_windows(name: str, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> None:
    for what, values, least in (
        ("kernel size", kernel, 1),
        ("dilation", dilation, 1),
        ("padding", padding, 0),
        ("stride", stride, 1),
    ):
        if any(n < least for n in values):
            wanted = "greater than zero" if least else "non-negative"
            raise RuntimeError(f"{name}: {what} should be {wanted}, but got {list(values)}")


def _check_im2col(
    input: Any, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> None:
    _check_windows("unfold", kernel_size, dilation, padding, stride)
    if len(input.shape) not in (3, 4) or 0 in input.shape[len(input.shape) - 3 :]:
        raise RuntimeError(
            "unfold: Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other "
            f"non-zero dimensions for input, but got: {list(input.shape)}"
        )
    out = _positions(input.shape[-2:], kernel_size, dilation, padding, stride)
    if any(n < 1 for n in out):
        raise RuntimeError(
            f"unfold: Given input with spatial size {list(input.shape[-2:])}, kernel_size="
            f"{list(kernel_size)}, dilation={list(dilation)}, padding={list(padding)}, calculated "
            f"shape of the array of sliding blocks as {list(out)}, but its components must be at "
            "least one."
        )


def _columns(input: Any, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    """Copy one view: a window is a step apart in the padded image, as its elements are."""
    sizes = tuple(input.shape)[-2:]
    if any(padding):
        below, right = padding
        x = constant_pad_nd(input, (right, right, below, below), 0)
    else:
        x = input
    x = x.contiguous()  # padding keeps channels_last
    lead, (height, width) = tuple(x.shape)[:-2], tuple(x.shape)[-2:]
    out = _positions(sizes, kernel_size, dilation, padding, stride)
    planes = (lead[-1] * height * width, height * width)[-len(lead) :]
    windows = x.as_strided(
        (*lead, *kernel_size, *out),
        (*planes, dilation[0] * width, dilation[1], stride[0] * width, stride[1]),
    )
    shape = (*lead[:-1], lead[-1] * numel_of(kernel_size), numel_of(out))
    return windows.contiguous().reshape(shape)


def _im2col_batch(size: int, dims: Any, input: Any, *geometry: Any) -> Any:
    x = input.movedim(dims[0], 0)
    if x.ndim == 4:
        return im2col(x, *geometry), 0
    return im2col(x.flatten(0, 1), *geometry).unflatten(0, (size, x.shape[1])), 0


im2col = op(
    "im2col(Tensor input, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride)"
    " -> Tensor",
    check=_check_im2col,
    shape=lambda input, kernel_size, dilation, padding, stride: (
        *input.shape[:-3],
        input.shape[-3] * numel_of(kernel_size),
        numel_of(_positions(input.shape[-2:], kernel_size, dilation, padding, stride)),
    ),
    decompose=_columns,
    vjp={
        "input": lambda g, input_meta, kernel_size, dilation, padding, stride: col2im(
            g, tuple(input_meta.shape)[-2:], kernel_size, dilation, padding, stride
        )
    },
    linear=("input",),
    batch=lambda size, dims, input, kernel_size, dilation, padding, stride: _im2col_batch(
        size, dims, input, kernel_size, dilation, padding, stride
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 3), (2, 2), (1, 1), (0, 0), (1, 1)),
        s(s.tensor(2, 4, 5, strided=True), (2, 3), (2, 1), (1, 2), (1, 2)),
        s(s.tensor(0, 1, 3, 3), (2, 2), (1, 1), (0, 0), (1, 1)),
        s(s.tensor(1, 1, 3, 3), (1, 3), (1, 1), (1, 0), (2, 1)),
    ],
    oracle="nn.functional.unfold",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4, 4), 0, 1, 0, 1), RuntimeError, "kernel size should be greater"),
        (s(s.tensor(1, 1, 4, 4), 2, 0, 0, 1), RuntimeError, "dilation should be greater"),
        (s(s.tensor(1, 1, 4, 4), 2, 1, -1, 1), RuntimeError, "padding should be non-negative"),
        (s(s.tensor(1, 1, 4, 4), 2, 1, 0, 0), RuntimeError, "stride should be greater"),
        (s(s.tensor(1, 1, 4, 4), 5, 1, 0, 1), RuntimeError, "at least one"),
        (s(s.tensor(1, 0, 4, 4), 2, 1, 0, 1), RuntimeError, "non-zero dimensions"),
    ],
    doc="""Copy the sliding windows of images into columns.

    Args:
        input: (N, C, H, W) or (C, H, W).

    Returns:
        A tensor of shape (N, C kH kW, positions), or without N.
    """,
)


def _check_col2im(
    input: Any, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> None:
    _check_windows("fold", kernel_size, dilation, padding, stride)
    shape = list(input.shape)
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise RuntimeError(
            "fold: Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {shape}"
        )
    if shape[-2] % numel_of(kernel_size):
        raise RuntimeError(
            "fold: Expected size of input's dimension 1 to be divisible by the product of "
            f"kernel_size, but got input.size(1)={shape[-2]} and kernel_size={list(kernel_size)}"
        )
    out = _positions(output_size, kernel_size, dilation, padding, stride)
    given = (
        f"fold: Given output_size={list(output_size)}, kernel_size={list(kernel_size)}, "
        f"dilation={list(dilation)}, padding={list(padding)}, stride={list(stride)}, "
    )
    if any(n < 1 for n in (*out, *output_size)):
        raise RuntimeError(
            f"{given}calculated shape of the array of sliding blocks as {list(out)}, where the "
            "match needs at least one block along each dimension"
        )
    if shape[-1] != numel_of(out):
        raise RuntimeError(
            f"{given}expected size of input's dimension 2 to match the calculated number of "
            "sliding blocks "
            f"{' * '.join(map(str, out))} = {numel_of(out)}, but got input.size(2)={shape[-1]}"
        )


def _image(
    input: Any, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Any:
    """Add up the columns tap by tap: the windows' elements of one tap never overlap."""
    lead = tuple(input.shape)[:-2]
    channels = input.shape[-2] // numel_of(kernel_size)
    rows, columns = _positions(output_size, kernel_size, dilation, padding, stride)
    taps = input.reshape((*lead, channels, *kernel_size, rows, columns))
    sizes = tuple(n + 2 * p for n, p in zip(output_size, padding, strict=True))
    image = input.new_zeros((*lead, channels, *sizes))
    first = len(lead) + 1
    for i in range(kernel_size[0]):
        below = i * dilation[0]
        strip = image[..., below : below + (rows - 1) * stride[0] + 1 : stride[0], :]
        for j in range(kernel_size[1]):
            right = j * dilation[1]
            covered = strip[..., right : right + (columns - 1) * stride[1] + 1 : stride[1]]
            covered.add_(taps.select(first, i).select(first, j))
    (top, left), (height, width) = padding, output_size
    return image[..., top : top + height, left : left + width].contiguous()


def _col2im_batch(size: int, dims: Any, input: Any, *geometry: Any) -> Any:
    x = input.movedim(dims[0], 0)
    if x.ndim == 3:
        return col2im(x, *geometry), 0
    return col2im(x.flatten(0, 1), *geometry).unflatten(0, (size, x.shape[1])), 0


col2im = op(
    "col2im(Tensor input, int[2] output_size, int[2] kernel_size, int[2] dilation,"
    " int[2] padding, int[2] stride) -> Tensor",
    check=_check_col2im,
    shape=lambda input, output_size, kernel_size: (
        *input.shape[:-2],
        input.shape[-2] // numel_of(kernel_size),
        *output_size,
    ),
    decompose=_image,
    vjp={
        "input": lambda g, kernel_size, dilation, padding, stride: im2col(
            g, kernel_size, dilation, padding, stride
        )
    },
    linear=("input",),
    batch=lambda size, dims, input, output_size, kernel_size, dilation, padding, stride: (
        _col2im_batch(size, dims, input, output_size, kernel_size, dilation, padding, stride)
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 8, 6), (4, 3), (2, 2), (1, 1), (0, 0), (1, 1)),
        s(s.tensor(12, 12, strided=True), (4, 5), (2, 3), (2, 1), (1, 2), (1, 2)),
        s(s.tensor(0, 4, 4), (3, 3), (2, 2), (1, 1), (0, 0), (1, 1)),
    ],
    oracle="nn.functional.fold",
    errors=lambda s: [
        (s(s.tensor(1, 4, 5), 3, 2, 1, 0, 1), RuntimeError, "number of sliding blocks"),
        (s(s.tensor(1, 3, 4), 3, 2, 1, 0, 1), RuntimeError, "divisible by the product"),
        (s(s.tensor(4), 3, 2, 1, 0, 1), RuntimeError, "2D or 3D"),
        (s(s.tensor(1, 4, 4), 3, 2, 0, 0, 1), RuntimeError, "dilation should be greater"),
    ],
    doc="""Add columns up where `im2col` took them from: its adjoint.

    Args:
        input: (N, C kH kW, positions) or (C kH kW, positions).

    Returns:
        A tensor of shape (N, C, *output_size), or without N.
    """,
)


# Pixels and channels ------------------------------------------------------------------------------


def _check_pixels(name: str, input: Any, what: str, factor: int) -> None:
    if input.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} "
            "dimension(s)"
        )
    if factor < 1:
        raise RuntimeError(f"{name} expects a positive {what}, but got {factor}")


def _lie_last(x: Any) -> bool:
    """Whether images lie channels last, so that what is rearranged may lie so at once."""
    return x.ndim == 4 and not x.is_contiguous() and ordered_channels_last(x)


def _rearranged_last(x: Any, split: Any, order: Any, channels: int, height: int, width: int) -> Any:
    """Split the dimensions (N, H, W, C) of images, order what that gives, and merge it."""
    mixed = x.permute((0, 2, 3, 1)).reshape(split).permute(order)
    copied = mixed.clone(memory_format=tangrad.contiguous_format)
    result = tangrad._unsafe_view(copied, (x.shape[0], height, width, channels))
    return result.permute((0, 3, 1, 2))


@composite(
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 8, 2, 3), 2),
        s(s.tensor(9, 1, 2, strided=True), 3),
        s(s.tensor(0, 4, 1, 1), 2),
    ],
    errors=lambda s: [
        (s(s.tensor(4, 1), 2), RuntimeError, "at least 3 dimensions"),
        (s(s.tensor(3, 1, 1), 2), RuntimeError, "divisible by the square"),
        (s(s.tensor(4, 1, 1), 0), RuntimeError, "positive upscale_factor"),
    ],
)
def pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    """Turn (..., C r², H, W) into (..., C, H r, W r) (Shi et al., 2016, arXiv:1609.05158)."""
    _check_pixels("pixel_shuffle", self, "upscale_factor", upscale_factor)
    r = upscale_factor
    lead, (channels, height, width) = tuple(self.shape)[:-3], tuple(self.shape)[-3:]
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(lead)
    if _lie_last(self):
        split = (*lead, height, width, channels // (r * r), r, r)
        order = (0, 1, 4, 2, 5, 3)
        return _rearranged_last(self, split, order, channels // (r * r), height * r, width * r)
    split = self.reshape((*lead, channels // (r * r), r, r, height, width))
    mixed = split.permute((*range(n), n, n + 3, n + 1, n + 4, n + 2))
    copied = mixed.clone(memory_format=tangrad.contiguous_format)
    result = tangrad._unsafe_view(copied, (*lead, channels // (r * r), height * r, width * r))
    return in_format_of(result, self)


@composite(
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 4, 6), 2),
        s(s.tensor(1, 3, 6, strided=True), 3),
        s(s.tensor(1, 2, 3), 1),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 1), 2), RuntimeError, "at least 3 dimensions"),
        (s(s.tensor(1, 3, 2), 2), RuntimeError, "height to be divisible"),
        (s(s.tensor(1, 2, 3), 2), RuntimeError, "width to be divisible"),
        (s(s.tensor(4, 1, 1), 0), RuntimeError, "positive downscale_factor"),
    ],
)
def pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor:
    """Turn (..., C, H r, W r) into (..., C r², H, W): the inverse of `pixel_shuffle`."""
    _check_pixels("pixel_unshuffle", self, "downscale_factor", downscale_factor)
    r = downscale_factor
    lead, (channels, height, width) = tuple(self.shape)[:-3], tuple(self.shape)[-3:]
    for what, size, dim in (("height", height, -2), ("width", width, -1)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {what} to be divisible by downscale_factor, but "
                f"input.size({dim})={size} is not divisible by {r}"
            )
    n = len(lead)
    if _lie_last(self):
        split = (*lead, height // r, r, width // r, r, channels)
        order = (0, 1, 3, 5, 2, 4)
        return _rearranged_last(self, split, order, channels * r * r, height // r, width // r)
    split = self.reshape((*lead, channels, height // r, r, width // r, r))
    mixed = split.permute((*range(n), n, n + 2, n + 4, n + 1, n + 3))
    copied = mixed.clone(memory_format=tangrad.contiguous_format)
    result = tangrad._unsafe_view(copied, (*lead, channels * r * r, height // r, width // r))
    return in_format_of(result, self)


@composite(
    method=False,
    alias=("native_channel_shuffle",),
    samples=lambda s: [
        s(s.tensor(1, 4, 2), 2),
        s(s.tensor(2, 6, 2, 2, strided=True), 3),
        s(s.tensor(0, 4, 2), 2),
    ],
    errors=lambda s: [
        (s(s.tensor(1, 4), 2), RuntimeError, "> 2 dims"),
        (s(s.tensor(1, 4, 2), 3), RuntimeError, "divisible by groups"),
        (s(s.tensor(1, 4, 2), 0), RuntimeError, "must be positive"),
    ],
)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave groups of channels (Zhang et al., 2017, arXiv:1707.01083).

    Channel i of group g of an input (N, C, ...) becomes channel i groups + g.
    """
    if input.ndim < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes "
            f"{list(input.shape)}"
        )
    if groups < 1:
        raise RuntimeError(
            "Number of groups to divide channels in must be positive. Value of groups: "
            f"{groups} (channel_shuffle)"
        )
    channels = input.shape[1]
    if channels % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {channels} channels and {groups} "
            "groups (channel_shuffle)."
        )
    if _lie_last(input):
        samples, _, height, width = input.shape
        split = (samples, height, width, groups, channels // groups)
        return _rearranged_last(input, split, (0, 1, 2, 4, 3), channels, height, width)
    shape = (input.shape[0], groups, channels // groups, *input.shape[2:])
    mixed = input.reshape(shape).transpose(1, 2)
    copied = mixed.clone(memory_format=tangrad.contiguous_format)
    return in_format_of(tangrad._unsafe_view(copied, tuple(input.shape)), input)
