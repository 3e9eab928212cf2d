"""The row program, the one form of generated loops: streams, passes over columns, row scalars.

A program runs over rows of columns. Streams are operands in memory that move by row, by column, by
both or not at all. Each pass goes over a row's columns once: it computes values of vector SSA,
stores some and folds others; what is the same for all columns, the results of folds above all, is
computed once between passes and kept in slots. All shapes, addresses and numbers come with the
call, so that one program serves all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tangrad_jit.codegen.vector import Builder

# When a uniform value is computed: once per call, once per row, or after the pass of that number.
PER_CALL, PER_ROW = -2, -1
# What may be computed again in a later pass, in additions; else it is kept in memory.
CHEAP = 6
_COSTS = {"div": 6, "sqrt": 8, "load": 0, "half": 2}
STORAGE = {
    "f4": "float32",
    "f8": "float64",
    "i4": "int32",
    "i8": "int64",
    "m4": "bool",
    "m8": "bool",
}


class Stream(NamedTuple):
    """An operand in memory.

    Attributes:
        value: the number of the group's value that it holds; -1 for a row that is kept for a later
            pass.
        dtype: of its elements.
        row: whether it moves from row to row.
        column: whether it moves along the columns.
    """

    value: int
    dtype: str
    row: bool
    column: bool


@dataclass
class Pass:
    """One walk over the columns of a row.

    Attributes:
        stores: (stream, value) of what is written.
        folds: values of operation "fold", whose operand is folded.
        replaced: values of earlier passes, and the loads that bring them back.
    """

    stores: list[tuple[int, int]] = field(default_factory=list)
    folds: list[int] = field(default_factory=list)
    replaced: dict[int, int] = field(default_factory=dict)


class RowProgram:
    """Collect streams, values and results, then plan the passes.

    Attributes:
        builder: the values. Operations beside those of arithmetic: "load" of a stream along the
            columns, "uniform" of one that is the same for all columns, "number" of a number of the
            call, "fold".
        streams: the operands in memory.
        numbers: (input of the group, type) of the call's numbers.
        passes: in the order in which they run; known after `plan`.
        times: of each value the pass that computes it, PER_CALL or PER_ROW.
        varies: of each value whether it differs between columns.
    """

    def __init__(self, evex: bool, wide: bool) -> None:
        self.builder = Builder(evex, wide)
        self.wide = wide
        self.streams: list[Stream] = []
        self.numbers: list[tuple[int, str]] = []
        self.results: list[tuple[int, int]] = []
        self.passes: list[Pass] = []
        self.times: list[int] = []
        self.varies: list[bool] = []
        self._places: dict[Stream, int] = {}

    def stream(self, value: int, dtype: str, row: bool, column: bool) -> int:
        """Return the place of a stream, which is added unless it is there."""
        stream = Stream(value, dtype, row, column)
        if value < 0 or stream not in self._places:
            self._places[stream] = len(self.streams)
            self.streams.append(stream)
        return self._places[stream]

    def load(self, stream: int) -> int:
        """Return the value of a stream's element."""
        b, at = self.builder, self.streams[stream]
        return b.make("load" if at.column else "uniform", b.lanes(at.dtype), (), stream)

    def number(self, source: int, kind: str) -> int:
        """Return the value of a number of the call, in lanes of a type."""
        place = (source, kind)
        if place not in self.numbers:
            self.numbers.append(place)
        return self.builder.make("number", kind, (), self.numbers.index(place))

    def store(self, stream: int, value: int) -> None:
        """Let a value be written."""
        self.results.append((stream, value))

    # --- the plan -----------------------------------------------------------------------------

    def plan(self) -> None:
        """Divide the values among passes and what lies between them."""
        self._date()
        folds = [v for v, op in enumerate(self.builder.ops) if op[0] == "fold"]
        stored = [self._when(v) for s, v in self.results if self.streams[s].column]
        last = max([0] + stored + [self.times[v] for v in folds])
        self.passes = [Pass() for _ in range(last + 1)]
        for fold in folds:
            self.passes[self.times[fold]].folds.append(fold)
        for stream, value in self.results:
            if self.streams[stream].column:
                self.passes[max(0, self._when(value))].stores.append((stream, value))
        self._keep()
        self._date()

    def _when(self, value: int) -> int:
        """Return the pass in which a value, uniform or not, can be stored along the columns."""
        return self.times[value] if self.varies[value] else self.times[value] + 1

    def _date(self) -> None:
        times, varies = self.times, self.varies
        for value in range(len(times), len(self.builder.ops)):
            op, _, args, imm = self.builder.ops[value]
            moves = op == "load"
            when = PER_CALL
            if op == "uniform":
                when = PER_ROW if self.streams[imm].row else PER_CALL
            for arg in args:
                moves = moves or varies[arg]
                when = max(when, times[arg])
            if moves or op == "fold":
                # What is the same for all columns is known after the pass of its time.
                when = 0
                for arg in args:
                    when = max(when, times[arg] if varies[arg] else times[arg] + 1)
            times.append(when)
            varies.append(moves and op != "fold")

    def _keep(self) -> None:
        """Let what is dear and needed in later passes be stored, and loaded there."""
        if len(self.passes) == 1:
            return
        b = self.builder
        stored = {value: stream for stream, value in self.results if self.streams[stream].column}
        costs = self._costs()
        for number, one in enumerate(self.passes):
            if number == 0:
                continue
            pending = [v for _, v in one.stores] + [b.ops[f][2][0] for f in one.folds]
            seen: set[int] = set()
            while pending:
                value = pending.pop()
                if value in seen or not self.varies[value]:
                    continue
                seen.add(value)
                op, kind, args, _ = b.ops[value]
                if op == "load" or self.times[value] == number or costs[value] <= CHEAP:
                    pending += args
                    continue
                if value not in stored:
                    stored[value] = self.stream(-1 - len(self.streams), STORAGE[kind], False, True)
                    self.passes[self.times[value]].stores.append((stored[value], value))
                one.replaced[value] = self.load(stored[value])

    def _costs(self) -> list[int]:
        """Return, for each value, about how many operations it takes in each column."""
        costs: list[int] = []
        for value, (op, _, args, _) in enumerate(self.builder.ops):
            if not self.varies[value]:
                costs.append(0)
            else:
                costs.append(_COSTS.get(op, 1) + sum(costs[a] for a in set(args)))
        return costs
