"""What ops of tangrad do with quantized tensors.

Ops that move elements move the integers; those that order or clip them compare integers; pooling
averages integers exactly. What else PyTorch offers for quantized tensors is in `functional.py`,
because it needs a scale for its output; ops that order elements or write into places are in
`layout_writing.py`. Everything else is refused: silently computing on
dequantized numbers would hide what it costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import plugin
from tangrad_quantization import functional
from tangrad_quantization.layouts import layout
from tangrad_quantization.layouts import writing as layout_writing
from tangrad_quantization.weights import groups

# Ops whose result holds some of the integers, unchanged.
_MOVING = (
    "alias",
    "as_strided",
    "broadcast_to",
    "contiguous",
    "diagonal",
    "expand",
    "flatten",
    "flip",
    "gather",
    "index",
    "index_select",
    "masked_select",
    "movedim",
    "narrow",
    "permute",
    "repeat",
    "reshape",
    "select",
    "slice",
    "squeeze",
    "squeeze_all",
    "squeeze_dim",
    "squeeze_dims",
    "t",
    "take",
    "transpose",
    "unflatten",
    "unsqueeze",
    "view",
    "view_shape",
    "view_as",
    "max_pool1d",
    "max_pool3d",
    "channel_shuffle",
    "pixel_shuffle",
    "pixel_unshuffle",
)
_SPLITTING = ("chunk", "split", "split_sizes", "unbind", "tensor_split")
_COMPARING = ("eq", "ne", "lt", "le", "gt", "ge", "isclose", "allclose")


def _moved(op: Any) -> Callable[..., Any]:
    def kernel(x: Any, *rest: Any) -> Any:
        if not layout.is_quantized(x) or x.layout.name != layout.PER_TENSOR:
            return _refuse(op, x)
        return layout.with_values(x, op(layout.whole_values(x), *rest))

    return kernel


def _split(op: Any) -> Callable[..., Any]:
    def kernel(x: Any, *rest: Any) -> Any:
        return tuple(layout.with_values(x, part) for part in op(layout.values_of(x), *rest))

    return kernel


def _compared(op: Any) -> Callable[..., Any]:
    """Compare numbers; those of quantized tensors are what they stand for."""

    def kernel(*args: Any) -> Any:
        numbers = (layout.dequantize(x) if layout.is_quantized(x) else x for x in args)
        return op(*numbers)

    return kernel


def _refuse(op: Any, x: Any) -> Any:
    if not layout.is_quantized(x):
        raise NotImplementedError(f"{op.name}: the quantized tensor must be the first argument")
    said = ", ".join(f"{name} {value}" for name, value in plugin.metadata(x).items())
    raise NotImplementedError(
        f"{op.name}: not offered for tensors of {x.layout} ({x.dtype}{list(x.shape)}, {said}); "
        f"call dequantize()"
    )


def _averaged(op: Any) -> Callable[..., Any]:
    """Average integers: the mean of numbers is that of the integers, and needs no new scale."""

    def kernel(x: Any, *rest: Any) -> Any:
        scale, zero = layout.scale_and_zero(x, op.name)
        values = layout.values_of(x)
        # Sums of bytes are exact in float64; one rounding, half to even, in the end.
        means = op(values.to(tangrad.float64) - zero, *rest).round() + zero
        return layout.per_tensor(means.to(values.dtype), scale, zero, x.dtype)

    return kernel


def _mean(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if dtype is not None:
        raise NotImplementedError(
            f"mean: a quantized tensor keeps its dtype, {x.dtype}; call dequantize() for {dtype}"
        )
    return _averaged(tangrad.ops.mean)(x, dim, keepdim)


def _repeated(x: Any, repeats: Any, dim: Any = None, output_size: Any = None) -> Any:
    values = layout.values_of(x)
    return layout.with_values(x, tangrad.repeat_interleave(values, repeats, dim))


def _leaky(x: Any, slope: float = 0.01) -> Any:
    """Apply the rectifier in the input's own scale, as PyTorch does where none is given."""
    scale, zero = layout.scale_and_zero(x, "leaky_relu")
    function = tangrad.nn.functional.leaky_relu
    return functional.by_table(x, "leaky_relu", lambda v: function(v, slope), scale, zero, slope)


