"""Nested states as flat ones: keys are the path's parts, joined by dots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tangrad
from tangrad_distributed.checkpoint.metadata import LocalPart

Path = tuple[str | int, ...]


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_tensors(one) for one in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_tensors(one) for one in value)
    return isinstance(value, (tangrad.Tensor, LocalPart))


def visit(value: Any, visitor: Callable[[Path, Any], None], path: Path = ()) -> None:
    """Call `visitor(path, leaf)` for each leaf: mappings are opened, lists where tensors are in."""
    if isinstance(value, Mapping) and (value or not path):
        for key, one in value.items():
            visit(one, visitor, (*path, key if isinstance(key, (str, int)) else str(key)))
    elif isinstance(value, (list, tuple)) and _holds_tensors(value):
        for at, one in enumerate(value):
            visit(one, visitor, (*path, at))
    else:
        visitor(path, value)


def flatten_state_dict(state_dict: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the leaves by flat keys, and the path of each.

    Raises:
        ValueError: two paths give one key.
    """
    flat: dict[str, Any] = {}
    paths: dict[str, Path] = {}

    def take(path: Path, value: Any) -> None:
        key = ".".join(map(str, path))
        if key in flat:
            raise ValueError(f"duplicated flatten key {key}: {paths[key]} and {path}")
        flat[key], paths[key] = value, path

    visit(state_dict, take)
    return flat, paths


def set_element(root: Any, path: Path, value: Any) -> None:
    """Write a leaf of a nested state; what is missing on the way is made, numbers make lists."""
    here = root
    for at, key in enumerate(path[:-1]):
        following: Any = [] if isinstance(path[at + 1], int) and not isinstance(here, dict) else {}
        if isinstance(here, list):
            assert isinstance(key, int)
            here.extend([None] * (key + 1 - len(here)))
            if here[key] is None:
                here[key] = following
            here = here[key]
        else:
            here = here.setdefault(key, following)
    last = path[-1]
    if isinstance(here, list):
        assert isinstance(last, int)
        here.extend([None] * (last + 1 - len(here)))
    here[last] = value
