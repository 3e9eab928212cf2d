"""Weights in groups: matrices of 8 or 4 bits whose neighbours in a row share a scale.

A layout of its own, `tangrad.quantized_per_group`, beside those of one scale and of channels. Its
tensors have the dtype of their elements: `qint8`, `quint4x2` (two to a byte, in the order in which
kernels read them), `float8_e4m3fn` or `float8_e5m2`. They are weights: `linear` and the modules of
`weights_only` multiply by them, and ops that would need another scale are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tangrad
from tangrad import plugin
from tangrad_quantization import ops
from tangrad_quantization.dtypes import RANGES
from tangrad_quantization.layouts import layout

__all__ = ["quantize_per_group"]

PER_GROUP = layout.PER_GROUP
FLOATS = ("float8_e4m3fn", "float8_e5m2")
# Elements of a group of 4 bits come in blocks of thirty-two, as kernels read them.
_MULTIPLES = {"qint8": 1, "quint4x2": 32, **dict.fromkeys(FLOATS, 1)}
_SMALLEST = 2.0**-126


class PerGroupLayout(layout._Quantized):
    """A scale, and a zero point if there are any, for each group of neighbours in a row."""

    components = ("values", "scales", "zero_points")
    misfit = (
        "the state is that of a model whose weights were quantized by groups, and this one has "
        "none; call tangrad.quantization.quantize_ with the same configuration on it before it "
        "takes the state, or give it the weight's dequantize()"
    )

    def check(self, components: Any, metadata: Any, shape: tuple[int, ...]) -> None:
        """Refuse scales and zero points that do not fit.

        Raises:
            ValueError: sizes do not fit each other, or a scale is not positive and finite.
        """
        values, scales, zeros = components.values()
        size, name = metadata["group_size"], "tensor quantized per group"
        if len(shape) != 2 or size < 1 or shape[1] % size:
            raise ValueError(
                f"{name}: it must be a matrix whose rows divide into groups of {size}, got shape "
                f"{list(shape)}"
            )
        groups = (shape[0], shape[1] // size)
        held = (shape[0], shape[1] // 2) if values.dtype == tangrad.uint8 else shape
        if tuple(values.shape) != tuple(held) or tuple(scales.shape) != groups:
            raise ValueError(
                f"{name}: values {values.dtype}{list(values.shape)} and scales "
                f"{list(scales.shape)} are not those of shape {list(shape)} in groups of {size}"
            )
        if zeros.numel() and tuple(zeros.shape) != groups:
            raise ValueError(
                f"{name}: zero_points must be empty or have the shape {list(groups)} of the "
                f"scales, got {list(zeros.shape)}"
            )
        wrong = ~(scales.isfinite() & (scales > 0))
        if bool(wrong.any()):
            at = int(wrong.reshape(-1).to(tangrad.int64).argmax())
            raise ValueError(
                f"{name}: scales must be positive and finite, that of row {at // groups[1]}, group "
                f"{at % groups[1]} is {scales.reshape(-1)[at].item()}"
            )

    def to_dense(self, t: Any) -> Any:
        """Return the numbers, float32."""
        values, scales, zeros, bits, size = parts(t)
        if bits == 0:
            spread = values.to(tangrad.float32).reshape(*scales.shape, size)
            return (spread * scales[:, :, None]).reshape(t.shape)
        return ops.group_weight(values, scales, zeros, bits, size)

    def printed(self, t: Any) -> Mapping[str, Any]:
        """Return what is printed: the numbers."""
        return {"": self.to_dense(t)}

    def remarks(self, t: Any) -> list[str]:
        """Return what is printed behind them."""
        return [
            f"size={tuple(t.shape)}",
            f"dtype={t.dtype}",
            f"group_size={group_size(t)}",
            f"scales={scales_of(t)}",
            f"zero_points={zero_points_of(t)}",
        ]

    def file_form(self, t: Any) -> None:
        """Return None: PyTorch's files have no such tensors, and a form of our own is written."""


def parts(t: Any) -> tuple[Any, Any, Any, int, int]:
    """Return values, scales, zero points or None, bits (0 of floats) and the size of groups."""
    layout.require(t, "a weight in groups", PER_GROUP)
    held = plugin.components(t)
    zeros = held["zero_points"]
    bits = 0 if t.dtype.name in FLOATS else RANGES[t.dtype.name].bits
    size: int = plugin.metadata(t)["group_size"]
    return held["values"], held["scales"], zeros if zeros.numel() else None, bits, size


