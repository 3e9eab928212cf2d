"""Kernels of sparse tensors: arithmetic, sums, movement and indexing.

All are made of ops on indices and values, so they serve every device, and those marked `records`
have the derivatives of these ops: a gradient of a sparse tensor then has its places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.plugin import component, components, register_kernel, replace_components
from tangrad_sparse import products
from tangrad_sparse.compressed import (
    LAYOUTS,
    is_compressed,
    like,
    to_indices,
    transposed,
    with_values,
)
from tangrad_sparse.compressed import make as make_compressed
from tangrad_sparse.coo import COO, coalesce, flat_numbers, is_coalesced, make, parts

# f(0) = 0: the values alone are computed. Those of `LINEAR` add up, so equal indices may stay.
LINEAR = ("neg", "positive", "real", "imag", "conj_physical", "deg2rad", "rad2deg")
ZERO_TO_ZERO = (
    *("abs", "asin", "asinh", "atan", "atanh", "ceil", "erf", "erfinv", "expm1", "floor"),
    *("frac", "isinf", "isnan", "log1p", "nan_to_num", "relu", "round", "sgn", "sign"),
    *("signbit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)


def _distinct(t: Any) -> Any:
    return coalesce(t) if t.layout is COO else t


def _on_values(name: str, linear: bool) -> Callable[..., Any]:
    function = getattr(tangrad, name)

    def kernel(t: Any, *rest: Any) -> Any:
        t = t if linear else _distinct(t)
        return with_values(t, function(component(t, "values"), *rest))

    return kernel


def _power(t: Any, exponent: Any) -> Any:
    if isinstance(exponent, tangrad.Tensor):
        raise NotImplementedError("pow: the exponent of a sparse tensor is a number")
    if exponent == 0:
        raise RuntimeError("pow: raising a sparse tensor to 0 makes it dense; call to_dense()")
    t = _distinct(t)
    return with_values(t, component(t, "values") ** exponent)


def _is_number(x: Any) -> bool:
    return not isinstance(x, tangrad.Tensor) or (x.layout is tangrad.strided and x.ndim == 0)


def _same_shape(name: str, a: Any, b: Any) -> None:
    if tuple(a.shape) != tuple(b.shape):
        raise RuntimeError(
            f"{name}: expected 'self' and 'other' to have same size, but self is {list(a.shape)} "
            f"while other is {list(b.shape)} (a sparse operand is not broadcast)"
        )


def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    """Add two sparse tensors, or a sparse one to a dense one."""
    if _is_number(b) or _is_number(a):
        raise NotImplementedError(
            "add: a number added to a sparse tensor makes it dense; call to_dense()"
        )
    if is_compressed(a) and b.layout is tangrad.strided:
        return _onto_dense(b if alpha == 1 else b * alpha, a, 1)
    if a.layout is not tangrad.strided and b.layout is tangrad.strided:
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if a.layout is tangrad.strided:
        return _onto_dense(a, b, alpha)
    _same_shape("add", a, b)
    if is_compressed(a):
        return like(a, add(to_indices(a), _as_coo(b), alpha))
    b = _as_coo(b)
    first, second = parts(a), parts(b)
    if first[0].shape[0] != second[0].shape[0]:
        raise RuntimeError(
            "add: expected 'self' and 'other' to have same number of sparse dimensions, got "
            f"{first[0].shape[0]} and {second[0].shape[0]}"
        )
    dtype = tangrad.promote_types(a.dtype, b.dtype)
    other = second[1].to(dtype)  # before a factor of -1, which uint8 does not hold
    values = tangrad.cat((first[1].to(dtype), other if alpha == 1 else other * alpha))
    total = make(tangrad.cat((first[0], second[0]), 1), values, a.shape, False)
    return coalesce(total) if is_coalesced(a) and is_coalesced(b) else total


def _as_coo(t: Any) -> Any:
    return to_indices(t) if is_compressed(t) else t


def _onto_dense(dense: Any, t: Any, alpha: Any) -> Any:
    t = _as_coo(t)
    if tuple(tangrad.broadcast_shapes(dense.shape, t.shape)) != tuple(t.shape):
        raise RuntimeError(
            f"add: Expected all tensors to be broadcastable to {list(t.shape)}, got "
            f"{list(dense.shape)}"
        )
    indices, values = parts(t)
    dtype = tangrad.promote_types(dense.dtype, t.dtype)
    sparse = tuple(t.shape[: indices.shape[0]])
    flat = dense.to(dtype).expand(t.shape).reshape((-1, *values.shape[1:]))
    values = values.to(dtype) if alpha == 1 else values.to(dtype) * alpha
    return flat.index_add(0, flat_numbers(indices, sparse), values).reshape(t.shape)


def add_(a: Any, b: Any, alpha: Any = 1) -> Any:
    """Add a sparse tensor to a dense or a sparse one, in place."""
    if a.layout is not tangrad.strided:
        return _overwrite(a, add(a, b, alpha), "add_")
    t = _as_coo(b)
    _same_shape("add_", a, t)
    _check_cast("add_", tangrad.promote_types(a.dtype, t.dtype), a)
    indices, values = components(t)["indices"], components(t)["values"].to(a.dtype)
    values = values if alpha == 1 else values * alpha
    if indices.shape[0] == 1:
        return a.index_add_(0, indices[0], values)
    return a.index_put_(tuple(indices), values, accumulate=True)


def _check_cast(name: str, dtype: Any, t: Any) -> None:
    if not tangrad.can_cast(dtype, t.dtype):
        raise RuntimeError(
            f"{name}: result type {dtype} can't be cast to the desired output type {t.dtype} of "
            "the tensor that is written"
        )


def _overwrite(t: Any, result: Any, writer: str) -> Any:
    _check_cast(writer, result.dtype, t)
    result = result.to(t.dtype)
    held = components(result)
    said = {"is_coalesced": is_coalesced(result)} if t.layout is COO else None
    return replace_components(t, held, metadata=said, writer=writer)


def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    """Subtract a sparse tensor from a sparse or a dense one."""
    return add(a, b, -alpha)


def sub_(a: Any, b: Any, alpha: Any = 1) -> Any:
    """Subtract a sparse tensor in place."""
    return add_(a, b, -alpha)


def mul(a: Any, b: Any) -> Any:
    """Multiply a sparse tensor by a number, a dense tensor, or the elements both have."""
    if _is_number(b):
        return with_values(a, component(a, "values") * b)
    if _is_number(a):
        return with_values(b, component(b, "values") * a)
    if is_compressed(a) or is_compressed(b):
        return like(a if is_compressed(a) else b, mul(_as_coo(a), _as_coo(b)))
    if a.layout is tangrad.strided:
        return mul(b, a)
    if b.layout is tangrad.strided:
        dense = b.expand(a.shape)
        indices, values = parts(a)
        return make(indices, values * dense[tuple(indices)], a.shape, is_coalesced(a))
    return _common(a, b)


def _common(a: Any, b: Any) -> Any:
    _same_shape("mul", a, b)
    a, b = coalesce(a), coalesce(b)
    (first, left), (second, right) = parts(a), parts(b)
    sparse = tuple(a.shape[: first.shape[0]])
    mine, theirs = flat_numbers(first, sparse), flat_numbers(second, sparse)
    if theirs.shape[0] == 0:
        return make(first[:, :0], left[:0], a.shape, True)
    place = tangrad.searchsorted(theirs, mine).clamp(max=theirs.shape[0] - 1)
    both = theirs[place] == mine
    return make(first[:, both], left[both] * right[place[both]], a.shape, True)


def mul_(a: Any, b: Any) -> Any:
    """Multiply in place; what was dense stays dense, what was sparse stays sparse."""
    if a.layout is tangrad.strided:
        product = mul(a, b)
        _check_cast("mul_", product.dtype, a)
        return a.copy_(product.to_dense())
    return _overwrite(a, mul(a, b), "mul_")


def div(a: Any, b: Any, rounding_mode: Any = None) -> Any:
    """Divide a sparse tensor by a number."""
    if not _is_number(b):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor")
    a = a if rounding_mode is None else _distinct(a)
    return with_values(a, tangrad.div(component(a, "values"), b, rounding_mode=rounding_mode))


def div_(a: Any, b: Any, rounding_mode: Any = None) -> Any:
    """Divide a sparse tensor by a number, in place."""
    return _overwrite(a, div(a, b, rounding_mode), "div_")


def zero_(t: Any) -> Any:
    """Remove all elements, in place."""
    return _overwrite(t, _empty_like(t), "zero_")


def _empty_like(t: Any, *rest: Any) -> Any:
    t = t.detach()
    dtype = next((r for r in rest if isinstance(r, tangrad.dtype)), None)
    if is_compressed(t):
        starts, others, values = components(t).values()
        batch = starts.ndim - 1
        others, values = others.narrow(batch, 0, 0), values.narrow(batch, 0, 0)
        values = values.to(dtype or t.dtype)
        return make_compressed(tangrad.zeros_like(starts), others, values, t.shape, t.layout)
    indices, values = components(t).values()
    return make(indices[:, :0].clone(), values[:0].to(dtype or t.dtype).clone(), t.shape, True)


def _ones_like(t: Any, *rest: Any) -> Any:
    dtype = next((r for r in rest if isinstance(r, tangrad.dtype)), None)
    return with_values(t, tangrad.ones_like(components(t)["values"], dtype=dtype))


def _new_zeros(t: Any, size: Any, *rest: Any) -> Any:
    dtype = next((r for r in rest if isinstance(r, tangrad.dtype)), t.dtype)
    values = tangrad.zeros(0, dtype=dtype, device=t.device)
    indices = tangrad.zeros((len(size), 0), dtype=tangrad.int64, device=t.device)
    made = make(indices, values, size, True)
    return made if t.layout is COO else like(t, made)


def _fill_(t: Any, value: Any) -> Any:
    held = components(t)
    filled = {**held, "values": tangrad.full_like(held["values"], value)}
    return replace_components(t, filled, writer="fill_")


# --- sums -----------------------------------------------------------------------------------


def total(t: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Add all elements (a dense number), or along dimensions (sparse, or dense values)."""
    if is_compressed(t):
        if dim is None or not len(_dims(dim)):
            return component(t, "values").sum(dtype=dtype)
        result = total(to_indices(t), dim, keepdim, dtype)
        return like(t, result) if keepdim and result.layout is COO else result
    indices, values = parts(t)
    if dtype is not None:
        values = values.to(dtype)
    dims = sorted({d % t.ndim for d in _dims(dim)}) if dim is not None else []
    if not dims:
        return values.sum()
    count = indices.shape[0]
    dense = [d - count + 1 for d in dims if d >= count]
    if dense:
        values = values.sum(dense, keepdim)
    elif values.dtype is tangrad.bool or not (
        values.dtype.is_floating_point or values.dtype.is_complex
    ):
        values = values.to(tangrad.int64)
    kept = [k for k in range(count) if k not in dims]
    if not kept:
        result = values.sum(0)
        return result.reshape((1,) * count + tuple(result.shape)) if keepdim else result
    shape = [t.shape[k] for k in kept] + list(values.shape[1:])
    if not keepdim:
        same = len(kept) == count
        reduced = make(indices[kept], values, shape, same and is_coalesced(t))
        return reduced if same else coalesce(reduced)
    rows = tangrad.stack([indices[k] if k in kept else indices[k] * 0 for k in range(count)])
    shape = [t.shape[k] if k in kept else 1 for k in range(count)] + list(values.shape[1:])
    return coalesce(make(rows, values, shape, False))


