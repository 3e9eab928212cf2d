"""Local names: what they mean at a point of the program, branch by branch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tangrad_jit.scripting.source.places import Place, ScriptError
from tangrad_jit.scripting.tree.nodes import Expr
from tangrad_jit.scripting.types.kinds import ModuleType, OptionalType, Type, is_subtype, unify

__all__ = ["Frame", "Scope"]

_DELETED = "undefined value"


@dataclass(slots=True)
class Frame:
    """The names of a block.

    Attributes:
        names: name -> type of a variable, or a meaning.
        missing: name -> why it has none after a branch.
        exits: whether the block is left before its end.
    """

    names: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, tuple[str, Place]] = field(default_factory=dict)
    exits: bool = False


class Scope:
    """The frames of a function, the innermost last."""

    def __init__(self) -> None:
        self.frames = [Frame()]

    @property
    def top(self) -> Frame:
        """The innermost frame."""
        return self.frames[-1]

    def find(self, name: str, place: Place) -> Any:
        """Return the type or meaning of a name, or None.

        Raises:
            ScriptError: it has one on some ways to this place only.
        """
        for frame in reversed(self.frames):
            if name in frame.names:
                return frame.names[name]
            if name in frame.missing:
                reason, where = frame.missing[name]
                raise ScriptError(f"{reason}:\n{where}and was used here", place)
        return None

    def find_outside(self, name: str) -> Any:
        """Return the type or meaning that a name has in the frames around the innermost."""
        for frame in reversed(self.frames[:-1]):
            if name in frame.names:
                return frame.names[name]
        return None

    def set(self, name: str, meaning: Any, place: Place, annotated: bool = False) -> None:
        """Give a name a type or a meaning.

        Raises:
            ScriptError: it has another in a block around this one.
        """
        before = self.find_outside(name)
        if before is not None:
            if annotated:
                raise ScriptError(
                    f"Attempting to declare and annotate the type of variable '{name}' that is "
                    "already defined in an outer block",
                    place,
                )
            self._check_same(name, before, meaning, place)
        self.top.names[name] = meaning
        self.top.missing.pop(name, None)

    def _check_same(self, name: str, before: Any, meaning: Any, place: Place) -> None:
        if not isinstance(meaning, Type):
            raise ScriptError(
                f"Cannot re-assign '{name}' to a value of type {meaning} because {name} is not a "
                "first-class value. Only reassignments to first-class values are allowed",
                place,
            )
        if not isinstance(before, Type):
            raise ScriptError(
                f"Cannot re-assign '{name}' because it has type {before} and {name} is not a "
                "first-class value. Only reassignments to first-class values are allowed",
                place,
            )
        if isinstance(meaning, ModuleType) and not isinstance(before, ModuleType):
            raise ScriptError(
                f"Cannot re-assign '{name}' to a value of type module because {name} is not a "
                "first-class value. Only reassignments to first-class values are allowed",
                place,
            )
        if isinstance(before, ModuleType) and not isinstance(meaning, ModuleType):
            raise ScriptError(
                f"Cannot re-assign '{name}' because it has type module and {name} is not a "
                "first-class value. Only reassignments to first-class values are allowed",
                place,
            )
        if not is_subtype(meaning, before):
            hint = ""
            if str(before) == "NoneType":
                hint = f"; annotate it where it begins: {name}: Optional[{meaning}] = None"
            elif isinstance(meaning, OptionalType) and is_subtype(meaning.element, before):
                hint = f"; check that it is not None before, or annotate {name} as {meaning}"
            raise ScriptError(
                f"Variable '{name}' previously had type {before} but is now being assigned to a "
                f"value of type {meaning}{hint}",
                place,
            )

    def delete(self, name: str, place: Place) -> None:
        """Take a name away: here, and after the branch in which it is."""
        self.top.names.pop(name, None)
        self.top.missing[name] = (f"{_DELETED} {name}: it is deleted", place)

    def refine(self, refined: dict[str, Type]) -> None:
        """Take what a condition has told of types."""
        self.top.names.update(refined)

    def merge(self, then: Frame, other: Frame, place: Place) -> None:
        """Give names what they mean after a branch."""
        if then.exits and other.exits:
            self.top.exits = True
            return
        if then.exits or other.exits:
            kept = other if then.exits else then
            self.top.names.update(kept.names)
            self.top.missing.update(kept.missing)
            for name in kept.names:
                self.top.missing.pop(name, None)
            return
        for name in [*then.names, *(n for n in other.names if n not in then.names)]:
            self._merge_name(name, then, other, place)
        for name, why in [*then.missing.items(), *other.missing.items()]:
            if why[0].startswith(_DELETED):
                self.top.names.pop(name, None)
                self.top.missing[name] = why

    def _merge_name(self, name: str, then: Frame, other: Frame, place: Place) -> None:
        outside = next((f.names[name] for f in reversed(self.frames) if name in f.names), None)
        one = then.names.get(name, outside)
        two = other.names.get(name, outside)
        if one is None or two is None:
            branch = "true" if one is None else "false"
            self.top.missing[name] = (f"{name} is not defined in the {branch} branch", place)
            return
        if one is two:
            self.top.names[name] = one
            return
        both = unify(one, two) if isinstance(one, Type) and isinstance(two, Type) else None
        if both is None and _are_of(outside, one, two):
            both = outside  # each branch has narrowed it, or has given it a value of its own type
        if both is None:
            self.top.names.pop(name, None)
            kinds = [
                f"type {m}" if isinstance(m, (Type, Expr)) else f"value {m}" for m in (one, two)
            ]
            self.top.missing[name] = (
                f"Type mismatch: {name} is set to {kinds[0]} in the true branch and {kinds[1]} in "
                "the false branch",
                place,
            )
            return
        self.top.names[name] = both
        self.top.missing.pop(name, None)


def _are_of(outside: Any, one: Any, two: Any) -> bool:
    return all(isinstance(m, Type) for m in (outside, one, two)) and all(
        is_subtype(inside, outside) for inside in (one, two)
    )