def group_size(t: Any) -> int:
    """Return how many neighbours share a scale."""
    return parts(t)[4]


def scales_of(t: Any) -> Any:
    """Return the scales, float32 [rows, groups]."""
    return parts(t)[1]


def zero_points_of(t: Any) -> Any:
    """Return the zero points, float32 [rows, groups], or None where the middle stands for zero."""
    return parts(t)[2]


def int_repr(t: Any) -> Any:
    """Return the integers in the tensor's shape, one to an element; of float8, the numbers."""
    values, _, _, bits, _ = parts(t)
    return values.clone() if bits == 0 else ops.group_values(values, bits, t.shape[1]).clone()


PerGroupLayout.methods = {  # type: ignore[misc]
    "dequantize": layout.dequantize,
    "int_repr": int_repr,
    "is_quantized": True,
    "q_group_size": group_size,
    "q_per_group_scales": scales_of,
    "q_per_group_zero_points": zero_points_of,
}


def per_group(values: Any, scales: Any, zeros: Any, size: int, dtype: Any) -> Any:
    """Return the tensor of values as kernels read them, scales, and zero points or None."""
    shape = (scales.shape[0], scales.shape[1] * size)
    if zeros is None:
        zeros = tangrad.empty(0, dtype=tangrad.float32, device=scales.device)
    return plugin.layout_tensor(
        PER_GROUP,
        {"values": values, "scales": scales, "zero_points": zeros},
        shape,
        metadata={"group_size": int(size)},
        dtype=dtype,
    )


def require_groups(op: str, name: str, depth: int, size: int, dtype: Any) -> None:
    """Refuse groups that rows of a depth do not divide into.

    Raises:
        TypeError: the dtype is none of those that groups have.
        ValueError: they do not.
    """
    if getattr(dtype, "name", None) not in _MULTIPLES:
        names = ", ".join(f"tangrad.{name}" for name in _MULTIPLES)
        raise TypeError(f"{op}: dtype must be one of {names}, not {dtype}")
    multiple = _MULTIPLES[dtype.name]
    if size < 1 or depth % size or size % multiple:
        raise ValueError(
            f"{op}: group_size {size} does not suit {name} with {depth} inputs: it must divide "
            f"them{f' and be a multiple of {multiple}' if multiple > 1 else ''}; choose another "
            f"size, or leave the layer out by filter_fn"
        )


def quantize_per_group(
    input: Any, group_size: int | None, dtype: Any, symmetric: bool = True
) -> Any:
    """Quantize a matrix with a scale for each group of neighbours in a row.

    Args:
        input: float32 [rows, depth].
        group_size: elements of a group, which divide a row; multiples of 32 for 4 bits. None for
            whole rows.
        dtype: tangrad.qint8, quint4x2, float8_e4m3fn or float8_e5m2.
        symmetric: take the middle of the integers for zero instead of a zero point of each group;
            floats always are.

    Raises:
        RuntimeError: the input is not a float32 matrix, or holds NaN or infinity.
        TypeError: the dtype is none of these.
        ValueError: rows do not divide into such groups.
    """
    op = "quantize_per_group"
    layout.require_numbers(op, input)
    if input.dim() != 2:
        raise RuntimeError(f"{op}: expected a matrix, got {input.dtype}{list(input.shape)}")
    if not bool(input.isfinite().all()):
        raise RuntimeError(
            f"{op}: the tensor {input.dtype}{list(input.shape)} holds NaN or infinity, which no "
            f"scale brings to {dtype}; remove them first"
        )
    size = input.shape[1] if group_size is None else group_size
    require_groups(op, "a matrix", input.shape[1], size, dtype)
    groups = input.detach().reshape(len(input), -1, size)
    return _FORMS[dtype.name](groups, size, dtype, symmetric)


