"""The typed tree.

Every expression has a type, and every node the place that it came from. Names are resolved: what
is left of them are local variables. Overloads are chosen, conversions are nodes of their own, and
loops over tuples and modules are unrolled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tangrad_jit.scripting.source.places import Place
from tangrad_jit.scripting.types.kinds import Type

__all__ = [
    "And",
    "Apply",
    "Assert",
    "Assign",
    "Break",
    "Builtin",
    "Call",
    "Comprehension",
    "Const",
    "Continue",
    "Convert",
    "Do",
    "Expr",
    "For",
    "Fork",
    "GetAttr",
    "If",
    "IfElse",
    "Invoke",
    "IsInstance",
    "Iteration",
    "Local",
    "MakeDict",
    "MakeList",
    "MakeTuple",
    "New",
    "Node",
    "Not",
    "OpCall",
    "Or",
    "PythonCall",
    "Raise",
    "Return",
    "SetAttr",
    "SetItem",
    "SliceOf",
    "Subscript",
    "TupleItem",
    "Unpack",
    "While",
    "With",
    "assigned",
    "every",
]


@dataclass(slots=True)
class Node:
    """A node and its place."""

    place: Place


@dataclass(slots=True)
class Expr(Node):
    """What has a value."""

    type: Type


@dataclass(slots=True)
class Const(Expr):
    """A constant: None, a number, a text, a dtype, a device, an enum's member, a tensor."""

    value: Any


@dataclass(slots=True)
class Local(Expr):
    """A local variable."""

    name: str


@dataclass(slots=True, frozen=True)
class Builtin:
    """An operation on values that are no tensors.

    Attributes:
        name: its name in graphs and archives, without a namespace.
        template: Python code, in which `_0`, `_1`, ... are the arguments.
        namespace: of its name in graphs.
        named: the names of its last arguments, if they are given by name only.
        writes: whether it changes its first argument.
    """

    name: str
    template: str
    namespace: str = "aten"
    named: tuple[str, ...] = ()
    writes: bool = False


@dataclass(slots=True)
class Apply(Expr):
    """A call of a builtin."""

    builtin: Builtin
    args: list[Expr]


@dataclass(slots=True)
class OpCall(Expr):
    """A call of an op, or of a function of the library that is called like one.

    Attributes:
        name: its name in graphs, `aten::add`.
        callee: what is called, an attribute of the first argument where it is a text.
        args, kwargs: as they are given.
        inner: whether these are the arguments of PyTorch's inner op of that name.
    """

    name: str
    callee: Any
    args: list[Expr]
    kwargs: dict[str, Expr] = field(default_factory=dict)
    inner: bool = False


@dataclass(slots=True)
class Call(Expr):
    """A call of a scripted function; `args` are those of all its parameters."""

    unit: Any
    args: list[Expr]


@dataclass(slots=True)
class Invoke(Expr):
    """A call of a method of a module, an instance, or of something with an interface.

    Attributes:
        owner: whose method it is.
        name: of the method.
        unit: the method, or None where it is found when it runs.
    """

    owner: Expr
    name: str
    unit: Any
    args: list[Expr]


@dataclass(slots=True)
class PythonCall(Expr):
    """A call of Python that is not scripted."""

    callee: Any
    name: str
    args: list[Expr]
    kwargs: dict[str, Expr] = field(default_factory=dict)


@dataclass(slots=True)
class New(Expr):
    """A new instance of a scripted class; without arguments, before its `__init__`."""

    unit: Any
    args: list[Expr] | None


@dataclass(slots=True)
class Fork(Expr):
    """A call that runs on a thread of its own."""

    call: Expr


@dataclass(slots=True)
class GetAttr(Expr):
    """An attribute of a module or an instance."""

    owner: Expr
    name: str


@dataclass(slots=True)
class MakeList(Expr):
    """A list of some elements."""

    elements: list[Expr]


@dataclass(slots=True)
class MakeTuple(Expr):
    """A tuple, or where its type is one, a named tuple."""

    elements: list[Expr]


@dataclass(slots=True)
class MakeDict(Expr):
    """A dict."""

    keys: list[Expr]
    values: list[Expr]


@dataclass(slots=True)
class TupleItem(Expr):
    """The member of a tuple at a place that is known."""

    value: Expr
    index: int


@dataclass(slots=True)
class SliceOf(Expr):
    """A slice as a part of a tensor's index."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None


@dataclass(slots=True)
class Subscript(Expr):
    """A tensor's elements, at a place of one part for each dimension."""

    owner: Expr
    parts: list[Expr]


@dataclass(slots=True)
class And(Expr):
    """Both conditions, the second where it is needed."""

    left: Expr
    right: Expr


