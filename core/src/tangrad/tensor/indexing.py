"""Indexing and assignment by PyTorch's rules, lowered to views and two advanced ops.

An index is taken apart from left to right. Integers, slices, None and ... become views; masks
and integer tensors are collected, and what remains is one call of `index` or `index_put_`,
whose kernels see only: a tensor, and per dimension None or an int64 tensor, all of one shape,
in one unbroken run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index as as_int
from typing import Any

__all__ = [
    "IndexingOps",
    "are_positions",
    "getitem",
    "indexed_shape",
    "lower_indices",
    "out_of_bounds",
    "setitem",
]

_PLAIN_TYPES = (int, slice, type(None), type(Ellipsis), bool)
_INDEX_DTYPES = ("int64", "int32", "uint8", "bool")
_MASK_DTYPES = ("uint8", "bool")
_MAX_SEQUENCE_TAKEN_AS_TUPLE = 32


class IndexingOps:
    """Hold the ops that indexing is lowered to, where PyTorch has no public method for them.

    Args:
        alias: ``alias(x)``, a view of all of x.
        slice_: ``slice_(x, dim, start, stop, step)`` with 0 <= start <= stop <= size, step > 0.
        index: ``index(x, indices)``.
        index_put_: ``index_put_(x, indices, value, accumulate)``, value broadcastable.
        tensor: ``tensor(data)``, a tensor on the CPU of nested sequences or an array.
    """

    __slots__ = ("alias", "index", "index_put_", "slice_", "tensor")

    def __init__(
        self,
        alias: Callable[..., Any],
        slice_: Callable[..., Any],
        index: Callable[..., Any],
        index_put_: Callable[..., Any],
        tensor: Callable[..., Any],
    ) -> None:
        self.alias = alias
        self.slice_ = slice_
        self.index = index
        self.index_put_ = index_put_
        self.tensor = tensor


_own_ops: IndexingOps | None = None


def _default_ops() -> IndexingOps:
    global _own_ops
    if _own_ops is None:
        from tangrad import ops
        from tangrad.tensor.construct import tensor

        _own_ops = IndexingOps(ops.alias, ops.slice, ops.index, ops._index_put_, tensor)
    return _own_ops


def getitem(x: Any, index: Any, ops: IndexingOps | None = None) -> Any:
    """Return ``x[index]``.

    Args:
        x: a tensor.
        index: an integer, slice, None, ..., truth value, mask, integer tensor, sequence of
            these as PyTorch takes them, or a tuple of such.
        ops: the ops to lower to; tangrad's own if None.

    Returns:
        A view of x if no mask, integer tensor or sequence is involved, else a new tensor.

    Raises:
        IndexError: an index is out of bounds, of a wrong type, or there are too many.
        ValueError: a slice's step is not positive.
    """
    ops = ops or _default_ops()
    view, collected = _apply_views(x, index, ops)
    if collected:
        found = _offered("index", view, collected)
        return ops.index(*lower_indices(view, collected)) if found is NotImplemented else found
    return ops.alias(x) if view is x else view


def setitem(x: Any, index: Any, value: Any, ops: IndexingOps | None = None) -> None:
    """Assign ``x[index] = value``.

    Args:
        x: a tensor; written in place.
        index: as for `getitem`.
        value: a number, or a tensor that broadcasts to the shape of ``x[index]`` once leading
            dimensions of size one are dropped. It is cast to the dtype of x, but not if the
            index holds integer tensors or several masks (as in PyTorch).
        ops: the ops to lower to; tangrad's own if None.

    Raises:
        IndexError: as for `getitem`.
        TypeError: the value is neither a number nor a tensor.
        RuntimeError: the value does not broadcast, does not fit or has another dtype.
    """
    ops = ops or _default_ops()
    is_scalar = not _is_tensor(value)
    if is_scalar:
        _check_assignable(x, value)
    if index is False:
        if is_scalar:
            # Nothing is written, but a number that could not be written is an error all the same.
            x.new_full((), value)
        return
    if index is True:
        index = None
    view, collected = _apply_views(x, index, ops)
    if not collected:
        if is_scalar:
            # Halves overflow to infinity when they are assigned, but not when they are filled.
            view.fill_(x.new_full((), value) if x.dtype.itemsize == 2 else value)
        else:
            _copy_broadcast(view, value)
        return
    if is_scalar:
        value = _element_of(x, value)
    if _offered("index_put_", view, collected, value, False) is not NotImplemented:
        return
    target, indices = lower_indices(view, collected)
    value = _fit_value(target, indices, value, _is_single_mask(collected))
    ops.index_put_(target, indices, value, False)


def offer_at_masks(name: str, x: Any, indices: list[Any], *rest: Any) -> Any:
    """Offer an indexing to handlers of dispatch, which replaces this; NotImplemented: none."""
    return NotImplemented


def _offered(name: str, x: Any, collected: Sequence[tuple[int, Any]], *rest: Any) -> Any:
    if not any(_is_mask(item) for _, item in collected):
        return NotImplemented
    indices: list[Any] = []
    dim = 0
    for place, item in collected:
        indices, dim = [*indices, *[None] * (place - dim), item], place + _consumed(item)
    return offer_at_masks(name, x, indices, *rest)


def _converts_itself(x: Any) -> bool:
    """Tell whether the kernels of x's layout make its elements of numbers: it has a scale."""
    # Whatever has the ops is indexed by these rules, tensors of other libraries too.
    return getattr(x.dtype, "kind", "") == "foreign" and x.layout.name != "strided"


