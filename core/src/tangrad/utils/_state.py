"""Copies of states, so that what is loaded and what was given stay apart."""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import Any

import tangrad


def own_copy(value: Any) -> Any:
    """Return a copy of a state's tensors, arrays and containers; other objects are shared.

    `copy.deepcopy` would follow a bound method or a field to the optimizer and the model behind.
    """
    if isinstance(value, tangrad.Tensor):
        return value.clone()
    if isinstance(value, dict):
        made = copy(value)
        for key, item in value.items():
            made[key] = own_copy(item)
        return made
    if isinstance(value, (list, deque)):
        listed = copy(value)
        for at, item in enumerate(value):
            listed[at] = own_copy(item)
        return listed
    if isinstance(value, tuple):
        items = [own_copy(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, (set, bytearray)) or hasattr(value, "__array_interface__"):
        return copy(value)
    return value
