"""The row program, the one form of generated loops: streams, passes over columns, row scalars.

A program runs over rows of columns. Streams are operands in memory that move by row, by column, by
both or not at all. Each pass goes over a row's columns once: it computes values of vector SSA,
stores some and folds others; what is the same for all columns, the results of folds above all, is
computed once between passes and kept in slots (`emission/planning.pxi`). All shapes, addresses and
numbers come with the call, so that one program serves all.
"""

from __future__ import annotations

from tangrad_jit.codegen.vector import Builder

# The value of the group that a stream holds (-1 for a row that is kept for a later pass), the dtype
# of its elements, whether it moves from row to row, and whether along the columns.
Stream = tuple[int, str, bool, bool]


class RowProgram:
    """Collect streams, values and results; `_emit.emit` plans the passes and writes them.

    Attributes:
        builder: the values. Operations beside those of arithmetic: "load" of a stream along the
            columns, "uniform" of one that is the same for all columns, "number" of a number of the
            call, "fold".
        wide: whether values of 8 bytes are computed with.
        streams: the operands in memory.
        numbers: (input of the group, type) of the call's numbers.
        results: (stream, value) of what is written.
    """

    def __init__(self, evex: bool, wide: bool) -> None:
        self.builder = Builder(evex, wide)
        self.wide = wide
        self.streams: list[Stream] = []
        self.numbers: list[tuple[int, str]] = []
        self.results: list[tuple[int, int]] = []
        self._places: dict[Stream, int] = {}

    def stream(self, value: int, dtype: str, row: bool, column: bool) -> int:
        """Return the place of a stream, which is added unless it is there."""
        stream = (value, dtype, row, column)
        if stream not in self._places:
            self._places[stream] = len(self.streams)
            self.streams.append(stream)
        return self._places[stream]

    def load(self, stream: int) -> int:
        """Return the value of a stream's element."""
        b, at = self.builder, self.streams[stream]
        return b.make("load" if at[3] else "uniform", b.lanes(at[1]), (), stream)

    def number(self, source: int, kind: str) -> int:
        """Return the value of a number of the call, in lanes of a type."""
        place = (source, kind)
        if place not in self.numbers:
            self.numbers.append(place)
        return self.builder.make("number", kind, (), self.numbers.index(place))

    def store(self, stream: int, value: int) -> None:
        """Let a value be written."""
        self.results.append((stream, value))
