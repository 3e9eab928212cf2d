"""Kernels of sparse tensors: arithmetic and sums, and the table of all.

All are made of ops on indices and values, so they serve every device, and those marked `records`
have the derivatives of these ops: a gradient of a sparse tensor then has its places.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.plugin import component, components, register_kernel, replace_components
from tangrad_sparse import movement, products
from tangrad_sparse.compressed import (
    LAYOUTS,
    from_coo,
    is_compressed,
    like,
    to_indices,
    with_values,
    without_elements,
)
from tangrad_sparse.coo import (
    COO,
    coalesce,
    flat_numbers,
    from_numbers,
    is_coalesced,
    make,
    parts,
    place_of,
    settled,
)

# f(0) = 0: the values alone are computed. Those of `LINEAR` add up, so equal indices may stay.
LINEAR = ("neg", "positive", "real", "imag", "conj_physical", "deg2rad", "rad2deg")
ZERO_TO_ZERO = (
    *("abs", "asin", "asinh", "atan", "atanh", "ceil", "erf", "erfinv", "expm1", "floor"),
    *("frac", "isinf", "isnan", "isneginf", "isposinf", "log1p", "nan_to_num", "relu", "round"),
    *("sgn", "sign"),
    *("signbit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)


def _distinct(t: Any) -> Any:
    return coalesce(t) if t.layout is COO else t


def _scaled(t: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a linear function to the values."""
    t = settled(t)
    return with_values(t, function(component(t, "values")))


def _on_values(name: str, linear: bool) -> Callable[..., Any]:
    function = getattr(tangrad, name)

    def kernel(t: Any, *rest: Any) -> Any:
        t = settled(t) if linear else _distinct(t)
        return with_values(t, function(component(t, "values"), *rest))

    return kernel


def _in_place_on_values(name: str) -> Callable[..., Any]:
    """Return the in-place form of a function of values, for tensors without equal indices."""
    function = _on_values(name, False)

    def kernel(t: Any, *rest: Any) -> Any:
        if t.layout is COO and not is_coalesced(t):
            raise RuntimeError(f"{name}_ requires coalesced input; call coalesce() first")
        return _overwrite(t, function(t, *rest), f"{name}_")

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
            f"{name}: expected 'self' and 'other' to have same size, but self has size "
            f"{list(a.shape)} while other has size {list(b.shape)} (a sparse operand is not "
            "broadcast)"
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
        dtype = tangrad.promote_types(a.dtype, b.dtype)
        if not second[1].shape[0]:
            return a.to(dtype)
        if not first[1].shape[0]:
            return (b if alpha == 1 else mul(b, alpha)).to(dtype)
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
    if t.requires_grad and tangrad.is_grad_enabled():  # its gradient is strided, as PyTorch's
        whole = t.to_dense(masked_grad=False)
        return tangrad.add(dense, whole, alpha=alpha)
    t = _as_coo(t)
    if tuple(tangrad.broadcast_shapes(dense.shape, t.shape)) != tuple(t.shape):
        raise RuntimeError(
            f"add: Expected all tensors to be broadcastable to {list(t.shape)}, got "
            f"{list(dense.shape)}"
        )
    indices, values = parts(t)
    dtype = tangrad.promote_types(dense.dtype, t.dtype)
    sparse = tuple(t.shape[: indices.shape[0]])
    flat = dense.to(dtype).expand(t.shape).reshape((math.prod(sparse), *values.shape[1:]))
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
        return _scaled(a, lambda values: values * b)
    if _is_number(a):
        return _scaled(b, lambda values: values * a)
    if is_compressed(a) or is_compressed(b):
        return like(a if is_compressed(a) else b, mul(_as_coo(a), _as_coo(b)))
    if a.layout is tangrad.strided:
        return mul(b, a)
    if b.layout is not tangrad.strided and 0 in (a.ndim, b.ndim):
        single = a.ndim == 0 and (b.ndim > 0 or is_coalesced(a))
        factor, other = (a, b) if single else (b, a)
        if a.ndim == b.ndim:
            other = other.to(tangrad.promote_types(a.dtype, b.dtype))
        return mul(other, factor.to_dense())
    shape = tangrad.broadcast_shapes(a.shape, b.shape)
    a = broadcast_to(a, shape)
    if b.layout is tangrad.strided:
        dense = b.expand(shape)
        indices, values = parts(a)
        return make(indices, values * dense[tuple(indices)], shape, is_coalesced(a))
    return _common(a, broadcast_to(b, shape))


def broadcast_to(t: Any, shape: Any) -> Any:
    """Repeat a COO tensor along dimensions of size 1 and along new ones, which are sparse."""
    if tuple(t.shape) == tuple(shape):
        return t
    indices, values = parts(t)
    extra = len(shape) - t.ndim
    count = extra + indices.shape[0]
    indices = tangrad.cat((indices.new_zeros((extra, indices.shape[1])), indices))
    old = (1,) * extra + tuple(t.shape)
    wide = [d for d in range(count) if old[d] != shape[d] or d < extra]
    times, stored = math.prod(shape[d] for d in wide), values.shape[0]
    values = values.expand((stored, *shape[count:]))
    if wide:
        places = from_numbers(
            tangrad.arange(times, device=indices.device), [shape[d] for d in wide]
        )
        indices = indices.repeat(1, times)
        indices[wide] = places.repeat_interleave(stored, 1)
        values = values.repeat(times, *(1,) * (values.ndim - 1))
    return make(indices, values, shape, is_coalesced(t) and wide == list(range(len(wide))))


