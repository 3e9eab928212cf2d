"""Linear layers of quantized tensors, and of numbers with a quantized weight."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.nn import functional as F
from tangrad_quantization import functional
from tangrad_quantization.weights.packed import PackedLinear

__all__ = [
    *("linear", "linear_relu", "linear_leaky_relu", "linear_tanh"),
    *("linear_prepack", "linear_unpack", "linear_dynamic", "linear_relu_dynamic"),
    *("linear_prepack_fp16", "linear_unpack_fp16", "linear_dynamic_fp16"),
    *("linear_relu_dynamic_fp16", "linear_dynamic_fp16_unpacked_weight"),
    "linear_with_input_q_dq_qweight_dq_output_fp32",
    "linear_with_input_q_dq_qweight_dq_relu_output_fp32",
]

_HALF = 65504.0  # the largest number of float16


def _packed(weight: Any, op: str) -> PackedLinear:
    if not isinstance(weight, PackedLinear):
        raise TypeError(
            f"quantized::{op}(): the weight must be packed by quantized.linear_prepack, got "
            f"{type(weight).__name__}"
        )
    return weight


def linear_prepack(W: Any, B: Any = None) -> PackedLinear:
    """Pack a weight, [columns, depth] of qint8, and a bias, float32 or None."""
    return PackedLinear(W, B)


def linear_unpack(W_prepack: Any) -> tuple[Any, Any]:
    """Return the weight and the bias that were packed."""
    packed = _packed(W_prepack, "linear_unpack")
    return packed.weight, packed.bias


def linear(X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Any:
    """Apply a linear layer to a quantized tensor."""
    packed = _packed(W_prepack, "linear")
    return functional.linear(X, packed, float(Y_scale_i), int(Y_zero_point_i))


def linear_relu(X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Any:
    """Apply a linear layer and a ReLU to a quantized tensor."""
    packed = _packed(W_prepack, "linear_relu")
    return functional.linear(X, packed, float(Y_scale_i), int(Y_zero_point_i), relu=True)


def linear_leaky_relu(
    X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int, negative_slope: float
) -> Any:
    """Apply a linear layer and a leaky ReLU to a quantized tensor."""
    packed, ends = _packed(W_prepack, "linear_leaky_relu"), (float(Y_scale_i), int(Y_zero_point_i))
    return functional.linear_then(X, packed, lambda x: F.leaky_relu(x, negative_slope), *ends)


def linear_tanh(X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Any:
    """Apply a linear layer and a tanh to a quantized tensor."""
    packed = _packed(W_prepack, "linear_tanh")
    ends = float(Y_scale_i), int(Y_zero_point_i)
    return functional.linear_then(X, packed, tangrad.tanh, *ends)


def linear_dynamic(X: Any, W_prepack: Any, reduce_range: bool = False) -> Any:
    """Apply a linear layer to numbers, float32, quantized by their own range."""
    return functional.linear_dynamic(X, _packed(W_prepack, "linear_dynamic"), reduce_range)


def linear_relu_dynamic(X: Any, W_prepack: Any, reduce_range: bool = False) -> Any:
    """Apply a linear layer and a ReLU to numbers, quantized by their own range."""
    packed = _packed(W_prepack, "linear_relu_dynamic")
    return functional.linear_dynamic(X, packed, reduce_range, relu=True)


def linear_prepack_fp16(W: Any, B: Any = None) -> tuple[Any, Any]:
    """Keep a weight, float32, in half precision; larger numbers become the largest of it."""
    return W.detach().float().clamp(-_HALF, _HALF).half(), None if B is None else B.detach()


def linear_unpack_fp16(W_prepack: Any) -> tuple[Any, Any]:
    """Return the weight, float32, and the bias that were kept in half precision."""
    weight, bias = W_prepack
    return weight.float(), bias


def linear_dynamic_fp16(X: Any, W_prepack: Any) -> Any:
    """Apply a linear layer, its weight in half precision, to numbers."""
    return F.linear(X.detach().float(), *linear_unpack_fp16(W_prepack))


def linear_relu_dynamic_fp16(X: Any, W_prepack: Any) -> Any:
    """Apply a linear layer, its weight in half precision, and a ReLU to numbers."""
    return linear_dynamic_fp16(X, W_prepack).relu()


def linear_dynamic_fp16_unpacked_weight(X: Any, weight: Any, bias: Any = None) -> Any:
    """Apply a linear layer to numbers, its weight, float32, rounded to half precision."""
    return linear_dynamic_fp16(X, linear_prepack_fp16(weight, bias))


def linear_with_input_q_dq_qweight_dq_output_fp32(
    X: Any, X_scale: float, X_zero_point: int, W_prepack: Any
) -> Any:
    """Apply a linear layer to numbers, quantized by a given range, and return numbers."""
    packed = _packed(W_prepack, "linear_with_input_q_dq_qweight_dq_output_fp32")
    seen = tangrad.quantize_per_tensor(
        X.detach(), float(X_scale), int(X_zero_point), tangrad.quint8
    )
    return F.linear(seen.dequantize(), packed.weight.dequantize(), packed.bias)


def linear_with_input_q_dq_qweight_dq_relu_output_fp32(
    X: Any, X_scale: float, X_zero_point: int, W_prepack: Any
) -> Any:
    """Apply a linear layer to numbers, quantized by a given range, and a ReLU."""
    return linear_with_input_q_dq_qweight_dq_output_fp32(X, X_scale, X_zero_point, W_prepack).relu()
