"""What nodes made from now on take over into their `meta`."""

from __future__ import annotations

import copy
import traceback as _traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

__all__ = [
    "annotate",
    "annotate_fn",
    "format_stack",
    "get_current_meta",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "set_current_meta",
    "set_stack_trace",
]

_current: dict[str, Any] = {}
_preserving = False


@contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Have nodes that are made inside take over the `meta` of those that are being run."""
    global _preserving, _current
    before, meta = _preserving, copy.copy(_current)
    _preserving = enable
    try:
        yield
    finally:
        _preserving, _current = before, meta


def has_preserved_node_meta() -> bool:
    """Return whether nodes take over `meta`."""
    return _preserving


def get_current_meta() -> dict[str, Any]:
    """Return what nodes take over."""
    return _current


def set_stack_trace(stack: list[str]) -> None:
    """Say where the program is, for nodes to come."""
    if _preserving and stack:
        _current["stack_trace"] = "".join(stack)


def format_stack() -> list[str]:
    """Return where the program is."""
    if _preserving:
        return [str(_current.get("stack_trace", ""))]
    return _traceback.format_list(_traceback.extract_stack()[:-1])


@contextmanager
def set_current_meta(node: Any, pass_name: str = "") -> Iterator[None]:
    """Have nodes that are made inside take over the `meta` of a node."""
    global _current
    if not (_preserving and node.meta):
        yield
        return
    before = _current
    _current = {**node.meta}
    try:
        yield
    finally:
        _current = before


@contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Have nodes that are made inside note entries under `meta["custom"]`."""
    global _current
    before = _current
    _current = {**before, "custom": {**before.get("custom", {}), **annotation_dict}}
    try:
        yield
    finally:
        _current = before


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Any], Any]:
    """Return a decorator with which `annotate` acts during a function."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        return annotated

    return decorate
