"""Samples to batches."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import tangrad
from tangrad import _C


def _is_numpy(value: Any) -> bool:
    # By the module's name: NumPy is not imported for the sake of a question.
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def _from_numpy(value: Any) -> Any:
    """Return an array or NumPy scalar as a tensor, or None if it holds no numbers."""
    if value.dtype.kind not in "biufc":
        return None
    return tangrad.as_tensor(value)


def _rebuilt(original: Any, items: Any) -> Any:
    """Return `items` in a container like `original`; a list if it cannot be made so."""
    try:
        if isinstance(original, MutableMapping):
            mapping = copy.copy(original)
            mapping.update(items)
            return mapping
        if isinstance(original, MutableSequence):
            sequence = copy.copy(original)
            for position, item in enumerate(items):
                sequence[position] = item
            return sequence
        return type(original)(items)
    except TypeError:
        return items


def default_convert(data: Any) -> Any:
    """Turn NumPy arrays into tensors, inside dictionaries and sequences too.

    Args:
        data: one sample, which is returned otherwise unchanged.
    """
    if isinstance(data, tangrad.Tensor):
        return data
    if _is_numpy(data):
        converted = _from_numpy(data)
        return data if converted is None else converted
    if isinstance(data, Mapping):
        return _rebuilt(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        items = [default_convert(value) for value in data]
        return items if isinstance(data, tuple) else _rebuilt(data, items)
    return data


def _collate_tensors(batch: Sequence[Any]) -> Any:
    return tangrad.stack(batch, 0)


def _joined_by_numpy(batch: Sequence[Any]) -> Any:
    """Return the batch of arrays alike without a tensor for each; None if they are not."""
    first = batch[0]
    kind, shape = first.dtype, first.shape
    if not shape or not kind.isnative or _C.get_intercept() is not None:
        return None
    if any(value.dtype is not kind or value.shape != shape for value in batch):
        return None
    sample = _from_numpy(first)
    if sample is None:
        return None
    made = tangrad.empty((len(batch), *shape), dtype=sample.dtype, device=sample.device)
    rows = made.numpy().reshape(len(batch) * shape[0], *shape[1:])
    sys.modules["numpy"].concatenate(batch, out=rows)
    return made


def _collate_numpy(batch: Sequence[Any]) -> Any:
    if isinstance(batch[0], (str, bytes)):  # as NumPy's own strings are
        return batch
    joined = _joined_by_numpy(batch)
    if joined is not None:
        return joined
    tensors = [_from_numpy(value) for value in batch]
    if any(tensor is None for tensor in tensors):
        raise TypeError(_unknown(batch[0].dtype))
    return tangrad.stack(tensors, 0)


def _collate_floats(batch: Sequence[Any]) -> Any:
    return tangrad.tensor(batch, dtype=tangrad.float64)


def _collate_as_is(batch: Sequence[Any]) -> Any:
    return batch


def _collate_mapping(batch: Sequence[Any]) -> Any:
    first = batch[0]
    return _rebuilt(first, {key: default_collate([item[key] for item in batch]) for key in first})


def _collate_sequence(batch: Sequence[Any]) -> Any:
    first = batch[0]
    if set(map(len, batch)) != {len(first)}:
        raise RuntimeError("each element in list of batch should be of equal size")
    columns = [default_collate(column) for column in zip(*batch, strict=True)]
    if hasattr(first, "_fields"):
        return type(first)(*columns)
    return columns if isinstance(first, tuple) else _rebuilt(first, columns)


# By what the first sample is; the first entry that fits. `bool` is an `int`.
default_collate_fn_map: dict[Any, Callable[[Sequence[Any]], Any]] = {
    tangrad.Tensor: _collate_tensors,
    float: _collate_floats,
    int: tangrad.tensor,
    str: _collate_as_is,
    bytes: _collate_as_is,
    Mapping: _collate_mapping,
    Sequence: _collate_sequence,
}


_PLAIN_COLLATION = dict(default_collate_fn_map)


def stacks_tensors(collate: Any) -> bool:
    """Tell whether a collate function is `default_collate`, as it is without additions."""
    return collate is default_collate and default_collate_fn_map == _PLAIN_COLLATION


def _unknown(kind: Any) -> str:
    return (
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {kind}"
    )


def default_collate(batch: Sequence[Any]) -> Any:
    """Join samples to a batch.

    Tensors and arrays are stacked along a new first dimension, numbers become a tensor,
    dictionaries and sequences are joined item by item, strings stay as they are. A tuple of
    items becomes a list of batches.

    Args:
        batch: the samples.

    Raises:
        TypeError: if samples are of another kind.
        RuntimeError: if sequences, or tensors, differ in size.
    """
    first = batch[0]
    if _is_numpy(first):
        return _collate_numpy(batch)
    for kind, collate in default_collate_fn_map.items():
        if isinstance(first, kind):
            return collate(batch)
    raise TypeError(_unknown(type(first)))
