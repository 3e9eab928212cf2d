"""Sums, products, activations, normalizations and windows of quantized tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad_quantization import functional
from tangrad_quantization.layouts import layout

__all__ = [
    *("add", "add_relu", "mul", "mul_relu", "add_out", "add_relu_out", "mul_out", "mul_relu_out"),
    *("add_scalar", "add_scalar_relu", "mul_scalar", "mul_scalar_relu"),
    *("add_scalar_out", "add_scalar_relu_out", "mul_scalar_out", "mul_scalar_relu_out"),
    *("cat", "cat_relu", "cat_out", "cat_relu_out", "matmul"),
    *("celu", "clamp", "dropout", "elu", "hardswish", "leaky_relu", "prelu", "relu6", "sigmoid"),
    *("softmax", "threshold", "max_pool1d", "max_pool2d"),
    *("batch_norm", "batch_norm1d", "batch_norm2d", "batch_norm3d"),
    *("batch_norm_relu", "batch_norm1d_relu", "batch_norm2d_relu", "batch_norm3d_relu"),
    *("group_norm", "instance_norm", "layer_norm"),
]


def _number(value: Any, op: str) -> float:
    if isinstance(value, tangrad.Tensor):
        if value.numel() != 1:
            raise RuntimeError(
                f"quantized::{op}: the scalar must have one element, got shape {list(value.shape)}"
            )
        return float(value.item())
    return float(value)


def _arithmetic(name: str, doc: str) -> tuple[Callable[..., Any], ...]:
    """Return an op of two tensors, that of a tensor and a number; each also writing into one."""
    base = name.removesuffix("_relu")
    relu = base != name
    of_two, of_scalar = getattr(functional, base), getattr(functional, f"{base}_scalar")

    def binary(qa: Any, qb: Any, scale: Any = None, zero_point: Any = None) -> Any:
        if not layout.is_quantized(qa):
            qa, qb = qb, qa
        if not layout.is_quantized(qb):
            return scalar(qa, qb)
        if scale is None or zero_point is None:
            raise TypeError(
                f"quantized::{name}(): two quantized tensors take the scale and the zero_point of "
                f"the result"
            )
        return of_two(qa, qb, float(scale), int(zero_point), relu=relu)

    def written(qa: Any, qb: Any, out: Any) -> Any:
        made = of_two(qa, qb, *layout.scale_and_zero(out, f"quantized::{name}_out"), relu=relu)
        return _written(made, out, f"{name}_out")

    def scalar(qa: Any, b: Any) -> Any:
        return of_scalar(qa, _number(b, name), relu=relu)

    def scalar_written(qa: Any, b: Any, out: Any) -> Any:
        return _written(scalar(qa, b), out, names[3])

    of_number = f"{base}_scalar" + "_relu" * relu
    names = (name, f"{name}_out", of_number, f"{of_number}_out")
    docs = (
        f"{doc} Without scale and zero point, one of them is a number.",
        f"{doc} The result has the scale of `out`, and is stored there.",
        f"{doc} The second is a number.",
        f"{doc} The second is a number; `out` takes over the result with its scale.",
    )
    made = (binary, written, scalar, scalar_written)
    for function, function.__name__, function.__doc__ in zip(made, names, docs, strict=True):
        function.__qualname__ = function.__name__
    return made


def _written(made: Any, out: Any, op: str) -> Any:
    if out.shape != made.shape:
        raise RuntimeError(
            f"quantized::{op}: the result has shape {list(made.shape)}, and out {list(out.shape)}; "
            f"make out of that shape"
        )
    return out.copy_(made)


add, add_out, add_scalar, add_scalar_out = _arithmetic("add", "Add two quantized tensors.")
mul, mul_out, mul_scalar, mul_scalar_out = _arithmetic("mul", "Multiply two quantized tensors.")
add_relu, add_relu_out, add_scalar_relu, add_scalar_relu_out = _arithmetic(
    "add_relu", "Add two quantized tensors and replace negative numbers by zero."
)
mul_relu, mul_relu_out, mul_scalar_relu, mul_scalar_relu_out = _arithmetic(
    "mul_relu", "Multiply two quantized tensors and replace negative numbers by zero."
)


def _joined(qx: Any, dim: int, scale: Any, zero_point: Any, relu: bool) -> Any:
    own = layout.scale_and_zero(qx[0], "quantized::cat") if qx else (1.0, 0)
    scale = own[0] if scale is None else float(scale)
    zero_point = own[1] if zero_point is None else int(zero_point)
    return functional.cat(qx, dim, scale, zero_point, relu=relu)


def cat(qx: Any, dim: int, scale: float | None = None, zero_point: int | None = None) -> Any:
    """Join quantized tensors; by default with scale and zero point of the first."""
    return _joined(qx, dim, scale, zero_point, False)


def cat_relu(qx: Any, dim: int, scale: float | None = None, zero_point: int | None = None) -> Any:
    """Join quantized tensors as `cat` does, and replace negative numbers by zero."""
    return _joined(qx, dim, scale, zero_point, True)


def cat_out(qx: Any, dim: int, out: Any) -> Any:
    """Join quantized tensors into `out`, with its scale and zero point."""
    made = _joined(qx, dim, *layout.scale_and_zero(out, "quantized::cat_out"), False)
    return _written(made, out, "cat_out")


def cat_relu_out(qx: Any, dim: int, out: Any) -> Any:
    """Join quantized tensors into `out` as `cat_out` does; negative numbers become zero."""
    made = _joined(qx, dim, *layout.scale_and_zero(out, "quantized::cat_relu_out"), True)
    return _written(made, out, "cat_relu_out")


def matmul(qa: Any, qb: Any, scale: float, zero_point: int) -> Any:
    """Multiply quantized matrices, or batches of them."""
    return functional.matmul(qa, qb, float(scale), int(zero_point))


def celu(self: Any, output_scale: float, output_zero_point: int, alpha: float = 1.0) -> Any:
    """Apply the continuously differentiable exponential linear unit."""
    return functional.celu(self, alpha, output_scale, output_zero_point)


def clamp(qx: Any, min: float | None = None, max: float | None = None) -> Any:
    """Clip the numbers of a quantized tensor."""
    if min is None and max is None:
        raise RuntimeError("quantized::clamp: at least one of min and max must not be None")
    return functional.clipped(qx, min, max)


def dropout(
    self: Any, output_scale: float, output_zero_point: int, p: float = 0.5, training: bool = False
) -> Any:
    """Return the tensor: quantized models are for inference."""
    layout.require(self, "quantized::dropout")
    return self


def elu(
    self: Any,
    output_scale: float,
    output_zero_point: int,
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
) -> Any:
    """Apply scale max(0, x) + scale alpha min(0, exp(input_scale x) - 1)."""

    def function(x: Any) -> Any:
        return tangrad.where(x > 0, scale * x, scale * alpha * tangrad.expm1(input_scale * x))

    ends = float(output_scale), int(output_zero_point)
    return functional.by_table(self, "elu", function, *ends, alpha, scale, input_scale)


def hardswish(input: Any, output_scale: float, output_zero_point: int) -> Any:
    """Apply x relu6(x + 3) / 6."""
    ends = float(output_scale), int(output_zero_point)
    return functional.by_table(input, "hardswish", F.hardswish, *ends)


def leaky_relu(
    qx: Any, negative_slope: float, inplace: bool, output_scale: float, output_zero_point: int
) -> Any:
    """Apply the rectifier with a slope below zero; `inplace` is ignored, as by PyTorch."""
    ends = {"output_scale": output_scale, "output_zero_point": output_zero_point}
    return functional.leaky_relu(qx, negative_slope, **ends)


def prelu(qx: Any, weight: Any, output_scale: float, output_zero_point: int) -> Any:
    """Apply the rectifier with the slopes of a quantized weight, one or one per channel."""
    slopes = layout.dequantize(weight)
    ends = float(output_scale), int(output_zero_point)
    return functional.through_float(qx, "quantized prelu", lambda x: F.prelu(x, slopes), *ends)


def relu6(qx: Any, inplace: bool = False) -> Any:
    """Clip the numbers of a quantized tensor to 0 ... 6."""
    made = functional.clipped(qx, 0.0, 6.0)
    return qx.copy_(made) if inplace else made


def sigmoid(qx: Any, output_scale: float, output_zero_point: int) -> Any:
    """Apply the logistic function."""
    ends = float(output_scale), int(output_zero_point)
    return functional.by_table(qx, "sigmoid", tangrad.sigmoid, *ends)


def softmax(qx: Any, dim: int, output_scale: float, output_zero_point: int) -> Any:
    """Apply softmax along a dimension, in float32."""
    ends = float(output_scale), int(output_zero_point)
    return functional.through_float(qx, "quantized softmax", lambda x: F.softmax(x, dim), *ends)


def threshold(qx: Any, threshold: float, value: float) -> Any:
    """Replace numbers that are not above a threshold by a value."""
    return functional.threshold(qx, threshold, value)


def max_pool1d(
    qx: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    """Take the largest of windows of a quantized tensor."""
    return tangrad.quantized_max_pool1d(qx, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    qx: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    """Take the largest of windows of a quantized tensor."""
    return tangrad.quantized_max_pool2d(qx, kernel_size, stride, padding, dilation, ceil_mode)


def _batch_norm(name: str, dimensions: tuple[int, ...]) -> Callable[..., Any]:
    def normalized(
        qx: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        eps: float,
        output_scale: float,
        output_zero_point: int,
    ) -> Any:
        layout.require(qx, f"quantized::{name}")
        if dimensions and qx.dim() not in dimensions:
            raise RuntimeError(
                f"quantized::{name}: expected {' or '.join(map(str, dimensions))} dimensions, got "
                f"shape {list(qx.shape)}"
            )

        def function(x: Any) -> Any:
            made = F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)
            return made.relu() if name.endswith("_relu") else made

        ends = float(output_scale), int(output_zero_point)
        return functional.through_float(qx, f"quantized::{name}", function, *ends)

    normalized.__name__ = normalized.__qualname__ = name
    normalized.__doc__ = "Normalize channels of a quantized tensor by given means and variances."
    return normalized


batch_norm, batch_norm_relu = (_batch_norm(f"batch_norm{end}", ()) for end in ("", "_relu"))
batch_norm1d, batch_norm1d_relu = (
    _batch_norm(f"batch_norm1d{end}", (2, 3)) for end in ("", "_relu")
)
batch_norm2d, batch_norm2d_relu = (_batch_norm(f"batch_norm2d{end}", (4,)) for end in ("", "_relu"))
batch_norm3d, batch_norm3d_relu = (_batch_norm(f"batch_norm3d{end}", (5,)) for end in ("", "_relu"))


def group_norm(
    qx: Any,
    num_groups: int,
    weight: Any,
    bias: Any,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> Any:
    """Normalize groups of channels."""
    ends = {"output_scale": output_scale, "output_zero_point": output_zero_point}
    return functional.group_norm(qx, num_groups, weight, bias, eps, **ends)


def instance_norm(
    input: Any, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int
) -> Any:
    """Normalize the channels of each sample."""
    ends = {"output_scale": output_scale, "output_zero_point": output_zero_point}
    return functional.instance_norm(input, weight=weight, bias=bias, eps=eps, **ends)


def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> Any:
    """Normalize the last dimensions."""
    ends = {"output_scale": output_scale, "output_zero_point": output_zero_point}
    return functional.layer_norm(input, normalized_shape, weight, bias, eps, **ends)
