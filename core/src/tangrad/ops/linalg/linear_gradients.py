"""Define both gradients of a linear layer's parameters as one pass."""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import op


def _check(grad: Any, input: Any) -> None:
    if len(grad.shape) != 2 or len(input.shape) != 2 or grad.shape[0] != input.shape[0]:
        raise RuntimeError(
            "linear_weight_bias: expected matrices with as many rows, got shapes "
            f"{list(grad.shape)} and {list(input.shape)}"
        )


def _vjp(grads: Any, grad: Any, input: Any) -> tuple[Any, Any]:
    by_weight, by_bias = grads
    by_grad = by_input = None
    if by_weight is not None:
        by_grad, by_input = input.conj().mm(by_weight.t()), grad.conj().mm(by_weight)
    if by_bias is not None:
        wide = by_bias.expand(grad.shape)
        by_grad = wide if by_grad is None else by_grad + wide
    return by_grad, by_input


def _jvp(grad: Any, input: Any, grad_t: Any, input_t: Any) -> tuple[Any, Any]:
    parts = []
    if grad_t is not None:
        parts.append(grad_t.t().mm(input))
    if input_t is not None:
        parts.append(grad.t().mm(input_t))
    return sum(parts[1:], parts[0]), None if grad_t is None else grad_t.sum(0)


linear_weight_bias = op(
    "linear_weight_bias(Tensor grad, Tensor input) -> (Tensor by_weight, Tensor by_bias)",
    dtypes="floating complex",
    check=_check,
    shape=lambda grad, input: [(grad.shape[1], input.shape[1]), (grad.shape[1],)],
    dtype=lambda grad: [grad.dtype] * 2,
    decompose=lambda grad, input: (grad.t().mm(input), grad.sum(0, dtype=grad.dtype)),
    vjp={("grad", "input"): _vjp},
    jvp=_jvp,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(5, 3), s.tensor(5, 2)),
        s(s.tensor(4, 2, strided=True), s.tensor(4, 3)),
        s(s.tensor(0, 2), s.tensor(0, 3)),
    ],
    oracle=lambda torch, g, x: (g.t() @ x, g.sum(0, dtype=g.dtype)),
    errors=lambda s: [(s(s.tensor(2, 3), s.tensor(3, 3)), RuntimeError, "as many rows")],
    doc="Compute the gradients of a linear layer by its weight and by its bias, from matrices.",
)
