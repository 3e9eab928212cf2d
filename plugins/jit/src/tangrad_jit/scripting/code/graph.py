"""Graphs with control flow: what `.graph` of a script shows, in PyTorch's form."""

from __future__ import annotations

import builtins
import contextlib
import enum
import json
import re
from collections.abc import Iterator
from typing import Any

import tangrad
from tangrad_jit.scripting.code.walking import Use, copied, uses_of
from tangrad_jit.scripting.program.texts import text_of
from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.types.annotations import type_of_value
from tangrad_jit.scripting.types.kinds import (
    NUMBER,
    DictType,
    EnumType,
    FutureType,
    ListType,
    OptionalType,
    Primitive,
    TupleType,
    Type,
    UnionType,
    is_subtype,
)

__all__ = ["Block", "ScriptGraph", "ScriptNode", "ScriptValue", "shown_type"]


# PyTorch shows what a dict holds in another way.
_IN_DICT = "()"


def shown_type(kind: Type, around: str = "[]") -> str:
    """Return a type as graphs show it: `int[]`, `Tensor?`."""
    if kind == NUMBER:
        return "Scalar"
    if isinstance(kind, ListType):
        return f"{shown_type(kind.element, around)}[{kind.broadcast or ''}]"
    if isinstance(kind, TupleType) and kind.names:
        fields = [
            f"{name} : {shown_type(member, around)}"
            + (f" = {text_of(kind.defaults[name], quote='')}" if name in kind.defaults else "")
            for name, member in zip(kind.names, kind.elements, strict=True)
        ]
        return f"NamedTuple({', '.join(fields)})"
    if isinstance(kind, OptionalType):
        return f"{shown_type(kind.element, around)}?"
    if isinstance(kind, DictType):
        return f"Dict({shown_type(kind.key, _IN_DICT)}, {shown_type(kind.value, _IN_DICT)})"
    if isinstance(kind, UnionType):
        return f"Union({', '.join(shown_type(member, around) for member in kind.members)})"
    if isinstance(kind, EnumType):
        return f"Enum<{kind}>"
    if isinstance(kind, FutureType):
        inner = shown_type(kind.element, around)
        return f"{type(kind).__name__.removesuffix('Type')}{around[0]}{inner}{around[1]}"
    if isinstance(kind, TupleType) and not kind.names:
        return f"({', '.join(shown_type(member, around) for member in kind.elements)})"
    return str(kind)


_KINDS = {
    "Device": "DeviceObjType",
    "NoneType": "NoneType",
    "number": "NumberType",
    "str": "StringType",
}


class ShownType:
    """A type as graphs answer for it."""

    def __init__(self, held: Type, shown: builtins.str = "") -> None:
        self.held, self._shown = held, shown

    def strides(self) -> list[int] | None:
        """Return the strides that a trace has seen, or None."""
        found = re.search(r"strides=\[([\d, ]*)\]", self._shown)
        return None if found is None else [int(k) for k in found.group(1).split(", ")]

    def sizes(self) -> list[int] | None:
        """Return the sizes that a trace has seen, or None."""
        if not self._shown:
            return None
        found = re.match(r"\w+\(((?:\d+, )*)", self._shown)
        assert found is not None
        return [int(k) for k in found.group(1).split(", ") if k]

    def kind(self) -> str:
        """Return the name of its kind: `TensorType`, `ListType`."""
        if isinstance(self.held, Primitive):
            name = self.held.text
            return _KINDS.get(name, f"{name[0].upper()}{name[1:]}Type")
        return type(self.held).__name__

    def elements(self) -> list[ShownType]:
        """Return the types of a tuple's members."""
        return [ShownType(kind) for kind in getattr(self.held, "elements", ())]

    def getElementType(self) -> ShownType:
        """Return the type of a list's elements, or of an optional value."""
        return ShownType(self.held.element)  # type: ignore[attr-defined]

    def getKeyType(self) -> ShownType:
        """Return the type of a dict's keys."""
        return ShownType(self.held.key)  # type: ignore[attr-defined]

    def getValueType(self) -> ShownType:
        """Return the type of a dict's values."""
        return ShownType(self.held.value)  # type: ignore[attr-defined]

    def isSubtypeOf(self, other: ShownType) -> bool:
        """Return whether every value of this type is one of another."""
        return is_subtype(self.held, other.held)

    def str(self) -> str:
        """Return it as graphs show it."""
        return shown_type(self.held)

    @property
    def annotation_str(self) -> Any:
        """The type as annotations name it."""
        return str(self.held)

    def __str__(self) -> Any:
        return str(self.held)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShownType) and self.held == other.held

    def __hash__(self) -> int:
        return hash(self.held)


