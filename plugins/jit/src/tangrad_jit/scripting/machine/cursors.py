"""What loops go over: lists, texts, ranges, and several of them side by side."""

from __future__ import annotations

from typing import Any

from tangrad_jit.scripting.machine.assembler import Label
from tangrad_jit.scripting.machine.kinds_of import Unsupported
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import DictType, ListType, TupleType, Type

__all__ = ["Cursor", "cursor_of", "walk"]


class Cursor:
    """What a loop goes over.

    Attributes:
        element: the type of what it gives.
        length: the register of the number of elements, as it was at the beginning.
        count: the register of the number of the turn.
        parts: of several side by side, each.
    """

    element: Type
    length: int
    parts: list[Cursor]

    def __init__(self, element: Type) -> None:
        self.element, self.parts = element, []
        self._held: list[int] = []

    def start(self, low: Any, count: int) -> None:
        """Prepare the first turn; `count` is the register of the number of the turn."""
        self.count = count

    def fetch(self, low: Any, target: int) -> None:
        """Write the steps that give the element of a turn."""
        raise NotImplementedError

    def advance(self, low: Any) -> None:
        """Write the steps after a turn."""

    def hold(self, low: Any, kind: Type) -> int:
        """Return a register that is the cursor's until it is left."""
        register: int = low.temporary(kind)
        self._held.append(register)
        return register

    def leave(self, low: Any) -> None:
        """Give back the registers."""
        for part in self.parts:
            part.leave(low)
        low.drop(*self._held)


class _OfList(Cursor):
    def __init__(self, low: Any, value: tree.Expr, element: Type) -> None:
        super().__init__(element)
        kind = ListType(value.type.key) if isinstance(value.type, DictType) else value.type
        self.values = self.hold(low, kind)
        if isinstance(value.type, DictType):
            found = low.value(value)
            low.emit("DICT_LIST", self.values, found, d=low.kind(kind), e=1)
            low.drop(found)
        else:
            low.value(value, self.values)
        self.is_text = value.type == kinds.STR
        self.length = self.hold(low, kinds.INT)
        low.emit("TEXT_LENGTH" if self.is_text else "LIST_LENGTH", self.length, self.values)

    def fetch(self, low: Any, target: int) -> None:
        op = "TEXT_GET" if self.is_text else f"LIST_GET_{low.keeping(target) or 'W'}"
        low.emit(op, target, self.values, self.count)


class _OfRange(Cursor):
    def __init__(self, low: Any, values: list[tree.Expr]) -> None:
        super().__init__(kinds.INT)
        place = values[0].place
        zero, one = (tree.Const(place, kinds.INT, k) for k in (0, 1))
        start, stop, step = {
            1: [zero, *values, one],
            2: [*values, one],
            3: values,
        }[len(values)]
        self.is_plain = isinstance(start, tree.Const) and start.value == 0 and step is one
        self.length = self.hold(low, kinds.INT)
        if self.is_plain:
            low.value(stop, self.length)
            return
        self.at = self.hold(low, kinds.INT)
        low.value(start, self.at)
        self.step = low.held(step)
        self._held.append(self.step)
        end = low.value(stop)
        low.emit("RANGE_LENGTH", self.length, self.at, end, d=self.step)
        low.drop(end)

    def fetch(self, low: Any, target: int) -> None:
        low.emit("MOVE_W", target, self.count if self.is_plain else self.at)

    def advance(self, low: Any) -> None:
        if not self.is_plain:
            low.emit("ADD", self.at, self.at, self.step)


class _Numbers(Cursor):
    """The numbers that `enumerate` gives."""

    def __init__(self, low: Any, first: tree.Expr | None) -> None:
        super().__init__(kinds.INT)
        self.first = None if first is None else low.held(first)
        if self.first is not None:
            self._held.append(self.first)

    def fetch(self, low: Any, target: int) -> None:
        if self.first is None:
            low.emit("MOVE_W", target, self.count)
        else:
            low.emit("ADD", target, self.count, self.first)


class _Several(Cursor):
    def __init__(self, low: Any, parts: list[Cursor], element: Type) -> None:
        super().__init__(element)
        self.parts = parts
        self.length = self.hold(low, kinds.INT)
        lengths = [part.length for part in parts if not isinstance(part, _Numbers)]
        low.emit("MOVE_W", self.length, lengths[0])
        for length in lengths[1:]:
            low.emit("MIN", self.length, self.length, length)

    def start(self, low: Any, count: int) -> None:
        for part in self.parts:
            part.start(low, count)

    def fetch(self, low: Any, target: int) -> None:
        assert isinstance(self.element, TupleType)
        found = []
        for part, kind in zip(self.parts, self.element.elements, strict=True):
            register = low.temporary(kind)
            part.fetch(low, register)
            found.append(register)
        low.emit_many("TUPLE_NEW", target, found, low.kind(self.element))
        low.drop(*found)

    def advance(self, low: Any) -> None:
        for part in self.parts:
            part.advance(low)


def cursor_of(low: Any, over: tree.Iteration) -> Cursor:
    """Write the steps before a loop, and return what it goes over.

    Raises:
        Unsupported: the machine does not go over it.
    """
    if over.kind == "range":
        return _OfRange(low, over.values)
    if over.kind in ("list", "str", "dict"):
        return _OfList(low, over.values[0], over.element)
    if over.kind == "tensor":
        value = over.values[0]
        listed = tree.Convert(value.place, ListType(kinds.TENSOR), value, "list")
        return _OfList(low, listed, over.element)
    if over.kind in ("enumerate", "zip"):
        parts = [cursor_of(low, part) for part in over.parts]
        if over.kind == "enumerate":
            parts.insert(0, _Numbers(low, over.values[0] if over.values else None))
        return _Several(low, parts, over.element)
    raise Unsupported(f"a loop over {over.kind}")


def walk(low: Any, cursor: Cursor, body: Any, loops: list[tuple[Label, Label]]) -> None:
    """Write a loop.

    Args:
        low: what writes.
        cursor: what it goes over.
        body: writes the body.
        loops: the loops around, for `break` and `continue`.
    """
    again, further, end = Label(), Label(), Label()
    count = low.temporary(kinds.INT)
    low.emit("MOVE_W", count, low.constant(kinds.INT, 0))
    cursor.start(low, count)
    low.emit("JUMP_LE", cursor.length, count, d=end)
    low.mark(again)
    loops.append((further, end))
    place = low.place
    body()
    low.place = place
    loops.pop()
    low.mark(further)
    cursor.advance(low)
    low.emit("NEXT", count, cursor.length, d=again)
    low.mark(end)
    low.drop(count)
