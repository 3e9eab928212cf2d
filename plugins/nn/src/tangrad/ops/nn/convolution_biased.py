"""Define convolution with a bias, and both their gradients, as one pass each."""

from __future__ import annotations

from typing import Any

from tangrad.ops.nn.convolution import (
    SAMPLES,
    check_convolution,
    convolution,
    convolution_input,
    convolution_weight,
    gradients_of_torch,
)
from tangrad.plugin import Ints, op


def _wide(bias: Any, spatial: int) -> Any:
    return bias.reshape((-1,) + (1,) * spatial)


def _check(
    input: Any, weight: Any, bias: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> None:
    check_convolution(input, weight, stride, padding, dilation, groups)
    if tuple(bias.shape) != (weight.shape[0],) or bias.dtype != input.dtype:
        raise RuntimeError(
            f"convolution: expected a bias of {weight.shape[0]} elements of {input.dtype}, got "
            f"{list(bias.shape)} of {bias.dtype}: Input type and bias type should be the same"
        )


def _jvp(
    input: Any,
    weight: Any,
    input_t: Any,
    weight_t: Any,
    bias_t: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    result: Any,
) -> Any:
    window = (stride, padding, dilation, groups)
    parts = []
    if input_t is not None:
        parts.append(convolution(input_t, weight, *window))
    if weight_t is not None:
        parts.append(convolution(input, weight_t, *window))
    if bias_t is not None:
        parts.append(_wide(bias_t, len(stride)).expand(result.shape))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


convolution_biased = op(
    "convolution_biased(Tensor input, Tensor weight, Tensor bias, int[] stride, int[] padding,"
    " int[] dilation, int groups) -> Tensor",
    dtypes="floating complex",
    check=_check,
    shape=lambda input, weight, stride, padding, dilation: convolution.definition.shape(
        input, weight, stride, padding, dilation
    ),
    decompose=lambda input, weight, bias, stride, padding, dilation, groups: (
        convolution(input, weight, stride, padding, dilation, groups) + _wide(bias, len(stride))
    ),
    vjp={
        "input": lambda g, input_meta, weight, stride, padding, dilation, groups: convolution_input(
            weight.conj(), g, input_meta.shape, stride, padding, dilation, groups
        ),
        ("weight", "bias"): lambda g, input, weight_meta, stride, padding, dilation, groups: (
            convolution_weight_bias(
                input.conj(), g, weight_meta.shape, stride, padding, dilation, groups
            )
        ),
    },
    jvp=_jvp,
    node="convolution",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(*x), s.tensor(*w), s.tensor(w[0]), *window) for x, w, _, window in SAMPLES
    ],
    oracle=lambda torch, x, w, b, stride, padding, dilation, groups: torch.ops.aten.convolution(
        x, w, b, stride, padding, dilation, False, [0] * len(stride), groups
    ),
    doc="Correlate an input with a weight, as `convolution`, and add a bias of each channel.",
)


def _channel_sums(grad: Any) -> Any:
    return grad.sum([d for d in range(grad.ndim) if d != 1], dtype=grad.dtype)


convolution_weight_bias = op(
    "convolution_weight_bias(Tensor input, Tensor grad, int[] shape, int[] stride, int[] padding,"
    " int[] dilation, int groups) -> (Tensor by_weight, Tensor by_bias)",
    dtypes="floating complex",
    shape=lambda shape: [shape, (shape[0],)],
    dtype=lambda grad: [grad.dtype] * 2,
    decompose=lambda input, grad, shape, stride, padding, dilation, groups: (
        convolution_weight(input, grad, shape, stride, padding, dilation, groups),
        _channel_sums(grad),
    ),
    vjp={
        ("input", "grad"): lambda grads, input, grad, stride, padding, dilation, groups: _both(
            grads, input, grad, (stride, padding, dilation, groups)
        )
    },
    jvp=lambda input, grad, input_t, grad_t, shape, stride, padding, dilation, groups: (
        sum(
            convolution_weight(x, g, shape, stride, padding, dilation, groups)
            for x, g in ((input_t, grad), (input, grad_t))
            if x is not None and g is not None
        ),
        None if grad_t is None else _channel_sums(grad_t),
    ),
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(*x), s.tensor(*y), w, *window) for x, w, y, window in SAMPLES],
    oracle=lambda torch, x, g, shape, *window: gradients_of_torch(
        torch, g, x, torch.zeros(shape, dtype=g.dtype), *window
    )[1:],
    doc="Compute the gradients of a convolution by its weight and by its bias.",
)


def _both(grads: Any, input: Any, grad: Any, window: Any) -> tuple[Any, Any]:
    g0, g1 = grads
    by_input = by_grad = None
    if g0 is not None:
        by_input = convolution_input(g0, grad.conj(), input.shape, *window)
        by_grad = convolution(input.conj(), g0, *window)
        for d, n in enumerate(tuple(grad.shape)[2:], 2):
            by_grad = by_grad.narrow(d, 0, n)
    if g1 is not None:
        part = _wide(g1, grad.ndim - 2).expand(grad.shape)
        by_grad = part if by_grad is None else by_grad + part
    return by_input, by_grad