def _element_of(x: Any, value: Any) -> Any:
    """Return a number as a tensor of x's dtype, or of float32 where x converts it."""
    if not _converts_itself(x):
        return x.new_full((), value)
    from tangrad import float32

    return x.new_full((), value, dtype=float32)


# --- taking an index apart -----------------------------------------------------------------


def _is_tensor(item: Any) -> bool:
    return hasattr(type(item), "requires_grad")  # of the class, which is no tensor itself


def _dtype_name(x: Any) -> str:
    return str(x.dtype).rpartition(".")[2]


def _is_mask(x: Any) -> bool:
    return _dtype_name(x) in _MASK_DTYPES


def _is_sequence(item: Any) -> bool:
    kind = type(item)
    return hasattr(kind, "__len__") and hasattr(kind, "__getitem__") and not hasattr(kind, "keys")


def _as_tuple(index: Any) -> tuple[Any, ...]:
    if isinstance(index, tuple):
        return index
    if isinstance(index, list) and _means_a_tuple(index):
        import warnings

        warnings.warn(
            "indexing with a list that holds sequences, slices, tensors, None or ... is "
            "deprecated: write x[tuple(index)] for one index per dimension, or "
            "x[tensor(index)] for a tensor of indices",
            UserWarning,
            stacklevel=4,
        )
        return tuple(index)
    return (index,)


def _means_a_tuple(index: list[Any]) -> bool:
    """Tell whether PyTorch still reads this list as a tuple, a rule inherited from old NumPy."""
    if len(index) >= _MAX_SEQUENCE_TAKEN_AS_TUPLE:
        return False
    return any(
        item is None
        or item is Ellipsis
        or isinstance(item, slice)
        or _is_tensor(item)
        or _is_sequence(item)
        for item in index
    )


def _canonical(item: Any, ops: IndexingOps) -> Any:
    """Return the item as int, bool, None, ..., slice or a bool, uint8 or int64 tensor."""
    if type(item) in _PLAIN_TYPES:
        return item
    if _is_tensor(item):
        return _canonical_tensor(item)
    if _is_sequence(item) and not _is_integer_array(item):
        made = ops.tensor(_without_text(item))
        return _canonical_tensor(made if _is_mask(made) else made.long())
    try:
        return as_int(item)
    except TypeError:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte tensors are "
            f"valid indices (got {type(item).__name__})"
        ) from None


def _is_integer_array(item: Any) -> bool:
    """Tell whether this is a zero-dimensional integer array, which indexes like a number."""
    return getattr(item, "ndim", None) == 0 and item.dtype.kind in "iu"


def _without_text(item: Any) -> Any:
    if isinstance(item, (str, bytes)):
        raise TypeError(f"cannot index a tensor with {type(item).__name__} {item!r}")
    return item


def warn_of_bytes(stacklevel: int) -> None:
    """Warn that a mask of bytes is one of an old kind."""
    import warnings

    warnings.warn(
        "indexing with dtype uint8 as a mask is deprecated, use dtype bool instead",
        UserWarning,
        stacklevel=stacklevel,
    )


