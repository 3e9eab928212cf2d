"""A module of the library that is traced by itself, as the ops that archives have for it."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.freezing.library import library_forward
from tangrad_jit.scripting.freezing.specialising import Specialiser
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.tree.nodes import Const, Expr, Local
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import ModuleType, Type

__all__ = ["whole_method"]


class _Alone:
    """The place of a module whose attributes all stay what they are."""

    def __init__(self, kind: ModuleType) -> None:
        self.root_type = kind
        self.reserved: set[str] = set()

    def path(self, module: Any) -> tuple[str, ...]:
        """Return the way to the module."""
        return ()

    def value(self, module: Any, name: str) -> Any:
        """Return what it has under a name."""
        return getattr(module, name)

    def is_whole(self, module: Any) -> bool:
        """Return that its calls are written out."""
        return False

    def is_kept(self, module: Any, name: str) -> bool:
        """Return whether a name is that of an attribute that the traced module has."""
        return name in self.root_type.unit.attributes

    def owner(self, module: Any, name: str, kind: Type, place: Place) -> Expr:
        """Return the module."""
        return Local(place, self.root_type, "self")

    def whole(self, module: Any, kind: Type, place: Place) -> Expr:
        """Return the module."""
        return Local(place, self.root_type, "self")


def whole_method(module: Any, kind: ModuleType, name: str, args: Any, kwargs: Any) -> Unit | None:
    """Return a method that does what a call of a module does; None where there is no form of it.

    Args:
        module: the module. kind: what it is when it is traced.
        name: of the method.
        args, kwargs: of the call.
    """
    found = library_forward(module) if name == "forward" and not kwargs else None
    if found is None or not all(map(_is_of_tensors, args)):
        return None
    if isinstance(args[0], tangrad.Tensor) and args[0].dim() != _dims(module):
        return None
    place = found.place()
    rest = found.parameters[1 + len(args) :]
    given: dict[str, Expr] = {
        p.name: Const(place, kinds.NONE if p.default is None else p.type, p.default) for p in rest
    }
    for parameter in found.parameters[1 : 1 + len(args)]:
        if isinstance(parameter.type, kinds.OptionalType):
            given[parameter.name] = Local(place, parameter.type.element, parameter.name)
    made = Specialiser(_Alone(kind), {}).method(name, found, module, given)
    made.parameters += [
        type(p)(p.name, p.type.element)
        for p in found.parameters[1 : 1 + len(args)]
        if isinstance(p.type, kinds.OptionalType)
    ]
    return made


def _dims(module: Any) -> int:
    return 2 if type(module).__name__.endswith("Cell") else 3


def _is_of_tensors(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_of_tensors, value))
    return isinstance(value, tangrad.Tensor)
