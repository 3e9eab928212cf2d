"""Define the copies of views: what a view shows, contiguous, in memory of its own.

Transforms that remove aliasing put them in the place of the views; they take out=, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.ops.conversion import detach
from tangrad.ops.definition.define import composite, overload
from tangrad.ops.definition.signature import Dim, Dims, DType, Tensor
from tangrad.ops.views.geometry import Ints
from tangrad.ops.views.movement import (
    alias,
    expand,
    permute,
    squeeze,
    t,
    transpose,
    unsqueeze,
    view_size,
)
from tangrad.ops.views.slicing import (
    diagonal,
    narrow,
    select,
    slice_,
    split_size,
    split_with_sizes,
    unbind,
    unfold,
)
from tangrad.ops.views.strided import as_strided, view_as_complex, view_as_real, view_dtype


def _copy(seen: Any) -> Any:
    """Copy a view, or each of several."""
    if isinstance(seen, (tuple, list)):
        return tuple(_copy(part) for part in seen)
    return seen.clone(memory_format=tangrad.contiguous_format)


def _like(view: Any) -> dict[str, Any]:
    """Return what the definition of a view says of its copy, too, and how that is reached."""
    said = {"samples": view.definition.samples, "errors": view.definition.errors}
    return {"strict_out_dtype": True, "out": True, "method": False, **said}


@composite(**_like(alias))
def alias_copy(self: Tensor) -> Tensor:
    """Copy a tensor."""
    return _copy(self)


@composite(**_like(detach))
def detach_copy(self: Tensor) -> Tensor:
    """Copy a tensor without its history."""
    return _copy(detach(self))


@composite(**_like(as_strided))
def as_strided_copy(
    self: Tensor, size: Ints, stride: Ints, storage_offset: int | None = None
) -> Tensor:
    """Copy what `as_strided` shows of the storage."""
    return _copy(as_strided(self, size, stride, storage_offset))


@composite(**_like(diagonal))
def diagonal_copy(self: Tensor, offset: int = 0, dim1: Dim = 0, dim2: Dim = 1) -> Tensor:
    """Copy a diagonal of two dimensions; it becomes the last dimension."""
    return _copy(diagonal(self, offset, dim1, dim2))


@composite(**_like(expand))
def expand_copy(self: Tensor, size: Ints, *, implicit: bool = False) -> Tensor:
    """Copy a tensor with dimensions of size one repeated to `size`."""
    return _copy(expand(self, size))


@composite(
    strict_out_dtype=True,
    out=True,
    samples=narrow.definition.samples,
    errors=lambda s: [
        *narrow.definition.errors(s),
        (s(s.tensor(3, 4), 2, 0, 1), RuntimeError, "Expected dim < 2"),
    ],
)
def narrow_copy(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Copy `length` indices of one dimension, beginning at `start`."""
    if dim >= self.ndim > 0:  # PyTorch's error for it is not that of `narrow`
        raise RuntimeError(
            f"narrow_copy: Expected dim < {self.ndim} for a tensor of shape {list(self.shape)}, "
            f"got {dim}"
        )
    return _copy(narrow(self, dim, start, length))


@composite(**_like(permute))
def permute_copy(self: Tensor, dims: Dims) -> Tensor:
    """Copy a tensor with its dimensions in another order."""
    return _copy(permute(self, dims))


@composite(**_like(select))
def select_copy(self: Tensor, dim: Dim, index: int) -> Tensor:
    """Copy one index of one dimension, which disappears."""
    return _copy(select(self, dim, index))


@composite(**_like(slice_))
def slice_copy(
    self: Tensor, dim: Dim = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """Copy the indices start, start + step, ... below end of one dimension."""
    return _copy(slice_(self, dim, start, end, step))


@composite(**_like(split_size))
def split_copy(self: Tensor, split_size: int, dim: Dim = 0) -> Sequence[Tensor]:
    """Copy the pieces of one size that a dimension is cut into."""
    return _copy(self.split(split_size, dim))


@composite(**_like(split_with_sizes))
def split_with_sizes_copy(self: Tensor, split_sizes: Ints, dim: Dim = 0) -> Sequence[Tensor]:
    """Copy the pieces of given sizes that a dimension is cut into."""
    return _copy(split_with_sizes(self, split_sizes, dim))


@composite(**_like(squeeze))
def squeeze_copy(self: Tensor, dim: Dims | None = None) -> Tensor:
    """Copy a tensor without dimensions of size one."""
    return _copy(squeeze(self, dim))


@composite(**_like(t))
def t_copy(self: Tensor) -> Tensor:
    """Copy a matrix transposed; a vector as it is."""
    return _copy(t(self))


@composite(**_like(transpose))
def transpose_copy(self: Tensor, dim0: Dim, dim1: Dim) -> Tensor:
    """Copy a tensor with two dimensions swapped."""
    return _copy(transpose(self, dim0, dim1))


@composite(**_like(unbind))
def unbind_copy(self: Tensor, dim: Dim = 0) -> Sequence[Tensor]:
    """Copy every index of a dimension."""
    return _copy(unbind(self, dim))


@composite(**_like(unfold))
def unfold_copy(self: Tensor, dimension: Dim, size: int, step: int) -> Tensor:
    """Copy the windows that slide along a dimension."""
    return _copy(unfold(self, dimension, size, step))


@composite(**_like(unsqueeze), extra_dims=1)
def unsqueeze_copy(self: Tensor, dim: Dim) -> Tensor:
    """Copy a tensor with a dimension of size one inserted."""
    return _copy(unsqueeze(self, dim))


@composite(**_like(view_as_complex), dtypes="floating")
def view_as_complex_copy(self: Tensor) -> Tensor:
    """Copy real pairs as a complex tensor."""
    return _copy(view_as_complex(self))


@composite(**_like(view_as_real), dtypes="complex")
def view_as_real_copy(self: Tensor) -> Tensor:
    """Copy a complex tensor as real pairs."""
    return _copy(view_as_real(self))


@composite(
    strict_out_dtype=True,
    out=True,
    function=False,
    method=False,
    samples=view_size.definition.samples,
    errors=lambda s: [(s(s.tensor(2, 3), (4,)), RuntimeError, "invalid for input of size")],
    oracle="view_copy",
)
def view_copy_size(self: Tensor, size: Ints) -> Tensor:
    """Copy a tensor in another shape."""
    return _copy(view_size(self, size))


@composite(**_like(view_dtype), function=False, oracle="view_copy")
def view_copy_dtype(self: Tensor, dtype: DType | None) -> Tensor:
    """Copy a tensor with its bits seen as another dtype."""
    return _copy(view_dtype(self, dtype))


view_copy = overload("view_copy", "view_copy_size", "view_copy_dtype", method=False)