def _shown(value: Any) -> str:
    """Return an attribute of a node as graphs show it."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, enum.Enum):
        return f"{qualified_class(type(value))}.{value.name}"
    if isinstance(value, Type):
        return shown_type(value)
    if isinstance(value, tangrad.Tensor):
        return f"{{{text_of(value.item())}}}" if value.numel() == 1 else "<Tensor>"
    if isinstance(value, tangrad.device):
        return f'"{value}"'
    if isinstance(value, list) and any(isinstance(item, Type) for item in value):
        return f"[{', '.join(map(shown_type, value))}]"
    return text_of(value)


def qualified_class(cls: type) -> str:
    """Return the name of a class in archives."""
    module = "" if cls.__module__ == "__main__" else cls.__module__.replace("tangrad", "torch", 1)
    return ".".join(["__torch__", *filter(None, module.split(".")), cls.__name__])


class ScriptValue:
    """What a node makes, or a block is given.

    Attributes:
        shown: its type where a trace knows more of it, or "".
    """

    def __init__(self, name: str, kind: Type, producer: Any = None) -> None:
        self._name, self._kind, self._producer = name, kind, producer
        self.graph: Any = None
        self.shown = ""

    def rename(self, name: str) -> None:
        """Give it another name."""
        self._name = name

    def setDebugName(self, name: str) -> None:
        """Give it another name."""
        self._name = name

    def debugName(self) -> str:
        """Return its name."""
        return self._name

    def toIValue(self) -> Any:
        """Return the constant that it is, or None."""
        is_constant = self._producer is not None and self._producer.kind() == "prim::Constant"
        return self._producer.attributes.get("value") if is_constant else None

    @property
    def held(self) -> Type:
        """Its type, as the checker knows it."""
        return self._kind

    def type(self) -> ShownType:
        """Return its type."""
        return ShownType(self._kind, self.shown)

    def hasDebugName(self) -> bool:
        """Return whether the program has named it."""
        return not self._name.isdigit()

    def uses(self) -> list[Use]:
        """Return its uses, in the order of the program."""
        return uses_of(self.graph, self)

    def node(self) -> Any:
        """Return the node that makes it, or None."""
        return self._producer

    def __str__(self) -> str:
        return f"%{self._name}"

    def declared(self) -> str:
        """Return it with its type."""
        return f"%{self._name} : {self.shown or shown_type(self._kind)}"


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

    def paramNode(self) -> ScriptNode:
        """Return a node that makes what it is given."""
        made = ScriptNode("prim::Param", [])
        made._made = self.given
        return made

    param_node = paramNode

    def returnNode(self) -> ScriptNode:
        """Return a node that takes what it returns."""
        return ScriptNode("prim::Return", self.returned)

    def findNode(self, kind: str, recurse: bool = True) -> ScriptNode | None:
        """Return the first node of a kind, or None."""
        return next(iter(self.findAllNodes(kind, recurse)), None)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[ScriptNode]:
        """Return all nodes of a kind."""
        nodes = self.every_node() if recurse else self.nodes()
        return [node for node in nodes if node.kind() == kind]

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

    def input(self) -> ScriptValue:
        """Return the only value that it takes."""
        (found,) = self._given
        return found

    def inputsAt(self, index: int) -> ScriptValue:
        """Return a value that it takes."""
        return self._given[index]

    def outputsAt(self, index: int) -> ScriptValue:
        """Return a value that it makes."""
        return self._made[index]

    def inputsSize(self) -> int:
        """Return how many values it takes."""
        return len(self._given)

    def outputsSize(self) -> int:
        """Return how many values it makes."""
        return len(self._made)

    def blocks(self) -> Iterator[Block]:
        """Yield its blocks."""
        return iter(self.inner)

    def attributeNames(self) -> list[str]:
        """Return the names of its attributes."""
        return list(self.attributes)

    def hasAttribute(self, name: str) -> bool:
        """Return whether it has an attribute of a name."""
        return name in self.attributes

    def s(self, name: str) -> str:
        """Return an attribute that is a text."""
        return str(self.attributes[name])

    def i(self, name: str) -> int:
        """Return an attribute that is an integer."""
        return int(self.attributes[name])

    def f(self, name: str) -> float:
        """Return an attribute that is a float."""
        return float(self.attributes[name])

    def t(self, name: str) -> Any:
        """Return an attribute that is a tensor."""
        return self.attributes[name]

    def add_output(self, value: ScriptValue) -> ScriptValue:
        """Add a value that it makes."""
        self._made.append(value)
        return value

    def sourceRange(self) -> str:
        """Return the lines that it came from."""
        return "" if self.place is None else str(self.place)

    def findNode(self, kind: str, recurse: bool = True) -> ScriptNode | None:
        """Return the first node of a kind in its blocks, or None."""
        return next(iter(self.findAllNodes(kind, recurse)), None)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[ScriptNode]:
        """Return all nodes of a kind in its blocks."""
        return [node for block in self.inner for node in block.findAllNodes(kind, recurse)]

    def lines(self, indent: str, places: bool = True) -> Iterator[str]:
        """Yield the node as text; `places`: whether it tells where it came from."""
        made = ", ".join(value.declared() for value in self._made)
        inside = ", ".join(f"{k}={_shown(v)}" for k, v in self.attributes.items())
        shown = f"[{inside}]" if inside else ""
        where = ""
        if places and self.place is not None:
            place = self.place.original() or self.place
            line = place.source.first + place.line
            where = f" # {place.source.file}:{line}:{place.column}"
        equals = " = " if made else ""
        given = ", ".join(map(str, self._given))
        yield f"{indent}{made}{equals}{self._kind}{shown}({given}){where}"
        for k, block in enumerate(self.inner):
            given = ", ".join(value.declared() for value in block.given)
            yield f"{indent}  block{k}({given}):"
            for node in block.held:
                yield from node.lines(indent + "    ", places)
            yield f"{indent}    -> ({', '.join(map(str, block.returned))})"


class ScriptGraph(Block):
    """The graph of a function or method."""

    _before: ScriptNode | None = None

    def copy(self) -> ScriptGraph:
        """Return a graph with nodes and values of its own."""
        made: ScriptGraph = copied(self)
        return made

    def permuteInputs(self, order: list[int]) -> None:
        """Put what it is given into another order, of the old places."""
        self.given = [self.given[k] for k in order]

    @contextlib.contextmanager
    def insert_point_guard(self, node: ScriptNode) -> Iterator[None]:
        """Have constants inserted before a node."""
        before, self._before = self._before, node
        try:
            yield
        finally:
            self._before = before

    def insertConstant(self, value: Any) -> ScriptValue:
        """Insert a constant at the place where nodes are inserted: the end, unless it is set.

        Raises:
            ValueError: no graph has constants of its type.
        """
        kind = type_of_value(value)
        if kind is None:
            raise ValueError(f"a {type(value).__name__} cannot be a constant of a graph")
        node = ScriptNode("prim::Constant", [])
        node.attributes["value"] = value
        names = {made.debugName() for one in self.every_node() for made in one.outputs()}
        names |= {given.debugName() for given in self.given}
        name = next(str(k) for k in range(len(names) + 1) if str(k) not in names)
        made = node.add_output(ScriptValue(name, kind, node))
        made.graph = self
        at = len(self.held) if self._before is None else self.held.index(self._before)
        self.held.insert(at, node)
        return made

    def take_values(self) -> None:
        """Tell all values whose graph this is."""
        blocks: list[Block] = [self]
        for block in blocks:
            for value in block.given:
                value.graph = self
            for node in block.held:
                blocks.extend(node.inner)
                for value in node.outputs():
                    value.graph = self

    def str(self, print_source_ranges: bool = True) -> str:
        """Return it as text.

        Args:
            print_source_ranges: whether each node tells where it came from.
        """
        given = ",\n      ".join(value.declared() for value in self.given)
        lines = [f"graph({given}):"]
        for node in self.held:
            lines.extend(node.lines("  ", print_source_ranges))
        lines.append(f"  return ({', '.join(map(builtins.str, self.returned))})")
        return "\n".join(lines) + "\n"

    def __str__(self) -> builtins.str:
        return self.str(_shows_places[-1])

    __repr__ = __str__


_shows_places = [True]


@contextlib.contextmanager
def _hide_source_ranges() -> Iterator[None]:
    """Print graphs without where their nodes came from."""
    _shows_places.append(False)
    try:
        yield
    finally:
        _shows_places.pop()
