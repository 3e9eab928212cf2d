"""Define the normalization of rows by one op: what RMS and group normalization are on this device.

An input is rows of `length` elements. `groups` rows form a sample, whose weights and biases follow
one another, each for `inner` elements.
"""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.plugin import op

_AXES = (2, 3)


def _moments(input: Any) -> Any:
    return tangrad.float32 if input.dtype.itemsize < 4 else input.dtype


def _check(input: Any) -> None:
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"_row_norm: expected floating-point elements, got {input.dtype}")


def _laid(x: Any, groups: int, length: int, inner: int) -> Any:
    """Shape as (samples, groups, weights of a row, elements of a weight), in float32 or wider."""
    x = x.reshape((-1, groups, length // inner, inner))
    return x.float() if x.dtype.itemsize < 4 else x


def _scale(p: Any, groups: int, length: int, inner: int) -> Any:
    return _laid(p, groups, length // inner, 1)


def _normal(x: Any, centred: bool, eps: float) -> tuple[Any, Any, Any]:
    zero = x.new_zeros((*x.shape[:2], 1, 1))
    mean = x.mean(_AXES, keepdim=True) if centred else zero
    x = x - mean if centred else x
    rstd = ((x * x).mean(_AXES, keepdim=True) + eps).rsqrt()
    return x * rstd, mean, rstd


def _code(
    input: Any,
    weight: Any,
    bias: Any,
    groups: int,
    length: int,
    inner: int,
    centred: bool,
    eps: float,
) -> tuple[Any, Any, Any]:
    lay = (groups, length, inner)
    y, mean, rstd = _normal(_laid(input, *lay), centred, eps)
    y = y if weight is None else y * _scale(weight, *lay)
    y = y if bias is None else y + _scale(bias, *lay)
    return y.to(input.dtype).reshape(input.shape), mean.reshape(-1), rstd.reshape(-1)


def _gradients(
    grad: Any, normal: Any, rstd: Any, weight: Any, dtype: Any, shape: Any, centred: bool, lay: Any
) -> tuple[Any, Any, Any]:
    g = _laid(grad, *lay)
    h = g if weight is None else g * _scale(weight, *lay)
    moved = h - normal * (h * normal).mean(_AXES, keepdim=True)
    moved = moved - h.mean(_AXES, keepdim=True) if centred else moved
    sums = ((x.sum((0, 3)).reshape(-1).to(dtype)) for x in (g * normal, g))
    return (moved * rstd).to(dtype).reshape(shape), *sums


def _backward_code(
    grad: Any,
    input: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    groups: int,
    length: int,
    inner: int,
    centred: bool,
    sums: bool,
) -> tuple[Any, Any, Any]:
    lay = (groups, length, inner)
    mean, rstd = _per_row(mean, groups), _per_row(rstd, groups)
    normal = (_laid(input, *lay) - mean) * rstd
    found = _gradients(grad, normal, rstd, weight, input.dtype, input.shape, centred, lay)
    return found if sums else (found[0], found[1][:0], found[2][:0])


def _vjp(
    grads: Any,
    input: Any,
    weight: Any,
    groups: int,
    length: int,
    inner: int,
    centred: bool,
    eps: float,
    result1: Any,
    result2: Any,
    needs: Any,
) -> tuple[Any, Any, Any]:
    """Differentiate by one op, or by tensor code where further derivatives may follow.

    Mean and rstd, which few ask for, add g1 / n - g2 rstd² x̂ / n with n elements x̂.
    """
    g0, g1, g2 = grads
    lay = (groups, length, inner)
    by_input = by_weight = by_bias = None
    if g0 is not None and tangrad.is_grad_enabled():
        normal, _, rstd = _normal(_laid(input, *lay), centred, eps)
        by_input, by_weight, by_bias = _gradients(
            g0, normal, rstd, weight, input.dtype, input.shape, centred, lay
        )
    elif g0 is not None:
        sums = bool(needs[1] or needs[2])
        by_input, by_weight, by_bias = _backward(
            g0, input, result1, result2, weight, *lay, centred, sums
        )
    parts = [] if g1 is None or not centred else [_per_row(g1, groups) / length]
    if g2 is not None:
        normal, _, rstd = _normal(_laid(input, *lay), centred, eps)
        parts.append(normal * (_per_row(g2, groups) * rstd * rstd / -length))
    for part in parts:
        whole = part.expand((-1, groups, length // inner, inner)).to(input.dtype)
        whole = whole.reshape(input.shape)
        by_input = whole if by_input is None else by_input + whole
    by_weight = by_weight.reshape(weight.shape) if needs[1] and by_weight is not None else None
    return by_input, by_weight, by_bias if needs[2] else None


def _per_row(x: Any, groups: int) -> Any:
    return x.reshape((-1, groups, 1, 1))


def _oracle(torch: Any, input: Any, weight: Any, bias: Any, *how: Any) -> Any:
    y, mean, rstd = _checked(_code, input, weight, bias, *how)
    return y, mean + 0 * rstd, rstd  # of what has no mean, 0 is one that can be differentiated


def _given(s: Any, shape: tuple[int, ...], rows: int) -> list[Any]:
    return [s.tensor(*shape), s.tensor(*shape, strided=True), s.tensor(rows), s.tensor(rows)]


def _checked(code: Any, x: Any, *rest: Any) -> Any:
    if not x.is_floating_point():
        raise RuntimeError(f"not implemented for {x.dtype}")
    return code(x, *rest)


_backward = op(
    "_row_norm_backward(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight,"
    " int groups, int length, int inner, bool centred, bool sums)"
    " -> (Tensor by_input, Tensor by_weight, Tensor by_bias)",
    dtypes="floating",
    shape=lambda input, groups, length, inner, sums: [
        input.shape,
        *[(groups * length // inner if sums else 0,)] * 2,
    ],
    dtype=lambda input: [input.dtype] * 3,
    decompose=_backward_code,
    vjp="none: `_row_norm` takes tensor code where further derivatives may follow",
    function=False,
    method=False,
    samples=lambda s: [
        s(*_given(s, (3, 4), 3), s.tensor(4), 1, 4, 1, False, True),
        s(*_given(s, (2, 6, 5), 4), s.tensor(6), 2, 15, 5, True, True),
        s(*_given(s, (2, 6), 6), None, 3, 2, 1, True, False),
    ],
    # The op has no derivative, so the oracle must not have one either.
    oracle=lambda torch, *arguments: tuple(
        part.detach() for part in _checked(_backward_code, *arguments)
    ),
    doc="Compute the gradients of `_row_norm` by input, weight and bias, the latter if `sums`.",
)

row_norm = op(
    "_row_norm(Tensor input, Tensor? weight, Tensor? bias, int groups, int length, int inner,"
    " bool centred, float eps) -> (Tensor result, Tensor mean, Tensor rstd)",
    dtypes="floating",
    check=_check,
    shape=lambda input, length: [input.shape, *[(math.prod(input.shape) // length,)] * 2],
    dtype=lambda input: [input.dtype, *[_moments(input)] * 2],
    decompose=_code,
    vjp={("input", "weight", "bias"): _vjp},
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(4), None, 1, 4, 1, False, 1e-3),
        s(s.tensor(2, 6, 5), s.tensor(6), s.tensor(6), 2, 15, 5, True, 1e-3),
        s(s.tensor(2, 6, strided=True), None, None, 3, 2, 1, True, 1e-3),
    ],
    oracle=_oracle,
    doc="Normalize rows, about their mean if `centred`; give mean and reciprocal deviation too.",
)