def _common(a: Any, b: Any) -> Any:
    a, b = coalesce(a), coalesce(b)
    if parts(a)[0].shape[0] != parts(b)[0].shape[0]:
        raise RuntimeError(
            "mul: expected 'self' and 'other' to have same number of sparse dimensions, got "
            f"{parts(a)[0].shape[0]} and {parts(b)[0].shape[0]}"
        )
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
        kind = "Sparse floor division" if rounding_mode == "floor" else "Sparse division"
        raise RuntimeError(
            f"{kind} requires a scalar or zero-dim dense tensor divisor (got shape "
            f"{list(b.shape)} of layout {b.layout} for divisor)"
        )
    a = a if rounding_mode is None else _distinct(a)
    return _scaled(a, lambda values: tangrad.div(values, b, rounding_mode=rounding_mode))


def div_(a: Any, b: Any, rounding_mode: Any = None) -> Any:
    """Divide a sparse tensor by a number, in place."""
    return _overwrite(a, div(a, b, rounding_mode), "div_")


def floor_divide(a: Any, b: Any) -> Any:
    """Divide a sparse tensor by a number, and round down."""
    return div(a, b, "floor")


def floor_divide_(a: Any, b: Any) -> Any:
    """Divide a sparse tensor by a number in place, and round down."""
    return div_(a, b, "floor")


def zero_(t: Any) -> Any:
    """Remove all elements, in place."""
    return _overwrite(t, _emptied(t), "zero_")


def _empty_like(
    t: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Any:
    if memory_format is not None and layout is not tangrad.strided:
        raise RuntimeError(
            "memory format option is only supported by strided tensors, not by one of layout "
            f"{t.layout}; leave it out"
        )
    if layout not in (None, t.layout):
        dtype, device = dtype or t.dtype, device or t.device
        options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
        if layout is not tangrad.strided:  # dense dimensions stay dense
            made = _as_coo(_emptied(t, dtype))
            made = (made if layout is COO else from_coo(made, layout)).to(device)
            return made.requires_grad_() if requires_grad else made
        if memory_format is None:
            return tangrad.zeros(t.shape, **options)
        strided = tangrad.empty(t.shape, memory_format=memory_format, **options)
        return strided.detach().zero_().requires_grad_(requires_grad)
    made = _emptied(t, dtype)
    made = made if device is None else made.to(device)
    return made.requires_grad_() if requires_grad else made


def _emptied(t: Any, dtype: Any = None) -> Any:
    t = t.detach()
    if is_compressed(t):
        return without_elements(t).to(dtype or t.dtype)
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
    dims = sorted(place_of("sum", d, t.ndim) for d in _dims(dim))
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"sum: {dim} names a dimension that appears multiple times in the list")
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
        RuntimeError, ValueError: along dimensions, or with a dtype, which PyTorch refuses as well.
    """
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True")
    if dim is not None and len(_dims(dim)) not in (0, t.ndim):
        raise RuntimeError("norm_sparse currently only supports full reductions")
    if dtype is not None and p == "fro":
        raise ValueError("dtype argument is not supported in frobenius norm")
    if dtype is not None:
        raise RuntimeError("norm_sparse currently does not support 'dtype' argument")
    values = component(_distinct(t), "values")
    return tangrad.linalg.vector_norm(values, 2 if p in (None, "fro") else p, dtype=dtype)


RECORDED: dict[str, Callable[..., Any]] = {
    **{name: _on_values(name, True) for name in LINEAR},
    **{name: _on_values(name, False) for name in ZERO_TO_ZERO},
    "pow": _power,
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "floor_divide": floor_divide,
    "norm": norm,
    "permute": movement.permute,
    "transpose": movement.transpose,
    "t": movement.matrix_transpose,
    "select": movement.select,
    "unbind": movement.unbind,
    "slice": movement.slice_,
    "narrow": movement.narrow,
    "index_select": movement.index_select,
    "unsqueeze": movement.unsqueeze,
    "cat": movement.cat,
    "concat": movement.cat,
    "_conj": lambda t: _scaled(t, lambda values: values.conj().resolve_conj()),
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
    "sum": total,
    "add_": add_,
    "sub_": sub_,
    "mul_": mul_,
    "div_": div_,
    "floor_divide_": floor_divide_,
    "transpose_": movement.transpose_,
    "t_": movement.t_,
    "zero_": zero_,
    **{
        f"{name}_": _in_place_on_values(name)
        for name in ZERO_TO_ZERO
        if hasattr(tangrad.Tensor, f"{name}_")
    },
}

for _layout in ("sparse_coo", *LAYOUTS):
    for _name, _kernel in RECORDED.items():
        register_kernel(_name, _kernel, layout=_layout, records=True)
    for _name, _kernel in UNRECORDED.items():
        register_kernel(_name, _kernel, layout=_layout)
for _layout in LAYOUTS:
    register_kernel("ones_like", _ones_like, layout=_layout)
    register_kernel("fill_", _fill_, layout=_layout)