@dataclass(slots=True)
class Or(Expr):
    """Either condition, the second where it is needed."""

    left: Expr
    right: Expr


@dataclass(slots=True)
class Not(Expr):
    """The opposite of a condition."""

    value: Expr


@dataclass(slots=True)
class IfElse(Expr):
    """One of two values."""

    condition: Expr
    body: Expr
    orelse: Expr


@dataclass(slots=True)
class Convert(Expr):
    """A value as one of another type; `kind` says how ("refine": it is one already)."""

    value: Expr
    kind: str


@dataclass(slots=True)
class IsInstance(Expr):
    """Whether a value is of one of some types."""

    value: Expr
    kinds: list[Type]


@dataclass(slots=True)
class Iteration:
    """What a loop goes over.

    Attributes:
        kind: "range" (`values`: start, stop, step), "list", "str", "dict", "tensor", "enumerate"
            (`parts[0]`, counted from `values[0]`) or "zip" (`parts`).
        values: expressions, evaluated once.
        element: the type of what it yields.
    """

    kind: str
    values: list[Expr]
    element: Type
    parts: list[Iteration] = field(default_factory=list)


@dataclass(slots=True)
class Comprehension(Expr):
    """A list, or with a key a dict, made by a loop."""

    target: Any
    iteration: Iteration
    value: Expr
    key: Expr | None = None


@dataclass(slots=True)
class Unpack(Node):
    """A target of several names; `star` is the place of the starred one, or -1."""

    targets: list[Any]
    star: int = -1


@dataclass(slots=True)
class Assign(Node):
    """Store a value in a local variable, or unpack it."""

    target: Any
    value: Expr


@dataclass(slots=True)
class SetAttr(Node):
    """Store a value in an attribute."""

    owner: Expr
    name: str
    value: Expr


@dataclass(slots=True)
class SetItem(Node):
    """Store a value in a tensor, at a place of one part for each dimension."""

    owner: Expr
    parts: list[Expr]
    value: Expr


@dataclass(slots=True)
class Do(Node):
    """Evaluate an expression for what it does."""

    value: Expr


@dataclass(slots=True)
class If(Node):
    """Run one of two bodies."""

    condition: Expr
    body: list[Node]
    orelse: list[Node]


@dataclass(slots=True)
class While(Node):
    """Run a body while a condition holds."""

    condition: Expr
    body: list[Node]


@dataclass(slots=True)
class For(Node):
    """Run a body for each element."""

    target: Any
    iteration: Iteration
    body: list[Node]


@dataclass(slots=True)
class With(Node):
    """Run a body within contexts; `names` are the variables that hold what they give."""

    contexts: list[Expr]
    names: list[Any]
    body: list[Node]


@dataclass(slots=True)
class Break(Node):
    """Leave a loop."""


@dataclass(slots=True)
class Continue(Node):
    """Go on with a loop's next turn."""


@dataclass(slots=True)
class Return(Node):
    """Leave the function."""

    value: Expr


@dataclass(slots=True)
class Raise(Node):
    """Raise an exception of a class of Python."""

    exception: Any
    name: str
    message: Expr


@dataclass(slots=True)
class Assert(Node):
    """Raise an AssertionError unless a condition holds."""

    condition: Expr
    message: Expr | None


_PARTS: dict[type, tuple[str, ...]] = {}


def _parts_of(kind: type) -> tuple[str, ...]:
    """Return the names of a node's fields in which nodes may be, the last first."""
    found: tuple[str, ...] = ()
    if issubclass(kind, (Node, Iteration)):
        names = [n for n in kind.__dataclass_fields__ if n not in ("place", "type", "unit")]
        found = tuple(reversed(names))
    _PARTS[kind] = found
    return found


def every(item: Any) -> Iterator[Any]:
    """Yield all nodes of statements, with what loops go over."""
    waiting = [item]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind is list or kind is tuple:
            waiting.extend(reversed(item))
        elif kind is dict:
            waiting.extend(reversed(item.values()))
        else:
            parts = _PARTS[kind] if kind in _PARTS else _parts_of(kind)
            if parts:
                yield item
                for name in parts:
                    waiting.append(getattr(item, name))
            elif isinstance(item, Node):
                yield item


def assigned(body: list[Node]) -> set[str]:
    """Return the names that statements assign."""
    found: set[str] = set()

    def add(target: Any) -> None:
        if isinstance(target, str):
            found.add(target)
        elif isinstance(target, Unpack):
            for part in target.targets:
                add(part)

    for node in every(body):
        if isinstance(node, (Assign, For)):
            add(node.target)
    return found
