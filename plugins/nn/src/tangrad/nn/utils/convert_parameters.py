"""Parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tangrad


def _same_device(parameter: Any, device: Any) -> Any:
    if device is not None and parameter.device != device:
        raise TypeError(
            f"Found two parameters on different devices, {device} and {parameter.device}; this is "
            "currently not supported."
        )
    return parameter.device


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """Return all elements of `parameters` in one vector, in their order.

    Raises:
        TypeError: if they lie on different devices.
    """
    device = None
    pieces = []
    for parameter in parameters:
        device = _same_device(parameter, device)
        pieces.append(parameter.view(-1))
    return tangrad.cat(pieces)


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Make each of `parameters` a view of its piece of the vector `vec`.

    Raises:
        TypeError: if `vec` is not a tensor, or the parameters lie on different devices.
    """
    if not isinstance(vec, tangrad.Tensor):
        raise TypeError(f"expected tangrad.Tensor, but got: {type(vec).__name__}")
    device = None
    position = 0
    for parameter in parameters:
        device = _same_device(parameter, device)
        count = parameter.numel()
        parameter.data = vec[position : position + count].view_as(parameter).data
        position += count
