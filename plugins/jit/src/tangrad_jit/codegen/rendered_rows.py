"""Kernels of fused groups with folds, for devices that compile source.

A row is the work of as many lanes as by the device's own reductions (`plugin.compiled.reductions`),
which fold its elements in the same order: each lane every so many elements, the lanes by halves,
and parts of long rows in the end. So sums have the bits of the ops called one by one. A pass is a
walk over a row up to folds that later steps need; what varies along a row is computed anew in each
pass that needs it, and what does not is the same in all lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tangrad.plugin.compiled import CompilingDriver, Kernel, Unit
from tangrad.plugin.compiled.folding import FoldText
from tangrad.plugin.compiled.reductions import cut
from tangrad.plugin.render import BITS, Fold
from tangrad_jit.codegen.group import Group, Number
from tangrad_jit.codegen.step_texts import StepTexts, has_kernel_of
from tangrad_jit.codegen.tiles import Refused, Value

__all__ = ["MOST_PARTS", "MOST_PASSES", "RenderedRows", "shares_of"]

# Rows that eager folds in more parts have too few lanes here. The least group of lanes has them.
MOST_PARTS = 8
MOST_PASSES = 8

_ROWS = """{shared}
    const int lane = TG_LANE % {group};
    for (tk_int first = (tk_int)TG_BLOCK * (TG_LANES / {group}); first < g.rows;
         first += (tk_int)TG_BLOCKS * (TG_LANES / {group})) {{
        const int active = first + TG_LANE / {group} < g.rows;
        const tk_int r = active ? first + TG_LANE / {group} : 0;
        const tk_int length = active ? g.columns : 0;
{body}
    }}"""
_COLUMNS = """        for (tk_int c = {begin} + lane; c < {end}; c += {group}) {{
            const tk_int i = r * g.columns + c;
            {lines}
        }}"""
_PARTS = """        for (tk_int part = 0; part < g.parts; ++part) {{
        const tk_int begin = part * g.step;
        const tk_int end = begin + g.step < length ? begin + g.step : length;
{body}
        }}"""


def shares_of(driver: CompilingDriver, rows: int, columns: int) -> tuple[int, int, int] | None:
    """Return how a device's reductions share out rows: (lanes, parts, elements of a part).

    None where the parts are more than a group computes one after the other.
    """
    group = driver.group_for(columns)
    parts, step = cut(driver, rows, columns, group)
    return (group, parts, step) if parts <= min(MOST_PARTS, group) else None


class RenderedRows:
    """The kernels of a group with folds: one for each number of lanes that share a row.

    Args:
        group: what it computes.
        driver: of the device.

    Raises:
        Refused: a step is neither a scalar function of its operands nor a fold of this frame, or
            the device has another kernel.
        ExpressionTypeError: the device's language has no text for it.
    """

    def __init__(self, group: Group, driver: CompilingDriver) -> None:
        self.group, self.driver = group, driver
        self._texts = StepTexts(group, driver, _place)
        folds = [k for k, step in enumerate(group.steps) if isinstance(step.described, Fold)]
        self._folds = {k: self._fold(k) for k in folds}
        self._levels()
        self._lines = {
            k: self._texts.call(k) for k in range(len(group.steps)) if k not in self._folds
        }
        self._source = self._texts.functions + "".join(f.functions for f in self._folds.values())
        self._check_shared()
        self._units: dict[int, Unit] = {}

    def run(self, outs: Sequence[Any], ins: Sequence[Any], rows: int, columns: int) -> None:
        """Compute into `outs`: contiguous tensors of the device, as are those of `ins`.

        Args:
            outs: results, whose memory is that of no operand.
            ins: operands, Python numbers in the places of numbers.
            rows, columns: how many there are; `serves` says which it computes.
        """
        shares = shares_of(self.driver, rows, columns)
        assert shares is not None
        lanes, parts, step = shares
        given = [rows, columns, parts, step, *self._texts.encoded(ins)]
        for k, text in self._folds.items():
            given += text.encode(self.group.steps[k].params)
        self._unit(lanes).launch(
            "rows",
            self.driver.blocks_for(rows * lanes),
            self._texts.tensors(outs, ins),
            given,
            outs[0].device.index,
        )

    def serves(self, rows: int, columns: int) -> bool:
        """Tell whether it computes that many rows and columns with the device's own bits."""
        return shares_of(self.driver, rows, columns) is not None

    def listing(self) -> str:
        """Return the sources of the kernels that ran, or of the one for the longest rows."""
        units = self._units or {self.driver.dialect.lanes: self._unit(self.driver.dialect.lanes)}
        return "\n".join(unit.source for unit in units.values())

    # --- what is known of the steps ---------------------------------------------------------------

    def _folded(self, k: int) -> int:
        """Return the value that a step folds."""
        operand = self.group.steps[k].args[0]
        if not isinstance(operand, int):
            raise Refused(f"{self.group.steps[k].described.title} folds a constant")
        return operand

    def _fold(self, k: int) -> FoldText:
        step = self.group.steps[k]
        title, op = step.described.title, step.described.op
        if self._texts.values[self._folded(k)].dtype != step.dtype:
            raise Refused(f"{title} converts its operand to {step.dtype}")
        if any(isinstance(item, Number) for item in step.params.values()):
            raise Refused(f"{title} has a parameter that is given with each call")
        if not has_kernel_of(self.driver, op, step.dtype):
            raise Refused(f"{self.driver.name} has a kernel of its own of {title}, or none")
        return FoldText(step.typed(), step.result_types, self.driver.dialect, str(k))

    def _levels(self) -> None:
        """Find after how many passes each value is known, and how many there are."""
        texts, group = self._texts, self.group
        self._level = [0] * len(texts.values)
        self._maker: dict[int, int] = {}
        for k, step in enumerate(group.steps):
            level = max((self._level[a] for a in step.args if isinstance(a, int)), default=0)
            for number in range(texts.first[k], texts.first[k] + len(step.result_types)):
                self._level[number] = level + (k in self._folds)
                self._maker[number] = k
        varying = [self._level[o] for o in group.outputs if texts.values[o].column]
        self._passes = 1 + max([*map(self._walk, self._folds), *varying])
        if self._passes > MOST_PASSES:
            raise Refused(f"more than {MOST_PASSES} walks over a row")

    def _walk(self, k: int) -> int:
        """Return in which pass a fold is done."""
        return self._level[self._texts.first[k]] - 1

    def _check_shared(self) -> None:
        kinds = {_shared_name(text): text.states for text in self._folds.values()}
        places = sum(BITS[t] // 8 for states in kinds.values() for t in states)
        if places * self.driver.dialect.lanes > self.driver.dialect.shared_bytes:
            raise Refused("the folds need more memory than the lanes of a block share")

    # --- what is compiled -------------------------------------------------------------------------

    def _unit(self, lanes: int) -> Unit:
        if lanes not in self._units:
            names = ("rows", "columns", "parts", "step")
            fields = [*(("int64", name, 0) for name in names), *self._texts.fields()]
            for text in self._folds.values():
                fields += text.fields()
            body = _ROWS.format(group=lanes, shared=self._shared(lanes), body=self._body(lanes))
            kernel = Kernel("rows", self._texts.buffers(), tuple(fields), body)
            unit = Unit(self.driver, [kernel], self._source)
            unit.label = self._texts.label
            self._units.setdefault(lanes, unit)
        return self._units[lanes]

    def _shared(self, lanes: int) -> str:
        if lanes == 1:
            return ""
        folds = self._folds.values()
        return "\n".join(dict.fromkeys(f"    {f.shared(_shared_name(f))}" for f in folds))

    def _body(self, lanes: int) -> str:
        texts, lines = self._texts, []
        for k, given in enumerate(self.group.inputs):
            if given.pattern in ("row", "scalar"):
                at = "r" if given.pattern == "row" else "0"
                lines.append(f"const {self.driver.dialect.type(given.dtype)} v{k} = x{k}[{at}];")
        for number in range(self._passes):
            lines += self._same_for_all_columns(number)
            folds = {k: f for k, f in self._folds.items() if self._walk(k) == number}
            lines += self._pass(folds, lanes, last=number == self._passes - 1)
        lines += self._same_for_all_columns(self._passes)
        for k, output in enumerate(self.group.outputs):
            value = texts.values[output]
            if not value.column:
                place, guard = ("r", "") if value.row else ("0", " && r == 0")
                lines.append(f"if (active && lane == 0{guard}) y{k}[{place}] = v{output};")
        return "\n".join(f"        {line}" for line in lines)

    def _same_for_all_columns(self, level: int) -> list[str]:
        """Return the lines of the steps that are known after so many passes and do not vary."""
        values, first = self._texts.values, self._texts.first
        return [
            line
            for k, made in self._lines.items()
            if not values[first[k]].column and self._level[first[k]] == level
            for line in made
        ]

    def _pass(self, folds: dict[int, FoldText], lanes: int, last: bool) -> list[str]:
        stored = []
        wanted = [self._folded(k) for k in folds]
        if last:
            for k, output in enumerate(self.group.outputs):
                value = self._texts.values[output]
                if value.column:
                    wanted.append(output)
                    place, guard = ("i", "") if value.row else ("c", "if (r == 0) ")
                    stored.append(f"{guard}y{k}[{place}] = v{output};")
        lines = [line for k in self._needed(wanted) for line in self._lines[k]]
        for k, text in folds.items():
            taken = f"{text.state('m')} {text.map(self._texts.value(self._folded(k)), 'c', 'm')}"
            lines.append(f"{{ {text.join(taken, f'a{k}_', f'any{k}')} }}")
        walk = {"group": lanes, "lines": "\n            ".join([*lines, *stored])}
        if not folds:
            return [_COLUMNS.format(begin="0", end="length", **walk)]
        if lanes == 1:
            begun = [f"{text.declare(f'a{k}_')} int any{k} = 0;" for k, text in folds.items()]
            return [*begun, _COLUMNS.format(begin="0", end="length", **walk), *self._finish(folds)]
        return self._in_parts(folds, lanes, _COLUMNS.format(begin="begin", end="end", **walk))

    def _in_parts(self, folds: dict[int, FoldText], lanes: int, walk: str) -> list[str]:
        """Return a pass whose parts follow one another; lane by lane keeps the state of one."""
        lines, within, joined = [], [], []
        leader = "[TG_LANE - lane]"
        for k, text in folds.items():
            shared, mine, kept = _shared_name(text), f"a{k}_", f"b{k}_"
            lines.append(f"{text.declare(mine)} {text.declare(kept)} int any{k} = 0;")
            within.append(text.tree(mine, lanes, "end - begin", shared))
            within.append(text.assign(mine, shared, of=leader))
            within.append(f"if (lane == part) {{ {text.assign(kept, mine)} }}")
            joined.append(text.tree(kept, lanes, "active ? g.parts : 0", shared))
            joined.append(text.assign(mine, shared, of=leader))
        again = " ".join(f"any{k} = 0;" for k in folds)
        lines.append(_PARTS.format(body="\n".join([again, walk, *within])))
        lines.append(f"if (g.parts > 1) {{ {' '.join(joined)} }}")
        return [*lines, *self._finish(folds)]

    def _finish(self, folds: dict[int, FoldText]) -> list[str]:
        lines = []
        for k, text in folds.items():
            lines.append(text.finish(f"a{k}_", "g.columns", f"o{k}_"))
            for r, dtype in enumerate(self.group.steps[k].result_types):
                kind, number = self.driver.dialect.type(dtype), self._texts.first[k] + r
                lines.append(f"const {kind} v{number} = o{k}_{r};")
        return lines

    def _needed(self, wanted: Iterable[int]) -> list[int]:
        """Return the steps that have to be computed in each column for some values, in order."""
        pending, found = list(wanted), set()
        while pending:
            number = pending.pop()
            k = self._maker.get(number)
            if k is None or k in found or not self._texts.values[number].column:
                continue
            found.add(k)
            pending += [a for a in self.group.steps[k].args if isinstance(a, int)]
        return sorted(found)


def _place(number: int, value: Value) -> str:
    """Return the text of an input's element; what is the same for all columns is read before."""
    if not value.column:
        return f"v{number}"
    return f"x{number}[i]" if value.row else f"x{number}[c]"


def _shared_name(text: FoldText) -> str:
    return f"shared_{'_'.join(text.states)}_"
