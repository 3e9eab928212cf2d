"""Define the ops that read or write at places given by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Dim, Tensor
from tangrad.ops.views.geometry import Ints, batched_front, numel_of
from tangrad.tensor.indexing import are_positions, lower_indices, warn_of_bytes
from tangrad.tensor.memory import suggested_format
from tangrad.tensor.overlapping import put as put_overlapping


def _lanes(size: int, x: Any) -> Any:
    """Number the samples of a batch, shaped to broadcast over the dimensions of `x`."""
    return tangrad.arange(size, device=x.device).reshape((size,) + (1,) * (x.ndim - 1))


def check_range(np: Any, index: Any, size: int, dim: int, name: str) -> Any:
    """Raise for an index that is out of range; give the indices counted from the front."""
    wrong = (index < -size) | (index >= size)
    if wrong.any():
        raise IndexError(
            f"{name}(): index {index[wrong].flat[0]} is out of bounds for dimension {dim} "
            f"with size {size}"
        )
    return np.where(index < 0, index + size, index)


def check_exact(index: Any, size: int, dim: int, name: str, error: type[Exception]) -> None:
    """Raise for an index that is negative or too large."""
    wrong = (index < 0) | (index >= size)
    if wrong.any():
        raise error(
            f"{name}(): index {index[wrong].flat[0]} is out of bounds for dimension {dim} "
            f"with size {size}"
        )


def require_integer_index(
    name: str, index: Any, names: tuple[str, ...] = ("int64", "int32")
) -> None:
    """Raise unless the dtype of an index is one of `names`."""
    if index.dtype.name not in names:
        raise RuntimeError(
            f"{name}(): Expected dtype {' or '.join(names)} for index, got {index.dtype}"
        )


# Advanced indexing -------------------------------------------------------------------------------
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


def _index_format(self: Any, indices: Sequence[Any]) -> Any:
    """Keep the format where whole samples are picked, as PyTorch."""
    samples = _indexed_dims(indices) == [0] and len(indices[0].shape) == 1
    return suggested_format(self) if samples else tangrad.contiguous_format


def _check_index(self: Any, indices: Sequence[Any]) -> None:
    if len(indices) > len(self.shape):
        raise IndexError(
            f"too many indices for tensor of dimension {len(self.shape)} (got {len(indices)})"
        )
    if not _indexed_dims(indices):
        raise RuntimeError("index: at least one index tensor is needed, got only None")


def _numpy_index(np: Any, shape: Ints, indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        slice(None) if index is None else check_range(np, index, shape[d], d, "index")
        for d, index in enumerate(indices)
    )


def _batched_indices(size: int, dims: Any, indices: Sequence[Any]) -> list[Any]:
    """Move the batch dimension of the indices to the front; unbatched ones broadcast."""
    return [
        index if index is None else batched_front(index, dim, size)
        for index, dim in zip(indices, dims, strict=True)
    ]


def _index_batch(size: int, dims: Any, self: Any, indices: Sequence[Any]) -> Any:
    x = batched_front(self, dims[0], size)
    used = _indexed_dims(indices)
    if all(d is None for d in dims[1]):
        result = advanced_index(x, [None, *indices])
        return result, 0 if _adjacent(used) else indices[used[0]].ndim
    moved = _batched_indices(size, dims[1], indices)
    lanes = _lanes(size, moved[used[0]]).expand(moved[used[0]].shape)
    result = advanced_index(x, [lanes, *moved])
    if not _adjacent(used) or used[0] == 0:
        return result, 0
    # The lanes are not next to the indices then, so the picked dimensions came to the front.
    picked = moved[used[0]].ndim - 1
    source = tuple(range(1, picked + 1))
    target = tuple(range(used[0] + 1, used[0] + 1 + picked))
    return result.movedim(source, target), 0


advanced_index = op(
    "index(Tensor self, Tensor[] indices) -> Tensor",
    allows_none_in_list=True,
    check=_check_index,
    shape=_index_shape,
    memory_format=_index_format,
    reference=lambda np, self, indices: self[_numpy_index(np, self.shape, indices)],
    vjp={
        "self": lambda g, self_meta, indices: put_at(g.new_zeros(self_meta.shape), indices, g, True)
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
    out = np.array(self)
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
    return put_at(g, indices, g.new_zeros(()), False)


def _index_put_vjp_values(g: Any, indices: Sequence[Any], values_meta: Any) -> Any:
    picked = advanced_index(g, indices)
    extra = len(values_meta.shape) - picked.ndim
    shape = tuple(values_meta.shape)[max(0, extra) :]
    return picked.sum_to_size(shape).reshape(values_meta.shape)


def _index_put_batch(
    size: int, dims: Any, self: Any, indices: Sequence[Any], values: Any, accumulate: bool
) -> Any:
    x = batched_front(self, dims[0], size)
    moved = _batched_indices(size, dims[1], indices)
    used = _indexed_dims(indices)
    picked = moved[used[0]].ndim - 1
    lanes = _lanes(size, moved[used[0]]).expand(moved[used[0]].shape)
    v = batched_front(values, dims[2], size)
    missing = picked + (x.ndim - 1 - len(used)) - (v.ndim - 1)
    v = v.reshape((size, *(1,) * missing, *tuple(v.shape)[1:]))
    if _adjacent(used) and used[0] > 0:
        v = v.movedim(tuple(range(used[0] + 1, used[0] + 1 + picked)), tuple(range(1, picked + 1)))
    return put_at(x, [lanes, *moved], v, accumulate), 0


put_at = op(
    "_index_put(Tensor self, Tensor[] indices, Tensor values, bool accumulate=False) -> Tensor",
    allows_none_in_list=True,
    check=_check_index_put,
    shape=lambda self: self.shape,
    memory_format=lambda self: suggested_format(self),
    reference=_put,
    vjp={"self": _index_put_vjp_self, "values": _index_put_vjp_values},
    jvp=lambda self, self_t, indices, values, values_t, accumulate: put_at(
        tangrad.zeros_like(self) if self_t is None else self_t,
        indices,
        tangrad.zeros_like(values) if values_t is None else values_t,
        accumulate,
    ),
    batch=_index_put_batch,
    inplace=True,
    overlapping=put_overlapping,
    strict_out="in place",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4), [s.integers(0, 3, 5)], s.tensor(4), True),
        s(s.tensor(3, 4), (s.integers(0, 1, 1), s.integers(0, 4, 1)), s.tensor(1)),
        s(s.tensor(3, 4), (None, s.integers(2, 3, 1)), s.tensor(3, 1)),
        s(s.tensor(4, 2), (s.integers(0, 4, 3),), s.tensor(3, 2), True),
        s(s.tensor(3), (s.integers(0, 3, 2),), s.tensor(), True),
    ],
    oracle=lambda torch, *args: torch.ops.aten.index_put(*args),
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


def _lowered(self: Any, indices: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Turn masks to positions, broadcast the indices, and bring their dimensions together."""
    if len(indices) > self.ndim:
        raise IndexError(
            f"too many indices for tensor of dimension {self.ndim} (got {len(indices)})"
        )
    collected, dim = [], 0
    for index in indices:
        if index is not None:
            _check_kind(index)
            collected.append((dim, index))
            if index.dtype is tangrad.uint8:
                warn_of_bytes(5)
        is_mask = index is not None and index.dtype in (tangrad.bool, tangrad.uint8)
        dim += index.ndim if is_mask else 1
    if not collected:
        raise RuntimeError("index_put: at least one index tensor is needed, got only None")
    return lower_indices(self, collected)