def _to_int8(groups: Any, size: int, dtype: Any, symmetric: bool) -> Any:
    zeros = None
    if symmetric:
        scales = (groups.abs().amax(-1) / 127).clamp(min=_SMALLEST)
        values = (groups / scales[:, :, None]).round().clamp(-127, 127)
    else:
        scales, zeros = _ranged(groups, -128, 127)
        values = (groups / scales[:, :, None]).round() + zeros[:, :, None]
    values = values.clamp(-128, 127).to(tangrad.int8).reshape(len(groups), -1)
    return per_group(values, scales, zeros, size, dtype)


def _to_int4(groups: Any, size: int, dtype: Any, symmetric: bool) -> Any:
    zeros = None
    if symmetric:
        scales = (groups.abs().amax(-1) / 7.5).clamp(min=_SMALLEST)
        middle: Any = 8.0
    else:
        scales, zeros = _ranged(groups, 0, 15)
        middle = zeros[:, :, None]
    values = ((groups / scales[:, :, None]).round() + middle).clamp(0, 15)
    packed = ops.pack_halves(values.reshape(len(groups), -1))
    return per_group(packed, scales, zeros, size, dtype)


def _ranged(groups: Any, lowest: int, highest: int) -> tuple[Any, Any]:
    """Return scales and zero points that lay the range of each group over the integers."""
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = ((high - low) / (highest - lowest)).clamp(min=_SMALLEST)
    return scales, (lowest - low / scales).round().clamp(lowest, highest)


def _to_float8(groups: Any, size: int, dtype: Any, symmetric: bool) -> Any:
    scales = (groups.abs().amax(-1) / tangrad.finfo(dtype).max).clamp(min=_SMALLEST)
    values = (groups / scales[:, :, None]).to(dtype).reshape(len(groups), -1)
    return per_group(values, scales, None, size, dtype)


_FORMS = {"qint8": _to_int8, "quint4x2": _to_int4, **dict.fromkeys(FLOATS, _to_float8)}


def product(rows: Any, weight: Any, held: Any) -> Any:
    """Multiply float32 rows [n, depth] by a weight in groups, transposed.

    Args:
        rows: the rows.
        weight: the weight.
        held: its `parts`.
    """
    values, scales, zeros, bits, size = held
    if bits:
        return ops.grouped_linear(rows, values, scales, zeros, bits, size)
    if scales.shape[1] == 1:  # the scale of a whole row is the product's
        return (rows @ values.to(tangrad.float32).t()) * scales.t()
    return rows @ layout.dequantize(weight).t()


class Kept:
    """The parts of a weight, taken out of it once and again when it was written to.

    It is a module's, and neither copied nor pickled with it.
    """

    __slots__ = ("parts", "source", "version")

    def __init__(self) -> None:
        self.source: Any = None
        self.version: int = -1
        self.parts: Any = None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Kept, ()

    def of(self, weight: Any) -> Any:
        """Return `parts(weight)`."""
        if weight.is_inference():  # counts no writes
            return parts(weight)
        if weight is not self.source or weight._version != self.version:
            self.source, self.version, self.parts = weight, weight._version, parts(weight)
        return self.parts


def linear(input: Any, weight: Any, bias: Any = None, kept: Kept | None = None) -> Any:
    """Apply a linear layer whose weight is in groups; nothing is recorded for a gradient.

    Args:
        input: numbers, the last dimension the weight's depth.
        weight: in groups.
        bias: numbers, or None.
        kept: where the weight's parts are kept for the next call.

    Raises:
        RuntimeError: the sizes do not fit, or the weight is not the tensor in groups.
    """
    held = parts(weight) if kept is None else kept.of(weight)
    depth = weight.shape[1]
    if layout.is_quantized(input) or input.dim() == 0 or input.shape[-1] != depth:
        raise RuntimeError(
            f"linear: a weight in groups {list(weight.shape)} takes numbers whose last dimension "
            f"is {depth}, got {input.dtype}{list(input.shape)}"
        )
    rows = input.detach()
    if rows.dtype != tangrad.float32:
        rows = rows.to(tangrad.float32)
    made = product(rows.reshape(-1, depth).contiguous(), weight, held)
    if bias is not None:
        made = made + bias.to(made.dtype)
    if input.dim() != 2:
        made = made.reshape(*input.shape[:-1], weight.shape[0])
    return made if input.dtype == tangrad.float32 else made.to(input.dtype)


def register() -> None:
    """Register the layout; called once, by the hook."""
    plugin.register_layout(PER_GROUP, PerGroupLayout())
