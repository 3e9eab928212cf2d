"""Movement and indexing of sparse tensors: their kernels, made of ops on indices and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.plugin import component, components, metadata, replace_components
from tangrad_sparse import products
from tangrad_sparse.compressed import is_compressed, like, to_indices, transposed
from tangrad_sparse.compressed import make as make_compressed
from tangrad_sparse.coo import COO, is_coalesced, make, parts, place_of


def permute(t: Any, dims: Any) -> Any:
    """Reorder dimensions; the sparse ones and the dense ones among themselves."""
    order = [place_of("permute", d, t.ndim) for d in dims]
    if is_compressed(t):
        last = list(range(t.ndim))
        if order == last:
            return t
        batch = next(iter(components(t).values())).ndim - 1
        last[batch], last[batch + 1] = batch + 1, batch
        if order == last:
            return transposed(t)
        raise RuntimeError(
            f"permute: rows and columns of a tensor of layout {t.layout} can be exchanged, not "
            f"other dimensions (got {order} for shape {list(t.shape)})"
        )
    indices, values = parts(t)
    count = indices.shape[0]
    if sorted(order[:count]) != list(range(count)):
        raise RuntimeError(
            f"permute: a sparse dimension and a dense one cannot change places (got {order} of a "
            f"tensor of {count} sparse dimensions)"
        )
    shape = [t.shape[d] for d in order]
    if order[count:] != list(range(count, t.ndim)):
        values = values.permute((0, *(d - count + 1 for d in order[count:])))
    sparse = order[:count]
    kept = is_coalesced(t) and (sparse == sorted(sparse) or values.shape[0] < 2)
    return make(indices[sparse], values, shape, kept)


def transpose(t: Any, dim0: int, dim1: int) -> Any:
    """Exchange two dimensions."""
    order = list(range(t.ndim))
    first, second = (place_of("transpose", dim, t.ndim) for dim in (dim0, dim1))
    if first == second:
        return t
    order[first], order[second] = order[second], order[first]
    return permute(t, order)


def matrix_transpose(t: Any) -> Any:
    """Transpose a matrix."""
    if t.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {t.ndim}D")
    return permute(t, tuple(reversed(range(t.ndim))))


def _moved_in_place(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the in-place form of a movement, which gives a COO tensor another shape."""

    def kernel(t: Any, *dims: Any) -> Any:
        if t.layout is not COO:
            raise NotImplementedError(
                f"{name} of a tensor of layout {t.layout}: use the form that returns a new tensor"
            )
        found = function(t, *dims)
        return replace_components(
            t, components(found), metadata=metadata(found), shape=found.shape, writer=name
        )

    return kernel


transpose_ = _moved_in_place("transpose_", transpose)
t_ = _moved_in_place("t_", matrix_transpose)


def _kept(t: Any, mask: Any, indices: Any, shape: Any) -> Any:
    values = parts(t)[1]
    return make(indices[:, mask], values[mask], shape, is_coalesced(t))


def select(t: Any, dim: int, index: int) -> Any:
    """Return one slice along a dimension: sparse, or dense where no sparse dimension is left."""
    dim = dim % t.ndim
    if is_compressed(t):
        starts, others, _ = components(t).values()
        if dim >= starts.ndim - 1 or not -t.shape[dim] <= index < t.shape[dim]:
            return select(to_indices(t), dim, index)
        values = component(t, "values").select(dim, index)
        shape = [n for d, n in enumerate(t.shape) if d != dim]
        starts, others = starts.select(dim, index), others.select(dim, index)
        return make_compressed(starts, others, values, shape, t.layout)
    size = t.shape[dim]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(t.shape)} at dimension "
            f"{dim}"
        )
    index = index % size
    indices, values = parts(t)
    count = indices.shape[0]
    shape = [n for d, n in enumerate(t.shape) if d != dim]
    if dim >= count:
        return make(indices, values.select(dim - count + 1, index), shape, is_coalesced(t))
    mask = indices[dim] == index
    if count == 1:
        return values[mask].sum(0, dtype=values.dtype)
    others = indices[[d for d in range(count) if d != dim]]
    return _kept(t, mask, others, shape)


def unbind(t: Any, dim: int = 0) -> Any:
    """Return all slices along a dimension."""
    return tuple(select(t, dim, k) for k in range(t.shape[dim]))


