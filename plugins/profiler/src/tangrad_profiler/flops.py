"""Count floating-point operations from shapes, by PyTorch's formulas of its profiler."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

Shapes = list[list[int]]


def _mm(shapes: Shapes, numbers: list[Any]) -> int:
    return 2 * prod(shapes[0]) * shapes[1][-1]


def _addmm(shapes: Shapes, numbers: list[Any]) -> int:
    return 2 * prod(shapes[1]) * shapes[2][-1]


def _linear(shapes: Shapes, numbers: list[Any]) -> int:
    return 2 * prod(shapes[0]) * shapes[1][0]


def _convolution(shapes: Shapes, numbers: list[Any]) -> int:
    source, weight = shapes[0], shapes[1]
    spatial = len(weight) - 2
    tuples = [n for n in numbers if isinstance(n, tuple)]
    stride, padding, dilation = (
        (*given, *given)[:spatial] if len(given) == 1 else given
        for given in (tuples + [(1,) * spatial, (0,) * spatial, (1,) * spatial][len(tuples) :])[:3]
    )
    places = prod(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(
            source[-spatial:], weight[2:], stride, padding, dilation, strict=False
        )
    )
    batch = source[0] if len(source) == spatial + 2 else 1
    return 2 * batch * places * prod(weight)


def _attention(shapes: Shapes, numbers: list[Any]) -> int:
    """Count two products: queries with keys, and their weights with values."""
    return 4 * prod(shapes[0]) * shapes[1][-2]


def _attention_backward(shapes: Shapes, numbers: list[Any]) -> int:
    """Count five: the weights again, and the gradients of values, weights, queries and keys."""
    return 10 * prod(shapes[1]) * shapes[2][-2]


def _elementwise(shapes: Shapes, numbers: list[Any]) -> int:
    return prod(max((s for s in shapes if s), key=prod, default=[]))


FORMULAS: dict[str, Callable[[Shapes, list[Any]], int]] = {
    "mm": _mm,
    "bmm": _mm,
    "mv": lambda shapes, numbers: 2 * prod(shapes[0]),
    "addmm": _addmm,
    "baddbmm": _addmm,
    "linear": _linear,
    "add": _elementwise,
    "mul": _elementwise,
    **{f"conv{n}d": _convolution for n in (1, 2, 3)},
    "convolution": _convolution,
    "_attention": _attention,
    "_attention_backward": _attention_backward,
}


def flops_of(name: str, signature: tuple[Shapes, list[str], list[Any]]) -> int:
    """Return the operations of one call; 0 for ops without a formula or shapes it does not know."""
    formula = FORMULAS.get(name)
    if formula is None:
        return 0
    try:
        return int(formula(signature[0], signature[2]))
    except (IndexError, TypeError, ValueError):
        return 0