def _canonical_tensor(item: Any) -> Any:
    name = _dtype_name(item)
    if name not in _INDEX_DTYPES and not (item.dim() == 0 and name.startswith(("int", "uint"))):
        raise IndexError(
            "tensors used as indices must be long, int, byte or bool tensors, got a tensor of "
            f"dtype {item.dtype}; convert it with .long() or .bool()"
        )
    if name == "uint8":
        warn_of_bytes(7)
    if item.dim() == 0 and name in _MASK_DTYPES:
        return bool(item.item())
    if item.dim() == 0:
        try:
            return int(item.item())
        except (NotImplementedError, RuntimeError):
            # No single value, as on meta or under vmap: gather instead of making a view.
            return item.long()
    return item if name in ("int64", *_MASK_DTYPES) else item.long()


def _consumed(item: Any) -> int:
    """Return how many dimensions of the tensor an item stands for."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.dim() if _is_tensor(item) and _is_mask(item) else 1


def _apply_views(x: Any, index: Any, ops: IndexingOps) -> tuple[Any, list[tuple[int, Any]]]:
    """Apply all but the tensor indices; return the view and those, each with its dimension."""
    items = [_canonical(item, ops) for item in _as_tuple(index)]
    consumed = sum(map(_consumed, items))
    if x.dim() == 0 and len(items) == 1 and type(items[0]) is int and not _is_tensor(index):
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to "
            "a number"
        )
    if consumed > x.dim():
        raise IndexError(f"too many indices for tensor of dimension {x.dim()}")
    view, dim = x, 0
    collected: list[tuple[int, Any]] = []
    for position, item in enumerate(items):
        if item is None:
            view, dim = view.unsqueeze(dim), dim + 1
        elif item is Ellipsis:
            dim += x.dim() - consumed
        elif isinstance(item, slice):
            view, dim = _slice(view, dim, item, ops), dim + 1
        elif isinstance(item, bool):
            view = view.unsqueeze(dim)
            collected.append((dim, _truth_as_index(item, ops)))
            dim += 1
        elif isinstance(item, int):
            view = _select(view, dim, item, position)
        else:
            collected.append((dim, item))
            dim += _consumed(item)
    return view, collected


def _truth_as_index(truth: bool, ops: IndexingOps) -> Any:
    return ops.tensor([0] if truth else []).long()


def _select(view: Any, dim: int, index: int, position: int) -> Any:
    if dim >= view.dim():
        # Only a second ... gets here: each stands for all dimensions not named.
        raise IndexError("an index can have only a single ellipsis ('...') before an integer")
    size = view.shape[dim]
    if not -size <= index < size:
        if not -(2**63) <= index < 2**63:
            raise ValueError(f"Overflow when unpacking long long: index {index}")
        raise out_of_bounds(index, position, size)
    return view.select(dim, index)


def _slice(view: Any, dim: int, item: slice, ops: IndexingOps) -> Any:
    if dim >= view.dim():
        raise IndexError("an index can have only a single ellipsis ('...') before a slice")
    size = view.shape[dim]
    start, stop, step = item.indices(size)
    if step < 0:
        raise ValueError("step must be greater than zero")
    if start == 0 and stop == size and step == 1:
        return view
    return ops.slice_(view, dim, start, max(start, stop), step)


def out_of_bounds(index: int, dim: int, size: int) -> IndexError:
    """Return the error of an index outside its dimension, in PyTorch's words."""
    return IndexError(f"index {index} is out of bounds for dimension {dim} with size {size}")


# --- tensor indices ------------------------------------------------------------------------


def are_positions(self: Any, indices: Sequence[Any]) -> bool:
    """Whether indices are what they are lowered to: positions of one shape, none left out."""
    if not indices or len(indices) > self.ndim or indices[0] is None:
        return False
    shape, device = indices[0].shape, self.device
    return bool(shape) and all(
        x is not None and x.dtype.name == "int64" and x.shape == shape and x.device == device
        for x in indices
    )