def _check_kind(index: Any) -> None:
    if index.dtype.name not in ("int64", "int32", "uint8", "bool"):
        raise IndexError(
            f"tensors used as indices must be long, int, byte or bool tensors, got {index.dtype}"
        )


def _write_at(self: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    plain = are_positions(self, indices)
    target, lowered = (self, list(indices)) if plain else _lowered(self, indices)
    put_at.inplace(target, lowered, values, accumulate)
    return self


@composite(
    allows_none_in_list=True,
    inplace=True,
    writes=_write_at,
    samples=lambda s: [
        s(s.tensor(3, 4), [s.integers(0, 3, 5)], s.tensor(4), True),
        s(s.tensor(3, 4), (s.integers(0, 3, 2, 1), s.integers(0, 4, 3)), s.tensor(2, 3), True),
        s(s.tensor(3, 4), (s.mask(3),), s.tensor(4)),
        s(s.tensor(2, 3, 2), (s.mask(2, 3), s.integers(0, 2, 1)), s.tensor()),
        s(s.tensor(3, 2, 4), (s.integers(0, 1, 1), None, s.integers(2, 3, 1)), s.tensor(1, 2)),
    ],
    oracle=lambda torch, *args: torch.ops.aten.index_put(*args),
    errors=lambda s: [
        (s(s.tensor(3), (s.integers(3, 4, 1),), s.tensor(1)), IndexError, "out of bounds"),
        (s(s.tensor(3), (s.integers(0, 1, 2),), s.tensor(3)), RuntimeError, "shape mismatch"),
        (s(s.tensor(3), (s.mask(2),), s.tensor()), IndexError, "does not match the shape"),
        (s(s.tensor(3), (s.integers(0, 1, 1),) * 2, s.tensor()), IndexError, "too many indices"),
        (s(s.tensor(3), (s.tensor(1),), s.tensor(1)), IndexError, "must be long"),
    ],
)
def index_put(
    self: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Write values at places given by index tensors, one per dimension or None.

    Args:
        indices: integers, which are broadcast together, or masks.
        values: broadcast to the shape that reading these places gives.
        accumulate: add to what is there; a place named twice is then added to twice.

    Raises:
        IndexError: an index is out of bounds, of another dtype, or there are too many.
        RuntimeError: values has another dtype, or another shape than fits.
    """
    target, lowered = _lowered(self, indices)
    result = put_at(target, lowered, values, accumulate)
    if target is self:
        return result
    order = _dims_in_front(indices, self.ndim)
    back = [order.index(d) for d in range(self.ndim)]
    return result.permute(tuple(back)).contiguous()


def _dims_in_front(indices: Sequence[Any], ndim: int) -> list[int]:
    """List the dimensions in the order in which indices that are no neighbours leave them."""
    front, dim = [], 0
    for index in indices:
        is_mask = index is not None and index.dtype in (tangrad.bool, tangrad.uint8)
        width = index.ndim if is_mask else 1
        if index is not None:
            front += list(range(dim, dim + width))
        dim += width
    return front + [d for d in range(ndim) if d not in front]


# Masks and flat positions ------------------------------------------------------------------------


def _require_mask(name: str, mask: Any) -> None:
    if mask.dtype.name != "bool":
        raise RuntimeError(f"{name}: expected BoolTensor for mask, got {mask.dtype}")


def _masked_select_vjp(g: Any, self_meta: Any, mask: Any) -> Any:
    shape = tangrad.broadcast_shapes(self_meta.shape, mask.shape)
    return g.new_zeros(shape).masked_scatter(mask, g).sum_to_size(self_meta.shape)


def _check_masked_select(self: Any, mask: Any) -> None:
    _require_mask("masked_select", mask)
    tangrad.broadcast_shapes(self.shape, mask.shape)


masked_select = op(
    "masked_select(Tensor self, Tensor mask) -> Tensor",
    strict_out_dtype=True,
    strict_out=True,
    check=_check_masked_select,
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
        (s(s.tensor(2), s.mask(3)), RuntimeError, "must match|broadcast"),
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
    """Bring the k-th chosen element's cotangent to the k-th of the source, at fixed shapes."""
    zeros = g.new_zeros((numel_of(source_meta.shape),))
    if zeros.shape[0] == 0:
        return zeros.reshape(source_meta.shape)
    chosen = mask.expand(g.shape).flatten()
    places = (chosen.to(tangrad.int64).cumsum(0) - 1).clamp(min=0)
    return zeros.index_add(0, places, g.flatten() * chosen).reshape(source_meta.shape)


masked_scatter = op(
    "masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
    check=_check_masked_scatter,
    shape=lambda self, mask: tangrad.broadcast_shapes(self.shape, mask.shape),
    reference=_masked_scatter_reference,
    vjp={
        "self": lambda g, self_meta, mask: g.masked_fill(mask, 0).sum_to_size(self_meta.shape),
        "source": _masked_scatter_source_vjp,
    },
    jvp=lambda self, self_t, mask, source, source_t: masked_scatter(
        tangrad.zeros_like(self) if self_t is None else self_t,
        mask,
        tangrad.zeros_like(source) if source_t is None else source_t,
    ),
    batch=None,
    inplace=True,
    strict_out="in place",
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
    reference=lambda np, self: np.argwhere(self).T,
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
    oracle=lambda torch, x: torch.nonzero(x).t(),
    doc="List the places of the elements that are not zero, one column per element.",
)


@composite(
    strict_out_dtype=True,
    out=True,
    shape_depends_on_data=True,
    samples=lambda s: [s(s.mask(2, 3)), s(s.mask(2, 3), as_tuple=True), s(s.integers(0, 2, 3))],
)
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor:
    """List the places of the elements that are not zero.

    Args:
        as_tuple: give one index vector per dimension, ready for indexing, instead of rows.
    """
    if not as_tuple:
        return nonzero_table(input).t()
    table = nonzero_table(input.reshape((1,)) if input.ndim == 0 else input)
    return table.unbind()


@composite(shape_depends_on_data=True, samples=lambda s: [s(s.mask(2, 3)), s(s.tensor(3))])
def argwhere(self: Tensor) -> Tensor:
    """List the places of the elements that are not zero, one row per element."""
    return nonzero_table(self).t()


@composite(
    strict_out_dtype=True,
    strict_out=True,
    out=True,
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
def take(self: Tensor, index: Tensor) -> Tensor:
    """Read the flattened tensor at flat positions; the result has the shape of `index`."""
    require_integer_index("take", index, ("int64",))
    return advanced_index(self.reshape((-1,)), [index])


@composite(
    strict_out_dtype=True,
    strict_out=True,
    out=True,
    samples=lambda s: [
        s(s.tensor(2, 3), s.integers(0, 3, 2, 3), 1),
        s(s.tensor(2, 3), s.integers(0, 2, 1, 3), 0),
        s(s.tensor(2, 3), s.integers(0, 6, 4)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.integers(0, 2, 2), 1), RuntimeError, "same number of dimensions")
    ],
)
def take_along_dim(self: Tensor, indices: Tensor, dim: Dim | None = None) -> Tensor:
    """Read along one dimension, broadcasting the others; without `dim`, read flat positions."""
    if indices.dtype is not tangrad.int64:
        raise RuntimeError(
            f"take_along_dim(): dtype of indices should be Long (int64), got {indices.dtype}"
        )
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
    shape = list(tangrad.broadcast_shapes(ours, theirs))
    wide, places = list(shape), list(shape)
    wide[dim], places[dim] = kept
    indices = indices.where(indices >= 0, indices + wide[dim])
    return self.expand(wide).gather(dim, indices.expand(places))


# A table of one and zero -------------------------------------------------------------------------


@composite(
    shape_depends_on_data=True,
    namespace="nn",
    samples=lambda s: [
        s(s.integers(0, 3, 4), 3),
        s(s.integers(0, 3, 2, 2), 5),
        s(s.integers(2, 3, 2)),
        s(s.integers(0, 3), 3),
    ],
    oracle="nn.functional.one_hot",
    errors=lambda s: [
        (s(s.integers(3, 4, 1), 2), RuntimeError, "smaller than num_classes|out of bounds"),
        (s(s.integers(-2, -1, 1), 2), RuntimeError, "non-negative|out of bounds"),
        (s(s.tensor(2, dtype="float32"), 2), RuntimeError, "int64|index tensor"),
    ],
)
def one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
    """Write class numbers as vectors that are one at the class and zero elsewhere.

    Args:
        num_classes: the length of the vectors; -1 takes one more than the largest class.
    """
    if self.dtype.name != "int64":
        raise RuntimeError(
            f"one_hot is only applicable to index tensor of type int64, got {self.dtype}"
        )
    if self.numel() == 0 and num_classes <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if num_classes == -1:
        num_classes = int(self.max()) + 1
    if num_classes < 1:
        raise RuntimeError(f"num_classes should be positive, got {num_classes}")
    zeros = self.new_zeros((*self.shape, num_classes))
    return zeros.scatter(-1, self.unsqueeze(-1), 1)
