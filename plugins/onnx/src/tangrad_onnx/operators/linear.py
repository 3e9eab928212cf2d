"""Products of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.registry import operator


def multiplied(a: Any, b: Any, *zeros: Any) -> None:
    """Refuse a product of more elements than the run may hold."""
    if a.ndim and b.ndim:
        rows, columns = a.shape[-2:-1], b.shape[-1:] if b.ndim > 1 else ()
        batch = np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
        checked_count([*batch, *rows, *columns], a.element_size() if isinstance(a, Tensor) else 8)


@operator(grows=multiplied)
def MatMul(a: Any, b: Any) -> Any:
    return tangrad.matmul(a, b)


@operator()
def Gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    if transA:
        a = a.t()
    checked_count([a.shape[0], b.shape[0 if transB else -1]], a.element_size())
    if alpha == beta == 1 and transB and c is not None and c.ndim == 1 and a.is_floating_point():
        return tangrad.nn.functional.linear(a, b, c)
    product = tangrad.matmul(a, b.t() if transB else b)
    if alpha != 1:
        product = (product * alpha).to(a.dtype)
    if c is None or beta == 0:
        return product
    return product + (c if beta == 1 else (c * beta).to(c.dtype))


@operator()
def Einsum(*operands: Any, equation: str) -> Any:
    equation = equation.replace(" ", "")
    _check_einsum(equation, operands)
    return tangrad.einsum(equation, *operands)


def _check_einsum(equation: str, operands: Any) -> None:
    """Refuse a result of more elements than the run may hold; leave wrong equations to the op."""
    given, arrow, result = equation.partition("->")
    sizes: dict[str, int] = {}
    batch = 1  # elements of what "..." stands for
    for term, x in zip(given.split(","), operands, strict=False):
        before, dots, after = term.partition("...")
        if len(before) + len(after) > x.ndim:
            return
        behind = x.ndim - len(after)
        named = [*zip(before, x.shape, strict=False), *zip(after, x.shape[behind:], strict=False)]
        for label, size in named:
            sizes[label] = max(sizes.get(label, 1), size)
        if dots:
            batch = max(batch, math.prod(x.shape[len(before) : behind]))
    if not arrow:
        result = "".join(label for label in sizes if given.count(label) == 1)
    wanted = [sizes.get(label, 1) for label in result if label != "."]
    checked_count([batch, *wanted], operands[0].element_size() if operands else 8)


@operator()
def Det(x: Any) -> Any:
    return tangrad.linalg.det(x)
