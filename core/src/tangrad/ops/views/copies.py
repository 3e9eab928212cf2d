"""Define the copies of views: what a view shows, contiguous, in memory of its own.

Transforms that remove aliasing put them in the place of the views; they take out=, too.
"""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.conversion import detach
from tangrad.ops.definition.define import composite, overload
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


@composite(
    "alias_copy(Tensor self) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=alias.definition.samples,
    errors=alias.definition.errors,
)
def alias_copy(self: Any) -> Any:
    """Copy a tensor."""
    return _copy(self)


@composite(
    "detach_copy(Tensor self) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=detach.definition.samples,
    errors=detach.definition.errors,
)
def detach_copy(self: Any) -> Any:
    """Copy a tensor without its history."""
    return _copy(detach(self))


@composite(
    "as_strided_copy(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=as_strided.definition.samples,
    errors=as_strided.definition.errors,
)
def as_strided_copy(self: Any, size: Ints, stride: Ints, storage_offset: int | None) -> Any:
    """Copy what `as_strided` shows of the storage."""
    return _copy(as_strided(self, size, stride, storage_offset))


@composite(
    "diagonal_copy(Tensor self, int offset=0, dim dim1=0, dim dim2=1) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=diagonal.definition.samples,
    errors=diagonal.definition.errors,
)
def diagonal_copy(self: Any, offset: int, dim1: int, dim2: int) -> Any:
    """Copy a diagonal of two dimensions; it becomes the last dimension."""
    return _copy(diagonal(self, offset, dim1, dim2))


@composite(
    "expand_copy(Tensor self, int[] size, *, bool implicit=False) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=expand.definition.samples,
    errors=expand.definition.errors,
)
def expand_copy(self: Any, size: Ints, implicit: bool) -> Any:
    """Copy a tensor with dimensions of size one repeated to `size`."""
    return _copy(expand(self, size))


@composite(
    "narrow_copy(Tensor self, int dim, int start, int length) -> Tensor",
    strict_out_dtype=True,
    out=True,
    samples=narrow.definition.samples,
    errors=lambda s: [
        *narrow.definition.errors(s),
        (s(s.tensor(3, 4), 2, 0, 1), RuntimeError, "Expected dim < 2"),
    ],
)
def narrow_copy(self: Any, dim: int, start: int, length: int) -> Any:
    """Copy `length` indices of one dimension, beginning at `start`."""
    if dim >= self.ndim > 0:  # PyTorch's error for it is not that of `narrow`
        raise RuntimeError(
            f"narrow_copy: Expected dim < {self.ndim} for a tensor of shape {list(self.shape)}, "
            f"got {dim}"
        )
    return _copy(narrow(self, dim, start, length))


@composite(
    "permute_copy(Tensor self, dim[] dims) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=permute.definition.samples,
    errors=permute.definition.errors,
)
def permute_copy(self: Any, dims: Ints) -> Any:
    """Copy a tensor with its dimensions in another order."""
    return _copy(permute(self, dims))


@composite(
    "select_copy(Tensor self, dim dim, int index) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=select.definition.samples,
    errors=select.definition.errors,
)
def select_copy(self: Any, dim: int, index: int) -> Any:
    """Copy one index of one dimension, which disappears."""
    return _copy(select(self, dim, index))


