"""Quantized tensors: integers with one scale and zero point, or with those of each channel.

Both are layouts of tangrad: the integers are a component, a strided tensor of uint8, int8 or
int32; scale and zero point stand beside them, as metadata for a whole tensor and as components
for channels.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import tangrad
from tangrad import plugin
from tangrad_quantization import ops, qparams
from tangrad_quantization.dtypes import RANGES, span, storage

_LAST = tangrad.channels_last
PER_TENSOR = "quantized"
PER_CHANNEL = "quantized_per_channel"
PER_GROUP = "quantized_per_group"  # its definition is in `groups.py`


def is_quantized(x: Any) -> bool:
    """Return whether something is a quantized tensor."""
    return isinstance(x, tangrad.Tensor) and x.layout.name in (PER_TENSOR, PER_CHANNEL, PER_GROUP)


def per_tensor(values: Any, scale: float, zero_point: int, dtype: Any, shape: Any = None) -> Any:
    """Return the quantized tensor of integers, a scale and a zero point.

    Args:
        values: the integers in the storage dtype of `dtype`; of less than a byte, as they are
            packed along the last dimension.
        scale: the scale.
        zero_point: the zero point.
        dtype: a quantized dtype.
        shape: of the tensor, where integers are packed.
    """
    return plugin.layout_tensor(
        PER_TENSOR,
        {"values": values},
        values.shape if shape is None else shape,
        metadata={"scale": float(scale), "zero_point": int(zero_point)},
        dtype=dtype,
    )


def per_channel(
    values: Any, scales: Any, zero_points: Any, axis: int, dtype: Any, shape: Any = None
) -> Any:
    """Return the quantized tensor of integers with a scale and a zero point per channel.

    Args:
        values: the integers, as of `per_tensor`.
        scales: float64 scales of the channels.
        zero_points: int64 zero points, or float32 ones.
        axis: the dimension of the channels.
        dtype: a quantized dtype.
        shape: of the tensor, where integers are packed.
    """
    return plugin.layout_tensor(
        PER_CHANNEL,
        {"values": values, "scales": scales, "zero_points": zero_points},
        values.shape if shape is None else shape,
        metadata={"axis": int(axis)},
        dtype=dtype,
    )


def with_values(x: Any, values: Any) -> Any:
    """Return a tensor with the scale and zero point of another, one for all, and new integers."""
    said = plugin.metadata(x)
    return per_tensor(values, said["scale"], said["zero_point"], x.dtype)


def values_of(x: Any) -> Any:
    """Return the integers of a quantized tensor, as they lie in memory."""
    return plugin.components(x)["values"]


def require(x: Any, op: str, layout: str = PER_TENSOR) -> None:
    """Refuse what is not a quantized tensor of a layout.

    Raises:
        RuntimeError: it is none.
    """
    if isinstance(x, tangrad.Tensor) and x.layout.name == layout:
        return
    found = f"{x.dtype}{list(x.shape)}" if isinstance(x, tangrad.Tensor) else type(x).__name__
    if layout == PER_CHANNEL:
        wanted, remedy = "per channel", "quantize it with tangrad.quantize_per_channel"
    elif layout == PER_GROUP:
        wanted = "per group"
        remedy = "quantize it with tangrad.quantization.quantize_per_group"
    else:
        wanted = "with one scale"
        remedy = (
            "quantize it with tangrad.quantize_per_tensor, or put a QuantStub before the module"
        )
    raise RuntimeError(f"{op}: expected a tensor quantized {wanted}, got {found}; {remedy}")


def scale_and_zero(x: Any, op: str) -> tuple[float, int]:
    """Return the scale and the zero point of a tensor that has one of each."""
    require(x, op)
    said = plugin.metadata(x)
    return said["scale"], said["zero_point"]


def in_memory_order(function: Any, *tensors: Any) -> Any:
    """Apply a function of elements in the order in which these lie in memory.

    Kernels take elements that lie one after the other; those of images with channels last do, in
    another order than their dimensions have.

    Args:
        function: of tensors of one shape, element by element.
        tensors: plain tensors of one shape.
    """
    if all(x.is_contiguous() for x in tensors):
        return function(*tensors)
    if all(x.dim() == 4 and x.is_contiguous(memory_format=_LAST) for x in tensors):
        return function(*(x.permute(0, 2, 3, 1) for x in tensors)).permute(0, 3, 1, 2)
    strides = tensors[0].stride()
    order = sorted(range(len(strides)), key=lambda d: -strides[d])
    moved = [x.permute(order) for x in tensors]
    if not all(x.is_contiguous() for x in moved):
        return function(*(x.contiguous() for x in tensors))
    back = sorted(range(len(order)), key=order.__getitem__)
    return function(*moved).permute(back)


def split_bits(values: Any, bits: int, size: int) -> Any:
    """Return integers of `bits` bits that lie several to a byte, the first in the lowest bits."""
    if bits >= 8:
        return values
    parts = [(values >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return tangrad.stack(parts, -1).flatten(-2)[..., :size]


def join_bits(values: Any, bits: int) -> Any:
    """Return integers packed several to a byte, along the last dimension; see `split_bits`."""
    if bits >= 8:
        return values
    count = 8 // bits
    missing = -values.shape[-1] % count
    wide = tangrad.nn.functional.pad(values.to(tangrad.int32), (0, missing))
    wide = wide.reshape(*values.shape[:-1], -1, count)
    shifts = tangrad.arange(0, 8, bits, dtype=tangrad.int32, device=values.device)
    return (wide << shifts).sum(-1).to(tangrad.uint8)


def whole_values(x: Any) -> Any:
    """Return the integers of a quantized tensor in its shape, one to an element."""
    bits = RANGES[x.dtype.name].bits
    return values_of(x) if bits >= 8 else split_bits(values_of(x), bits, x.shape[-1])


class _Quantized(plugin.Layout):
    """What both layouts share."""

    missing = "refuse"
    remarks_alone = True
    misfit = (
        "the state is that of a model quantized in another way than this one, which may be float; "
        "quantize it in the same way (prepare and convert, or quantize_dynamic) before it takes "
        "the state"
    )

    def from_dense(self, dense: Any, **options: Any) -> Any:
        """Refuse: a scale is needed."""
        raise NotImplementedError(
            "a tensor cannot be quantized without a scale: use tangrad.quantize_per_tensor or "
            "tangrad.quantize_per_channel"
        )

    def strides(self, t: Any) -> tuple[int, ...] | None:
        """Return the strides of the integers; None where several share a byte."""
        values = values_of(t)
        return tuple(values.stride()) if values.shape == t.shape else None

    def is_contiguous(self, t: Any, memory_format: Any) -> bool | None:
        """Return whether the integers lie in memory in the order of a format."""
        values = values_of(t)
        if values.shape != t.shape:
            return None
        if memory_format is None:
            return bool(values.is_contiguous())
        return bool(values.is_contiguous(memory_format=memory_format))

    def converted(self, t: Any, dtype: Any, device: Any) -> Any:
        """Return a copy elsewhere; numbers of another dtype only by `dequantize`."""
        if dtype is not None and dtype != t.dtype:
            raise RuntimeError(
                f"a quantized tensor of {t.dtype} does not convert to {dtype}: call dequantize()"
            )
        return super().converted(t, None, device)

    def file_form(self, t: Any) -> tuple[str, tuple[Any, ...]] | None:
        """Return how PyTorch's files say it: the integers' storage, and what they stand for."""
        values = values_of(t)
        packed = RANGES[t.dtype.name].bits < 8
        values = _packed_over_rows(t) if packed else values
        stored = tangrad.TypedStorage(wrap_storage=values.untyped_storage(), dtype=t.dtype)
        stride = _dense_stride(t.shape) if packed else tuple(values.stride())
        place = (values.storage_offset(), tuple(t.shape), stride)
        return _REBUILD, (stored, *place, self.said(t), False, OrderedDict())

    def said(self, t: Any) -> tuple[Any, ...]:
        """Return the scheme, and the scales and zero points of a tensor."""
        raise NotImplementedError


def _check_values(values: Any, dtype_name: str | None = None) -> None:
    if values.dtype not in (tangrad.uint8, tangrad.int8, tangrad.int32):
        raise TypeError(
            f"quantized tensor: integers must be uint8, int8 or int32, not {values.dtype}"
        )


class PerTensorLayout(_Quantized):
    """One scale and one zero point."""

    components = ("values",)

    def said(self, t: Any) -> tuple[Any, ...]:
        """Return the scheme, the scale and the zero point."""
        return (tangrad.per_tensor_affine, *scale_and_zero(t, "save"))

    def check(self, components: Any, metadata: Any, shape: tuple[int, ...]) -> None:
        """Refuse impossible scales.

        Raises:
            ValueError: the scale is not positive and finite.
        """
        _check_values(components["values"])
        qparams.check_scale("quantized tensor", metadata["scale"])

    def to_dense(self, t: Any) -> Any:
        """Return the numbers."""
        said = plugin.metadata(t)
        values, scale, zero = whole_values(t), said["scale"], said["zero_point"]
        if values.dtype == tangrad.int32:
            return (values.to(tangrad.int64) - zero).to(tangrad.float32) * scale
        return in_memory_order(lambda x: ops.to_float(x, scale, zero), values)

    def printed(self, t: Any) -> Mapping[str, Any]:
        """Return what is printed: the numbers."""
        return {"": self.to_dense(t)}

    def remarks(self, t: Any) -> list[str]:
        """Return what is printed behind them."""
        said = plugin.metadata(t)
        return [
            f"size={tuple(t.shape)}",
            f"dtype={t.dtype}",
            f"quantization_scheme={tangrad.per_tensor_affine}",
            f"scale={said['scale']}",
            f"zero_point={said['zero_point']}",
        ]


class PerChannelLayout(_Quantized):
    """A scale and a zero point for each index of one dimension."""

    components = ("values", "scales", "zero_points")

    def said(self, t: Any) -> tuple[Any, ...]:
        """Return the scheme, the scales, the zero points and their dimension."""
        held = plugin.components(t)
        # PyTorch tells zero points that are broken by their dtype, and then wants both in float32.
        broken = held["zero_points"].is_floating_point()
        scales = held["scales"].to(tangrad.float32) if broken else held["scales"]
        axis = plugin.metadata(t)["axis"]
        return tangrad.per_channel_affine, scales, held["zero_points"], axis

    def check(self, components: Any, metadata: Any, shape: tuple[int, ...]) -> None:
        """Refuse scales and zero points that do not fit.

        Raises:
            ValueError: a scale is not positive and finite.
            RuntimeError: there are not as many as channels.
        """
        _check_values(components["values"])
        check_channels(
            "quantized tensor",
            shape,
            components["scales"],
            components["zero_points"],
            metadata["axis"],
        )

    def to_dense(self, t: Any) -> Any:
        """Return the numbers."""
        held, axis = plugin.components(t), plugin.metadata(t)["axis"]
        over = [1] * t.dim()
        over[axis] = -1
        zeros = held["zero_points"].reshape(over)
        values = whole_values(t)
        if held["zero_points"].is_floating_point():
            shifted = values.to(tangrad.float32) - zeros.to(tangrad.float32)
        else:
            shifted = (values.to(tangrad.int64) - zeros).to(tangrad.float32)
        return shifted * held["scales"].to(tangrad.float32).reshape(over)

    def printed(self, t: Any) -> Mapping[str, Any]:
        """Return what is printed: the numbers."""
        return {"": self.to_dense(t)}

    def remarks(self, t: Any) -> list[str]:
        """Return what is printed behind them."""
        return [
            f"size={tuple(t.shape)}",
            f"dtype={t.dtype}",
            f"quantization_scheme={scheme_of(t)}",
            f"scale={q_per_channel_scales(t)}",
            f"zero_point={q_per_channel_zero_points(t)}",
            f"axis={q_per_channel_axis(t)}",
        ]


def check_channels(op: str, shape: Any, scales: Any, zero_points: Any, axis: int) -> None:
    """Refuse scales and zero points of channels that do not fit a shape.

    Raises:
        IndexError: there is no such dimension.
        RuntimeError: their number is not that of the channels.
        ValueError: a scale is not positive and finite.
    """
    if not 0 <= axis < len(shape):
        raise IndexError(
            f"{op}: axis {axis} is no dimension of a tensor of shape {list(shape)}; it counts "
            f"from 0 to {len(shape) - 1}"
        )
    for name, given in (("scales", scales), ("zero_points", zero_points)):
        if given.dim() != 1 or given.numel() != shape[axis]:
            raise RuntimeError(
                f"{op}: {name} must have one element for each of the {shape[axis]} channels of "
                f"axis {axis}, got shape {list(given.shape)}"
            )
    wrong = ~(scales.isfinite() & (scales > 0))
    if bool(wrong.any()):
        channel = int(wrong.to(tangrad.int64).argmax())
        raise ValueError(
            f"{op}: scales must be positive and finite, that of channel {channel} is "
            f"{scales[channel].item()}"
        )


def scheme_of(x: Any) -> Any:
    """Return how integers stand for numbers; `Tensor.qscheme()`."""
    if x.layout.name == PER_TENSOR:
        return tangrad.per_tensor_affine
    broken = plugin.components(x)["zero_points"].is_floating_point()
    return tangrad.per_channel_affine_float_qparams if broken else tangrad.per_channel_affine


def int_repr(x: Any) -> Any:
    """Return a copy of the integers; of less than a byte, packed; `Tensor.int_repr()`."""
    return values_of(x).clone()


def q_scale(x: Any) -> float:
    """Return the scale."""
    return scale_and_zero(x, "q_scale")[0]


def q_zero_point(x: Any) -> int:
    """Return the zero point."""
    return scale_and_zero(x, "q_zero_point")[1]


def q_per_channel_scales(x: Any) -> Any:
    """Return the scales of the channels, float64."""
    require(x, "q_per_channel_scales", PER_CHANNEL)
    return plugin.components(x)["scales"]


def q_per_channel_zero_points(x: Any) -> Any:
    """Return the zero points of the channels: int64, or float32 broken ones."""
    require(x, "q_per_channel_zero_points", PER_CHANNEL)
    return plugin.components(x)["zero_points"]


def q_per_channel_axis(x: Any) -> int:
    """Return the dimension of the channels."""
    require(x, "q_per_channel_axis", PER_CHANNEL)
    axis: int = plugin.metadata(x)["axis"]
    return axis


def dequantize(x: Any) -> Any:
    """Return the numbers, float32."""
    return x.layout.definition.to_dense(x)


METHODS: dict[str, Any] = {
    "dequantize": dequantize,
    "int_repr": int_repr,
    "is_quantized": True,
    "q_per_channel_axis": q_per_channel_axis,
    "q_per_channel_scales": q_per_channel_scales,
    "q_per_channel_zero_points": q_per_channel_zero_points,
    "q_scale": q_scale,
    "q_zero_point": q_zero_point,
    "qscheme": scheme_of,
}
_Quantized.methods = METHODS  # type: ignore[misc]


def require_values(values: Any, dtype: Any, shape: Any) -> None:
    """Refuse integers that are not those of a dtype and a shape.

    Raises:
        ValueError: their dtype or shape is another, or the dtype is not a quantized one.
    """
    if dtype.name not in RANGES:
        raise ValueError(f"{dtype} is no quantized dtype; there are {', '.join(RANGES)}")
    bits, wanted = RANGES[dtype.name].bits, tuple(shape)
    if bits < 8:
        wanted = (*wanted[:-1], -(-wanted[-1] * bits // 8))
    if values.dtype != storage(dtype) or tuple(values.shape) != wanted:
        raise ValueError(
            f"integers of {dtype}{list(shape)} are {storage(dtype)}{list(wanted)}, got "
            f"{values.dtype}{list(values.shape)}"
        )


def _packed_over_rows(t: Any) -> Any:
    """Return packed integers as PyTorch has them: a byte may hold the end of one row and the next.

    It reserves whole bytes for each row nevertheless.
    """
    values, bits = values_of(t), RANGES[t.dtype.name].bits
    if t.shape[-1] % (8 // bits) == 0:
        return values.contiguous()
    dense = join_bits(whole_values(t).reshape(-1), bits)
    return tangrad.nn.functional.pad(dense, (0, values.numel() - dense.numel()))


_REBUILD = "torch._utils._rebuild_qtensor"


def _dense_stride(shape: Any) -> tuple[int, ...]:
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


def rebuilt(
    stored: Any, offset: Any, size: Any, stride: Any, said: Any, requires_grad: Any, hooks: Any
) -> Any:
    """Rebuild what a file of PyTorch holds as a quantized tensor.

    Raises:
        RuntimeError: the storage is too small, or the file says something impossible.
    """
    if not isinstance(stored, tangrad.TypedStorage) or stored.dtype.name not in RANGES:
        raise RuntimeError(f"a quantized tensor of the file has no storage of integers: {stored}")
    if not isinstance(said, tuple) or len(said) < 3:
        raise RuntimeError(f"a quantized tensor of the file has no scale: {said}")
    dtype = stored.dtype
    values = _stored_values(stored.untyped(), dtype, offset, tuple(size), tuple(stride))
    if said[0] == tangrad.per_tensor_affine:
        return per_tensor(values, said[1], said[2], dtype, size)
    scales, zero_points = (
        x if isinstance(x, tangrad.Tensor) else tangrad.tensor(x) for x in said[1:3]
    )
    broken = zero_points.is_floating_point()
    zero_points = zero_points.to(tangrad.float32 if broken else tangrad.int64)
    return per_channel(values, scales.to(tangrad.float64), zero_points, said[3], dtype, size)


def _stored_values(held_in: Any, dtype: Any, offset: int, size: Any, stride: Any) -> Any:
    """Return the integers of a storage, as this package keeps them."""
    bits = RANGES[dtype.name].bits
    if bits < 8:
        if stride != _dense_stride(size) or not size:
            raise RuntimeError(f"a quantized tensor of {dtype} in the file is not contiguous")
        whole, size = size, (*size[:-1], -(-size[-1] * bits // 8))
        stride = _dense_stride(size)
    held = tangrad.empty(0, dtype=storage(dtype), device=held_in.device)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if offset < 0 or (0 not in size and (last + 1) * held.itemsize > held_in.nbytes()):
        raise RuntimeError(
            f"a quantized tensor of size {list(size)}, stride {list(stride)} and offset {offset} "
            f"does not fit into its storage of {held_in.nbytes()} bytes"
        )
    held.set_(held_in, offset, size, stride)
    if bits == 8 or bits == 32 or whole[-1] % (8 // bits) == 0:
        return held
    over_rows = split_bits(held.reshape(-1), bits, held.numel() * 8 // bits)
    return join_bits(over_rows[: math.prod(whole)].reshape(whole), bits)


_Quantized.readers = {_REBUILD: rebuilt}  # type: ignore[misc]


def register() -> None:
    """Register the layouts; called once, by the hook."""
    plugin.register_layout(PER_TENSOR, PerTensorLayout())
    plugin.register_layout(PER_CHANNEL, PerChannelLayout())


def quantize_per_tensor(x: Any, scale: float, zero_point: int, dtype: Any) -> Any:
    """Quantize a strided tensor of numbers; `tangrad.quantize_per_tensor` is the public form."""
    name = "quantize_per_tensor"
    low, high, held, bits = span(dtype, op=name)
    require_numbers(name, x)
    scale = qparams.check_scale(name, scale)
    zero_point = qparams.check_zero_point(name, zero_point, low, high, dtype)
    inverse = qparams.inverse_of(scale)
    if held == "int32":
        values = x.to(tangrad.float64) * inverse
        levels = (values.round() + zero_point).clamp(low, high).to(tangrad.int32)
        return per_tensor(levels, scale, zero_point, dtype)
    if dtype == tangrad.qint8 or bits == 8:
        levels = in_memory_order(lambda v: ops.from_float(v, inverse, zero_point, low, high), x)
        return per_tensor(levels, scale, zero_point, dtype)
    levels = ops.from_float(x, inverse, zero_point, low, high)
    return per_tensor(join_bits(levels, bits), scale, zero_point, dtype, x.shape)


def require_numbers(op: str, x: Any) -> None:
    """Refuse what cannot be quantized.

    Raises:
        RuntimeError: the tensor is not float32, or is quantized already.
    """
    if is_quantized(x):
        raise RuntimeError(
            f"{op}: the tensor is quantized already ({x.dtype}{list(x.shape)}); call "
            f"dequantize() first"
        )
    if x.dtype != tangrad.float32:
        raise RuntimeError(
            f"{op}: expected a tensor of float32, got {x.dtype}{list(x.shape)}; call .float()"
        )


def quantize_per_channel(x: Any, scales: Any, zero_points: Any, axis: int, dtype: Any) -> Any:
    """Quantize by channels; `tangrad.quantize_per_channel` is the public form."""
    name = "quantize_per_channel"
    low, high, _, bits = span(dtype, op=name)
    require_numbers(name, x)
    axis = axis + x.dim() if axis < 0 else axis
    check_channels(name, x.shape, scales, zero_points, axis)
    over = [1] * x.dim()
    over[axis] = -1
    inverse = scales.to(tangrad.float32).reciprocal().reshape(over)
    if zero_points.is_floating_point():
        zeros = zero_points.to(tangrad.float32)
    else:
        zeros = zero_points.to(tangrad.int64)
        if bool(((zeros < low) | (zeros > high)).any()):
            raise RuntimeError(
                f"{name}: zero_points must be integers of {dtype}, {low} to {high}, got "
                f"{zeros.min().item()} to {zeros.max().item()}"
            )
    levels = ops.quantized(x, inverse, zeros.to(tangrad.float32).reshape(over), low, high)
    made = join_bits(levels.to(storage(dtype)), bits)
    return per_channel(made, scales.to(tangrad.float64), zeros, axis, dtype, x.shape)
