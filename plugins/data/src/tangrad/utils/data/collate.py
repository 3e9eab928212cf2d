"""Samples to batches."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import tangrad
from tangrad.plugin import get_intercept

FunctionMap = Mapping[Any, Callable[..., Any]] | None
np_str_obj_array_pattern = re.compile(r"[SaUO]")
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


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


def collate_tensor_fn(batch: Sequence[Any], *, collate_fn_map: FunctionMap = None) -> Any:
    """Stack tensors along a new first dimension."""
    return tangrad.stack(batch, 0)


def _joined_by_numpy(batch: Sequence[Any]) -> Any:
    """Return the batch of arrays alike without a tensor for each; None if they are not."""
    first = batch[0]
    kind, shape = first.dtype, first.shape
    if not shape or not kind.isnative or get_intercept() is not None:
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


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: FunctionMap = None) -> Any:
    """Stack NumPy's arrays, or make a tensor of its numbers.

    Raises:
        TypeError: they hold no numbers.
    """
    if isinstance(batch[0], (str, bytes)):  # as NumPy's own strings are
        return batch
    joined = _joined_by_numpy(batch)
    if joined is not None:
        return joined
    tensors = [_from_numpy(value) for value in batch]
    if any(tensor is None for tensor in tensors):
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return tangrad.stack(tensors, 0)


collate_numpy_scalar_fn = collate_numpy_array_fn


def collate_float_fn(batch: Sequence[Any], *, collate_fn_map: FunctionMap = None) -> Any:
    """Make a tensor of float64 of numbers."""
    return tangrad.tensor(batch, dtype=tangrad.float64)


def collate_int_fn(batch: Sequence[Any], *, collate_fn_map: FunctionMap = None) -> Any:
    """Make a tensor of integers."""
    return tangrad.tensor(batch)


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: FunctionMap = None) -> Any:
    """Leave texts as they are."""
    return batch


# By what the first sample is: its class, or else the first entry that fits. `bool` is an `int`.
default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    tangrad.Tensor: collate_tensor_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


_PLAIN_COLLATION = dict(default_collate_fn_map)


def stacks_tensors(collate: Any) -> bool:
    """Tell whether a collate function is `default_collate`, as it is without additions."""
    return collate is default_collate and default_collate_fn_map == _PLAIN_COLLATION


def collate(batch: Sequence[Any], *, collate_fn_map: FunctionMap = None) -> Any:
    """Join samples to a batch, by functions for what is in them.

    Args:
        batch: the samples; those that are dictionaries or sequences are joined item by item.
        collate_fn_map: {class: function of (samples, collate_fn_map=)}.

    Raises:
        TypeError: if samples are of another kind.
        RuntimeError: if sequences differ in size.
    """
    first = batch[0]
    function = _function_for(first, collate_fn_map or {})
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        items = {key: [item[key] for item in batch] for key in first}
        joined = {k: collate(v, collate_fn_map=collate_fn_map) for k, v in items.items()}
        return _rebuilt(first, joined)
    if isinstance(first, Sequence):
        if set(map(len, batch)) != {len(first)}:
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [
            collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=True)
        ]
        if hasattr(first, "_fields"):
            return type(first)(*columns)
        return columns if isinstance(first, tuple) else _rebuilt(first, columns)
    raise TypeError(default_collate_err_msg_format.format(type(first)))


def _function_for(sample: Any, functions: Mapping[Any, Any]) -> Any:
    if type(sample) in functions:
        return functions[type(sample)]
    # NumPy is not imported for the sake of two entries: who stacks tensors stacks arrays.
    if functions.get(tangrad.Tensor) is collate_tensor_fn and _is_numpy(sample):
        return collate_numpy_array_fn
    return next((made for kind, made in functions.items() if isinstance(sample, kind)), None)


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
    return collate(batch, collate_fn_map=default_collate_fn_map)
