"""A sample of an op as a call on a device; nothing here needs the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tangrad
from tangrad.plugin import Sample, materialise

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AssertionError)


def tangrad_tensor_on(device: str) -> Callable[[np.ndarray, str], Any]:
    """Return the maker of tangrad's tensors of samples on a device."""

    def make(array: np.ndarray, dtype: str) -> Any:
        made = tangrad.from_numpy(array).to(getattr(tangrad, dtype))
        if not array.size:  # NumPy gives an empty array strides of zero
            made = made.clone(memory_format=tangrad.contiguous_format)
        return made.to(device)

    return make


def tangrad_arguments(
    sample: Sample, device: str, definition: Any = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the sample's arguments for tangrad, the device included where an op creates."""
    args, kwargs = materialise(
        sample, tangrad_tensor_on(device), lambda name: getattr(tangrad, name)
    )
    if definition is not None and creates(definition) and not tensors_in((args, kwargs)):
        kwargs.setdefault("device", device)
    return args, kwargs


def creates(definition: Any) -> bool:
    """Tell whether an op takes a device to make its result on."""
    forms = [o.definition for o in definition.members] or [definition]
    return any(p.type == "device?" for d in forms for p in d.schema.params)


def tensors_in(value: Any, kinds: tuple[type, ...] = (tangrad.Tensor,)) -> list[Any]:
    """List the tensors in nested tuples, lists and dicts, in order.

    Args:
        value: what holds them.
        kinds: the classes of what is listed.
    """
    if isinstance(value, kinds):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_in(v, kinds)]
    return []


def rebuild(value: Any, tensors: Iterator[Any], kinds: tuple[type, ...] = (tangrad.Tensor,)) -> Any:
    """Return nested arguments with their tensors replaced by the next ones of an iterator.

    Args:
        value: the arguments.
        tensors: what takes the places.
        kinds: the classes of what is replaced.
    """
    if isinstance(value, kinds):
        return next(tensors)
    if isinstance(value, dict):
        return {k: rebuild(v, tensors, kinds) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(rebuild(v, tensors, kinds) for v in value)
    return value


def detached(tensor: Any, requires_grad: bool = True) -> Any:
    """Return a leaf with the same geometry, for gradients."""
    return tensor.detach().requires_grad_(requires_grad)


def is_differentiable_dtype(tensor: Any) -> bool:
    """Tell whether gradients with respect to a tensor make sense."""
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def normal_like(tensor: Any, seed: int) -> np.ndarray:
    """Draw an array of the shape and dtype of a tensor (of floats or complex numbers)."""
    random = np.random.Generator(np.random.Philox(seed))
    shape = tuple(tensor.shape)
    values = random.standard_normal(shape)
    if tensor.dtype.is_complex:
        values = values + 1j * random.standard_normal(shape)
    return np.asarray(values)


def describe(sample: Any) -> str:
    """Write a sample's arguments the way they would be called."""

    def one(value: Any) -> str:
        if hasattr(value, "array"):
            return f"{value.dtype}{list(value.shape)}" + (" strided" if value.strided else "")
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(one, value)) + "]"
        return repr(value)

    parts = [*map(one, sample.args), *(f"{k}={one(v)}" for k, v in sample.kwargs.items())]
    return "(" + ", ".join(parts) + ")"