def _relu6(x: Any) -> Any:
    return functional.clipped(x, 0.0, 6.0)


def _largest(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Pool by the largest: where nothing is padded, of views that are shifted by the kernel."""
    layout.require(x, "max_pool2d")
    if return_indices:
        raise NotImplementedError(
            "max_pool2d: indices are not offered for quantized tensors; call dequantize()"
        )
    values = layout.values_of(x)
    kernel, padded, spread = (_two(v) for v in (kernel_size, padding, dilation))
    step = kernel if stride is None or stride == [] else _two(stride)
    too_far = any(2 * p > k for p, k in zip(padded, kernel, strict=True))
    if too_far or ceil_mode or x.dim() < 3:
        op = tangrad.ops.max_pool2d
        return layout.with_values(x, op(values, kernel, step, padded, spread, ceil_mode))
    values = _surrounded(values, padded)
    sizes = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(values.shape[-2:], kernel, step, spread, strict=True)
    ]
    if min(sizes) < 1:
        raise RuntimeError(
            f"max_pool2d: a kernel of {kernel} does not fit an input of shape {list(x.shape)}"
        )
    largest = None
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = slice(i * spread[0], i * spread[0] + (sizes[0] - 1) * step[0] + 1, step[0])
            columns = slice(j * spread[1], j * spread[1] + (sizes[1] - 1) * step[1] + 1, step[1])
            part = values[..., rows, columns]
            largest = part if largest is None else tangrad.maximum(largest, part)
    return layout.with_values(x, largest)


def _surrounded(values: Any, padded: list[int]) -> Any:
    """Return integers with the lowest around the last two dimensions, channels innermost."""
    if not any(padded):
        return values
    lowest = -128 if values.dtype == tangrad.int8 else 0
    inner = values if values.dim() == 4 else values[None]
    height, width = inner.shape[-2:]
    shape = (inner.shape[0], height + 2 * padded[0], width + 2 * padded[1], inner.shape[1])
    wide = tangrad.full(shape, lowest, dtype=values.dtype, device=values.device)
    wide[:, padded[0] : padded[0] + height, padded[1] : padded[1] + width] = inner.permute(
        0, 2, 3, 1
    )
    wide = wide.permute(0, 3, 1, 2)
    return wide if values.dim() == 4 else wide[0]


def _two(value: Any) -> list[int]:
    given = [value] if isinstance(value, int) else list(value)
    return given * 2 if len(given) == 1 else given


def _nearest(x: Any, *rest: Any) -> Any:
    values = layout.values_of(x)
    made = tangrad.nn.functional.interpolate(values.to(tangrad.float32), *rest)
    return layout.with_values(x, made.round().to(values.dtype))


def _relu(x: Any) -> Any:
    return functional.relu_of(x)


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    return functional.clipped(x, low, high)


def _hardtanh(x: Any, low: float = -1.0, high: float = 1.0, *rest: Any) -> Any:
    return functional.clipped(x, low, high)


def _cat(tensors: Any, dim: int = 0) -> Any:
    """Join tensors of one scale and zero point.

    Raises:
        RuntimeError: they differ.
    """
    for x in tensors:
        layout.require(x, "cat")
    found = {(*layout.scale_and_zero(x, "cat"), x.dtype.name) for x in tensors}
    if len(found) > 1:
        said = "; ".join(f"{dtype} scale {s} zero_point {z}" for s, z, dtype in sorted(found))
        raise RuntimeError(
            f"cat: quantized tensors must have one scale and zero point, got {said}; join them "
            f"with FloatFunctional().cat, which is given a scale by calibration"
        )
    values = [layout.values_of(x) for x in tensors]
    return layout.with_values(tensors[0], tangrad.cat(values, dim))


def _equal(a: Any, b: Any) -> bool:
    """Return whether both have the same integers, scale and zero point."""
    if not (layout.is_quantized(a) and layout.is_quantized(b)) or a.layout is not b.layout:
        return False
    if a.dtype != b.dtype or plugin.metadata(a) != plugin.metadata(b):
        return False
    mine, other = plugin.components(a), plugin.components(b)
    return all(bool(tangrad.equal(mine[name], other[name])) for name in mine)


def _copy(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """Quantize numbers by the target's scale, or take over a quantized tensor."""
    if not layout.is_quantized(target):
        raise RuntimeError(
            f"copy_: a quantized tensor ({source.dtype}{list(source.shape)}) cannot be copied to "
            f"one of numbers ({target.dtype}{list(target.shape)}); call dequantize() first"
        )
    if layout.is_quantized(source):
        return _taken_over(target, source)
    scale, zero = layout.scale_and_zero(target, "copy_")
    made = layout.quantize_per_tensor(
        source.expand(target.shape).contiguous(), scale, zero, target.dtype
    )
    return layout_writing.rewritten(target, layout.values_of(made), "copy_")


def _taken_over(target: Any, source: Any) -> Any:
    """Take over integers, scales and zero points; nothing is shared afterwards."""
    if target.dtype != source.dtype or target.layout is not source.layout:
        raise RuntimeError(
            f"copy_: a quantized tensor takes over one of its dtype and layout, got "
            f"{source.dtype}, {source.layout} for {target.dtype}, {target.layout}"
        )
    held = {name: part.clone() for name, part in plugin.components(source).items()}
    own = layout.values_of(target)
    if own.shape == held["values"].shape:
        held["values"] = own.copy_(held["values"])
    return plugin.replace_components(target, held, metadata=plugin.metadata(source), writer="copy_")


def _table(name: str, function: Any, scale: float, zero: int, signed_zero: int) -> Any:
    """Return a kernel for a function whose output has a range known beforehand."""

    def kernel(x: Any) -> Any:
        signed = x.dtype == tangrad.qint8
        return functional.by_table(x, name, function, scale, signed_zero if signed else zero)

    return kernel


_FORMS = (
    (_MOVING, _moved),
    (_SPLITTING, _split),
    (_COMPARING, _compared),
    (("avg_pool1d", "avg_pool2d", "avg_pool3d"), _averaged),
    (layout_writing.ORDERING, layout_writing.ordered),
    (("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), _averaged),
)
_OWN: dict[str, Callable[..., Any]] = {
    "cat": _cat,
    "clamp": _clamp,
    "copy_": _copy,
    "equal": _equal,
    "hardsigmoid": _table("hardsigmoid", tangrad.nn.functional.hardsigmoid, 1 / 256, 0, -128),
    "hardtanh": _hardtanh,
    "interpolate": _nearest,
    "leaky_relu": _leaky,
    "max_pool2d": _largest,
    "mean": _mean,
    "relu": _relu,
    "relu6": _relu6,
    "repeat_interleave_along": _repeated,
    "sigmoid": _table("sigmoid", tangrad.sigmoid, 1 / 256, 0, -128),
    "tanh": _table("tanh", tangrad.tanh, 2 / 256, 128, 0),
}


def register() -> None:
    """Register the kernels; called once, by the hook of layouts."""
    for names, form in _FORMS:
        for name in names:
            op = getattr(tangrad.ops, name, None)
            # One form at a time: they take different arguments.
            for member in () if op is None else op.definition.members or (op,):
                _enter(member.name, form(member))
    for name, kernel in (_OWN | layout_writing.WRITING).items():
        _enter(name, kernel)
    plugin.register_kernel("linear", groups.linear, layout=layout.PER_GROUP)


def _enter(name: str, kernel: Callable[..., Any]) -> None:
    for kind in (layout.PER_TENSOR, layout.PER_CHANNEL, layout.PER_GROUP):
        plugin.register_kernel(name, kernel, layout=kind)
