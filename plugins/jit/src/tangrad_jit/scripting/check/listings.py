"""What a module has inside, listed by methods of `nn.Module`: loops over it are unrolled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tangrad_jit.scripting.check.values import Many, Value
from tangrad_jit.scripting.source.places import Place, ScriptError
from tangrad_jit.scripting.tree.nodes import Const, Expr, GetAttr
from tangrad_jit.scripting.types import kinds

__all__ = ["LISTINGS", "Listing"]

LISTINGS = frozenset(
    "modules named_modules children named_children parameters named_parameters buffers "
    "named_buffers".split()
)


def _below(owner: Expr, prefix: str, place: Place) -> Iterator[tuple[str, Expr]]:
    """Yield a module and those inside, with their names."""
    yield prefix, owner
    unit = owner.type.unit  # type: ignore[attr-defined]
    for name, kind in unit.children.items():
        if kind is not None:
            child = GetAttr(place, kind, owner, name)
            yield from _below(child, f"{prefix}.{name}" if prefix else name, place)


def _listed(owner: Expr, what: str, place: Place) -> Iterator[tuple[str, Expr]]:
    every = list(_below(owner, "", place))
    if what == "modules":
        yield from every
        return
    if what == "children":
        unit = owner.type.unit  # type: ignore[attr-defined]
        for name, kind in unit.children.items():
            if kind is not None:
                yield name, GetAttr(place, kind, owner, name)
        return
    for prefix, module in every:
        unit = module.type.unit  # type: ignore[attr-defined]
        names = unit.parameter_names if what == "parameters" else unit.buffer_names
        for name in names:
            kind = unit.attributes[name]
            if kind != kinds.NONE:
                yield f"{prefix}.{name}" if prefix else name, GetAttr(place, kind, module, name)


class Listing(Value):
    """A method that lists what a module has inside."""

    def __init__(self, owner: Expr, name: str) -> None:
        self.owner, self.name = owner, name

    def __str__(self) -> str:
        return f"method {self.name}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Return what it lists: with names where it says so."""
        if args or kwargs:
            raise ScriptError(f"{self.name} takes no arguments in scripts", place)
        what = self.name.removeprefix("named_")
        found = list(_listed(self.owner, what, place))
        if what == self.name:
            return Many([item for _, item in found])
        return Many([Many([Const(place, kinds.STR, name), item]) for name, item in found])
