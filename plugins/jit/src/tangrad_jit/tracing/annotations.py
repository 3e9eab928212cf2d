"""Names that programs for PyTorch's script language use, and what they mean outside of it."""

from __future__ import annotations

import builtins
import contextlib
import dis
import warnings
from collections import namedtuple
from collections.abc import Iterator
from types import UnionType
from typing import Any, Optional, TypeVar, Union, get_args, get_origin

__all__ = [
    "Attribute",
    "Error",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "fuser",
    "ignore",
    "is_scripting",
    "isinstance",
    "onednn_fusion_enabled",
    "optimized_execution",
    "set_fusion_strategy",
    "strict_fusion",
    "unused",
]

T = TypeVar("T")

Attribute = namedtuple("Attribute", ["value", "type"])


class Error(RuntimeError):
    """An exception that a script raises, or an assertion of one that fails."""


def annotate(the_type: Any, the_value: T) -> T:
    """Return the value."""
    return the_value


def _modified(fn: Any, modifier: str) -> Any:
    """Tell a function, or the one that a property reads, what is to become of it in scripts."""
    target: Any = fn.fget if builtins.isinstance(fn, property) else fn
    target._torchscript_modifier = modifier
    return fn


def export(fn: T) -> T:
    """Have a method of a module scripted though nobody calls it."""
    _modified(fn, "export")
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Leave a function to Python: scripts call it as it is; also with arguments.

    Args:
        drop: the function; or True, and calls raise, as with `unused`.
        kwargs: accepted.
    """
    if callable(drop):
        return _modified(drop, "ignore")
    return lambda fn: _modified(fn, "unused" if drop else "ignore")


def unused(fn: Any) -> Any:
    """Leave a function out of scripts, in which calls of it raise."""
    return _modified(fn, "unused")


def _drop(fn: Any) -> Any:
    """Leave a function out of scripts, as `unused` does."""
    return unused(fn)


#: Module and qualified name of a function -> its overloads, in order.
OVERLOADS: dict[tuple[str, str], list[Any]] = {}


# What the code of a function without a body consists of.
_EMPTY = frozenset(("RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"))


def _overload(fn: T) -> T:
    """Declare an overload of a function or method, whose body is that of the last definition.

    Raises:
        RuntimeError: it has a body of its own.
    """
    steps = [(step.opname, step.argval) for step in dis.get_instructions(fn)]  # type: ignore[arg-type]
    returned = [value for name, value in steps if name in ("LOAD_CONST", "RETURN_CONST")]
    if any(name not in _EMPTY for name, _ in steps) or returned[-1:] != [None]:
        raise RuntimeError(
            "Only `pass` statement or `...` can be the body of overload declaration: "
            f"{fn.__qualname__}"  # type: ignore[attr-defined]
        )
    key = (fn.__module__, fn.__qualname__)  # type: ignore[attr-defined]
    OVERLOADS.setdefault(key, []).append(fn)
    return fn


_overload_method = _overload


def _unwrap_optional(x: T | None) -> T:
    """Return a value that is not None.

    Raises:
        AssertionError: it is None.
    """
    assert x is not None, "Unwrapping null optional"
    return x


def is_scripting() -> bool:
    """Return False: in scripts alone it is True."""
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
    origin, members = get_origin(target_type), get_args(target_type)
    if target_type in (list, dict, tuple, Optional) or (
        origin in (list, dict, tuple) and not members and target_type != tuple[()]
    ):
        name = "Optional" if target_type is Optional else str(target_type.__name__)
        lacking = (
            "contained types. Please add contained type, e.g. Dict[int, int]"
            if name.title() == "Dict"
            else f"a contained type. Please add a contained type, e.g. {name}[int]"
        )
        raise RuntimeError(f"Attempted to use {name} without {lacking}")
    if builtins.isinstance(target_type, (list, set, dict)):
        raise RuntimeError(
            "The second argument to `torch.jit.isinstance` must be a type or a tuple of types"
        )
    if builtins.isinstance(obj, (list, dict)) and not obj and origin in (list, dict):
        warnings.warn(
            "The inner type of a container is lost when calling torch.jit.isinstance in eager mode",
            stacklevel=2,
        )
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


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Accept the name of a fuser for a while: there is one, whatever it says.

    Raises:
        Exception: PyTorch has none of that name.
    """
    if name not in ("", "none", "fuser0", "fuser1", "fuser2", "fuser3"):
        raise Exception(f"unrecognized fuser option (name: {name})")
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