def lower_indices(x: Any, collected: Sequence[tuple[int, Any]]) -> tuple[Any, list[Any]]:
    """Bring tensor indices into the form that the kernels of index and index_put_ see.

    Masks become the positions of their true elements, all indices are broadcast together, and
    if they are not neighbours x is permuted so that their dimensions come first (which is
    where PyTorch, like NumPy, then puts the indexed dimensions).

    Args:
        x: the tensor to be indexed.
        collected: (dimension, int64 or mask tensor), ascending.

    Returns:
        A view of x, and a list with None or an int64 tensor per leading dimension.

    Raises:
        IndexError: a mask has another shape than what it covers, or the indices do not broadcast.
    """
    by_dim = {}
    for dim, item in collected:
        by_dim.update(_positions(x, dim, item) if _is_mask(item) else {dim: item})
    shape = _broadcast([tuple(item.shape) for item in by_dim.values()])
    aligned = {
        dim: (item if tuple(item.shape) == shape else item.expand(shape)).to(x.device)
        for dim, item in by_dim.items()
    }
    dims = list(aligned)
    if dims[-1] - dims[0] + 1 == len(dims):
        return x, [None] * dims[0] + list(aligned.values())
    others = [dim for dim in range(x.dim()) if dim not in aligned]
    return x.permute(dims + others), list(aligned.values())


def _positions(x: Any, dim: int, mask: Any) -> dict[int, Any]:
    for j, size in enumerate(mask.shape):
        if size != x.shape[dim + j]:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {j} does not match the shape "
                f"of the indexed tensor {list(x.shape)} at index {dim + j}"
            )
    places = mask.nonzero()
    return {dim + j: places.select(1, j) for j in range(mask.dim())}


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        others = {size for size in sizes if size != 1}
        if len(others) > 1:
            texts = ", ".join(str(list(shape)) for shape in shapes)
            raise IndexError(
                "shape mismatch: indexing tensors could not be broadcast together with shapes "
                + texts
            )
        result.append(others.pop() if others else 1)
    return tuple(result)


def indexed_shape(shape: Sequence[Any], indices: Sequence[Any]) -> tuple[Any, ...]:
    """Return the shape of ``index(x, indices)`` for lowered indices.

    Args:
        shape: the shape of x.
        indices: as `lower_indices` returns them.
    """
    before = sum(1 for item in indices if item is None)
    common = next(item.shape for item in indices if item is not None)
    return (*shape[:before], *common, *shape[len(indices) :])


# --- assignment ----------------------------------------------------------------------------


def _check_assignable(x: Any, value: Any) -> None:
    if isinstance(value, (int, float, complex)):
        return
    try:
        as_int(value)
    except TypeError:
        raise TypeError(
            f"can't assign a {type(value).__name__} to a tensor of dtype {x.dtype}; assign a "
            "number or a tensor"
        ) from None


def _without_leading_ones(value: Any) -> Any:
    shape = tuple(value.shape)
    kept = next((i for i, size in enumerate(shape) if size != 1), len(shape))
    return value if kept == 0 else value.reshape(shape[kept:])


def _copy_broadcast(view: Any, value: Any) -> None:
    if tuple(view.shape) != tuple(value.shape):
        value = _without_leading_ones(value).expand(tuple(view.shape))
    view.copy_(value)


def _is_single_mask(collected: list[tuple[int, Any]]) -> bool:
    return len(collected) == 1 and _is_mask(collected[0][1])


def _fit_value(target: Any, indices: list[Any], value: Any, may_cast: bool) -> Any:
    """Return the value with the dtype, device and shape that index_put_ asks for."""
    if value.dim() == 0 and value.device != target.device:
        value = value.to(target.device)
    value = _without_leading_ones(value)
    shape = indexed_shape(target.shape, indices)
    trailing = shape[len(shape) - value.dim() :]
    fits = value.dim() <= len(shape) and all(
        have in (1, want) for have, want in zip(value.shape, trailing, strict=True)
    )
    if not fits:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to "
            f"indexing result of shape {list(shape)}"
        )
    if value.dtype != target.dtype and not _converts_itself(target):
        value = _cast_value(target, value, may_cast and value.numel() == 1)
    return value


def _cast_value(target: Any, value: Any, may_cast: bool) -> Any:
    if not may_cast:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{target.dtype} for the destination and {value.dtype} for the source; convert the "
            "value with .to()"
        )
    if value.dtype.is_complex and not target.dtype.is_complex:
        raise RuntimeError(f"complex value cannot be converted to type {target.dtype}")
    return value.to(target.dtype)