def _dims(dim: Any) -> tuple[int, ...]:
    if dim is None:
        return ()
    return (dim,) if isinstance(dim, int) else tuple(dim)


def norm(t: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Return the norm of all elements of a sparse tensor.

    Raises:
        RuntimeError: along dimensions, which PyTorch refuses as well.
    """
    if dim is not None and len(_dims(dim)) not in (0, t.ndim):
        raise RuntimeError("norm_sparse currently only supports full reductions")
    values = component(_distinct(t), "values")
    return tangrad.linalg.vector_norm(values, 2 if p in (None, "fro") else p, dtype=dtype)


# --- movement and indexing ----------------------------------------------------------------------


def permute(t: Any, dims: Any) -> Any:
    """Reorder dimensions; the sparse ones and the dense ones among themselves."""
    order = [d % t.ndim for d in dims]
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
    first, second = dim0 % t.ndim, dim1 % t.ndim
    order[first], order[second] = order[second], order[first]
    return permute(t, order)


def matrix_transpose(t: Any) -> Any:
    """Transpose a matrix."""
    if t.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {t.ndim}D")
    return permute(t, tuple(reversed(range(t.ndim))))


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
        return values[mask].sum(0)
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
    found = [_as_coo(t) for t in tensors]
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


RECORDED: dict[str, Callable[..., Any]] = {
    **{name: _on_values(name, True) for name in LINEAR},
    **{name: _on_values(name, False) for name in ZERO_TO_ZERO},
    "pow": _power,
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "sum": total,
    "norm": norm,
    "permute": permute,
    "transpose": transpose,
    "t": matrix_transpose,
    "select": select,
    "unbind": unbind,
    "slice": slice_,
    "narrow": narrow,
    "index_select": index_select,
    "unsqueeze": unsqueeze,
    "cat": cat,
    "concat": cat,
    "_conj": lambda t: with_values(t, component(t, "values").conj().resolve_conj()),
    "conj": lambda t: t if not t.is_complex() else t.conj_physical(),
    "resolve_conj": lambda t: t,
    "resolve_neg": lambda t: t,
    "bmm": products.bmm,
    "addmm": products.addmm,
    "linear": products.linear,
    "zeros_like": _empty_like,
    "empty_like": _empty_like,
    "new_zeros": _new_zeros,
    "new_empty": _new_zeros,
}
UNRECORDED: dict[str, Callable[..., Any]] = {
    "mm": products.mm,
    "mv": products.mv,
    "add_": add_,
    "sub_": sub_,
    "mul_": mul_,
    "div_": div_,
    "zero_": zero_,
}

for _layout in ("sparse_coo", *LAYOUTS):
    for _name, _kernel in RECORDED.items():
        register_kernel(_name, _kernel, layout=_layout, records=True)
    for _name, _kernel in UNRECORDED.items():
        register_kernel(_name, _kernel, layout=_layout)
for _layout in LAYOUTS:
    register_kernel("ones_like", _ones_like, layout=_layout)
    register_kernel("fill_", _fill_, layout=_layout)
