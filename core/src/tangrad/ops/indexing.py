"""Define the ops that read or write at places given by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad import ops
from tangrad.ops.define import composite, op, overload

Ints = tuple[int, ...]


def _front(x: Any, dim: int | None, size: int) -> Any:
    return x.expand((size, *x.shape)) if dim is None else x.movedim(dim, 0)


def _lanes(size: int, x: Any) -> Any:
    """Number the samples of a batch, shaped to broadcast over the dimensions of `x`."""
    return ops.arange(size, device=x.device).reshape((size,) + (1,) * (x.ndim - 1))


def _check_range(np: Any, index: Any, size: int, dim: int, name: str) -> Any:
    """Raise for an index that is out of range; give the indices counted from the front."""
    wrong = (index < -size) | (index >= size)
    if wrong.any():
        raise IndexError(
            f"{name}(): index {index[wrong].flat[0]} is out of bounds for dimension {dim} "
            f"with size {size}"
        )
    return np.where(index < 0, index + size, index)


def _check_exact(index: Any, size: int, dim: int, name: str, error: type[Exception]) -> None:
    """Raise for an index that is negative or too large."""
    wrong = (index < 0) | (index >= size)
    if wrong.any():
        raise error(
            f"{name}(): index {index[wrong].flat[0]} is out of bounds for dimension {dim} "
            f"with size {size}"
        )


def _require_integer_index(name: str, index: Any, names: tuple[str, ...] = ("int64", "int32")) -> None:
    if str(index.dtype).rpartition(".")[2] not in names:
        raise RuntimeError(
            f"{name}(): Expected dtype {' or '.join(names)} for index, got {index.dtype}"
        )


# Advanced indexing -----------------------------------------------------------------------------
#
# The indices arrive already broadcast to one shape; None stands for a whole dimension.


def _indexed_dims(indices: Sequence[Any]) -> list[int]:
    return [d for d, index in enumerate(indices) if index is not None]


def _adjacent(dims: list[int]) -> bool:
    return dims == list(range(dims[0], dims[-1] + 1))


def _index_shape(self: Any, indices: Sequence[Any]) -> Ints:
    dims = _indexed_dims(indices)
    picked = tuple(indices[dims[0]].shape)
    if not _adjacent(dims):
        rest = [n for d, n in enumerate(self.shape) if d not in dims]
        return (*picked, *rest)
    return (*self.shape[: dims[0]], *picked, *self.shape[dims[-1] + 1 :])


def _check_index(self: Any, indices: Sequence[Any]) -> None:
    if len(indices) > len(self.shape):
        raise IndexError(
            f"too many indices for tensor of dimension {len(self.shape)} (got {len(indices)})"
        )
    if not _indexed_dims(indices):
        raise RuntimeError("index: at least one index tensor is needed, got only None")


def _numpy_index(np: Any, shape: Ints, indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        slice(None) if index is None else _check_range(np, index, shape[d], d, "index")
        for d, index in enumerate(indices)
    )


def _batched_indices(size: int, dims: Any, indices: Sequence[Any]) -> list[Any]:
    """Move the batch dimension of the indices to the front; unbatched ones broadcast."""
    return [
        index if index is None else _front(index, dim, size)
        for index, dim in zip(indices, dims, strict=True)
    ]


def _index_batch(size: int, dims: Any, self: Any, indices: Sequence[Any]) -> Any:
    index_dims = dims[1] if dims[1] is not None else [None] * len(indices)
    if all(d is None for d in index_dims):
        return ops.index(_front(self, dims[0], size), [None, *indices]), 0 \
            if _adjacent(_indexed_dims(indices)) \
            else indices[_indexed_dims(indices)[0]].ndim
    moved = _batched_indices(size, index_dims, indices)
    used = _indexed_dims(indices)
    lanes = _lanes(size, moved[used[0]]).expand(moved[used[0]].shape)
    result = ops.index(_front(self, dims[0], size), [lanes, *moved])
    if not _adjacent(used) or used[0] == 0:
        return result, 0
    # The lanes are not next to the indices then, so the picked dimensions came to the front.
    picked = moved[used[0]].ndim - 1
    source = tuple(range(1, picked + 1))
    target = tuple(range(used[0] + 1, used[0] + 1 + picked))
    return result.movedim(source, target), 0


index = op(
    "index(Tensor self, any indices) -> Tensor",
    check=_check_index,
    shape=_index_shape,
    reference=lambda np, self, indices: self[_numpy_index(np, self.shape, indices)],
    vjp={
        "self": lambda g, self_meta, indices: ops.index_put(
            g.new_zeros(self_meta.shape), indices, g, True
        )
    },
    linear=("self",),
    batch=_index_batch,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), [s.integers(0, 3, 5)]),
        s(s.tensor(3, 4), [None, s.integers(-4, 4, 2, 2)]),
        s(s.tensor(3, 4, 2), [s.integers(0, 3, 2), None, s.integers(0, 2, 2)]),
        s(s.tensor(3, 4), [s.integers(0, 3, 0), s.integers(0, 3, 0)]),
        s(s.tensor(3, 4, strided=True), [s.integers(0, 3, 2)]),
    ],
    oracle=lambda torch, x, indices: x[tuple(slice(None) if i is None else i for i in indices)],
    errors=lambda s: [
        (s(s.tensor(3), [s.integers(3, 4, 1)]), IndexError, "out of bounds"),
        (s(s.tensor(3), [s.integers(0, 1, 1)] * 2), IndexError, "too many indices"),
    ],
    doc="""Read the elements at places given by index tensors, one per dimension or None.

    The indices have been broadcast to one shape. That shape stands in the result where the
    indexed dimensions were if they are adjacent, else in front.
    """,
)


def _put(np: Any, self: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    out = self.copy()
    places = _numpy_index(np, self.shape, indices)
    if not accumulate:
        out[places] = values
    elif out.dtype == bool:
        np.logical_or.at(out, places, values)
    else:
        np.add.at(out, places, values)
    return out


def _check_index_put(self: Any, indices: Sequence[Any], values: Any) -> None:
    _check_index(self, indices)
    if self.dtype != values.dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{self.dtype} for the destination and {values.dtype} for the source."
        )
    want = _index_shape(self, indices)
    have = tuple(values.shape)
    tail = want[len(want) - len(have) :] if len(have) <= len(want) else ()
    lead = have[: max(0, len(have) - len(want))]
    have = have[len(lead) :] if all(n == 1 for n in lead) else have
    tail = want[len(want) - len(have) :]
    if len(have) > len(want) or any(n not in (1, m) for n, m in zip(have, tail, strict=True)):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to "
            f"indexing result of shape {list(want)}"
        )


def _index_put_vjp_self(g: Any, indices: Sequence[Any], values_meta: Any, accumulate: bool) -> Any:
    if accumulate:
        return g
    return ops.index_put(g, indices, g.new_zeros(()), False)


def _index_put_vjp_values(g: Any, indices: Sequence[Any], values_meta: Any) -> Any:
    picked = ops.index(g, indices)
    extra = len(values_meta.shape) - picked.ndim
    shape = tuple(values_meta.shape)[max(0, extra) :]
    return picked.sum_to_size(shape).reshape(values_meta.shape)


def _index_put_batch(
    size: int, dims: Any, self: Any, indices: Sequence[Any], values: Any, accumulate: bool
) -> Any:
    index_dims = dims[1] if dims[1] is not None else [None] * len(indices)
    x = _front(self, dims[0], size)
    moved = _batched_indices(size, index_dims, indices)
    used = _indexed_dims(indices)
    picked = moved[used[0]].ndim - 1
    lanes = _lanes(size, moved[used[0]]).expand(moved[used[0]].shape)
    v = _front(values, dims[2], size)
    missing = picked + (x.ndim - 1 - len(used)) - (v.ndim - 1)
    v = v.reshape((size, *(1,) * missing, *tuple(v.shape)[1:]))
    if _adjacent(used) and used[0] > 0:
        v = v.movedim(
            tuple(range(used[0] + 1, used[0] + 1 + picked)), tuple(range(1, picked + 1))
        )
    return ops.index_put(x, [lanes, *moved], v, accumulate), 0


index_put = op(
    "index_put(Tensor self, any indices, Tensor values, bool accumulate=False) -> Tensor",
    check=_check_index_put,
    shape=lambda self: self.shape,
    reference=_put,
    vjp={"self": _index_put_vjp_self, "values": _index_put_vjp_values},
    jvp=lambda self, self_t, indices, values, values_t, accumulate: ops.index_put(
        ops.zeros_like(self) if self_t is None else self_t,
        indices,
        ops.zeros_like(values) if values_t is None else values_t,
        accumulate,
    ),
    batch=_index_put_batch,
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), [s.integers(0, 3, 5)], s.tensor(4), True),
        s(s.tensor(3, 4), (s.integers(0, 1, 1), s.integers(0, 4, 1)), s.tensor(1)),
        s(s.tensor(3, 4), (None, s.integers(2, 3, 1)), s.tensor(3, 1)),
        s(s.tensor(4, 2), (s.integers(0, 4, 3),), s.tensor(3, 2), True),
        s(s.tensor(3), (s.integers(0, 3, 2),), s.tensor(), True),
    ],
    errors=lambda s: [
        (s(s.tensor(3), (s.integers(3, 4, 1),), s.tensor(1)), IndexError, "out of bounds"),
        (s(s.tensor(3), (s.integers(0, 1, 2),), s.tensor(3)), RuntimeError, "shape mismatch"),
    ],
    doc="""Write values at places given by index tensors, one per dimension or None.

    Args:
        values: broadcast to the shape that reading these places gives.
        accumulate: add to what is there; a place named twice is then added to twice.
    """,
)


# One dimension ---------------------------------------------------------------------------------


def _check_gather(self: Any, dim: int, index: Any) -> None:
    _require_integer_index("gather", index)
    _check_index_fits("gather", self, dim, index)


def _check_index_fits(name: str, self: Any, dim: int, index: Any) -> None:
    ndim = max(1, len(self.shape))
    if max(1, len(index.shape)) != ndim:
        raise RuntimeError(
            f"{name}(): Index tensor must have the same number of dimensions as input tensor, "
            f"got index shape {list(index.shape)} and input shape {list(self.shape)}"
        )
    for d in range(len(index.shape)):
        if d != dim and len(self.shape) and index.shape[d] > self.shape[d]:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be "
                f"no larger than self {list(self.shape)} apart from dimension {dim} ({name})"
            )


def _at_least_1d(x: Any) -> Any:
    return x.reshape((1,)) if x.ndim == 0 else x


def _crop(x: Any, index: Any, dim: int) -> Any:
    """Cut a tensor down to the extent of the index in all dimensions but one."""
    return x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]


def _gather_reference(np: Any, self: Any, dim: int, index: Any) -> Any:
    shape, self, index = index.shape, _at_least_1d(self), _at_least_1d(index)
    _check_exact(index, self.shape[dim], dim, "gather", RuntimeError)
    if index.size == 0:
        return np.empty(shape, self.dtype)
    return np.take_along_axis(_crop(self, index, dim), index, dim).reshape(shape)


def _lane_batch(name: str, *tensor_names: str) -> Any:
    """Batch an op whose tensors all carry the dimension `dim` behind a leading batch dimension.

    Zero-dimensional samples become vectors of one element, as the op itself sees them.
    """

    def batch(size: int, dims: Any, self: Any, dim: int, *args: Any) -> Any:
        def moved(x: Any, bdim: int | None) -> Any:
            x = _front(x, bdim, size)
            return x.unsqueeze(1) if x.ndim == 1 else x

        scalar = self.ndim - (dims[0] is not None) == 0
        count = len(tensor_names)
        tensors = [moved(x, d) for x, d in zip(args[:count], dims[2:], strict=False)]
        flat_result = scalar
        if name == "gather":
            flat_result = args[0].ndim - (dims[2] is not None) == 0
        result = getattr(ops, name)(moved(self, dims[0]), dim + 1, *tensors, *args[count:])
        return (result.squeeze(1) if flat_result else result), 0

    return batch


gather = op(
    "gather(Tensor self, dim dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
    check=_check_gather,
    shape=lambda index: index.shape,
    dtype=lambda self: self.dtype,
    reference=_gather_reference,
    vjp={
        "self": lambda g, self_meta, dim, index: g.new_zeros(self_meta.shape).scatter_add(
            dim, index, g
        )
    },
    linear=("self",),
    batch=lambda size, dims, self, dim, index, sparse_grad: _lane_batch("gather", "index")(
        size, dims, self, dim, index
    ),
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 2, 4)),
        s(s.tensor(3, 4), -1, s.integers(0, 4, 3, 5)),
        s(s.tensor(3, 4, strided=True), 1, s.integers(0, 4, 2, 2)),
        s(s.tensor(), 0, s.integers(0, 1)),
        s(s.tensor(3), 0, s.integers(0, 3, 0)),
    ],
    errors=lambda s: [
        (s(s.tensor(3), 0, s.integers(3, 4, 1)), (RuntimeError, IndexError), "out of bounds"),
        (s(s.tensor(3, 2), 0, s.integers(0, 2, 2)), RuntimeError, "same number of dimensions"),
        (s(s.tensor(2, 2), 0, s.integers(0, 2, 2, 3)), RuntimeError, "Size does not match"),
        (s(s.tensor(3), 0, s.tensor(3, dtype="float32")), RuntimeError, "int64"),
    ],
    doc=r"""Read along one dimension: out[i][j] = self[index[i][j]][j] for dim 0.

    Args:
        index: integers of any extent along `dim`, and no larger than `self` elsewhere.
    """,
)


def _check_scatter(self: Any, dim: int, index: Any, src: Any) -> None:
    _require_integer_index("scatter", index)
    if any(n == 0 for n in index.shape):
        return
    _check_index_fits("scatter", self, dim, index)
    if max(1, len(src.shape)) != max(1, len(index.shape)):
        raise RuntimeError(
            "scatter(): Index tensor must have the same number of dimensions as src tensor, got "
            f"{list(index.shape)} and {list(src.shape)}"
        )
    if len(src.shape) and any(n > m for n, m in zip(index.shape, src.shape, strict=False)):
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(self.shape)} "
            f"apart from dimension {dim} and to be no larger size than src {list(src.shape)}"
        )
    if self.dtype != src.dtype:
        raise RuntimeError(
            "scatter(): Expected self.dtype to be equal to src.dtype, "
            f"got {self.dtype} and {src.dtype}"
        )


def _scatter_places(np: Any, self: Any, dim: int, index: Any) -> tuple[Any, ...]:
    _check_exact(index, self.shape[dim], dim, "scatter", RuntimeError)
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[dim] = index
    return tuple(grid)


def _scatter_with(write: Any) -> Any:
    def reference(np: Any, self: Any, dim: int, index: Any, src: Any) -> Any:
        out = self.copy()
        if index.size == 0:
            return out
        flat, index, src = _at_least_1d(out), _at_least_1d(index), _at_least_1d(src)
        part = src[tuple(slice(n) for n in index.shape)]
        write(np, flat, _scatter_places(np, flat, dim, index), part)
        return out

    return reference


def _assign(np: Any, out: Any, places: Any, values: Any) -> None:
    out[places] = values


def _accumulate(np: Any, out: Any, places: Any, values: Any) -> None:
    (np.logical_or if out.dtype == bool else np.add).at(out, places, values)


def _index_extent(x: Any, index: Any) -> Any:
    """View the part of a tensor that an index covers."""
    for d, n in enumerate(index.shape):
        if x.ndim and n != x.shape[d]:
            x = ops.slice(x, d, 0, n, 1)
    return x


def _scattered_grad(g: Any, index: Any, dim: int, src_meta: Any) -> Any:
    """Read the cotangent where src was written; what lies outside of the index gets zero."""
    picked = g.gather(dim, index)
    grown = [
        n
        for have, full in zip(reversed(index.shape), reversed(src_meta.shape), strict=False)
        for n in (0, full - have)
    ]
    if not any(grown):
        return picked.reshape(src_meta.shape)
    return ops.constant_pad_nd(picked, tuple(grown), 0)


_scatter_samples = lambda s: [  # noqa: E731 - one table for two ops
    s(s.tensor(3, 4), 0, s.integers(0, 3, 1, 4), s.tensor(2, 4)),
    s(s.tensor(3, 4), -1, s.integers(1, 2, 3, 1), s.tensor(3, 1)),
    s(s.tensor(3, 4, strided=True), 1, s.integers(2, 3, 2, 1), s.tensor(2, 3)),
    s(s.tensor(), 0, s.integers(0, 1), s.tensor()),
    s(s.tensor(3), 0, s.integers(0, 3, 0), s.tensor(2)),
]

scatter_src = op(
    "scatter_src(Tensor self, dim dim, Tensor index, Tensor src) -> Tensor",
    check=_check_scatter,
    shape=lambda self: self.shape,
    reference=_scatter_with(_assign),
    vjp={
        "self": lambda g, dim, index: g.scatter(dim, index, 0),
        "src": lambda g, dim, index, src_meta: _scattered_grad(g, index, dim, src_meta),
    },
    jvp=lambda self, self_t, dim, index, src, src_t: ops.scatter_src(
        ops.zeros_like(self) if self_t is None else self_t,
        dim,
        index,
        ops.zeros_like(src) if src_t is None else src_t,
    ),
    batch=_lane_batch("scatter_src", "index", "src"),
    inplace=True,
    function=False,
    method=False,
    samples=_scatter_samples,
    oracle="scatter",
    errors=lambda s: [
        (
            s(s.tensor(3), 0, s.integers(3, 4, 1), s.tensor(1)),
            (RuntimeError, IndexError),
            "out of bounds",
        ),
        (s(s.tensor(3), 0, s.integers(0, 1, 2), s.tensor(1)), RuntimeError, "no larger"),
    ],
    doc="""Write src along one dimension: self[index[i][j]][j] = src[i][j] for dim 0.

    A place named more than once keeps one of the values; the derivative is then not defined.
    """,
)


def _check_scatter_value(self: Any, dim: int, index: Any) -> None:
    _require_integer_index("scatter", index)
    if not any(n == 0 for n in index.shape):
        _check_index_fits("scatter", self, dim, index)


def _scatter_value_reference(np: Any, self: Any, dim: int, index: Any, value: Any) -> Any:
    return _scatter_with(_assign)(
        np, self, dim, index, np.full(index.shape or (1,), value).astype(self.dtype)
    )


scatter_value = op(
    "scatter_value(Tensor self, dim dim, Tensor index, Scalar value) -> Tensor",
    check=_check_scatter_value,
    shape=lambda self: self.shape,
    reference=_scatter_value_reference,
    vjp={"self": lambda g, dim, index: g.scatter(dim, index, 0)},
    jvp=lambda self_t, dim, index: self_t.scatter(dim, index, 0),
    batch=_lane_batch("scatter_value", "index"),
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 2, 4), 1),
        s(s.tensor(3, 4), -1, s.integers(0, 4, 3, 1), 0),
        s(s.tensor(), 0, s.integers(0, 1), 2),
    ],
    oracle="scatter",
    errors=lambda s: [
        (s(s.tensor(3), 0, s.integers(3, 4, 1), 1), (RuntimeError, IndexError), "out of bounds")
    ],
    doc="Write one value along one dimension: self[index[i][j]][j] = value for dim 0.",
)

_SCATTER_REDUCE = {
    "add": lambda np, out, places, values: np.add.at(out, places, values),
    "multiply": lambda np, out, places, values: np.multiply.at(out, places, values),
}


def _check_scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str) -> None:
    if reduce not in _SCATTER_REDUCE:
        raise RuntimeError(f"reduce argument must be either add or multiply, got {reduce!r}")
    _check_scatter(self, dim, index, src)


scatter_with_reduce = op(
    "scatter_with_reduce(Tensor self, dim dim, Tensor index, Tensor src, *, str reduce) -> Tensor",
    check=_check_scatter_reduce,
    shape=lambda self: self.shape,
    reference=lambda np, self, dim, index, src, reduce: _scatter_with(_SCATTER_REDUCE[reduce])(
        np, self, dim, index, src
    ),
    vjp="none: torch defines no derivative of scatter with reduce; use scatter_add",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 2, 4), s.tensor(2, 4), reduce="add"),
        s(s.tensor(3, 4), 1, s.integers(0, 4, 3, 2), s.tensor(3, 2), reduce="multiply"),
    ],
    oracle="scatter",
    errors=lambda s: [
        (
            s(s.tensor(3), 0, s.integers(0, 1, 1), s.tensor(1), reduce="min"),
            RuntimeError,
            "add or multiply",
        )
    ],
    doc="Add or multiply src into places along one dimension.",
)

scatter = overload("scatter", "scatter_src", "scatter_value", "scatter_with_reduce")

scatter_add = op(
    "scatter_add(Tensor self, dim dim, Tensor index, Tensor src) -> Tensor",
    check=_check_scatter,
    shape=lambda self: self.shape,
    reference=_scatter_with(_accumulate),
    vjp={
        "self": lambda g: g,
        "src": lambda g, dim, index, src_meta: _scattered_grad(g, index, dim, src_meta),
    },
    jvp=lambda self, self_t, dim, index, src, src_t: ops.scatter_add(
        ops.zeros_like(self) if self_t is None else self_t,
        dim,
        index,
        ops.zeros_like(src) if src_t is None else src_t,
    ),
    batch=_lane_batch("scatter_add", "index", "src"),
    inplace=True,
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 5, 4), s.tensor(5, 4)),
        *_scatter_samples(s),
    ],
    errors=lambda s: [
        (
            s(s.tensor(3), 0, s.integers(3, 4, 1), s.tensor(1)),
            (RuntimeError, IndexError),
            "out of bounds",
        ),
    ],
    doc="Add src along one dimension: self[index[i][j]][j] += src[i][j] for dim 0.",
)


def _check_vector_index(name: str, index: Any) -> None:
    _require_integer_index(name, index)
    if len(index.shape) > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, got shape {list(index.shape)}"
        )


def _index_select_shape(self: Any, dim: int, index: Any) -> Ints:
    if not self.shape:
        return ()
    count = index.shape[0] if index.shape else 1
    return (*self.shape[:dim], count, *self.shape[dim + 1 :])


def _index_select_reference(np: Any, self: Any, dim: int, index: Any) -> Any:
    source, index = _at_least_1d(self), _at_least_1d(index)
    _check_exact(index, source.shape[dim], dim, "index_select", IndexError)
    return np.take(source, index, dim).reshape(self.shape if self.ndim == 0 else (-1,)) \
        if self.ndim == 0 else np.take(source, index, dim)


def _index_select_batch(size: int, dims: Any, self: Any, dim: int, index: Any) -> Any:
    x = _front(self, dims[0], size)
    if dims[2] is None:
        if x.ndim == 1:
            return x, 0
        return x.index_select(dim + 1, index), 0
    places = _front(index, dims[2], size)
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
    check=lambda index: _check_vector_index("index_select", index),
    shape=_index_select_shape,
    reference=_index_select_reference,
    vjp={
        "self": lambda g, self_meta, dim, index: g.new_zeros(self_meta.shape).index_add(
            dim, index, g
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


def _check_index_write(name: str, self: Any, dim: int, index: Any, source: Any) -> None:
    _check_vector_index(name, index)
    if self.dtype != source.dtype:
        raise RuntimeError(
            f"{name}(): self ({self.dtype}) and source ({source.dtype}) must have the same "
            "scalar type"
        )
    count = index.shape[0] if index.shape else 1
    have = source.shape[dim] if source.shape else 1
    if count != have:
        raise IndexError(
            f"{name}(): Number of indices ({count}) should be equal to source.size(dim): "
            f"({have}), for dim: {dim}"
        )
    if len(self.shape) and len(source.shape):
        ours = (*self.shape[:dim], *self.shape[dim + 1 :])
        theirs = (*source.shape[:dim], *source.shape[dim + 1 :])
        if tuple(ours) != tuple(theirs):
            raise RuntimeError(
                f"{name}(): source tensor shape must match self tensor shape, excluding the "
                f"specified dimension. Got self.shape = {list(self.shape)} source.shape = "
                f"{list(source.shape)}"
            )


def _index_write(name: str, write: Any) -> Any:
    def reference(np: Any, self: Any, dim: int, index: Any, source: Any) -> Any:
        out = self.copy()
        flat, index = _at_least_1d(out), _at_least_1d(index)
        _check_exact(index, flat.shape[dim], dim, name, IndexError)
        write(np, flat, (slice(None),) * dim + (index,), source)
        return out

    return reference


def _index_write_batch(name: str) -> Any:
    """Batch index_add and index_copy through their scatter form when the index is batched."""

    def batch(
        size: int, dims: Any, self: Any, dim: int, index: Any, source: Any, **rest: Any
    ) -> Any:
        x, y = _front(self, dims[0], size), _front(source, dims[3], size)
        scalar = x.ndim == 1
        x = x.unsqueeze(1) if scalar else x
        y = y.unsqueeze(1) if y.ndim == 1 else y
        if dims[2] is None:
            result = getattr(ops, name)(x, dim + 1, index, y, **rest)
            return (result.squeeze(1) if scalar else result), 0
        places = _front(index, dims[2], size).reshape((size, -1))
        shape = [size] + [1] * (x.ndim - 1)
        shape[dim + 1] = places.shape[1]
        wide = places.reshape(shape).expand(y.shape)
        y = y * rest["alpha"] if "alpha" in rest else y
        scattered = "scatter_add" if name == "index_add" else "scatter_src"
        result = getattr(ops, scattered)(x, dim + 1, wide, y)
        return (result.squeeze(1) if scalar else result), 0

    return batch


_index_add_batch = _index_write_batch("index_add")


def _index_add_reference(
    np: Any, self: Any, dim: int, index: Any, source: Any, alpha: Any
) -> Any:
    scaled = source if alpha == 1 else (source * alpha).astype(source.dtype)
    return _index_write("index_add", _accumulate)(np, self, dim, index, scaled)


index_add = op(
    "index_add(Tensor self, dim dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
    check=lambda self, dim, index, source: _check_index_write(
        "index_add", self, dim, index, source
    ),
    shape=lambda self: self.shape,
    reference=_index_add_reference,
    vjp={
        "self": lambda g: g,
        "source": lambda g, dim, index, source_meta, alpha: (
            g.index_select(dim, index).reshape(source_meta.shape) * alpha
        ),
    },
    jvp=lambda self, self_t, dim, index, source, source_t, alpha: ops.index_add(
        ops.zeros_like(self) if self_t is None else self_t,
        dim,
        index,
        ops.zeros_like(source) if source_t is None else source_t,
        alpha=alpha,
    ),
    batch=lambda size, dims, self, dim, index, source, alpha: _index_add_batch(
        size, dims, self, dim, index, source, alpha=alpha
    ),
    inplace=True,
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

index_copy = op(
    "index_copy(Tensor self, dim dim, Tensor index, Tensor source) -> Tensor",
    check=lambda self, dim, index, source: _check_index_write(
        "index_copy", self, dim, index, source
    ),
    shape=lambda self: self.shape,
    reference=_index_write("index_copy", _assign),
    vjp={
        "self": lambda g, dim, index: g.index_fill(dim, index, 0),
        "source": lambda g, dim, index, source_meta: g.index_select(dim, index).reshape(
            source_meta.shape
        ),
    },
    jvp=lambda self, self_t, dim, index, source, source_t: ops.index_copy(
        ops.zeros_like(self) if self_t is None else self_t,
        dim,
        index,
        ops.zeros_like(source) if source_t is None else source_t,
    ),
    batch=_index_write_batch("index_copy"),
    inplace=True,
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
    out = self.copy()
    flat, index = _at_least_1d(out), _at_least_1d(index)
    places = _check_range(np, index, flat.shape[dim], dim, "index_fill")
    flat[(slice(None),) * dim + (places,)] = value
    return out


def _index_fill_batch(size: int, dims: Any, self: Any, dim: int, index: Any, value: Any) -> Any:
    x = _front(self, dims[0], size)
    scalar = x.ndim == 1
    x = x.unsqueeze(1) if scalar else x
    if dims[2] is None:
        result = x.index_fill(dim + 1, index, value)
    else:
        places = _front(index, dims[2], size).reshape((size, -1))
        shape = [size] + [1] * (x.ndim - 1)
        shape[dim + 1] = places.shape[1]
        wide = [*x.shape]
        wide[dim + 1] = places.shape[1]
        result = x.scatter(dim + 1, places.reshape(shape).expand(wide), value)
    return (result.squeeze(1) if scalar else result), 0


index_fill_scalar = op(
    "index_fill_scalar(Tensor self, dim dim, Tensor index, Scalar value) -> Tensor",
    check=lambda index: _check_vector_index("index_fill", index),
    shape=lambda self: self.shape,
    reference=_index_fill_reference,
    vjp={"self": lambda g, dim, index: g.index_fill(dim, index, 0)},
    jvp=lambda self_t, dim, index: self_t.index_fill(dim, index, 0),
    batch=_index_fill_batch,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 2), 1),
        s(s.tensor(3, 4), -1, s.integers(0, 4, 2), 0),
        s(s.tensor(), 0, s.integers(0, 1), 1),
    ],
    oracle="index_fill",
    errors=lambda s: [
        (s(s.tensor(3), 0, s.integers(3, 4, 1), 1), (IndexError, RuntimeError), "out of")
    ],
    doc="Overwrite the listed indices of one dimension by a number.",
)


@composite(
    "index_fill_tensor(Tensor self, dim dim, Tensor index, Tensor value) -> Tensor",
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
def index_fill_tensor(self: Any, dim: int, index: Any, value: Any) -> Any:
    """Overwrite the listed indices of one dimension by a zero-dimensional tensor."""
    if value.ndim:
        raise RuntimeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    places = ops.zeros(
        (self.shape[dim] if self.ndim else 1,), dtype=ops.bool, device=self.device
    ).index_fill(0, index, True)
    shape = (-1,) + (1,) * (self.ndim - dim - 1) if self.ndim else ()
    return ops.where(places.reshape(shape), value.to(self.dtype), self)


index_fill = overload("index_fill", "index_fill_scalar", "index_fill_tensor")


# Masks and flat positions ----------------------------------------------------------------------


def _require_mask(name: str, mask: Any) -> None:
    if str(mask.dtype).rpartition(".")[2] != "bool":
        raise RuntimeError(f"{name}: expected BoolTensor for mask, got {mask.dtype}")


def _masked_select_vjp(g: Any, self_meta: Any, mask: Any) -> Any:
    shape = ops.broadcast_shapes(self_meta.shape, mask.shape)
    return g.new_zeros(shape).masked_scatter(mask, g).sum_to_size(self_meta.shape)


masked_select = op(
    "masked_select(Tensor self, Tensor mask) -> Tensor",
    check=lambda mask: _require_mask("masked_select", mask),
    shape=None,
    shape_depends_on_data=True,
    dtype=lambda self: self.dtype,
    reference=lambda np, self, mask: np.broadcast_arrays(self, mask)[0][
        np.broadcast_arrays(self, mask)[1]
    ],
    vjp={"self": _masked_select_vjp},
    linear=("self",),
    batch=None,
    samples=lambda s: [
        s(s.tensor(2, 3), s.mask(2, 3)),
        s(s.tensor(2, 3), s.mask(3)),
        s(s.tensor(3), s.mask(2, 1)),
        s(s.tensor(), s.mask()),
    ],
    errors=lambda s: [
        (s(s.tensor(2), s.integers(0, 2, 2)), RuntimeError, "BoolTensor"),
        (s(s.tensor(2), s.mask(3)), (RuntimeError, ValueError), "must match|broadcast"),
    ],
    doc="List the elements where a mask, broadcast together with `self`, is true.",
)


def _check_masked_scatter(self: Any, mask: Any, source: Any) -> None:
    _require_mask("masked_scatter", mask)
    if self.dtype != source.dtype:
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{self.dtype} and {source.dtype}"
        )


def _masked_scatter_reference(np: Any, self: Any, mask: Any, source: Any) -> Any:
    shape = np.broadcast_shapes(self.shape, mask.shape)
    out = np.broadcast_to(self, shape).copy()
    chosen = np.broadcast_to(mask, shape)
    count = int(chosen.sum())
    if count > source.size:
        raise RuntimeError(
            "masked_scatter: expected number of elements in source to be at least the number of "
            f"ones in mask, got {source.size} elements for {count} ones"
        )
    out[chosen] = source.reshape(-1)[:count]
    return out


def _masked_scatter_source_vjp(g: Any, mask: Any, source_meta: Any) -> Any:
    picked = g.masked_select(mask)
    missing = 1
    for n in source_meta.shape:
        missing = missing * n
    missing = missing - picked.shape[0]
    padded = ops.constant_pad_nd(picked, (0, missing), 0) if missing else picked
    return padded.reshape(source_meta.shape)


masked_scatter = op(
    "masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
    check=_check_masked_scatter,
    shape=lambda self, mask: ops.broadcast_shapes(self.shape, mask.shape),
    reference=_masked_scatter_reference,
    vjp={
        "self": lambda g, self_meta, mask: g.masked_fill(mask, 0).sum_to_size(self_meta.shape),
        "source": _masked_scatter_source_vjp,
    },
    jvp=lambda self, self_t, mask, source, source_t: ops.masked_scatter(
        ops.zeros_like(self) if self_t is None else self_t,
        mask,
        ops.zeros_like(source) if source_t is None else source_t,
    ),
    batch=None,
    inplace=True,
    samples=lambda s: [
        s(s.tensor(2, 3), s.mask(2, 3), s.tensor(6)),
        s(s.tensor(2, 3), s.mask(3), s.tensor(3, 4)),
        s(s.tensor(2, 3, strided=True), s.mask(2, 3), s.tensor(2, 3)),
    ],
    errors=lambda s: [
        (s(s.tensor(2), s.integers(0, 2, 2), s.tensor(2)), RuntimeError, "BoolTensor")
    ],
    doc="Overwrite the elements where a mask is true by those of `source`, in order.",
)

nonzero_table = op(
    "nonzero_table(Tensor self) -> Tensor",
    shape=None,
    shape_depends_on_data=True,
    dtype="int64",
    reference=lambda np, self: np.argwhere(self),
    vjp="none: integer output",
    batch=None,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.mask(2, 3)),
        s(s.integers(0, 2, 3)),
        s(s.mask()),
        s(s.tensor(0, 2)),
        s(s.integers(0, 2, 2, 3, strided=True)),
    ],
    oracle="nonzero",
    doc="List the places of the elements that are not zero, one row per element.",
)


@composite(
    "nonzero(Tensor input, *, bool as_tuple=False) -> Tensor",
    samples=lambda s: [s(s.mask(2, 3)), s(s.mask(2, 3), as_tuple=True), s(s.integers(0, 2, 3))],
)
def nonzero(input: Any, as_tuple: bool) -> Any:
    """List the places of the elements that are not zero.

    Args:
        as_tuple: give one index vector per dimension, ready for indexing, instead of rows.
    """
    if not as_tuple:
        return nonzero_table(input)
    table = nonzero_table(input.reshape((1,)) if input.ndim == 0 else input)
    return table.unbind(1)


@composite(
    "argwhere(Tensor self) -> Tensor",
    samples=lambda s: [s(s.mask(2, 3)), s(s.tensor(3))],
)
def argwhere(self: Any) -> Any:
    """List the places of the elements that are not zero, one row per element."""
    return nonzero_table(self)


@composite(
    "take(Tensor self, Tensor index) -> Tensor",
    samples=lambda s: [
        s(s.tensor(2, 3), s.integers(-6, 6, 2, 2)),
        s(s.tensor(2, 3, strided=True), s.integers(0, 6, 3)),
        s(s.tensor(), s.integers(0, 1)),
        s(s.tensor(3), s.integers(0, 3, 0)),
    ],
    errors=lambda s: [
        (s(s.tensor(3), s.integers(3, 4, 1)), (IndexError, RuntimeError), "out of"),
        (s(s.tensor(3), s.tensor(1, dtype="float32")), (RuntimeError, IndexError), "int64|dtype"),
    ],
)
def take(self: Any, index: Any) -> Any:
    """Read the flattened tensor at flat positions; the result has the shape of `index`."""
    _require_integer_index("take", index, ("int64",))
    return ops.index(self.reshape((-1,)), [index])


@composite(
    "take_along_dim(Tensor self, Tensor indices, dim? dim=None) -> Tensor",
    samples=lambda s: [
        s(s.tensor(2, 3), s.integers(0, 3, 2, 3), 1),
        s(s.tensor(2, 3), s.integers(0, 2, 1, 3), 0),
        s(s.tensor(2, 3), s.integers(0, 6, 4)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.integers(0, 2, 2), 1), RuntimeError, "same number of dimensions"),
    ],
)
def take_along_dim(self: Any, indices: Any, dim: int | None) -> Any:
    """Read along one dimension, broadcasting the others; without `dim`, read flat positions."""
    if dim is None:
        return self.reshape((-1,)).gather(0, indices.reshape((-1,)))
    if self.ndim != indices.ndim:
        raise RuntimeError(
            "take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {self.ndim} dimensions for input, and {indices.ndim} for indices"
        )
    ours, theirs = list(self.shape), list(indices.shape)
    kept = ours[dim], theirs[dim]
    ours[dim] = theirs[dim] = 1
    shape = list(ops.broadcast_shapes(ours, theirs))
    wide, places = list(shape), list(shape)
    wide[dim], places[dim] = kept
    return self.expand(wide).gather(dim, indices.expand(places))


# Tables ----------------------------------------------------------------------------------------


@composite(
    "embedding(Tensor input, Tensor weight, int? padding_idx=None, float? max_norm=None,"
    " float norm_type=2.0, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
    namespace="nn",
    samples=lambda s: [
        s(s.integers(0, 4, 3), s.tensor(4, 2)),
        s(s.integers(0, 4, 2, 3), s.tensor(4, 2), padding_idx=1),
        s(s.integers(0, 4), s.tensor(4, 2)),
        s(s.integers(0, 4, 5), s.tensor(4, 2), -1),
    ],
    oracle="nn.functional.embedding",
    errors=lambda s: [
        (s(s.integers(4, 5, 1), s.tensor(4, 2)), IndexError, "out of"),
        (s(s.integers(0, 1, 1), s.tensor(4)), RuntimeError, "'weight' must be 2-D"),
        (s(s.integers(0, 1, 1), s.tensor(4, 2), 9), (AssertionError, RuntimeError), "adding_idx"),
    ],
)
def embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Any:
    """Look up rows of a table.

    Args:
        input: row numbers, of any shape.
        weight: the table (rows, features).
        padding_idx: a row whose gradient is zero.

    Raises:
        NotImplementedError: for max_norm, scale_grad_by_freq and sparse.
    """
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {list(weight.shape)}")
    for name, value in (("max_norm", max_norm), ("scale_grad_by_freq", scale_grad_by_freq)):
        if value:
            raise NotImplementedError(f"embedding: {name} is not supported, got {value}")
    if sparse:
        raise NotImplementedError("embedding: sparse gradients are not supported")
    rows = weight.shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise AssertionError(f"padding_idx must be within num_embeddings, got {padding_idx}")
        padding_idx = padding_idx + rows if padding_idx < 0 else padding_idx
    _require_integer_index("embedding", input)
    found = weight.index_select(0, input.reshape((-1,)))
    found = found.reshape((*input.shape, weight.shape[1]))
    if padding_idx is None or not weight.requires_grad:
        return found
    return ops.where((input == padding_idx).unsqueeze(-1), found.detach(), found)


@composite(
    "one_hot(Tensor self, int num_classes=-1) -> Tensor",
    namespace="nn",
    samples=lambda s: [
        s(s.integers(0, 3, 4), 3),
        s(s.integers(0, 3, 2, 2), 5),
        s(s.integers(2, 3, 2)),
        s(s.integers(0, 3), 3),
    ],
    oracle="nn.functional.one_hot",
    errors=lambda s: [
        (s(s.integers(3, 4, 1), 2), RuntimeError, "smaller than num_classes"),
        (s(s.integers(-2, -1, 1), 2), RuntimeError, "non-negative"),
        (s(s.tensor(2, dtype="float32"), 2), RuntimeError, "int64|index tensor"),
    ],
)
def one_hot(self: Any, num_classes: int) -> Any:
    """Write class numbers as vectors that are one at the class and zero elsewhere.

    Args:
        num_classes: the length of the vectors; -1 takes one more than the largest class.
    """
    if str(self.dtype).rpartition(".")[2] != "int64":
        raise RuntimeError(
            f"one_hot is only applicable to index tensor of type int64, got {self.dtype}"
        )
    if self.numel() == 0 and num_classes <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if self.numel() and num_classes == -1:
        num_classes = int(self.max()) + 1
    if num_classes < 1:
        raise RuntimeError(f"num_classes should be positive, got {num_classes}")
    if self.numel() and int(self.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    if self.numel() and int(self.max()) >= num_classes:
        raise RuntimeError(f"Class values must be smaller than num_classes ({num_classes}).")
    classes = ops.arange(num_classes, device=self.device)
    return (self.unsqueeze(-1) == classes).to(ops.int64)


def _check_bincount(self: Any, weights: Any, minlength: int) -> None:
    if len(self.shape) != 1:
        raise RuntimeError(
            f"bincount only supports 1-d non-negative integral inputs, got {list(self.shape)}"
        )
    if self.dtype.is_floating_point or self.dtype.is_complex:
        raise RuntimeError(f'"bincount" not implemented for {self.dtype}')
    if minlength < 0:
        raise RuntimeError(f"minlength should be >= 0, got {minlength}")
    if weights is not None and tuple(weights.shape) != tuple(self.shape):
        raise RuntimeError(
            "weights should be 1-d and have the same length as input, got "
            f"{list(weights.shape)} for {list(self.shape)}"
        )


def _bincount_dtype(weights: Any) -> str:
    if weights is None:
        return "int64"
    return "float32" if str(weights.dtype).endswith(".float32") else "float64"


def _bincount_reference(np: Any, self: Any, weights: Any, minlength: int) -> Any:
    if self.size and self.min() < 0:
        raise RuntimeError(
            "bincount only supports 1-d non-negative integral inputs, "
            f"got the value {self.min()}"
        )
    return np.bincount(self.astype(np.int64), weights, minlength)


bincount = op(
    "bincount(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor",
    check=_check_bincount,
    shape=None,
    shape_depends_on_data=True,
    dtype=_bincount_dtype,
    reference=_bincount_reference,
    vjp="none: torch defines no derivative of bincount",
    batch=None,
    samples=lambda s: [
        s(s.integers(0, 4, 6)),
        s(s.integers(0, 4, 6), minlength=8),
        s(s.integers(0, 4, 3), s.tensor(3, dtype="float32")),
        s(s.integers(0, 4, 0)),
    ],
    errors=lambda s: [
        (s(s.integers(-2, -1, 3)), RuntimeError, "non-negative"),
        (s(s.integers(0, 1, 2, 2)), RuntimeError, "1-d"),
        (s(s.integers(0, 1, 2), None, -1), RuntimeError, "minlength"),
    ],
    doc="""Count how often each number occurs in a vector of non-negative integers.

    Args:
        weights: what an occurrence counts, instead of one.
        minlength: the least length of the result.
    """,
)
