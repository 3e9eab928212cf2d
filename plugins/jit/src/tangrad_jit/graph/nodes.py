"""Values, what graphs are given, and nodes, with the questions that passes ask of them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from tangrad_jit.graph.types import ValueType

__all__ = [
    "DRAW",
    "Input",
    "Node",
    "Value",
    "Where",
    "line_at",
    "map_values",
    "values_in",
]

# Lines are told as they are when somebody asks: each is a search in the tables of its code.
Where = str | tuple[CodeType, int]

#: The name of the node that takes a seed and an offset of a random stream.
DRAW = "draw"


class Value:
    """What a node makes, or a graph is given.

    Attributes:
        type: its type.
        producer: the node that makes it, or None for an input.
        view_of: the value whose memory it shows, or None where it has memory of its own.
        offset: bytes from the root's first element to its own.
        example: the tensor or number of the run in which it was recorded, if kept.
    """

    __slots__ = ("example", "offset", "producer", "type", "view_of")

    def __init__(self, type: ValueType, producer: Node | None = None) -> None:
        self.type: Any = type
        self.producer = producer
        self.view_of: Value | None = None
        self.offset = 0
        self.example: Any = None

    @property
    def root(self) -> Value:
        """The value whose memory this one shows: itself, unless it is a view."""
        value, base = self, self.view_of
        while base is not None:
            value, base = base, base.view_of
        return value


class Input:
    """A value that a graph is given.

    Attributes:
        value: the value.
        kind: "argument", "capture" (a tensor that the program holds: a parameter, a buffer, a
            global), "gradient" (`.grad` of one), "constant" (a tensor that the program makes
            anew from numbers), "tangent" (the gradient of an output), "number" (one of Python's,
            taken from where the program has it).
        name: where it comes from, for people.
        tensor: the tensor of a capture, a gradient's owner, or a constant.
        counted: whether writes to it count as its versions: not those through `.data`.
    """

    __slots__ = ("counted", "kind", "name", "tensor", "value")

    def __init__(
        self, value: Value, kind: str, name: str, tensor: Any = None, counted: bool = True
    ) -> None:
        self.value, self.kind, self.name, self.tensor = value, kind, name, tensor
        self.counted = counted


class Node:
    """One call of an op.

    Attributes:
        op: the op whose signature `args` follow (of an in-place form, the functional op).
        args: arguments in the order of the signature: values, nested tuples and lists of them,
            and constants.
        form: "call"; "inplace": the result is written to the first argument; "out": to `outs`;
            "draw": no op is run, a seed and an offset are taken as the op would.
        outs: what is written where the form is "out".
        results: the values made; of an in-place form the written one, anew.
        module: path of the module whose code made the call.
        where: the program's line, as text or as (code, place of an instruction in it).
    """

    __slots__ = ("_inputs", "args", "form", "module", "op", "outs", "results", "where")

    def __init__(
        self,
        op: Any,
        args: tuple[Any, ...],
        form: str = "call",
        outs: tuple[Value, ...] = (),
        module: str = "",
        where: Where = "",
    ) -> None:
        self.op, self.args, self.form, self.outs = op, args, form, outs
        self.module, self.where = module, where
        self.results: list[Value] = []
        self._inputs: tuple[Any, Any, list[Value]] = (None, None, [])

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        # Code cannot be pickled.
        return None, {name: getattr(self, name) for name in self.__slots__} | {"where": self.line}

    @property
    def line(self) -> str:
        """The program's line, "file:number", or ""."""
        if not isinstance(self.where, str):
            self.where = line_at(*self.where)
        return self.where

    @property
    def name(self) -> str:
        """The key of the op's definition."""
        return str(self.op.definition.key)

    @property
    def written(self) -> tuple[Value, ...]:
        """The values whose memory the node writes."""
        if self.form == "call" and is_silent(self.op):
            return ()
        if self.form == "inplace":
            return (self.args[0],)
        if self.form == "out":
            return self.outs
        schema = self.op.definition.schema
        if self.form != "call" or (schema.written < 0 and not schema.written_lists):
            return ()
        places = [self.args[schema.written]] if schema.written >= 0 else []
        for k in schema.written_lists:
            places.extend(self.args[k])
        return tuple(v for v in places if isinstance(v, Value))

    @property
    def effects(self) -> tuple[str, ...]:
        """What it does besides making its results: "write", "random", "communicate", "check"."""
        if self.form == "call" and is_silent(self.op):
            return ()
        found = []
        if self.written:
            found.append("write")
        if self.form == "draw" or self.draws:
            found.append("random")
        if getattr(self.op.definition, "collective", False):
            found.append("communicate")
        if self.op.kind == "number" and self.op.checks:
            found.append("check")
        return tuple(found)

    @property
    def draws(self) -> bool:
        """Whether the op itself takes random numbers: its seed is not given."""
        return bool(self.form != "draw" and self.op.definition.random and self.args[-1] is None)

    @property
    def inputs(self) -> list[Value]:
        """The values that are read or written, in order, repeated where they are; not to change."""
        args, outs, known = self._inputs
        if args is self.args and outs is self.outs:
            return known
        found: list[Value] = []
        for item in self.args:
            if isinstance(item, Value):
                found.append(item)
            elif isinstance(item, (tuple, list)):
                found.extend(values_in(item))
        found.extend(self.outs)
        self._inputs = self.args, self.outs, found
        return found


_silent: dict[Any, bool] = {}


def is_silent(op: Any) -> bool:
    """Return whether calls of an op do nothing, whatever the arguments, but make their results."""
    found = _silent.get(op)
    if found is None:
        definition = op.definition
        schema = definition.schema
        writes = schema.written >= 0 or bool(schema.written_lists)
        others = definition.random or getattr(definition, "collective", False)
        found = _silent[op] = not (writes or others or op.kind == "number")
    return found


# id of a code object -> it, where its lines begin, and the lines.
_lines: dict[int, tuple[CodeType, list[int], list[int | None]]] = {}


def line_at(code: CodeType, place: int) -> str:
    """Return "file:line" of an instruction of some code, by its offset in bytes."""
    known = _lines.get(id(code))
    if known is None:
        if len(_lines) >= 64:
            _lines.clear()
        found = list(code.co_lines())
        starts = [start for start, _, _ in found]
        known = _lines[id(code)] = code, starts, [line for _, _, line in found]
    _, starts, lines = known
    return f"{os.path.basename(code.co_filename)}:{lines[bisect_right(starts, place) - 1]}"


def values_in(item: Any) -> Iterator[Value]:
    """Yield the values in nested tuples and lists."""
    if isinstance(item, Value):
        yield item
    elif isinstance(item, (tuple, list)):
        for member in item:
            yield from values_in(member)


def map_values(function: Callable[[Value], Any], item: Any) -> Any:
    """Return nested tuples and lists with a function applied to each value."""
    if isinstance(item, Value):
        return function(item)
    if not isinstance(item, (tuple, list)):
        return item
    members = [
        function(m)
        if type(m) is Value
        else map_values(function, m)
        if isinstance(m, (tuple, list))
        else m
        for m in item
    ]
    return tuple(members) if isinstance(item, tuple) else members
