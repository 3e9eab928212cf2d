"""Objects of the classes of `torch.classes`: scripts call their methods, which stay Python's."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any

import tangrad
from tangrad_jit.scripting.check.classes import ClassUnit
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.tree.nodes import Expr, Invoke, PythonCall
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import ClassType, Type

__all__ = ["ScriptObjectUnit", "class_of_name", "is_class_of_objects"]

_PREFIX = "__torch__.torch.classes."
_OPERATORS = ("__len__", "__getitem__", "__setitem__", "__contains__", "__call__")


def is_class_of_objects(cls: type) -> bool:
    """Return whether a class is one of `tangrad.classes`."""
    return cls.__module__.startswith(_PREFIX)


def class_of_name(name: str) -> Any:
    """Return the class that archives call `__torch__.torch.classes.<namespace>.<name>`, or None."""
    if not name.startswith(_PREFIX):
        return None
    namespace, _, last = name.removeprefix(_PREFIX).partition(".")
    with suppress(AttributeError, ImportError, RuntimeError):
        _ = getattr(tangrad.ops, namespace).__dir__  # the package of these ops registers classes
    try:
        return getattr(getattr(tangrad.classes, namespace), last)
    except (AttributeError, RuntimeError):
        return None


class ScriptObjectUnit(ClassUnit):
    """A class of `tangrad.classes`: its methods have types by their annotations, and no code.

    Args:
        world: what is scripted.
        cls: the class.
    """

    def __init__(self, world: Any, cls: type) -> None:
        self.world, self.cls = world, cls
        self.qualified = f"{cls.__module__}.{cls.__name__}"
        self.type = ClassType(self.qualified, self)
        self.ignored, self.statics, self.getters, self.setters = {}, {}, {}, {}
        self.attributes, self.declared, self.constants = {}, {}, {}
        self.bases = [self]
        self.methods: dict[str, Unit] = {}

    def check(self) -> None:
        """Read the signatures of the methods that have annotations."""
        for name in dir(self.cls):
            function = inspect.getattr_static(self.cls, name)
            if name.startswith("_") and name not in _OPERATORS:
                continue
            if not isinstance(function, FunctionType) or "return" not in function.__annotations__:
                continue
            if not function.__code__.co_kwonlyargcount:  # calls give arguments by place
                self._declare_method(name, function)

    def _declare_method(self, name: str, function: FunctionType) -> None:
        unit = self.world.make_unit(function, self.type, name)
        unit.declare_only()
        unit.qualified = f"{self.qualified}.{name}"
        self.methods[name] = unit

    def state_type(self) -> Type:
        """Return the type of what `__getstate__` gives, which archives hold.

        Raises:
            RuntimeError: the class does not say.
        """
        if "__getstate__" not in self.methods:
            function = inspect.getattr_static(self.cls, "__getstate__", None)
            if not isinstance(function, FunctionType):
                raise RuntimeError(
                    f"jit.save: {self.qualified} has no __getstate__, by which archives hold its "
                    "objects"
                )
            self._declare_method("__getstate__", function)
        returned: Type = self.methods["__getstate__"].returned
        return returned

    def make(self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
        """Return a call of the class, which makes an object."""
        init = self.world.make_unit(inspect.getattr_static(self.cls, "__init__"), self.type)
        me = PythonCall(place, self.type, self.cls, self.qualified, [])
        given = init.bind(check, [me, *args], kwargs, place)
        return PythonCall(place, self.type, self.cls, self.qualified, given[1:])

    def _invoke(
        self,
        check: Any,
        owner: Expr,
        unit: Unit,
        name: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        place: Place,
    ) -> Expr:
        given = unit.bind(check, [owner, *args], kwargs, place)
        returned = kinds.NONE if unit.declared is None else unit.declared
        return Invoke(place, returned, given[0], name, None, given[1:])
