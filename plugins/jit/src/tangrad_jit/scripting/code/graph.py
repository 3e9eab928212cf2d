"""Graphs with control flow: what `.graph` of a script shows, in PyTorch's form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.types.kinds import (
    DictType,
    EnumType,
    FutureType,
    ListType,
    OptionalType,
    TupleType,
    Type,
    UnionType,
)

__all__ = ["Block", "ScriptGraph", "ScriptNode", "ScriptValue", "shown_type"]


def shown_type(kind: Type) -> str:
    """Return a type as graphs show it: `int[]`, `Tensor?`."""
    if isinstance(kind, ListType):
        return f"{shown_type(kind.element)}[]"
    if isinstance(kind, OptionalType):
        return f"{shown_type(kind.element)}?"
    if isinstance(kind, DictType):
        return f"Dict({shown_type(kind.key)}, {shown_type(kind.value)})"
    if isinstance(kind, UnionType):
        return f"Union({', '.join(map(shown_type, kind.members))})"
    if isinstance(kind, EnumType):
        return f"Enum<{kind}>"
    if isinstance(kind, FutureType):
        return f"{type(kind).__name__.removesuffix('Type')}({shown_type(kind.element)})"
    if isinstance(kind, TupleType) and not kind.names:
        return f"({', '.join(map(shown_type, kind.elements))})"
    return str(kind)


class ScriptValue:
    """What a node makes, or a block is given."""

    def __init__(self, name: str, kind: Type, producer: Any = None) -> None:
        self._name, self._kind, self._producer = name, kind, producer

    def debugName(self) -> str:
        """Return its name."""
        return self._name

    def type(self) -> Type:
        """Return its type."""
        return self._kind

    def node(self) -> Any:
        """Return the node that makes it, or None."""
        return self._producer

    def __str__(self) -> str:
        return f"%{self._name}"

    def declared(self) -> str:
        """Return it with its type."""
        return f"%{self._name} : {shown_type(self._kind)}"


class Block:
    """Nodes in order, with what the block is given and what it returns."""

    def __init__(self) -> None:
        self.given: list[ScriptValue] = []
        self.held: list[ScriptNode] = []
        self.returned: list[ScriptValue] = []

    def inputs(self) -> Iterator[ScriptValue]:
        """Yield what it is given."""
        return iter(self.given)

    def nodes(self) -> Iterator[ScriptNode]:
        """Yield its nodes."""
        return iter(self.held)

    def outputs(self) -> Iterator[ScriptValue]:
        """Yield what it returns."""
        return iter(self.returned)

    def every_node(self) -> Iterator[ScriptNode]:
        """Yield all nodes, those of blocks inside, too."""
        for node in self.held:
            yield node
            for block in node.inner:
                yield from block.every_node()


class ScriptNode:
    """One operation.

    Attributes:
        attributes: name -> constant.
        inner: the blocks of `prim::If` and `prim::Loop`.
        place: where it came from.
    """

    def __init__(self, kind: str, given: list[ScriptValue], place: Place | None = None) -> None:
        self._kind, self._given, self.place = kind, given, place
        self._made: list[ScriptValue] = []
        self.attributes: dict[str, Any] = {}
        self.inner: list[Block] = []

    def kind(self) -> str:
        """Return its name, `aten::add`."""
        return self._kind

    def inputs(self) -> Iterator[ScriptValue]:
        """Yield what it takes."""
        return iter(self._given)

    def outputs(self) -> Iterator[ScriptValue]:
        """Yield what it makes."""
        return iter(self._made)

    def output(self) -> ScriptValue:
        """Return the only value that it makes."""
        (found,) = self._made
        return found

    def blocks(self) -> Iterator[Block]:
        """Yield its blocks."""
        return iter(self.inner)

    def add_output(self, value: ScriptValue) -> ScriptValue:
        """Add a value that it makes."""
        self._made.append(value)
        return value

    def sourceRange(self) -> str:
        """Return the lines that it came from."""
        return "" if self.place is None else str(self.place)

    def lines(self, indent: str) -> Iterator[str]:
        """Yield the node as text."""
        made = ", ".join(value.declared() for value in self._made)
        inside = ", ".join(
            f"{k}={v!r}" if not isinstance(v, str) else f'{k}="{v}"'
            for k, v in self.attributes.items()
        )
        shown = f"[{inside}]" if inside else ""
        where = ""
        if self.place is not None:
            line = self.place.source.first + self.place.line
            where = f" # {self.place.source.file}:{line}:{self.place.column}"
        equals = " = " if made else ""
        given = ", ".join(map(str, self._given))
        yield f"{indent}{made}{equals}{self._kind}{shown}({given}){where}"
        for k, block in enumerate(self.inner):
            given = ", ".join(value.declared() for value in block.given)
            yield f"{indent}  block{k}({given}):"
            for node in block.held:
                yield from node.lines(indent + "    ")
            yield f"{indent}    -> ({', '.join(map(str, block.returned))})"


class ScriptGraph(Block):
    """The graph of a function or method."""

    def findNode(self, kind: str, recurse: bool = True) -> ScriptNode | None:
        """Return the first node of a kind, or None."""
        return next(iter(self.findAllNodes(kind, recurse)), None)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[ScriptNode]:
        """Return all nodes of a kind."""
        nodes = self.every_node() if recurse else self.nodes()
        return [node for node in nodes if node.kind() == kind]

    def __str__(self) -> str:
        given = ",\n      ".join(value.declared() for value in self.given)
        lines = [f"graph({given}):"]
        for node in self.held:
            lines.extend(node.lines("  "))
        lines.append(f"  return ({', '.join(map(str, self.returned))})")
        return "\n".join(lines) + "\n"
