"""Products of matrices."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_onnx.operators.registry import operator


@operator()
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
    return tangrad.einsum(equation.replace(" ", ""), *operands)


@operator()
def Det(x: Any) -> Any:
    return tangrad.linalg.det(x)
