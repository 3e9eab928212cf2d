"""The base of traced and scripted modules, and of classes that declare what is scripted of them."""

from __future__ import annotations

import functools
import inspect
import sys
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import nn
from tangrad_jit.tracing.annotations import Attribute

__all__ = ["RecursiveScriptModule", "ScriptModule", "script_method"]

_ACTUAL = "_actual_script_module"
_functions: dict[str, Callable[..., Any]] = {}


def set_scripting(**functions: Callable[..., Any]) -> None:
    """Install what scripts modules that declare their methods: it stands on this file.

    Args:
        functions: `define` of a module, a text and a namespace; `script_declared` of a module.
    """
    _functions.update(functions)


def _scripting(name: str) -> Callable[..., Any]:
    if name not in _functions:
        assert tangrad.jit.script  # which installs them when it is first asked for
    return _functions[name]


class _Declaring(type):
    """The type of classes whose instances are scripted when their `__init__` is done."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an instance."""
        made = super().__call__(*args, **kwargs)
        if cls.is_declared:  # type: ignore[attr-defined]
            _scripting("script_declared")(made)
        return made


class ScriptModule(nn.Module, metaclass=_Declaring):
    """A module that is scripted.

    A class may derive from it: its methods under `script_method`, and those that `define` has
    given as text, are scripted when an instance has been made.
    """

    #: Whether instances are scripted when they are made; what tracing and scripting make, is.
    is_declared = True

    @property
    def forward(self) -> Any:  # type: ignore[override]
        """The method `forward` of what has been scripted.

        Raises:
            AttributeError: nothing has.
        """
        actual = self.__dict__.get(_ACTUAL)
        if actual is None:
            raise AttributeError(f"{type(self).__name__} has no forward")
        return actual.forward

    def define(self, src: str) -> None:
        """Add methods that are given as text.

        Args:
            src: definitions of methods; names are looked up where `define` is called.

        Raises:
            RuntimeError: the text cannot be scripted.
        """
        frame = sys._getframe(1)
        _scripting("define")(self, src, ChainMap(dict(frame.f_locals), frame.f_globals))

    def __getattr__(self, name: str) -> Any:
        actual = self.__dict__.get(_ACTUAL)
        if actual is not None:
            return getattr(actual, name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        actual = self.__dict__.get(_ACTUAL)
        if actual is not None and name != "training":
            setattr(actual, name, value)
            return
        if type(self).is_declared and isinstance(value, Attribute):
            own = inspect.get_annotations(type(self))
            type(self).__annotations__ = {**own, name: value.type}
            value = value.value
        if "_parameters" not in self.__dict__:
            raise RuntimeError(
                f"'{type(self).__name__}' has not been initialized, did you forget to call "
                "'super().__init__()'?"
            )
        super().__setattr__(name, value)
        if actual is not None:
            setattr(actual, name, value)


RecursiveScriptModule = ScriptModule


class _DeclaredMethod:
    """A method that is scripted when an instance has been made."""

    _torchscript_modifier = "export"

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method of Python."""
        return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    def __get__(self, owner: Any, cls: Any = None) -> Any:
        actual = None if owner is None else owner.__dict__.get(_ACTUAL)
        if actual is not None:
            return getattr(actual, self.__name__)  # type: ignore[attr-defined]
        return self if owner is None else self.__wrapped__.__get__(owner, cls)  # type: ignore[attr-defined]


def script_method(fn: Any) -> Any:
    """Declare that a method of a class that derives from `ScriptModule` is scripted.

    Raises:
        RuntimeError: it has no parameter for the module.
    """
    if not inspect.signature(fn).parameters:
        raise RuntimeError(f"methods must have a self argument: {fn.__qualname__}")
    return _DeclaredMethod(fn)
