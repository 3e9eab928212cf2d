"""Where the code of an archive came from: records of places beside it, in PyTorch's format."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

from tangrad.serialization import SerializationError
from tangrad.serialization.machine import SafeUnpickler
from tangrad_jit.scripting.archive.pickling import ObjectPickler
from tangrad_jit.scripting.source.places import Place, Source
from tangrad_jit.scripting.types import kinds

__all__ = ["Origins", "Recorder", "pickled"]

_FORMAT = "FORMAT_WITH_STRING_TABLE"
_MARK = re.compile("\0(\\d+)\1")
_INTS = kinds.ListType(kinds.INT)


class Recorder:
    """Marks in printed code that say where it came from."""

    def __init__(self) -> None:
        self._places: list[Place | None] = [None]
        self._numbers: dict[int, int] = {}

    def mark(self, place: Place | None) -> str:
        """Return the mark of a place; of none, where code begins that came from nowhere."""
        if place is None:
            return "\0000\1"
        number = self._numbers.get(id(place))
        if number is None:
            number = self._numbers[id(place)] = len(self._places)
            self._places.append(place)
        return f"\0{number}\1"

    def split(self, text: str) -> tuple[str, list[tuple[int, Place | None]]]:
        """Return code without its marks, and the place of what begins at each offset in it."""
        parts = _MARK.split(text)
        made, at = [parts[0]], len(parts[0].encode())
        found: list[tuple[int, Place | None]] = []
        for number, part in zip(parts[1::2], parts[2::2], strict=True):
            place = self._places[int(number)]
            if found and found[-1][0] == at:
                found.pop()  # an expression that begins with another is told by the inner one
            found.append((at, place if place is None else place.original() or place))
            made.append(part)
            at += len(part.encode())
        return "".join(made), found


def pickled(pickler: ObjectPickler, records: list[tuple[int, Place | None]]) -> bytes:
    """Return the records of a file as PyTorch reads them.

    Args:
        pickler: one that has written nothing.
        records: the place of what begins at each offset, or None.
    """
    table: dict[str, int] = {"": 0}
    sources: dict[int, tuple[Any, list[int], list[int]]] = {}
    for _, place in records:
        if place is not None and id(place.source) not in sources:
            source = place.source
            starts, numbers = [0], []
            for line in [*(f"{line}\n" for line in source.lines), ""]:
                numbers.append(table.setdefault(line, len(table)))
                starts.append(starts[-1] + len(line.encode()))
            table.setdefault(source.file, len(table))
            sources[id(source)] = (source, numbers, starts)
    pickler.open()
    pickler.text(_FORMAT)
    pickler.open()
    for text in table:
        pickler.text(text)
    pickler.out += b"t"
    pickler.open()
    tags: dict[tuple[int, int, int], int] = {}
    for offset, place in records:
        pickler.open()
        pickler.integer(offset)
        if place is None:
            key = _write_range(pickler, Source("", 0, []), [], 0, (0, 0))
        else:
            source, numbers, starts = sources[id(place.source)]
            last = min(place.last_line, len(source.lines) - 1)
            span = (starts[place.line] + place.column, starts[last] + place.last_column)
            key = _write_range(pickler, source, numbers, table[source.file], span)
        pickler.integer(tags.setdefault(key, len(tags)))
        pickler.out += b"t"
    pickler.out += b"tt"
    return pickler.finished()


def _write_range(
    pickler: ObjectPickler, source: Source, numbers: list[int], file: int, span: tuple[int, int]
) -> tuple[int, int, int]:
    pickler.open()
    if not pickler.repeated(source):
        pickler.open()
        pickler.value(numbers, _INTS)
        pickler.integer(file)
        pickler.integer(source.first)
        pickler.out += b"t"
        if source.lines:
            pickler.remember(source)
    for bound in span:
        pickler.integer(bound)
    pickler.out += b"t"
    return id(source) if source.lines else 0, *span


class Origins:
    """Finds where the code of a file of an archive came from.

    Args:
        lines: of the file.
        data: a pickle of records, read when it is first asked for; of one that is damaged, or of
            an unknown format, there are none.
    """

    def __init__(self, lines: list[str], data: bytes) -> None:
        self._lines, self._data = lines, data
        self._starts = [0]
        self._offsets: list[int] = []
        self._places: list[Place | None] = []
        self._sources: dict[int, tuple[Source, list[int]]] = {}

    def _read(self) -> None:
        data, self._data = self._data, b""
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line.encode()) + 1)
        try:
            self._take(_unpickled(data))
        except (SerializationError, TypeError, ValueError, IndexError, AttributeError):
            self._offsets, self._places = [], []

    def _take(self, records: Any) -> None:
        known = isinstance(records, tuple) and len(records) == 3 and records[0] == _FORMAT
        for record in sorted(records[2], key=_offset) if known else ():
            offset, (source, start, end), *_ = record
            self._offsets.append(offset)
            self._places.append(self._place(records[1], source, start, end))

    def _place(self, table: Any, held: Any, start: int, end: int) -> Place | None:
        numbers, file, first = held
        if not numbers:
            return None
        if id(held) not in self._sources:
            texts = [table[number] for number in numbers]
            starts = [0]
            for text in texts:
                starts.append(starts[-1] + len(text.encode()))
            shown = [text.rstrip("\n") for text in (texts if texts[-1] else texts[:-1])]
            self._sources[id(held)] = Source(table[file], first, shown), starts
        source, starts = self._sources[id(held)]
        line, last = (min(bisect_right(starts, n), len(source.lines)) - 1 for n in (start, end))
        return Place(source, line, start - starts[line], last, end - starts[last])

    def __call__(self, place: Place) -> Place | None:
        """Return where what stands at a place of the file came from, or None."""
        if self._data:
            self._read()
        at = self._starts[min(place.line, len(self._starts) - 1)] + place.column
        k = bisect_right(self._offsets, at) - 1
        found = self._places[k] if k >= 0 else None
        if found is None:
            return None
        return Place(
            found.source, found.line, found.column, found.last_line, found.last_column,
            place.function,
        )  # fmt: skip


def _unpickled(data: bytes) -> Any:
    """Return records, whose pickle names lists of integers alone.

    Raises:
        SerializationError: it names something else, or is damaged.
    """

    def name(module: str, last: str) -> Any:
        if (module, last) != ("torch.jit._pickle", "build_intlist"):
            raise SerializationError(f"jit.load: records of places name {module}.{last}")
        return list

    def storage(key: Any) -> Any:
        raise SerializationError("jit.load: records of places refer to a storage")

    machine = SafeUnpickler(
        data,
        name,
        storage,
        lambda function, args: function is list,
        lambda target: False,
        "records",
    )
    return machine.load()[0]


def _offset(record: Any) -> int:
    return int(record[0])
