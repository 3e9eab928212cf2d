"""Define the ops that read or write slices along one dimension, listed by a vector of indices."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, op, overload
from tangrad.ops.definition.signature import Dim, Tensor
from tangrad.ops.indexing.gather_scatter import (
    accumulate,
    assign,
    at_least_1d,
    scatter_add,
    scatter_src,
    vector_front,
)
from tangrad.ops.indexing.index import check_exact, check_range, require_integer_index
from tangrad.ops.views.geometry import Ints, batched_front
from tangrad.tensor.memory import suggested_format
from tangrad.tensor.overlapping import fill_indices
from tangrad.tensor.ranges import require_fit


def _check_vector_index(name: str, index: Any) -> None:
    if len(index.shape) > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, got shape {list(index.shape)}"
        )
    require_integer_index(name, index)


def _index_select_shape(self: Any, dim: int, index: Any) -> Ints:
    count = index.shape[0] if index.shape else 1
    if not self.shape and count != 1:
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {count}")
    return (*self.shape[:dim], count, *self.shape[dim + 1 :]) if self.shape else ()


def _index_select_reference(np: Any, self: Any, dim: int, index: Any) -> Any:
    source, index = at_least_1d(self), at_least_1d(index)
    check_exact(index, source.shape[dim], dim, "index_select", IndexError)
    picked = np.take(source, index, dim)
    return picked.reshape(()) if self.ndim == 0 else picked


def _index_select_batch(size: int, dims: Any, self: Any, dim: int, index: Any) -> Any:
    x = batched_front(self, dims[0], size)
    if dims[2] is None:
        if x.ndim == 1:
            return x, 0
        return x.index_select(dim + 1, index), 0
    places = batched_front(index, dims[2], size)
    places = places.unsqueeze(1) if places.ndim == 1 else places
    if x.ndim == 1:
        return x.unsqueeze(1).gather(1, places).squeeze(1), 0
    shape = [size] + [1] * (x.ndim - 1)
    shape[dim + 1] = places.shape[1]
    wide = list(x.shape)
    wide[dim + 1] = places.shape[1]
    return x.gather(dim + 1, places.reshape(shape).expand(wide)), 0


index_select = op(
    "index_select(Tensor self, dim dim, Tensor index) -> Tensor",
    c_implementation="index_select",
    strict_out_dtype=True,
    strict_out=True,
    check=lambda index: _check_vector_index("index_select", index),
    shape=_index_select_shape,
    reference=_index_select_reference,
    vjp={
        "self": lambda g, self_meta, dim, index: index_select_backward(
            g, self_meta.shape, dim, index
        )
    },
    linear=("self",),
    batch=_index_select_batch,
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 5)),
        s(s.tensor(3, 4), -1, s.integers(0, 4, 2)),
        s(s.tensor(3, 4, strided=True), 1, s.integers(0, 4, 3)),
        s(s.tensor(3), 0, s.integers(0, 3, 0)),
        s(s.tensor(3, 2), 0, s.integers(0, 3)),
    ],
    errors=lambda s: [
        (s(s.tensor(3), 0, s.integers(3, 4, 1)), (IndexError, RuntimeError), "out of bounds"),
        (s(s.tensor(3), 0, s.integers(0, 1, 1, 1)), IndexError, "vector"),
    ],
    doc="Take the listed indices of one dimension, in order, repeatedly if listed repeatedly.",
)


_SHAPES_DIFFER = (
    "{}(): source tensor shape must match self tensor shape, excluding the specified dimension. "
    "Got self.shape = {} source.shape = {}"
)


def check_index_write(name: str, self: Any, dim: int, index: Any, source: Any) -> None:
    _check_vector_index(name, index)
    if self.dtype != source.dtype:
        raise RuntimeError(
            f"{name}(): self ({self.dtype}) and source ({source.dtype}) must have the same "
            "scalar type"
        )
    count = index.shape[0] if index.shape else 1
    have = source.shape[dim] if source.shape else 1
    if count != have:
        # PyTorch's index_copy alone calls this an error of the index.
        error = IndexError if name == "index_copy" else RuntimeError
        raise error(
            f"{name}(): Number of indices ({count}) should be equal to source.size(dim): "
            f"({have}), for dim: {dim}"
        )
    # PyTorch's index_copy alone takes a number and a vector for each other.
    mixed = bool(len(self.shape)) != bool(len(source.shape))
    if mixed and name == "index_add":
        raise RuntimeError(_SHAPES_DIFFER.format(name, list(self.shape), list(source.shape)))
    if len(self.shape) and len(source.shape):
        ours = (*self.shape[:dim], *self.shape[dim + 1 :])
        theirs = (*source.shape[:dim], *source.shape[dim + 1 :])
        if tuple(ours) != tuple(theirs):
            raise RuntimeError(_SHAPES_DIFFER.format(name, list(self.shape), list(source.shape)))


def _index_write(name: str, write: Any) -> Any:
    def reference(np: Any, self: Any, dim: int, index: Any, source: Any) -> Any:
        out = np.array(self)
        flat, index = at_least_1d(out), at_least_1d(index)
        # PyTorch's index_add alone tells apart a vector and what has more dimensions.
        several = name == "index_add" and self.ndim > 1
        check_exact(index, flat.shape[dim], dim, name, RuntimeError if several else IndexError)
        write(np, flat, (slice(None),) * dim + (index,), source)
        return out

    return reference


def _write_batch(
    size: int, dims: Any, self: Any, dim: int, index: Any, source: Any, write: Any, scatter_op: Any
) -> Any:
    """Batch a write to listed indices; lists that differ between samples become a scatter."""
    scalar = self.ndim == (dims[0] is not None)
    x, y = vector_front(self, dims[0], size), vector_front(source, dims[3], size)
    if dims[2] is None:
        result = write(x, dim + 1, index, y)
    else:
        places = batched_front(index, dims[2], size).reshape((size, -1))
        shape = [size] + [1] * (x.ndim - 1)
        shape[dim + 1] = places.shape[1]
        result = scatter_op(x, dim + 1, places.reshape(shape).expand(y.shape), y)
    return (result.squeeze(1) if scalar else result), 0


def _element(alpha: Any, kind: str) -> Any:
    """Return alpha as PyTorch takes it for a kind of dtype: of integers its fraction is cut off."""
    if kind == "b":
        return bool(alpha)
    return int(alpha.real) if kind in "iu" else alpha


def _index_add_batch(
    size: int, dims: Any, self: Any, dim: int, index: Any, source: Any, alpha: Any
) -> Any:
    fractions = source.dtype.is_floating_point or source.dtype.is_complex
    kind = "b" if source.dtype == tangrad.bool else "f" if fractions else "i"
    alpha = _element(alpha, kind)
    source = source if alpha == 1 else source * alpha
    return _write_batch(size, dims, self, dim, index, source, index_add, scatter_add)


def _index_copy_batch(size: int, dims: Any, self: Any, dim: int, index: Any, source: Any) -> Any:
    return _write_batch(size, dims, self, dim, index, source, index_copy, scatter_src)


def _index_add_reference(np: Any, self: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    alpha = _element(alpha, source.dtype.kind)
    if source.dtype.kind in "iu":
        alpha = np.array(alpha).astype(source.dtype)  # one below zero wraps around
    scaled = source if alpha == 1 else (source * alpha).astype(source.dtype)
    return _index_write("index_add", accumulate)(np, self, dim, index, scaled)


def _check_index_add(self: Any, dim: int, index: Any, source: Any, alpha: Any) -> None:
    check_index_write("index_add", self, dim, index, source)
    require_fit(alpha, self.dtype, "index_add")


index_add = op(
    "index_add(Tensor self, dim dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
    strict_out_dtype=True,
    check=_check_index_add,
    shape=lambda self: self.shape,
    reference=_index_add_reference,
    vjp={
        "self": lambda g: g,
        "source": lambda g, dim, index, source_meta, alpha: (
            g.index_select(dim, index).reshape(source_meta.shape) * alpha
        ),
    },
    jvp=lambda self, self_t, dim, index, source, source_t, alpha: index_add(
        tangrad.zeros_like(self) if self_t is None else self_t,
        dim,
        index,
        tangrad.zeros_like(source) if source_t is None else source_t,
        alpha=alpha,
    ),
    batch=_index_add_batch,
    inplace=True,
    strict_out="in place",
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 5), s.tensor(5, 4)),
        s(s.tensor(3, 4), -1, s.integers(0, 4, 2), s.tensor(3, 2), alpha=2),
        s(s.tensor(3, 4, strided=True), 1, s.integers(0, 4, 2), s.tensor(3, 2)),
        s(s.tensor(3), 0, s.integers(0, 3, 0), s.tensor(0)),
    ],
    errors=lambda s: [
        (s(s.tensor(3), 0, s.integers(3, 4, 1), s.tensor(1)), (IndexError, RuntimeError), "out of"),
        (
            s(s.tensor(3), 0, s.integers(0, 1, 2), s.tensor(1)),
            (IndexError, RuntimeError),
            "Number of indices",
        ),
        (
            s(s.tensor(3, 2), 0, s.integers(0, 1, 1), s.tensor(1, 3)),
            RuntimeError,
            "must match self tensor shape",
        ),
    ],
    doc="Add alpha times source to the listed indices of one dimension.",
)

index_select_backward = op(
    "index_select_backward(Tensor g, int[] shape, int dim, Tensor index) -> Tensor",
    shape=lambda shape: shape,
    reference=lambda np, g, shape, dim, index: _index_add_reference(
        np, np.zeros(shape, g.dtype), dim, index, g, 1
    ),
    vjp={"g": lambda g, dim, index: g.index_select(dim, index)},
    linear=("g",),
    batch=lambda size, dims, g, shape, dim, index: _index_add_batch(
        size, (0, None, dims[3], dims[0]), g.new_zeros((size, *shape)), dim, index, g, 1
    ),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(5, 4), (3, 4), 0, s.integers(0, 3, 5)),
        s(s.tensor(3, 2), (3, 4), 1, s.integers(0, 4, 2)),
        s(s.tensor(0), (3,), 0, s.integers(0, 3, 0)),
        s(s.tensor(), (), 0, s.integers(0, 1)),
    ],
    oracle=lambda torch, g, shape, dim, index: torch.zeros(shape, dtype=g.dtype).index_add(
        dim, index, g
    ),
    doc="Add `g` to the listed indices of a tensor of zeros: the adjoint of `index_select`.",
)

index_copy = op(
    "index_copy(Tensor self, dim dim, Tensor index, Tensor source) -> Tensor",
    strict_out_dtype=True,
    check=lambda self, dim, index, source: check_index_write(
        "index_copy", self, dim, index, source
    ),
    shape=lambda self: self.shape,
    reference=_index_write("index_copy", assign),
    vjp={
        "self": lambda g, dim, index: g.index_fill(dim, index, 0),
        "source": lambda g, dim, index, source_meta: g.index_select(dim, index).reshape(
            source_meta.shape
        ),
    },
    jvp=lambda self, self_t, dim, index, source, source_t: index_copy(
        tangrad.zeros_like(self) if self_t is None else self_t,
        dim,
        index,
        tangrad.zeros_like(source) if source_t is None else source_t,
    ),
    batch=_index_copy_batch,
    inplace=True,
    strict_out="in place",
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(1, 2, 1), s.tensor(1, 4)),
        s(s.tensor(3, 4), -1, s.integers(2, 3, 1), s.tensor(3, 1)),
        s(s.tensor(3, 4, strided=True), 1, s.integers(0, 1, 1), s.tensor(3, 1)),
    ],
    errors=lambda s: [
        (s(s.tensor(3), 0, s.integers(3, 4, 1), s.tensor(1)), (IndexError, RuntimeError), "out of"),
        (
            s(s.tensor(3), 0, s.integers(0, 1, 2), s.tensor(1)),
            (IndexError, RuntimeError),
            "Number of indices",
        ),
    ],
    doc="Overwrite the listed indices of one dimension by source.",
)


def _index_fill_reference(np: Any, self: Any, dim: int, index: Any, value: Any) -> Any:
    out = np.array(self)
    flat, index = at_least_1d(out), at_least_1d(index)
    places = check_range(np, index, flat.shape[dim], dim, "index_fill")
    flat[(slice(None),) * dim + (places,)] = np.asarray(value).astype(self.dtype)
    return out


def _index_fill_batch(size: int, dims: Any, self: Any, dim: int, index: Any, value: Any) -> Any:
    x = batched_front(self, dims[0], size)
    scalar = x.ndim == 1
    x = x.unsqueeze(1) if scalar else x
    if dims[2] is None:
        result = x.index_fill(dim + 1, index, value)
    else:
        places = batched_front(index, dims[2], size).reshape((size, -1))
        shape = [size] + [1] * (x.ndim - 1)
        shape[dim + 1] = places.shape[1]
        wide = [*x.shape]
        wide[dim + 1] = places.shape[1]
        result = x.scatter(dim + 1, places.reshape(shape).expand(wide), value)
    return (result.squeeze(1) if scalar else result), 0


def _check_index_fill(self: Any, index: Any, value: Any) -> None:
    _check_vector_index("index_fill", index)
    if isinstance(value, complex) and not self.dtype.is_complex:
        raise RuntimeError(
            "index_fill_(): Converting complex Scalar to non-complex type is not supported: got "
            f"{value} for {self.dtype}; convert the tensor to a complex dtype first"
        )
    require_fit(value, self.dtype, "index_fill")


index_fill_scalar = op(
    "index_fill_scalar(Tensor self, dim dim, Tensor index, Scalar value) -> Tensor",
    check=_check_index_fill,
    shape=lambda self: self.shape,
    memory_format=lambda self: suggested_format(self),
    reference=_index_fill_reference,
    vjp={"self": lambda g, dim, index: g.index_fill(dim, index, 0)},
    jvp=lambda self_t, dim, index: self_t.index_fill(dim, index, 0),
    batch=_index_fill_batch,
    inplace=True,
    overlapping=fill_indices,
    strict_out="in place",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 2), 1),
        s(s.tensor(3, 4), -1, s.integers(0, 4, 2), 0),
        s(s.tensor(), 0, s.integers(0, 1), 1),
    ],
    oracle="index_fill",
    errors=lambda s: [
        (s(s.tensor(3), 0, s.integers(3, 4, 1), 1), (IndexError, RuntimeError), "out of"),
        (s(s.tensor(3), 0, s.integers(0, 3, 1), 1j), RuntimeError, "non-complex type"),
        (
            s(s.tensor(3, dtype="float32"), 0, s.integers(0, 3, 1), 1e300),
            RuntimeError,
            "without overflow",
        ),
    ],
    doc="Overwrite the listed indices of one dimension by a number.",
)


@composite(
    inplace=True,
    overlapping=fill_indices,
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(3, 4), 0, s.integers(0, 3, 2), s.tensor())],
    oracle="index_fill",
    errors=lambda s: [
        (
            s(s.tensor(3), 0, s.integers(0, 1, 1), s.tensor(1)),
            RuntimeError,
            "0-dimensional value tensor",
        )
    ],
)
def index_fill_tensor(self: Tensor, dim: Dim, index: Tensor, value: Tensor) -> Tensor:
    """Overwrite the listed indices of one dimension by a zero-dimensional tensor."""
    if value.ndim:
        raise RuntimeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    places = tangrad.zeros(
        (self.shape[dim] if self.ndim else 1,), dtype=tangrad.bool, device=self.device
    ).index_fill(0, index, True)
    shape = (-1,) + (1,) * (self.ndim - dim - 1) if self.ndim else ()
    return tangrad.where(places.reshape(shape), value.to(self.dtype), self)


index_fill = overload("index_fill", "index_fill_tensor", "index_fill_scalar")