@composite(
    "slice_copy(Tensor self, dim dim=0, int? start=None, int? end=None, int step=1) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=slice_.definition.samples,
    errors=slice_.definition.errors,
)
def slice_copy(self: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    """Copy the indices start, start + step, ... below end of one dimension."""
    return _copy(slice_(self, dim, start, end, step))


@composite(
    "split_copy(Tensor self, int split_size, dim dim=0) -> Tensor[]",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=split_size.definition.samples,
    errors=split_size.definition.errors,
)
def split_copy(self: Any, split_size: int, dim: int) -> Any:
    """Copy the pieces of one size that a dimension is cut into."""
    return _copy(self.split(split_size, dim))


@composite(
    "split_with_sizes_copy(Tensor self, int[] split_sizes, dim dim=0) -> Tensor[]",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=split_with_sizes.definition.samples,
    errors=split_with_sizes.definition.errors,
)
def split_with_sizes_copy(self: Any, split_sizes: Ints, dim: int) -> Any:
    """Copy the pieces of given sizes that a dimension is cut into."""
    return _copy(split_with_sizes(self, split_sizes, dim))


@composite(
    "squeeze_copy(Tensor self, dim[]? dim=None) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=squeeze.definition.samples,
    errors=squeeze.definition.errors,
)
def squeeze_copy(self: Any, dim: Ints | None) -> Any:
    """Copy a tensor without dimensions of size one."""
    return _copy(squeeze(self, dim))


@composite(
    "t_copy(Tensor self) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=t.definition.samples,
    errors=t.definition.errors,
)
def t_copy(self: Any) -> Any:
    """Copy a matrix transposed; a vector as it is."""
    return _copy(t(self))


@composite(
    "transpose_copy(Tensor self, dim dim0, dim dim1) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=transpose.definition.samples,
    errors=transpose.definition.errors,
)
def transpose_copy(self: Any, dim0: int, dim1: int) -> Any:
    """Copy a tensor with two dimensions swapped."""
    return _copy(transpose(self, dim0, dim1))


@composite(
    "unbind_copy(Tensor self, dim dim=0) -> Tensor[]",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=unbind.definition.samples,
    errors=unbind.definition.errors,
)
def unbind_copy(self: Any, dim: int) -> Any:
    """Copy every index of a dimension."""
    return _copy(unbind(self, dim))


@composite(
    "unfold_copy(Tensor self, dim dimension, int size, int step) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    samples=unfold.definition.samples,
    errors=unfold.definition.errors,
)
def unfold_copy(self: Any, dimension: int, size: int, step: int) -> Any:
    """Copy the windows that slide along a dimension."""
    return _copy(unfold(self, dimension, size, step))


@composite(
    "unsqueeze_copy(Tensor self, dim dim) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    extra_dims=1,
    samples=unsqueeze.definition.samples,
    errors=unsqueeze.definition.errors,
)
def unsqueeze_copy(self: Any, dim: int) -> Any:
    """Copy a tensor with a dimension of size one inserted."""
    return _copy(unsqueeze(self, dim))


@composite(
    "view_as_complex_copy(Tensor self) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    dtypes="floating",
    samples=view_as_complex.definition.samples,
    errors=view_as_complex.definition.errors,
)
def view_as_complex_copy(self: Any) -> Any:
    """Copy real pairs as a complex tensor."""
    return _copy(view_as_complex(self))


@composite(
    "view_as_real_copy(Tensor self) -> Tensor",
    strict_out_dtype=True,
    out=True,
    method=False,
    dtypes="complex",
    samples=view_as_real.definition.samples,
    errors=view_as_real.definition.errors,
)
def view_as_real_copy(self: Any) -> Any:
    """Copy a complex tensor as real pairs."""
    return _copy(view_as_real(self))


@composite(
    "view_copy_size(Tensor self, int[] size) -> Tensor",
    strict_out_dtype=True,
    out=True,
    function=False,
    method=False,
    samples=view_size.definition.samples,
    errors=lambda s: [(s(s.tensor(2, 3), (4,)), RuntimeError, "invalid for input of size")],
    oracle="view_copy",
)
def view_copy_size(self: Any, size: Ints) -> Any:
    """Copy a tensor in another shape."""
    return _copy(view_size(self, size))


@composite(
    "view_copy_dtype(Tensor self, dtype? dtype) -> Tensor",
    strict_out_dtype=True,
    out=True,
    function=False,
    method=False,
    samples=view_dtype.definition.samples,
    errors=view_dtype.definition.errors,
    oracle="view_copy",
)
def view_copy_dtype(self: Any, dtype: Any) -> Any:
    """Copy a tensor with its bits seen as another dtype."""
    return _copy(view_dtype(self, dtype))


view_copy = overload("view_copy", "view_copy_size", "view_copy_dtype", method=False)
