"""Names that programs for PyTorch's script language use, and what they mean outside of it."""

from __future__ import annotations

import builtins
import contextlib
from collections import namedtuple
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

__all__ = [
    "Attribute",
    "Error",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "ignore",
    "interface",
    "is_scripting",
    "isinstance",
    "onednn_fusion_enabled",
    "optimized_execution",
    "script",
    "script_if_tracing",
    "set_fusion_strategy",
    "strict_fusion",
    "unused",
]

T = TypeVar("T")

Attribute = namedtuple("Attribute", ["value", "type"])


class Error(RuntimeError):
    """An exception of a script; none is raised, as there are no scripts."""


def annotate(the_type: Any, the_value: T) -> T:
    """Return the value."""
    return the_value


def script(obj: T, *args: Any, **kwargs: Any) -> T:
    """Return what is given: there is no script language."""
    return obj


def script_if_tracing(fn: T) -> T:
    """Return what is given."""
    return fn


_script_if_tracing = script_if_tracing


def export(fn: T) -> T:
    """Return what is given."""
    return fn


def interface(obj: T) -> T:
    """Return what is given."""
    return obj


def _overload(fn: T) -> T:
    """Return what is given."""
    return fn


def _overload_method(fn: T) -> T:
    """Return what is given."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Return what is given, as a decorator with and without arguments."""
    if callable(drop):
        return drop

    def same(fn: Callable[..., Any]) -> Callable[..., Any]:
        return fn

    return same


unused = ignore


def is_scripting() -> bool:
    """Return False."""
    return False


def isinstance(obj: Any, target_type: Any) -> bool:
    """Return whether an object is of a type, also of one with members: `list[int]`.

    Args:
        obj: the object.
        target_type: a type, an alias such as `dict[str, Tensor]` or `Optional[int]`, or a tuple
            of these.

    Raises:
        RuntimeError: a list, dict or tuple is asked for without the types of its members.
    """
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, one) for one in target_type)
    if target_type in (list, dict, tuple):
        name = target_type.__name__
        raise RuntimeError(
            f"jit.isinstance: {name} has no types of members here; write them, e.g. {name}[int]"
        )
    origin, members = get_origin(target_type), get_args(target_type)
    if origin in (Union, UnionType):
        return any(isinstance(obj, one) for one in members)
    if origin is list:
        return builtins.isinstance(obj, list) and all(isinstance(x, members[0]) for x in obj)
    if origin is dict:
        return builtins.isinstance(obj, dict) and all(
            isinstance(k, members[0]) and isinstance(v, members[1]) for k, v in obj.items()
        )
    if origin is tuple:
        return (
            builtins.isinstance(obj, tuple)
            and len(obj) == len(members)
            and all(map(isinstance, obj, members))
        )
    return origin is None and builtins.isinstance(obj, target_type)


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Do nothing: what is traced is optimized when it is frozen."""
    yield


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Accept a strategy; groups are fused for the sizes of the example, whatever it says."""
    return strategy


def enable_onednn_fusion(enabled: bool) -> None:
    """Accept a switch of a library that is not used here."""


def onednn_fusion_enabled() -> bool:
    """Return False."""
    return False


class strict_fusion:
    """Context manager that does nothing outside of scripts, as in PyTorch."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None
