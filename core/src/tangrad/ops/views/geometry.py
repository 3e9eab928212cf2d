"""Sizes, strides and dimensions: what views are computed by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad.ops.definition.define import at_all_sizes

Ints = tuple[int, ...]
Geometry = tuple[Ints, Ints, int]


def dtype_name(dtype: Any) -> str:
    """Give the name of a dtype without its module."""
    return dtype.name


def numel_of(shape: Sequence[int]) -> int:
    """Multiply the sizes of a shape."""
    count = 1
    for size in shape:
        count = count * size
    return count


def contiguous_stride(shape: Sequence[int]) -> Ints:
    """Give the row-major stride of a shape; empty dimensions count as one."""
    stride: list[int] = []
    step = 1
    for size in reversed(tuple(shape)):
        stride.append(step)
        step = step * (1 if size == 0 else size)
    return tuple(reversed(stride))


@at_all_sizes
def infer_size(shape: Sequence[int], numel: int) -> Ints:
    """Replace the one -1 of a requested shape by the size that holds `numel` elements."""
    listed, known, unknown = list(shape), 1, 0
    for size in shape:
        if size >= 0:
            known = known * size
        elif size == -1:
            unknown += 1
        else:
            raise RuntimeError(f"invalid shape dimension {size} in the requested shape {listed}")
    if unknown > 1:
        raise RuntimeError(f"only one dimension can be inferred, got shape {listed}")
    if known == numel and not unknown:
        return tuple(shape)
    invalid = RuntimeError(f"shape '{listed}' is invalid for input of size {numel}")
    if not unknown:
        raise invalid
    if known == 0:
        if numel != 0:
            raise invalid
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {listed} because the unspecified "
            "dimension size -1 can be any value and is ambiguous"
        )
    if numel % known != 0:
        raise invalid
    return tuple(numel // known if size == -1 else size for size in shape)


def view_stride(shape: Ints, stride: Ints, new_shape: Ints) -> Ints | None:
    """Give the stride under which a strided block can be seen in another shape.

    Returns None if no stride does it, that is if a new dimension would span two runs of
    dimensions that are not contiguous to each other.
    """
    if numel_of(shape) == 0:
        return stride if tuple(shape) == tuple(new_shape) else contiguous_stride(new_shape)
    if not shape:
        return (1,) * len(new_shape)
    found: list[int] = []
    dim, elements, base = len(new_shape) - 1, 1, stride[-1]
    for outer in range(len(shape) - 2, -2, -1):
        elements = elements * shape[outer + 1]
        if outer >= 0 and (shape[outer] == 1 or stride[outer] == elements * base):
            continue
        covered = 1
        while dim >= 0 and (covered < elements or new_shape[dim] == 1):
            found.append(covered * base)
            covered = covered * new_shape[dim]
            dim -= 1
        if covered != elements:
            return None
        elements, base = 1, stride[outer]
    return tuple(reversed(found)) if dim < 0 else None


def front(x: Any, dim: int | None) -> Any:
    """Move the batch dimension of a tensor that has one to the front."""
    return x if dim is None else x.movedim(dim, 0)


def batched_front(x: Any, dim: int | None, size: int) -> Any:
    """Move the batch dimension to the front; expand a tensor that has none."""
    return x.expand((size, *x.shape)) if dim is None else x.movedim(dim, 0)


def wrap_dim(dim: int, ndim: int) -> int:
    """Normalise the number of a dimension."""
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], "
            f"but got {dim})"
        )
    return dim + ndim if dim < 0 else dim


def sum_to_shape(g: Any, shape: Sequence[int]) -> Any:
    """Sum out the dimensions by which `shape` was broadcast to the shape of `g`."""
    extra = g.ndim - len(shape)
    grown = [extra + i for i, size in enumerate(shape) if size == 1 and g.shape[extra + i] != 1]
    if not extra and not grown:
        return g
    # One sum over all of them: two would round twice in a half precision.
    return g.sum((*range(extra), *grown), keepdim=True).reshape(tuple(shape))
