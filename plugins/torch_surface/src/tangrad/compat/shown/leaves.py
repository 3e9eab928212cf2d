"""Ops that are one here, and several or another in PyTorch: what stands for them for handlers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.compat.shown.composites import matmul
from tangrad.compat.shown.forms import SELU
from tangrad.compat.shown.packets import call, overload_of

LEAVES: dict[str, Callable[[Any, tuple[Any, ...]], Any]] = {}


def _leaf(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for what handlers see of ops; it takes their arguments."""

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            LEAVES[name] = lambda op, args: function(*args)
        return function

    return keep


@_leaf("linear")
def _linear(input: Any, weight: Any, bias: Any) -> Any:
    if tangrad.is_inference_mode_enabled():
        return call("linear", input, weight, *(() if bias is None else (bias,)))
    if bias is None:
        return matmul(input, weight.t())
    if input.ndim == 2:
        return tangrad.addmm(bias, input, weight.t())
    if input.is_contiguous():
        count = input.numel() // max(1, input.shape[-1])
        rows = input.view(count, input.shape[-1])
        result = tangrad.addmm(bias, rows, weight.t())
        return result.view(*input.shape[:-1], weight.shape[0])
    return matmul(input, weight.t()) + bias


@_leaf("_softmax")
def _softmax(self: Any, dim: int) -> Any:
    return call("_softmax", self, dim, False)


@_leaf("_log_softmax")
def _log_softmax(self: Any, dim: int) -> Any:
    return call("_log_softmax", self, dim, False)


@_leaf("_softmax_backward_data")
def _softmax_gradient(grad_output: Any, output: Any, dim: int) -> Any:
    return call("_softmax_backward_data", grad_output, output, dim, output.dtype)


@_leaf("_log_softmax_backward_data")
def _log_softmax_gradient(grad_output: Any, output: Any, dim: int) -> Any:
    return call("_log_softmax_backward_data", grad_output, output, dim, output.dtype)


@_leaf("elu")
def _elu(self: Any, alpha: float) -> Any:
    return call("elu", self, alpha)


@_leaf("selu")
def _selu(self: Any) -> Any:
    return call("elu", self, *SELU)


@_leaf("relu6")
def _relu6(self: Any) -> Any:
    return overload_of("hardtanh")(self, 0.0, 6.0)


@_leaf("softsign")
def _softsign(self: Any) -> Any:
    return self / (self.abs() + 1)


@_leaf("tanhshrink")
def _tanhshrink(self: Any) -> Any:
    return self - self.tanh()


@_leaf("logsigmoid")
def _logsigmoid(self: Any) -> Any:
    return call("log_sigmoid_forward", self)[0]


@_leaf("_attention")
def _attention(
    query: Any, key: Any, value: Any, mask: Any, is_causal: bool, scale: float
) -> tuple[Any, Any]:
    named = {} if mask is None else {"attn_mask": mask}
    if scale != 1 / math.sqrt(query.shape[-1]):
        named["scale"] = scale
    given = (0.0, True) if is_causal else ()
    name = "_scaled_dot_product_flash_attention_for_cpu"
    result, lse = call(name, query, key, value, *given, **named)
    return result, lse


@_leaf("_attention_backward")
def _attention_gradient(
    grad: Any, query: Any, key: Any, value: Any, mask: Any, output: Any, lse: Any,
    is_causal: bool, scale: float,
) -> Any:  # fmt: skip
    named = {"attn_mask": mask}
    if scale != 1 / math.sqrt(query.shape[-1]):
        named["scale"] = scale
    name = "_scaled_dot_product_flash_attention_for_cpu_backward"
    return tuple(call(name, grad, query, key, value, output, lse, 0.0, is_causal, **named))


@_leaf("native_layer_norm_backward")
def _layer_norm_gradient(
    grad: Any, input: Any, shape: Any, mean: Any, rstd: Any, weight: Any
) -> Any:
    return tuple(
        call(
            "native_layer_norm_backward", grad, input, list(shape), mean, rstd, weight, None,
            [True, True, True],
        )
    )  # fmt: skip


def _zeros(window: Any) -> list[int]:
    return [0] * len(window)


@_leaf("convolution")
def _convolution(
    input: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    windows = list(stride), list(padding), list(dilation), False, _zeros(stride)
    return call("convolution", input, weight, None, *windows, groups)


@_leaf("index_select_backward")
def _selected_gradient(grad: Any, shape: Any, dim: int, index: Any) -> Any:
    return grad.new_zeros(tuple(shape)).index_add(dim, index, grad)


@_leaf("norm_euclidean")
def _norm(self: Any, dim: Any, keepdim: bool) -> Any:
    given = (2, None if dim is None else list(dim), True) if keepdim else (2, list(dim or ()))
    return call("linalg_vector_norm", self, *(() if dim is None and not keepdim else given))


@_leaf("absolute_difference")
def _absolute_difference(self: Any, other: Any) -> Any:
    return (self - other).abs()


@_leaf("_shifted_difference")
def _shifted_difference(x1: Any, x2: Any, eps: float) -> Any:
    return x1 - x2 + eps


@_leaf("_scaled_product")
def _scaled_product(self: Any, scale: Any, other: Any, other_scale: Any) -> Any:
    return (self * scale) * (other * other_scale)


@_leaf("sub_plain")
def _difference(self: Any, other: Any) -> Any:
    if isinstance(self, tangrad.Tensor):
        return NotImplemented
    return overload_of("rsub", "Scalar")(other, self)


@_leaf("true_divide")
def _quotient(self: Any, other: Any) -> Any:
    if isinstance(self, tangrad.Tensor):
        return NotImplemented
    return other.reciprocal() * self


@_leaf("where_choice")
def _chosen(condition: Any, self: Any, other: Any) -> Any:
    given = [x for x in (self, other) if isinstance(x, tangrad.Tensor)]
    if len(given) != 1 or not given[0].is_floating_point():
        return NotImplemented
    both = [
        x
        if x is given[0]
        else tangrad.scalar_tensor(x, dtype=given[0].dtype, device=given[0].device)
        for x in (self, other)
    ]
    return overload_of("where", "self")(condition, *both)


@_leaf("adaptive_max_pool")
def _adaptive_max_pool(self: Any, output_size: Any) -> Any:
    if len(output_size) != 2:
        return NotImplemented
    return tuple(call("adaptive_max_pool2d", self, list(output_size)))


@_leaf("_lstm_cell")
def _lstm_cell(i: Any, f: Any, g: Any, o: Any, c: Any) -> tuple[Any, Any]:
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@_leaf("_gru_cell")
def _gru_cell(xr: Any, xz: Any, xn: Any, hr: Any, hz: Any, hn: Any, h: Any) -> Any:
    new = (xn + (xr + hr).sigmoid() * hn).tanh()
    return new + (xz + hz).sigmoid() * (h - new)
