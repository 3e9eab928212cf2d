"""Functions that are replaced while a program is traced: `wrap`, and where its calls are seen."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from tangrad.utils import _pytree
from tangrad_fx.proxy import Proxy

# {(id of a module's globals, name): the globals}; (class, name) of methods.
wrapped_functions: dict[tuple[int, str], dict[str, Any]] = {}
wrapped_methods: list[tuple[type, str]] = []
_MISSING = object()
PATCHED = "__fx_already_patched"


class Patcher:
    """Replace entries of dicts and attributes, and put them back at the end of a `with` block."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []
        self.visited: set[int] = set()

    def patch(self, frame: dict[str, Any], name: str, new: Callable[..., Any]) -> None:
        """Replace a global; one that was not there goes away again."""
        before = frame.get(name, _MISSING)
        if before is _MISSING and not hasattr(builtins, name):
            return
        setattr(new, PATCHED, True)
        frame[name] = new
        if before is _MISSING:
            self._undo.append(lambda: frame.pop(name, None))
        else:
            self._undo.append(lambda: frame.__setitem__(name, before))

    def patch_method(
        self, cls: type, name: str, new: Callable[..., Any], deduplicate: bool = True
    ) -> None:
        """Replace an attribute of a class; with `deduplicate` not by a second replacement."""
        new.__fx_already_patched = deduplicate  # type: ignore[attr-defined]
        if getattr(cls.__dict__.get(name), "__fx_already_patched", False):
            return
        before = cls.__dict__.get(name, _MISSING)
        setattr(cls, name, new)
        if before is _MISSING:
            self._undo.append(lambda: delattr(cls, name))
        else:
            self._undo.append(lambda: setattr(cls, name, before))

    def visit_once(self, thing: Any) -> bool:
        """Return whether an object comes here for the first time."""
        if id(thing) in self.visited:
            return False
        self.visited.add(id(thing))
        return True

    def __enter__(self) -> Patcher:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._undo:
            self._undo.pop()()
        self.visited.clear()


def find_proxy(*trees: Any) -> Proxy | None:
    """Return a proxy in nested arguments, those of slices too, or None."""
    for leaf in _pytree.tree_leaves(trees):
        ends = (leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else (leaf,)
        for end in ends:
            if isinstance(end, Proxy):
                return end
    return None


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that becomes one node when it is called with a proxy."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxy = find_proxy(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return call


def recorded_method(cls: type, name: str) -> Callable[..., Any]:
    """Return a method that becomes one node when it is called with a proxy."""
    original = getattr(cls, name)

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxy = find_proxy(args, kwargs)
        if proxy is None:
            return original(*args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, args, kwargs)

    return call


def patch_wrapped(patcher: Patcher) -> None:
    """Replace all functions and methods that programs gave to `wrap`."""
    for (_, name), frame in list(wrapped_functions.items()):
        original = frame.get(name, getattr(builtins, name, None))
        if original is not None and not getattr(original, PATCHED, False):
            patcher.patch(frame, name, recorded(original))
    for cls, name in list(wrapped_methods):
        patcher.patch_method(cls, name, recorded_method(cls, name))


def autowrap(patcher: Patcher, frame: dict[str, Any], function_ids: set[int]) -> None:
    """Replace functions of some modules, such as `math`, that a module's globals hold."""
    if not patcher.visit_once(frame):
        return
    for name, value in list(frame.items()):
        if not name.startswith("_") and callable(value) and id(value) in function_ids:
            patcher.patch(frame, name, recorded(value))


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Have calls of a function kept as one node; called at the top of a module, or a decorator.

    Args:
        fn_or_name: the function, or its name in the module that calls this, a builtin's too.

    Raises:
        RuntimeError: it is no function of a module.
        NotImplementedError: it is called inside a function.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    here = inspect.currentframe()
    caller = here.f_back if here is not None else None
    if caller is None or caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    wrapped_functions[(id(caller.f_globals), name)] = caller.f_globals
    return fn_or_name
