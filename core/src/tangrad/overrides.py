"""Take over calls on tensors, or let another class do so: `__torch_function__`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from tangrad import _C
from tangrad.dispatch.overrides import (
    TorchFunctionMode,
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
    redispatch_function,
)
from tangrad.dispatch.overrides import _unconverted as get_default_nowrap_functions

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "get_default_nowrap_functions",
    "get_overridable_functions",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that lets every call pass: override `__torch_function__` and call it by `super()`."""

    def __torch_function__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return func(*args, **(kwargs or {}))


# Where ops are shown, in the order in which a name is looked for.
_NAMESPACES = ("", "functional", "nn.functional", "nn.init", "Tensor", "linalg", "fft", "special")


@cache
def _shown() -> tuple[dict[Any, list[Any]], dict[Any, str]]:
    """Return the ops of each namespace, and the first name of each function."""
    import tangrad

    overridable: dict[Any, list[Any]] = {}
    names: dict[Any, str] = {}
    for path in _NAMESPACES:
        place: Any = tangrad
        for part in filter(None, path.split(".")):
            place = getattr(place, part)
        for name in dir(place):
            found = getattr(place, name, None)
            # In-place forms are methods; functions of such names are aliases.
            private = name.startswith("_") or name.endswith("_")
            if (
                (private and place is not _C.Tensor)
                or not callable(found)
                or isinstance(found, type)
            ):
                continue
            full = _C.shown(".".join(filter(None, (path, name))))
            names.setdefault(found, full)
            if isinstance(found, (_C.Op, _C.Overridable)):
                overridable.setdefault(place, []).append(found)
                for one in getattr(found, "overloads", None) or ():
                    names.setdefault(one, full)
    return overridable, names


def get_overridable_functions() -> dict[Any, list[Any]]:
    """Return the functions that `__torch_function__` may take over, by the namespace of each."""
    return {place: list(found) for place, found in _shown()[0].items()}


def resolve_name(f: Any) -> str | None:
    """Return the name of a function that `__torch_function__` got, such as "tangrad.add".

    Args:
        f: the function. An op that is shown in several places has the name of the first.

    Returns:
        What evaluates to the function, or to the op whose signature it is; None for others.
    """
    try:
        return _shown()[1].get(f)
    except TypeError:  # it cannot be hashed, and so is none of ours
        return None


def is_tensor_like(inp: Any) -> bool:
    """Return whether an object is a tensor, or takes over calls by `__torch_function__`."""
    return type(inp) is _C.Tensor or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Any) -> bool:
    """Return whether a function that `__torch_function__` got is a method of Tensor, or reads one.

    Args:
        func: the function: `Tensor.add` is a method, and `tangrad.add` is not.
    """
    name = getattr(func, "__name__", "")
    return name == "__get__" or getattr(_C.Tensor, name, None) is func


def wrap_torch_function(
    dispatcher: Callable[..., Any],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that lets `__torch_function__` take over a Python function.

    Args:
        dispatcher: takes the function's arguments, and returns a tuple of those whose classes may
            take the call over.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def offered(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(offered, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return offered

    return decorate
