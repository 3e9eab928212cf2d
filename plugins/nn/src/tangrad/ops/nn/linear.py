"""Define the linear layer: y = x Wᵀ + b."""

from __future__ import annotations

from typing import Any

from tangrad.ops.nn.fusing import fuses
from tangrad.plugin import (
    at_all_sizes,
    batched_front,
    check_dtypes,
    find_op,
    numel_of,
    op,
    product_of,
)

linear_weight_bias = find_op("linear_weight_bias")


def _check_linear(input: Any, weight: Any, bias: Any) -> None:
    if len(weight.shape) not in (1, 2):
        raise RuntimeError(
            f"linear: weight must be a matrix or vector, got shape {list(weight.shape)}"
        )
    if not input.shape:
        raise RuntimeError(
            "linear: both arguments need to be at least 1D, got an input without dimensions and "
            f"weight {list(weight.shape)}; give input.reshape(1)"
        )
    if input.shape[-1] != weight.shape[-1]:
        rows = numel_of(input.shape[:-1])
        last = input.shape[-1]
        out = weight.shape[0] if len(weight.shape) == 2 else 1
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{last} and "
            f"{weight.shape[-1]}x{out}): linear of input {list(input.shape)} with weight "
            f"{list(weight.shape)}"
        )
    check_dtypes("linear", input, weight)
    if bias is None:
        return
    check_dtypes("linear", input, bias)
    features = weight.shape[:-1]
    sizes = tuple(bias.shape)
    if len(sizes) == 2 and sizes[0] == 1 and len(input.shape) > 1:
        sizes = sizes[1:]
    if sizes not in (tuple(features), (), (1,)):
        raise RuntimeError(
            f"linear: bias of shape {list(bias.shape)} does not fit the {list(features)} output "
            "features of the weight; its size must match"
        )


def _linear_reference(np: Any, input: Any, weight: Any, bias: Any) -> Any:
    product = product_of(np, input, weight.T)
    return product if bias is None else product + bias


def _linear_decomposed(input: Any, weight: Any, bias: Any) -> Any:
    product = input.matmul(weight.t())
    return product if bias is None else product + bias


def _linear_weight_vjp(g: Any, input: Any, weight_meta: Any) -> Any:
    if len(weight_meta.shape) == 2 and input.ndim == 2:
        return g.t().mm(input.conj())
    rows = input.reshape((numel_of(tuple(input.shape)[:-1]), input.shape[-1]))
    if len(weight_meta.shape) == 1:
        return rows.t().conj().mv(g.reshape((-1,)))
    return g.reshape((rows.shape[0], g.shape[-1])).t().mm(rows.conj())


def _linear_input_vjp(g: Any, weight: Any) -> Any:
    if weight.ndim == 1:
        return g.unsqueeze(-1) * weight.conj()
    return g.matmul(weight.conj())


@at_all_sizes
def _linear_bias_vjp(g: Any, bias_meta: Any) -> Any:
    shape = bias_meta.shape
    if g.ndim == 2 and len(shape) == 1 and g.shape[1] == shape[0]:
        return g.sum(0)
    return g.sum_to_size(shape if g.ndim >= len(shape) else g.shape).reshape(shape)


def _linear_parameters_vjp(g: Any, input: Any, weight_meta: Any, bias_meta: Any) -> tuple[Any, Any]:
    sizes = tuple(weight_meta.shape)
    usual = len(sizes) == 2 and tuple(bias_meta.shape) == sizes[:1]
    if usual and input.numel() and fuses(g, input):
        rows = input.reshape((-1, sizes[1]))
        by_weight, by_bias = linear_weight_bias(g.reshape((-1, sizes[0])), rows.conj())
        return by_weight, by_bias
    return _linear_weight_vjp(g, input, weight_meta), _linear_bias_vjp(g, bias_meta)


def _linear_jvp(
    input: Any, weight: Any, input_t: Any, weight_t: Any, bias_t: Any, result: Any
) -> Any:
    parts = []
    if input_t is not None:
        parts.append(linear(input_t, weight, None))
    if weight_t is not None:
        parts.append(linear(input, weight_t, None))
    if bias_t is not None:
        parts.append(bias_t.expand(result.shape))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _linear_batch(size: int, dims: Any, input: Any, weight: Any, bias: Any) -> Any:
    if dims[1] is None and (bias is None or dims[2] is None):
        return linear(input.movedim(dims[0], 0), weight, bias), 0
    x, w = batched_front(input, dims[0], size), batched_front(weight, dims[1], size)
    vector = w.ndim == 2
    w = w.unsqueeze(1) if vector else w
    rows = x.reshape((size, numel_of(tuple(x.shape)[1:-1]), x.shape[-1]))
    product = rows.bmm(w.transpose(1, 2))
    if bias is not None:
        product = product + batched_front(bias, dims[2], size).reshape((size, 1, -1))
    shape = tuple(x.shape)[:-1] if vector else (*tuple(x.shape)[:-1], w.shape[1])
    return product.reshape(shape), 0


linear = op(
    "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    c_implementation="linear",
    dtypes="integral floating complex",
    namespace="nn",
    check=_check_linear,
    shape=lambda input, weight: (*input.shape[:-1], *weight.shape[:-1]),
    reference=_linear_reference,
    decompose=_linear_decomposed,
    strict_out_dtype=True,
    vjp={
        "input": _linear_input_vjp,
        ("weight", "bias"): _linear_parameters_vjp,
        "weight": _linear_weight_vjp,
        "bias": _linear_bias_vjp,
    },
    jvp=_linear_jvp,
    batch=_linear_batch,
    samples=lambda s: [
        s(s.tensor(2, 3), s.tensor(4, 3), s.tensor(4)),
        s(s.tensor(2, 3), s.tensor(4, 3)),
        s(s.tensor(3), s.tensor(2, 3), s.tensor(2)),
        s(s.tensor(2, 2, 3), s.tensor(4, 3), s.tensor(4)),
        s(s.tensor(2, 3), s.tensor(4, 3), s.tensor(1, 4)),
        s(s.tensor(2, 2, 3), s.tensor(4, 3), s.tensor(1, 4)),
        s(s.tensor(2, 3), s.tensor(3)),
        s(s.tensor(0, 3), s.tensor(2, 3), s.tensor(2)),
    ],
    oracle="nn.functional.linear",
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(3, 4)), RuntimeError, "cannot be multiplied"),
        (s(s.tensor(2, 3), s.tensor(4, 3), s.tensor(3)), RuntimeError, "must match|expanded"),
    ],
    doc=r"""Apply y = x Wᵀ + b to the last dimension.

    Args:
        input: (..., in_features).
        weight: (out_features, in_features) or (in_features).
        bias: (out_features), (1, out_features) or ().
    """,
)
