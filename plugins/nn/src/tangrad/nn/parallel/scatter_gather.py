"""Divide tensors among devices, and put them together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.utils._pytree import is_namedtuple as is_namedtuple

__all__ = ["gather", "scatter", "scatter_kwargs"]


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Divide the tensors in nested inputs among devices; whatever else there is goes to each.

    Args:
        inputs: tensors in tuples, lists and dicts.
        target_gpus: devices, or their numbers.
        dim: dimension that is divided.

    Returns:
        A list of inputs, one for each device.
    """
    count = len(target_gpus)
    if isinstance(inputs, tangrad.Tensor):
        parts = inputs.chunk(count, dim)
        return [p.to(device) for p, device in zip(parts, target_gpus, strict=False)]
    if is_namedtuple(inputs):
        return [type(inputs)(*one) for one in zip(*(scatter(x, target_gpus, dim) for x in inputs))]  # noqa: B905
    if isinstance(inputs, (tuple, list)) and inputs:
        kind = type(inputs)
        return [kind(one) for one in zip(*(scatter(x, target_gpus, dim) for x in inputs))]  # noqa: B905
    if isinstance(inputs, dict) and inputs:
        items = [scatter(item, target_gpus, dim) for item in inputs.items()]
        return [type(inputs)(one) for one in zip(*items)]  # noqa: B905
    return [inputs for _ in target_gpus]


def scatter_kwargs(
    inputs: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    target_gpus: Sequence[Any],
    dim: int = 0,
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Divide positional arguments and those by name among devices."""
    divided = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(divided), len(named))
    divided += [()] * (count - len(divided))
    named += [{} for _ in range(count - len(named))]
    return tuple(divided), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Put the results of devices together on one.

    Args:
        outputs: results, one for each device, nested alike.
        target_device: the device, or its number.
        dim: dimension along which tensors are put together; numbers become its elements.

    Raises:
        ValueError: dicts have different numbers of entries.
    """
    first = outputs[0]
    if isinstance(first, tangrad.Tensor):
        moved = [o.to(target_device) for o in outputs]
        return tangrad.cat([o.reshape(1) if o.dim() == 0 else o for o in moved], dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(o) != len(first) for o in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((k, gather([o[k] for o in outputs], target_device, dim)) for k in first)
    if is_namedtuple(first):
        return type(first)._make(gather(one, target_device, dim) for one in zip(*outputs))  # noqa: B905
    return type(first)(gather(one, target_device, dim) for one in zip(*outputs))  # noqa: B905
