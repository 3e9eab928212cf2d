"""Deformable convolution: windows whose cells are moved by offsets, then a product with weights.

Dai, Qi, Xiong, Li, Zhang, Hu, Wei, "Deformable Convolutional Networks", 2017; with masks, Zhu, Hu,
Lin, Dai, "Deformable ConvNets v2", 2019.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.plugin import op

_HIDDEN: dict[str, Any] = {"function": False, "method": False, "out": False}
_GEOMETRY = (
    "Tensor input, Tensor offset, Tensor? mask, int[] kernel, int[] stride, int[] padding,"
    " int[] dilation, int groups"
)


class _Corners:
    """Where the four cells around each place lie, and how much each counts."""

    def __init__(
        self, input: Tensor, offset: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any,
        groups: int,
    ) -> None:  # fmt: skip
        batch, _, rows, columns = input.shape
        taps, (out_rows, out_columns) = kernel[0] * kernel[1], offset.shape[2:]
        moved = offset.reshape(batch, groups, taps, 2, out_rows, out_columns)
        like = {"device": offset.device, "dtype": offset.dtype}
        tap = tangrad.arange(taps, device=offset.device).reshape(-1, 1, 1)
        down = (tap // kernel[1] * dilation[0]).to(offset.dtype) - padding[0]
        across = (tap % kernel[1] * dilation[1]).to(offset.dtype) - padding[1]
        y = moved[:, :, :, 0] + down + tangrad.arange(out_rows, **like).reshape(-1, 1) * stride[0]
        x = moved[:, :, :, 1] + across + tangrad.arange(out_columns, **like) * stride[1]
        on = (y > -1) & (y < rows) & (x > -1) & (x < columns)
        y, x = tangrad.where(on, y, 0), tangrad.where(on, x, 0)
        top, left = y.floor(), x.floor()
        self.shape = batch, groups, taps, out_rows * out_columns
        self.high, self.wide = ((p - q).reshape(self.shape) for p, q in ((y, top), (x, left)))
        self.at, self.inside = [], []
        for below, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
            row, column = top.to(tangrad.int64) + below, left.to(tangrad.int64) + right
            there = on & (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
            cell = tangrad.where(there, row * columns + column, 0)
            self.at.append(cell.reshape(batch, groups, 1, taps * out_rows * out_columns))
            self.inside.append(there.reshape(self.shape).to(offset.dtype))
        near = (1 - self.high, self.high), (1 - self.wide, self.wide)
        self.weights = [
            near[0][k // 2] * near[1][k % 2] * self.inside[k] for k in range(4)
        ]  # fmt: skip

    def values(self, input: Tensor) -> list[Tensor]:
        """Return the four cells, each (N, groups, channels, taps, positions)."""
        batch, groups, taps, positions = self.shape
        channels, cells = input.size(1) // groups, input.size(2) * input.size(3)
        maps = input.reshape(batch, groups, channels, cells)
        found = []
        for at in self.at:
            picked = maps.gather(3, at.expand(-1, -1, maps.size(2), -1))
            found.append(picked.reshape(batch, groups, channels, taps, positions))
        return found


def _columns(
    input: Tensor, offset: Tensor, mask: Tensor | None, kernel: Any, stride: Any, padding: Any,
    dilation: Any, groups: int,
) -> Tensor:  # fmt: skip
    corners = _Corners(input, offset, kernel, stride, padding, dilation, groups)
    batch, _, taps, positions = corners.shape
    pairs = zip(corners.values(input), corners.weights, strict=True)
    made = sum(v * w.unsqueeze(2) for v, w in pairs)
    if mask is not None:
        made = made * mask.reshape(batch, groups, 1, taps, positions)
    result: Tensor = made.reshape(batch, input.size(1) * taps, positions)
    return result


def _columns_gradients(
    gradient: Tensor, input: Tensor, offset: Tensor, mask: Tensor | None, kernel: Any, stride: Any,
    padding: Any, dilation: Any, groups: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    corners = _Corners(input, offset, kernel, stride, padding, dilation, groups)
    batch, _, taps, positions = corners.shape
    channels = input.size(1) // groups
    given = gradient.reshape(batch, groups, channels, taps, positions)
    a, b, c, d = (
        v * i.unsqueeze(2) for v, i in zip(corners.values(input), corners.inside, strict=True)
    )
    high, wide = corners.high.unsqueeze(2), corners.wide.unsqueeze(2)
    by_mask = input.new_empty((0,))
    if mask is not None:
        shown = (a * (1 - wide) + b * wide) * (1 - high) + (c * (1 - wide) + d * wide) * high
        by_mask = (given * shown).sum(2).reshape(mask.shape)
        given = given * mask.reshape(batch, groups, 1, taps, positions)
    down = (given * ((c - a) * (1 - wide) + (d - b) * wide)).sum(2)
    across = (given * ((b - a) * (1 - high) + (d - c) * high)).sum(2)
    by_offset = tangrad.stack([down, across], 3).reshape(offset.shape)
    by_map = input.new_zeros((batch, groups, channels, input.size(2) * input.size(3)))
    for at, weight in zip(corners.at, corners.weights, strict=True):
        part = (given * weight.unsqueeze(2)).reshape(*by_map.shape[:3], taps * positions)
        by_map = by_map.scatter_add(3, at.expand(-1, -1, by_map.size(2), -1), part)
    return by_map.reshape(input.shape), by_offset, by_mask


columns_backward = op(
    f"vision::deform_columns_backward(Tensor gradient, {_GEOMETRY}) -> (Tensor, Tensor, Tensor)",
    shape=lambda input, offset, mask: (
        tuple(input.shape),
        tuple(offset.shape),
        (0,) if mask is None else tuple(mask.shape),
    ),
    dtype=lambda input: (input.dtype,) * 3,
    decompose=_columns_gradients,
    samples=lambda s: [],
    doc="Return the gradients of `vision::deform_columns` by the map, the offsets and the mask.",
    **_HIDDEN,
)


def _columns_vjp(
    g: Tensor, input: Tensor, offset: Tensor, mask: Tensor | None, kernel: Any, stride: Any,
    padding: Any, dilation: Any, groups: int,
) -> Any:  # fmt: skip
    made = columns_backward(
        g.contiguous(), input, offset, mask, kernel, stride, padding, dilation, groups
    )
    return made if mask is not None else (made[0], made[1], None)


columns = op(
    f"vision::deform_columns({_GEOMETRY}) -> Tensor",
    shape=lambda input, offset, kernel: (
        input.shape[0],
        input.shape[1] * kernel[0] * kernel[1],
        offset.shape[2] * offset.shape[3],
    ),
    dtype=lambda input: input.dtype,
    decompose=_columns,
    vjp={("input", "offset", "mask"): _columns_vjp},
    samples=lambda s: [],
    doc="Return the windows of a deformable convolution, (N, channels · taps, positions).",
    **_HIDDEN,
)


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    mask: Tensor | None = None,
) -> Tensor:
    """Convolve with windows whose cells are moved, and weighed where there is a mask.

    Args:
        input: (N, C, H, W).
        offset: (N, 2 · groups of offsets · kh · kw, out rows, out columns): rows, then columns.
        weight: (out channels, C / groups, kh, kw).
        bias: (out channels,), or None.
        stride, padding, dilation: of rows and columns.
        mask: (N, groups of offsets · kh · kw, out rows, out columns), or None.

    Returns:
        (N, out channels, out rows, out columns).

    Raises:
        RuntimeError: the shapes do not fit, or dtypes differ.
    """
    stride, padding, dilation = _pair(stride), _pair(padding), _pair(dilation)
    _check(input, offset, weight, bias, mask, stride, padding, dilation)
    taps = weight.shape[2] * weight.shape[3]
    kind = input.dtype
    if kind in (tangrad.float16, tangrad.bfloat16):
        input, offset, weight = input.float(), offset.float(), weight.float()
        bias, mask = (t if t is None else t.float() for t in (bias, mask))
    made = columns(
        input.contiguous(),
        offset.contiguous(),
        mask if mask is None else mask.contiguous(),
        list(weight.shape[2:]),
        list(stride),
        list(padding),
        list(dilation),
        offset.size(1) // (2 * taps),
    )
    groups = input.size(1) // weight.size(1)
    depth = weight.size(1) * taps
    rows = weight.reshape(groups, weight.size(0) // groups, depth)
    result = rows @ made.reshape(input.size(0), groups, depth, made.size(2))
    result = result.reshape(input.size(0), weight.size(0), *offset.shape[2:])
    if bias is not None:
        result = result + bias.reshape(1, -1, 1, 1)
    return result.to(kind)


def _check(
    input: Tensor, offset: Tensor, weight: Tensor, bias: Tensor | None, mask: Tensor | None,
    stride: Any, padding: Any, dilation: Any,
) -> None:  # fmt: skip
    for name, tensor in (("input", input), ("offset", offset), ("weight", weight), ("mask", mask)):
        if tensor is not None and tensor.dim() != 4:
            raise RuntimeError(
                f"deform_conv2d: Expected 4-dimensional {name}, got shape {tuple(tensor.shape)}"
            )
    taps, channels = weight.shape[2] * weight.shape[3], weight.size(1)
    if not taps or not channels or input.size(1) % channels:
        raise RuntimeError(
            f"deform_conv2d: weights of shape {tuple(weight.shape)} do not fit an input of "
            f"{input.size(1)} channels"
        )
    if weight.size(0) % (input.size(1) // channels):
        raise RuntimeError(
            f"deform_conv2d: {weight.size(0)} output channels do not divide into "
            f"{input.size(1) // channels} groups"
        )
    if bias is not None and tuple(bias.shape) != (weight.size(0),):
        raise RuntimeError(
            f"deform_conv2d: the bias has shape {tuple(bias.shape)}, expected ({weight.size(0)},)"
        )
    for name, values, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):  # noqa: E501  # fmt: skip
        if min(values) < least:
            raise RuntimeError(f"deform_conv2d: {name} is {values}; give at least {least}")
    groups = offset.size(1) // (2 * taps)
    if not groups or offset.size(1) != groups * 2 * taps or input.size(1) % groups:
        raise RuntimeError(
            f"deform_conv2d: offset.shape[1] is {offset.size(1)}, which is not 2 * groups * {taps} "
            f"for groups that divide {input.size(1)} channels"
        )
    if mask is not None and mask.size(1) != groups * taps:
        raise RuntimeError(
            f"deform_conv2d: mask.shape[1] is not valid: it is {mask.size(1)}, expected "
            f"{groups * taps}"
        )
    out = tuple(
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(
            input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
        )
    )
    for name, tensor, channels in (("offset", offset, offset.size(1)), ("mask", mask, groups * taps)):  # noqa: E501  # fmt: skip
        expected = (input.size(0), channels, *out)
        if tensor is not None and tuple(tensor.shape) != expected:
            raise RuntimeError(
                f"deform_conv2d: {name} has shape {tuple(tensor.shape)}, expected {expected}"
            )
    # Last: as in torchvision, whose tests give wrong shapes of another dtype.
    for name, tensor in (("offset", offset), ("weight", weight), ("mask", mask)):
        if tensor is not None and tensor.dtype != input.dtype:
            raise RuntimeError(
                f"deform_conv2d: {name} is {tensor.dtype} and input {input.dtype}; convert one"
            )
    if min(out) < 1:
        raise RuntimeError(f"deform_conv2d: the output would have {out[0]} by {out[1]} cells")


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
