"""Whether an export runs, and the forms that users have registered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "custom_forms",
    "exporting",
    "is_in_onnx_export",
    "register_custom_op_symbolic",
    "unregister_custom_op_symbolic",
]

_running = threading.local()
_forms: dict[str, list[tuple[int, Callable[..., Any]]]] = {}


def is_in_onnx_export() -> bool:
    """Return whether the calling thread is exporting a model."""
    return bool(getattr(_running, "depth", 0))


@contextmanager
def exporting() -> Iterator[None]:
    """Note that an export runs in this thread."""
    _running.depth = getattr(_running, "depth", 0) + 1
    try:
        yield
    finally:
        _running.depth -= 1


def register_custom_op_symbolic(
    symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int
) -> None:
    """Give an op a form of the user's.

    Args:
        symbolic_name: the op, with or without a namespace: "aten::relu", "mine::twice".
        symbolic_fn: takes the graph that is written and the call's arguments; tensors have a name,
            a dtype and a rank. It returns the name of the result, as `g.op` does.
        opset_version: from which on it is used.
    """
    name = _plain(symbolic_name)
    _forms.setdefault(name, []).append((opset_version, symbolic_fn))


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget a form that was registered for an op and an opset."""
    name = _plain(symbolic_name)
    rest = [entry for entry in _forms.get(name, ()) if entry[0] != opset_version]
    _forms[name] = rest


def _plain(name: str) -> str:
    return name.removeprefix("aten::")


def custom_forms(opset: int) -> dict[str, Callable[..., Any]]:
    """Return {op: form} of what users have registered for an opset."""
    found = {}
    for name, entries in _forms.items():
        fitting = [entry for entry in entries if entry[0] <= opset]
        if fitting:
            found[name] = max(fitting, key=lambda entry: entry[0])[1]
    return found