def slice_(t: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Return what lies between two places along a dimension."""
    if is_compressed(t):
        return like(t, slice_(to_indices(t), dim, start, end, step))
    dim = dim % t.ndim
    first, last, step = slice(start, end, step).indices(t.shape[dim])
    length = len(range(first, last, step))
    indices, values = parts(t)
    count = indices.shape[0]
    shape = [length if d == dim else n for d, n in enumerate(t.shape)]
    if dim >= count:
        kept = tangrad.arange(first, max(first, last), step, device=values.device)
        return make(indices, values.index_select(dim - count + 1, kept), shape, is_coalesced(t))
    place = indices[dim] - first
    mask = (place >= 0) & (indices[dim] < last) & (place % step == 0)
    moved = indices.clone()
    moved[dim] = place.div(step, rounding_mode="floor")
    return _kept(t, mask, moved, shape)


def narrow(t: Any, dim: int, start: int, length: int) -> Any:
    """Return `length` places along a dimension from `start` on."""
    start = int(start) + (t.shape[dim] if start < 0 else 0)
    if start + length > t.shape[dim]:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({t.shape[dim]})."
        )
    return slice_(t, dim, start, start + length)


def index_select(t: Any, dim: int, index: Any) -> Any:
    """Return the slices along a dimension that a vector of numbers names, in its order."""
    if is_compressed(t):
        return like(t, index_select(to_indices(t), dim, index))
    dim = dim % t.ndim
    indices, values = parts(t)
    count, size = indices.shape[0], t.shape[dim]
    if index.numel() and (int(index.min()) < -size or int(index.max()) >= size):
        raise IndexError(f"index_select(): index out of range for dimension {dim} of size {size}")
    wanted = tangrad.where(index < 0, index + size, index)
    shape = [wanted.shape[0] if d == dim else n for d, n in enumerate(t.shape)]
    if dim >= count:
        return make(indices, values.index_select(dim - count + 1, wanted), shape, is_coalesced(t))
    order = indices[dim].argsort(stable=True)
    starts = tangrad.searchsorted(indices[dim][order], wanted)
    ends = tangrad.searchsorted(indices[dim][order], wanted, right=True)
    place, new = products.ranges(starts, ends - starts)
    chosen = order[place]
    moved = indices.index_select(1, chosen)
    moved[dim] = new
    return make(moved, values.index_select(0, chosen), shape, False)


def unsqueeze(t: Any, dim: int) -> Any:
    """Insert a dimension of size 1."""
    if is_compressed(t):
        return unsqueeze(to_indices(t), dim)
    dim = dim % (t.ndim + 1)
    indices, values = parts(t)
    count = indices.shape[0]
    shape = [*t.shape[:dim], 1, *t.shape[dim:]]
    if dim > count:
        return make(indices, values.unsqueeze(dim - count + 1), shape, is_coalesced(t))
    zeros = indices.new_zeros((1, indices.shape[1]))
    return make(tangrad.cat((indices[:dim], zeros, indices[dim:])), values, shape, is_coalesced(t))


def cat(tensors: Any, dim: int = 0) -> Any:
    """Join sparse tensors along a sparse dimension."""
    if any(t.layout is tangrad.strided for t in tensors):
        raise RuntimeError("Concatenating sparse tensors, but a dense tensor was found")
    found = [to_indices(t) if is_compressed(t) else t for t in tensors]
    dim = dim % found[0].ndim
    indices = [parts(t)[0] for t in found]
    count = indices[0].shape[0]
    offset, moved = 0, []
    for t, places in zip(found, indices, strict=True):
        others = [(n, m) for d, (n, m) in enumerate(zip(t.shape, found[0].shape, strict=False))]
        if t.ndim != found[0].ndim or any(n != m for d, (n, m) in enumerate(others) if d != dim):
            raise RuntimeError(
                f"All tensors must have the same shape: {list(found[0].shape)} (except in the "
                f"concatenating dimension), but found shape: {list(t.shape)}"
            )
        shifted = places.clone()
        if dim < count:
            shifted[dim] += offset
        offset += t.shape[dim]
        moved.append(shifted)
    if dim >= count:
        raise NotImplementedError("cat: sparse tensors are joined along sparse dimensions")
    shape = [offset if d == dim else n for d, n in enumerate(found[0].shape)]
    values = tangrad.cat([parts(t)[1] for t in found])
    joined = make(tangrad.cat(moved, 1), values, shape, False)
    return like(tensors[0], joined) if is_compressed(tensors[0]) else joined
