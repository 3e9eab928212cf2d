"""Strides of results that lie in memory as another tensor does."""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import at_all_sizes
from tangrad.ops.views.geometry import Ints, contiguous_stride

__all__ = ["kept_stride", "stride_in_order"]


def stride_in_order(shape: Ints, order: Ints) -> Ints:
    """Give the stride of a shape whose dimensions lie in memory in the given order."""
    packed = contiguous_stride([shape[d] for d in order])
    stride = [0] * len(shape)
    for position, dim in enumerate(order):
        stride[dim] = packed[position]
    return tuple(stride)


def _dense(shape: Ints, stride: Ints) -> bool:
    """Tell whether the elements fill a block of memory, each once."""
    expected = 1
    for step, size in sorted(
        (step, size) for size, step in zip(shape, stride, strict=True) if size != 1
    ):
        if step != expected:
            return False
        expected = expected * size
    return True


@at_all_sizes
def kept_stride(x: Any) -> Ints:
    """Give the stride that a result has that keeps the memory layout of `x`.

    A dense tensor keeps its stride; of any other the order of dimensions is kept.
    """
    shape, stride = tuple(x.shape), tuple(x.stride())
    if x.is_contiguous() and 0 not in shape:
        return stride
    if 0 in shape or _dense(shape, stride):
        return stride if 0 not in shape else contiguous_stride(shape)
    # Of equal strides the longer dimension is the outer one; 0 says nothing.
    order = list(range(len(shape)))[::-1]
    for i in range(1, len(order)):
        moving = i
        for j in range(i - 1, -1, -1):
            inner, outer = order[j], order[moving]
            if 0 in (stride[inner], stride[outer]):
                continue
            if (stride[inner], shape[inner]) > (stride[outer], shape[outer]):
                order[j], order[moving] = outer, inner
                moving = j
            elif stride[inner] < stride[outer]:
                break
    return stride_in_order(shape, tuple(order[::-1]))
