"""Sequences and optional values."""

from __future__ import annotations

from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.operators.shaping import Concat, Squeeze
from tangrad_onnx.values import to_ints, to_number, to_tensor


@operator(raw=True)
def SequenceEmpty(*, dtype: int = 1) -> Any:
    return []


@operator(raw=True)
def SequenceConstruct(*values: Any) -> Any:
    return list(values)


def _place(position: Any, count: int, default: int) -> int:
    if position is None:
        return default
    at = int(to_number(position))
    if not -count <= at <= count:
        raise IndexError(f"position {at} of a sequence of {count}")
    return at + count if at < 0 else at


@operator(raw=True)
def SequenceAt(values: list[Any], position: Any) -> Any:
    at = _place(position, len(values), 0)
    if at == len(values):
        raise IndexError(f"position {at} of a sequence of {len(values)}")
    return values[at]


@operator(raw=True)
def SequenceInsert(values: list[Any], value: Any, position: Any = None) -> Any:
    at = _place(position, len(values), len(values))
    return [*values[:at], value, *values[at:]]


@operator(raw=True)
def SequenceErase(values: list[Any], position: Any = None) -> Any:
    at = _place(position, len(values), len(values) - 1)
    return values[:at] + values[at + 1 :]


@operator(raw=True)
def SequenceLength(values: list[Any]) -> Any:
    return np.array(len(values), np.int64)


@operator(raw=True)
def ConcatFromSequence(values: list[Any], *, axis: int, new_axis: int = 0) -> Any:
    if not new_axis:
        return Concat(*values, axis=axis)
    if all(isinstance(value, Tensor) for value in values):
        return tangrad.stack(values, axis)
    return np.stack([np.asarray(value) for value in values], axis)


@operator(raw=True)
def SplitToSequence(x: Any, parts: Any = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    x = to_tensor(x)
    size = x.shape[axis]
    if parts is None:
        pieces = list(x.split([1] * size, axis))
        return pieces if keepdims else [Squeeze(piece, [axis]) for piece in pieces]
    lengths = to_ints(parts)
    if parts.ndim == 0:
        step = lengths[0]
        lengths = [min(step, size - at) for at in range(0, size, step)]
    return list(x.split(lengths, axis))


@operator("Optional", raw=True)
def Optional(value: Any = None, *, type: Any = None) -> Any:
    return value


@operator(raw=True)
def OptionalHasElement(value: Any = None) -> Any:
    return tangrad.tensor(value is not None)


@operator(raw=True)
def OptionalGetElement(value: Any) -> Any:
    if value is None:
        raise ValueError("OptionalGetElement: the optional value is missing")
    return value
