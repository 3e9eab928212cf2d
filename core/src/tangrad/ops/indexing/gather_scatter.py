"""Define the ops that read or write elements along one dimension, each at a place of its own."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, op, overload
from tangrad.ops.definition.signature import Dim, Scalar, Tensor
from tangrad.ops.indexing.index import check_exact, require_integer_index
from tangrad.ops.views.geometry import batched_front
from tangrad.tensor.ranges import require_fit


def _check_gather(self: Any, dim: int, index: Any) -> None:
    if any(n == 0 for n in index.shape):
        return
    require_integer_index("gather", index)
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


def at_least_1d(x: Any) -> Any:
    """Return a number as a vector of one, all else as it is."""
    return x.reshape((1,)) if x.ndim == 0 else x


def _crop(x: Any, index: Any, dim: int) -> Any:
    """Cut a tensor down to the extent of the index in all dimensions but one."""
    return x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]


def _gather_reference(np: Any, self: Any, dim: int, index: Any) -> Any:
    shape, self, index = index.shape, at_least_1d(self), at_least_1d(index)
    check_exact(index, self.shape[dim], dim, "gather", RuntimeError)
    if index.size == 0:
        return np.empty(shape, self.dtype)
    return np.take_along_axis(_crop(self, index, dim), index, dim).reshape(shape)


def vector_front(x: Any, dim: int | None, size: int) -> Any:
    """Move the batch dimension to the front; a zero-dimensional sample becomes a vector."""
    x = batched_front(x, dim, size)
    return x.unsqueeze(1) if x.ndim == 1 else x


def _gather_batch(size: int, dims: Any, self: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    scalar = index.ndim == (dims[2] is not None)
    result = gather(vector_front(self, dims[0], size), dim + 1, vector_front(index, dims[2], size))
    return (result.squeeze(1) if scalar else result), 0


def _scatter_batch(name: str) -> Any:
    """Batch an op (self, dim, index, src or value) along dimension dim + 1."""

    def batch(size: int, dims: Any, self: Any, dim: int, index: Any, source: Any) -> Any:
        scatter_op = {
            "src": scatter_src,
            "value": scatter_value,
            "add": scatter_add,
            "multiply": scatter_multiply,
        }[name]
        scalar = self.ndim == (dims[0] is not None)
        if name != "value":
            source = vector_front(source, dims[3], size)
        target = vector_front(self, dims[0], size)
        result = scatter_op(target, dim + 1, vector_front(index, dims[2], size), source)
        return (result.squeeze(1) if scalar else result), 0

    return batch


gather = op(
    "gather(Tensor self, dim dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
    c_implementation="gather",
    strict_out_dtype=True,
    strict_out=True,
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
    batch=_gather_batch,
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


def check_scatter(self: Any, dim: int, index: Any, src: Any) -> None:
    if any(n == 0 for n in index.shape):
        return
    require_integer_index("scatter", index)
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


def _flat_places(np: Any, self: Any, dim: int, index: Any) -> Any:
    """Turn the index of a scatter into positions in the flattened tensor."""
    check_exact(index, self.shape[dim], dim, "scatter", RuntimeError)
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[dim] = index
    return np.ravel_multi_index(tuple(np.broadcast_arrays(*grid)), self.shape).reshape(-1)


def scatter_with(write: Any) -> Any:
    def reference(np: Any, self: Any, dim: int, index: Any, src: Any) -> Any:
        out = np.array(self, order="C")
        if index.size == 0:
            return out
        index, src = at_least_1d(index), at_least_1d(src)
        part = src[tuple(slice(n) for n in index.shape)]
        places = _flat_places(np, at_least_1d(out), dim, index)
        write(np, out.reshape(-1), places, part.reshape(-1))
        return out

    return reference


def assign(np: Any, out: Any, places: Any, values: Any) -> None:
    """Write values to places, the last one where several share a place."""
    out[places] = values


def accumulate(np: Any, out: Any, places: Any, values: Any) -> None:
    """Add values to places, all of them where several share a place."""
    (np.logical_or if out.dtype == bool else np.add).at(out, places, values)


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
    return tangrad.constant_pad_nd(picked, tuple(grown), 0)


def _scatter_samples(s: Any) -> list[Any]:
    return [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 1, 4), s.tensor(1, 4)),
        s(s.tensor(3, 4), -1, s.integers(1, 2, 3, 1), s.tensor(3, 1)),
        s(s.tensor(3, 4, strided=True), 1, s.integers(2, 3, 2, 1), s.tensor(2, 1)),
        s(s.tensor(), 0, s.integers(0, 1), s.tensor()),
        s(s.tensor(3), 0, s.integers(0, 3, 0), s.tensor(0)),
    ]


scatter_src = op(
    "scatter_src(Tensor self, dim dim, Tensor index, Tensor src) -> Tensor",
    check=check_scatter,
    shape=lambda self: self.shape,
    reference=scatter_with(assign),
    strict_out_dtype=True,
    vjp={
        "self": lambda g, dim, index: g.scatter(dim, index, 0),
        "src": lambda g, dim, index, src_meta: _scattered_grad(g, index, dim, src_meta),
    },
    jvp=lambda self, self_t, dim, index, src, src_t: scatter_src(
        tangrad.zeros_like(self) if self_t is None else self_t,
        dim,
        index,
        tangrad.zeros_like(src) if src_t is None else src_t,
    ),
    batch=_scatter_batch("src"),
    inplace=True,
    strict_out="in place",
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


def _check_scatter_value(self: Any, dim: int, index: Any, value: Any) -> None:
    require_fit(value, self.dtype, "scatter")
    if not any(n == 0 for n in index.shape):
        require_integer_index("scatter", index)
        _check_index_fits("scatter", self, dim, index)


def _scatter_value_reference(np: Any, self: Any, dim: int, index: Any, value: Any) -> Any:
    return scatter_with(assign)(
        np, self, dim, index, np.full(index.shape or (1,), value).astype(self.dtype)
    )


scatter_value = op(
    "scatter_value(Tensor self, dim dim, Tensor index, Scalar value) -> Tensor",
    check=_check_scatter_value,
    shape=lambda self: self.shape,
    reference=_scatter_value_reference,
    strict_out_dtype=True,
    vjp={"self": lambda g, dim, index: g.scatter(dim, index, 0)},
    jvp=lambda self_t, dim, index: self_t.scatter(dim, index, 0),
    batch=_scatter_batch("value"),
    inplace=True,
    strict_out="in place",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 2, 4), 1),
        s(s.tensor(3, 4), -1, s.integers(0, 4, 3, 1), 0),
        s(s.tensor(), 0, s.integers(0, 1), 2),
    ],
    oracle="scatter",
    errors=lambda s: [
        (s(s.tensor(3), 0, s.integers(3, 4, 1), 1), (RuntimeError, IndexError), "out of bounds"),
        (
            s(s.tensor(3, dtype="float32"), 0, s.integers(0, 3, 1), 1e300),
            RuntimeError,
            "without overflow",
        ),
    ],
    doc="Write one value along one dimension: self[index[i][j]][j] = value for dim 0.",
)


def _multiply(np: Any, out: Any, places: Any, values: Any) -> None:
    (np.logical_and if out.dtype == bool else np.multiply).at(out, places, values)


def _product_of_others(self: Any, dim: int, index: Any, src: Any, result: Any) -> Any:
    """Give for each factor the product of all else that is multiplied into its place.

    The product of the others than a zero leaves that zero out; every other one is the result
    divided, so that its own derivative by a zero among the factors is not lost. Of two zeros each
    is a factor of the other's: it makes that product zero, but not its derivative.
    """
    is_zero = src == 0
    factors = src.masked_fill(is_zero, 1)
    none = tangrad.zeros_like(self)
    zeros = none.scatter_add(dim, index, is_zero.to(self.dtype)).gather(dim, index)
    other = none.scatter_add(dim, index, src.masked_fill(~is_zero, 0)).gather(dim, index) - src
    beside = scatter_multiply(self, dim, index, factors).gather(dim, index)
    beside = tangrad.where(zeros == 1, beside, (beside * other).masked_fill(zeros != 2, 0))
    return tangrad.where(is_zero, beside, result.gather(dim, index) / factors)


scatter_multiply = op(
    "scatter_multiply(Tensor self, dim dim, Tensor index, Tensor src) -> Tensor",
    check=check_scatter,
    shape=lambda self: self.shape,
    reference=scatter_with(_multiply),
    vjp={
        "self": lambda g, self_meta, dim, index, src: (
            g * scatter_multiply(g.new_ones(self_meta.shape), dim, index, src).conj()
        ),
        "src": lambda g, self, dim, index, src, result: (
            g.gather(dim, index) * _product_of_others(self, dim, index, src, result).conj()
        ),
    },
    jvp=lambda self, self_t, dim, index, src, src_t, result: _scatter_multiply_jvp(
        self, self_t, dim, index, src, src_t, result
    ),
    batch=_scatter_batch("multiply"),
    inplace=True,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 2, 4), s.tensor(2, 4)),
        s(s.tensor(3, 4), 1, s.integers(0, 4, 3, 2), s.tensor(3, 2)),
        s(s.tensor(), 0, s.integers(0, 1), s.tensor()),
    ],
    oracle=lambda torch, x, dim, index, src: x.scatter_reduce(dim, index, src, "prod"),
    doc="Multiply src into places along one dimension: self[index[i][j]][j] *= src[i][j].",
)


def _scatter_multiply_jvp(
    self: Any, self_t: Any, dim: int, index: Any, src: Any, src_t: Any, result: Any
) -> Any:
    tangent = tangrad.zeros_like(self)
    if self_t is not None:
        tangent = self_t * scatter_multiply(tangrad.ones_like(self), dim, index, src)
    if src_t is not None:
        part = src_t * _product_of_others(self, dim, index, src, result)
        tangent = tangent.scatter_add(dim, index, part)
    return tangent


@composite(
    inplace=True,
    strict_out_dtype=True,
    out=True,
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
)
def scatter_with_reduce(
    self: Tensor, dim: Dim, index: Tensor, src: Tensor, *, reduce: str
) -> Tensor:
    """Add or multiply src into places along one dimension."""
    if reduce not in ("add", "multiply"):
        raise RuntimeError(f"reduce argument must be either add or multiply, got {reduce!r}")
    rule = scatter_add if reduce == "add" else scatter_multiply
    return rule(self, dim, index, src)


@composite(
    inplace=True,
    strict_out_dtype=True,
    out=True,
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 2, 4), 2, reduce="add"),
        s(s.tensor(3, 4), 1, s.integers(0, 4, 3, 2), 2, reduce="multiply"),
    ],
    oracle="scatter",
)
def scatter_value_with_reduce(
    self: Tensor, dim: Dim, index: Tensor, value: Scalar, *, reduce: str
) -> Tensor:
    """Add or multiply a number into places along one dimension."""
    return scatter_with_reduce(self, dim, index, self.new_full(index.shape, value), reduce=reduce)


scatter = overload(
    "scatter", "scatter_src", "scatter_value", "scatter_with_reduce", "scatter_value_with_reduce"
)

scatter_add = op(
    "scatter_add(Tensor self, dim dim, Tensor index, Tensor src) -> Tensor",
    c_implementation="scatter_add",
    strict_out_dtype=True,
    check=check_scatter,
    shape=lambda self: self.shape,
    reference=scatter_with(accumulate),
    vjp={
        "self": lambda g: g,
        "src": lambda g, dim, index, src_meta: _scattered_grad(g, index, dim, src_meta),
    },
    jvp=lambda self, self_t, dim, index, src, src_t: scatter_add(
        tangrad.zeros_like(self) if self_t is None else self_t,
        dim,
        index,
        tangrad.zeros_like(src) if src_t is None else src_t,
    ),
    batch=_scatter_batch("add"),
    inplace=True,
    strict_out="in place",
    samples=lambda s: [
        s(s.tensor(3, 4), 0, s.integers(0, 3, 5, 4), s.tensor(5, 4)),
        s(s.tensor(3, 4), 1, s.integers(0, 4, 2, 3), s.tensor(3, 5)),
        *_scatter_samples(s),
    ],
    errors=lambda s: [
        (
            s(s.tensor(3), 0, s.integers(3, 4, 1), s.tensor(1)),
            (RuntimeError, IndexError),
            "out of bounds",
        )
    ],
    doc="Add src along one dimension: self[index[i][j]][j] += src[i][j] for dim 0.",
)
