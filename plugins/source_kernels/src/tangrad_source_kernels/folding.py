"""What reductions and scans share: the functions of a fold's states, and states among lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from tangrad.plugin.render import Program, TypedFold, render_conversion
from tangrad_source_kernels import numbers
from tangrad_source_kernels.dialect import KernelDialect

# What the last step calls the number of elements.
_COUNT = "n"


class FoldText:
    """The functions of a fold for one dtype, and how kernels call them.

    `mark` tells the names of its functions and numbers from those of others in one kernel.
    """

    def __init__(
        self, typed: TypedFold, results: Sequence[str], dialect: KernelDialect, mark: str = ""
    ) -> None:
        self.typed, self.dialect, self.mark = typed, dialect, mark
        self.fold, self.dtype, self.results = typed.fold, typed.dtype, tuple(results)
        self.states = typed.states
        definition = typed.fold.op.definition
        self.first, self.second = definition.state_names("a"), definition.state_names("b")

    @cached_property
    def functions(self) -> str:
        """The source of map, combination and last step."""
        typed, dialect = self.typed, self.dialect
        states = dict(zip((*self.first, *self.second), self.states * 2, strict=True))
        element = {self.fold.input: self.dtype, "index": "int64"}
        text = typed.map.render_c(f"tk{self.mark}_map", element, self.states, dialect)
        text += typed.combine.render_c(f"tk{self.mark}_combine", states, self.states, dialect)
        if typed.finalize is not None:
            text += typed.finalize.render_c(
                f"tk{self.mark}_finalize", states, self.results, dialect
            )
        return text

    @cached_property
    def params(self) -> list[tuple[str, str]]:
        """The parameters that any of the functions gets, and their dtypes."""
        found: dict[str, str] = {}
        for program in (self.typed.map, self.typed.combine, self.typed.finalize):
            if program is not None:
                used = {str(s.value): s.type for s in program.instructions if s.op == "param"}
                for name in program.params:
                    found.setdefault(name, used.get(name, program.compute))
                found |= {name: dtype for name, dtype in used.items() if name in program.params}
        found.pop(_COUNT, None)
        return list(found.items())

    def fields(self) -> list[numbers.Field]:
        """Return the numbers by which the parameters are passed."""
        return [
            f for name, dtype in self.params for f in numbers.fields(f"p{self.mark}_{name}", dtype)
        ]

    def encode(self, params: Mapping[str, Any]) -> list[Any]:
        """Return their values."""
        return [v for n, dtype in self.params for v in numbers.encode(params.get(n), dtype)]

    def _call(self, name: str, program: Program, values: Mapping[str, str], outs: str) -> str:
        used = {str(s.value): s.type for s in program.instructions if s.op == "param"}
        known = dict(self.params)
        args = [values[text] for text in program.inputs]
        for param in program.params:
            dtype = used.get(param, program.compute)
            if param in values:
                args.append(values[param])
                continue
            # One function may compute in complex numbers, and the number be another's, a real one.
            passed = known[param]
            number = numbers.text(f"p{self.mark}_{param}", passed, self.dialect)
            args.append(render_conversion(number, passed, dtype))
        args += [f"&{outs}{k}" for k in range(self._count(name))]
        return f"tk{self.mark}_{name}({', '.join(args)});"

    def _count(self, name: str) -> int:
        return len(self.results) if name == "finalize" else len(self.states)

    def map(self, element: str, index: str, outs: str) -> str:
        """Return the statement that makes the state OUTS0, OUTS1, ... of an element."""
        values = {self.fold.input: element, "index": index}
        return self._call("map", self.typed.map, values, outs)

    def combine(self, left: Sequence[str], right: Sequence[str], outs: str) -> str:
        """Return the statement that makes the state OUTS0, ... of two states."""
        values = dict(zip((*self.first, *self.second), (*left, *right), strict=True))
        return self._call("combine", self.typed.combine, values, outs)

    def finish(self, state: str, count: str, outs: str) -> str:
        """Return the statements that make the results OUTS0, ... of the state STATE0, ..."""
        kinds = [f"{self.dialect.type(t)} {outs}{k};" for k, t in enumerate(self.results)]
        if self.typed.finalize is None:
            stored = [f"{outs}{k} = {self._stored(state, k)};" for k in range(len(self.results))]
            return " ".join(kinds + stored)
        values = {name: f"{state}{k}" for k, name in enumerate(self.first)}
        program = self.typed.finalize
        used = {str(s.value): s.type for s in program.instructions if s.op == "param"}
        kind = used.get(_COUNT, program.compute)
        values[_COUNT] = render_conversion(f"(tk_int)({count})", "int64", kind)
        return " ".join([*kinds, self._call("finalize", self.typed.finalize, values, outs)])

    def _stored(self, state: str, k: int) -> str:
        return render_conversion(f"{state}{k}", self.states[k], self.results[k])

    def declare(self, name: str) -> str:
        """Return the declaration of the state NAME0, ..., that of no element."""
        values = self.fold.identity or (0,) * len(self.states)
        return " ".join(
            f"{self.dialect.type(t)} {name}{k} = {self.dialect.literal(self._known(v, t), t)};"
            for k, (t, v) in enumerate(zip(self.states, values, strict=True))
        )

    @staticmethod
    def _known(value: Any, dtype: str) -> Any:
        return 0 if value is None else value

    def shared(self, name: str = "shared") -> str:
        """Return the declaration of the state of each lane of a block, NAME0, ..."""
        return " ".join(
            f"TG_SHARED {self.dialect.type(t)} {name}{k}[TG_LANES];"
            for k, t in enumerate(self.states)
        )

    def state(self, name: str) -> str:
        """Return the declaration of the state NAME0, ..., of any value."""
        return " ".join(f"{self.dialect.type(t)} {name}{k};" for k, t in enumerate(self.states))

    def join(self, taken: str, state: str, first: str) -> str:
        """Return the statements that fold an element, of which `taken` makes m0, ..., into a state.

        `first` is the variable that is 0 before the first element.
        """
        return f"""{taken}
            if ({first}) {{ {self.combine(self.names(state), self.names("m"), state)} }}
            else {{ {self.assign(state, "m")} }}
            {first} = 1;"""

    def tree(
        self, state: str, group: int, valid: str, shared: str = "shared", apart: str = "1"
    ) -> str:
        """Return the statements that fold the states of a group of lanes, by halves.

        The first lane has the result, also in its place of what `shared` declared, which nobody
        writes before the next barrier. The first `valid` of the lanes, which `lane` counts, have a
        state; neighbours are `apart` in the block.
        """
        here, there = "[TG_LANE]", f"[TG_LANE + half * {apart}]"
        return f"""TG_BARRIER;
        {self.assign(shared, state, at=here)}
        TG_BARRIER;
        {{
            const tk_int valid = {valid};
            for (int half = {group // 2}; half > 0; half >>= 1) {{
                if (lane < half && lane + half < valid) {{
                    {self.combine(self.names(state), self.names(shared, there), state)}
                    {self.assign(shared, state, at=here)}
                }}
                TG_BARRIER;
            }}
        }}"""

    def names(self, name: str, place: str = "") -> list[str]:
        """Return the texts of a state's values."""
        return [f"{name}{k}{place}" for k in range(len(self.states))]

    def assign(self, target: str, source: str, at: str = "", of: str = "") -> str:
        """Return statements that copy a state."""
        places = range(len(self.states))
        return " ".join(f"{target}{k}{at} = {source}{k}{of};" for k in places)


def decompose(index: str, rank: int, shape: str, targets: Mapping[str, str]) -> str:
    """Return statements that add to offsets what an index means in a shape.

    Args:
        index: a linear index.
        rank: how many dimensions `g.SHAPE` has.
        shape: its name.
        targets: {offset: name of its strides}.
    """
    adds = " ".join(f"{at} += k * g.{strides}[d];" for at, strides in targets.items())
    return (
        f"{{ tk_int rest = {index}; for (int d = {rank - 1}; d >= 0 && rest > 0; --d) {{ "
        f"tk_int above = rest / g.{shape}[d], k = rest - above * g.{shape}[d]; "
        f"rest = above; {adds} }} }}"
    )
