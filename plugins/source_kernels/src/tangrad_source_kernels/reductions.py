"""Reductions: each result is folded by a group of lanes, and long ones in several parts.

A group has as many lanes as the elements of one result keep busy. Where neighbouring results lie
side by side in memory, neighbouring lanes are of different groups. Where there are fewer results
than the device has lanes for, the elements are cut into parts whose states a second kernel folds.
How they are cut depends on sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import tangrad
from tangrad.plugin.render import ExpressionTypeError, Fold, TypedFold
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.folding import FoldText, decompose
from tangrad_source_kernels.geometry import Loop, loop_over, rank_for
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

# Elements that one lane folds before a fold is cut into parts, and parts at most.
_PER_LANE, _MOST_PARTS = 16, 1024


def cut(driver: Compiler, count: int, length: int, group: int) -> tuple[int, int]:
    """Return in how many parts a fold is done, and how many elements each but the last has.

    Args:
        driver: of the device.
        count: how many results there are.
        length: how many elements each is folded of.
        group: how many lanes share the work on a part.
    """
    dialect = driver.dialect
    room = dialect.max_blocks * dialect.lanes // (count * group)
    parts = min(room, length // (group * _PER_LANE), _MOST_PARTS)
    if dialect.lanes == 1 or parts < 2:
        return 1, length
    step = -(-length // parts)
    return -(-length // step), step


class Plan(NamedTuple):
    """How one geometry is folded."""

    kept: Loop
    folded: Loop
    group: int
    across: bool
    parts: int
    length: int
    ranks: tuple[int, int]


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of a reduction, None where its expressions have no meaning."""
    try:
        kernel = Reduction(driver, Fold(op).typed(dtype))
        kernel.text(kernel.results).functions  # noqa: B018
    except ExpressionTypeError:
        return None
    return kernel


class Reduction:
    """The kernels of one reduction for one dtype."""

    def __init__(self, driver: Compiler, typed: TypedFold) -> None:
        self.driver, self.typed, self.results = driver, typed, tuple(typed.result_types)
        self._texts: dict[tuple[str, ...], FoldText] = {}
        self._units: dict[Any, Unit] = {}
        self._plans: dict[Any, Plan] = {}

    def text(self, results: tuple[str, ...]) -> FoldText:
        """Return the functions for results of some dtypes."""
        if results not in self._texts:
            self._texts[results] = FoldText(self.typed, results, self.driver.dialect)
        return self._texts[results]

    def __call__(self, outs: Any, x: Any, dims: Any, params: dict[str, Any]) -> None:
        """Fold `x` over `dims`: the kernel, as the core calls it."""
        if outs[0].numel() == 0:
            return
        plan = self._plan(outs, x, dims)
        results = tuple(out.dtype.name for out in outs)
        text, index = self.text(results), x.device.index
        lead = [plan.kept.elements, plan.folded.elements]
        given = text.encode(params)
        kept, folded = plan.kept.padded(plan.ranks[0]), plan.folded.padded(plan.ranks[1])
        blocks = self._blocks(plan.kept.elements * plan.parts, plan.group)
        if plan.parts == 1:
            unit = self._unit(text, plan, "whole")
            unit.launch("whole", blocks, [*outs, x], [*lead, *kept, *folded, *given], index)
            return
        scratch = [
            tangrad.empty(
                plan.kept.elements * plan.parts, dtype=getattr(tangrad, t), device=x.device
            )
            for t in text.states
        ]
        shares = [plan.parts, plan.length]
        self._unit(text, plan, "part").launch(
            "part", blocks, [*scratch, x], [*lead, *shares, *kept, *folded, *given], index
        )
        group = self.driver.dialect.lanes
        self._unit(text, plan._replace(group=group, across=False), "join").launch(
            "join",
            self._blocks(plan.kept.elements, group),
            [*outs, *scratch],
            [*lead, *shares, *kept, *given],
            index,
        )

    def _blocks(self, tasks: int, group: int) -> int:
        return self.driver.blocks_for(tasks * group)

    # --- how a geometry is folded -----------------------------------------------------------------

    def _plan(self, outs: Any, x: Any, dims: Any) -> Plan:
        key = tuple(x.shape), tuple(x.stride()), dims, tuple(tuple(o.stride()) for o in outs)
        if key not in self._plans:
            if len(self._plans) > 512:
                self._plans.clear()
            self._plans[key] = self._made_plan(*key)
        return self._plans[key]

    def _made_plan(self, shape: Any, strides: Any, dims: Any, of_outs: Any) -> Plan:
        keeps = [d for d in range(len(shape)) if d not in dims]
        reduced = [d for d in range(len(shape)) if d in dims]
        sizes = tuple(shape[d] for d in keeps)
        places = [tuple(strides[d] for d in keeps)]
        places = [*[tuple(s[d] for d in keeps) for s in of_outs], *places]
        kept = loop_over(sizes, [(sizes, place) for place in places])
        lengths = tuple(shape[d] for d in reduced)
        inner = (lengths, tuple(strides[d] for d in reduced))
        folded = loop_over(lengths, [inner], reorder=not self.typed.indexed)
        group, across = self._group(kept, folded)
        parts, length = cut(self.driver, kept.elements, folded.elements, group)
        ranks = rank_for(len(kept.shape)), rank_for(len(folded.shape))
        return Plan(kept, folded, group, across, parts, length, ranks)

    def _group(self, kept: Loop, folded: Loop) -> tuple[int, bool]:
        side_by_side = kept.elements > 1 and abs(kept.strides[-1][-1]) < abs(folded.strides[0][-1])
        group = self.driver.group_for(folded.elements, side_by_side=side_by_side)
        if not side_by_side or group > 1 or folded.elements <= 8:
            return group, False
        # Eight neighbours or more read memory together.
        group = min(8 if folded.elements <= 512 else 32, self.driver.dialect.lanes // 4)
        return max(1, group), group > 1

    # --- what is compiled -------------------------------------------------------------------------

    def _unit(self, text: FoldText, plan: Plan, name: str) -> Unit:
        key = text.results, name, plan.group, plan.across, plan.ranks
        if key not in self._units:
            make = {"whole": self._whole, "part": self._part, "join": self._join}[name]
            self._units[key] = Unit(self.driver, [make(text, plan)], text.functions)
        return self._units[key]

    def _outs(self, text: FoldText) -> list[tuple[str, str]]:
        return [(dtype, f"y{k}") for k, dtype in enumerate(text.results)]

    def _kept_fields(self, text: FoldText, rank: int) -> list[tuple[str, str, int]]:
        of_outs = [("int64", f"of_y{k}", rank) for k in range(len(text.results))]
        return [("int64", "kept", rank), *of_outs, ("int64", "kept_x", rank)]

    def _whole(self, text: FoldText, plan: Plan) -> Kernel:
        lead = [("int64", "count", 0), ("int64", "length", 0)]
        fields = [*lead, *self._kept_fields(text, plan.ranks[0])]
        fields += [("int64", "folded", plan.ranks[1]), ("int64", "folded_x", plan.ranks[1])]
        buffers = (*self._outs(text), (text.dtype, "x"))
        begin = "tk_int result = task, begin = 0, end = g.length;"
        body = self._tasks(text, plan, "g.count", begin, self._elements(text, plan))
        body = body.replace("@FINISH", self._store(text, plan.ranks[0]))
        return Kernel("whole", buffers, (*fields, *text.fields()), body)

    def _part(self, text: FoldText, plan: Plan) -> Kernel:
        fields = [(("int64"), n, 0) for n in ("count", "length", "parts", "step")]
        fields += self._kept_fields(text, plan.ranks[0])
        fields += [("int64", "folded", plan.ranks[1]), ("int64", "folded_x", plan.ranks[1])]
        buffers = [(dtype, f"part{k}") for k, dtype in enumerate(text.states)]
        begin = (
            "tk_int result = task / g.parts, begin = (task - result * g.parts) * g.step, "
            "end = begin + g.step < g.length ? begin + g.step : g.length;"
        )
        body = self._tasks(text, plan, "g.count * g.parts", begin, self._elements(text, plan))
        body = body.replace("@FINISH", text.assign("part", "s", at="[task]"))
        return Kernel("part", (*buffers, (text.dtype, "x")), (*fields, *text.fields()), body)

    def _join(self, text: FoldText, plan: Plan) -> Kernel:
        fields = [("int64", n, 0) for n in ("count", "length", "parts", "step")]
        fields += self._kept_fields(text, plan.ranks[0])
        states = [(dtype, f"part{k}") for k, dtype in enumerate(text.states)]
        begin = "tk_int result = task, begin = 0, end = g.parts;"
        take = text.assign("m", "part", of="[result * g.parts + r]")
        body = self._tasks(text, plan, "g.count", begin, ("", take))
        body = body.replace("@FINISH", self._store(text, plan.ranks[0]))
        return Kernel("join", (*self._outs(text), *states), (*fields, *text.fields()), body)

    def _elements(self, text: FoldText, plan: Plan) -> tuple[str, str]:
        start = "tk_int base = 0; " + decompose("result", plan.ranks[0], "kept", {"base": "kept_x"})
        take = "tk_int at = base; " + decompose("r", plan.ranks[1], "folded", {"at": "folded_x"})
        return start, f"{take} {text.map('x[at]', 'r', 'm')}"

    def _store(self, text: FoldText, rank: int) -> str:
        targets = {f"at_y{k}": f"of_y{k}" for k in range(len(text.results))}
        offsets = "tk_int " + ", ".join(f"{name} = 0" for name in targets) + ";"
        stores = " ".join(f"y{k}[at_y{k}] = o{k};" for k in range(len(text.results)))
        place = decompose("result", rank, "kept", targets)
        return f"{offsets} {place} {text.finish('s', 'g.length', 'o')} {stores}"

    def _tasks(
        self, text: FoldText, plan: Plan, tasks: str, begin: str, elements: tuple[str, str]
    ) -> str:
        group, (start, take) = plan.group, elements
        apart = f"(TG_LANES / {group})"
        lane, member, neighbours = f"TG_LANE % {group}", f"TG_LANE / {group}", "1"
        if plan.across:
            lane, member, neighbours = f"TG_LANE / {apart}", f"TG_LANE % {apart}", apart
        return f"""
    {text.shared() if group > 1 else ""}
    const int lane = {lane};
    for (tk_int first = (tk_int)TG_BLOCK * {apart}; first < {tasks};
         first += (tk_int)TG_BLOCKS * {apart}) {{
        const int active = first + {member} < {tasks};
        const tk_int task = active ? first + {member} : 0;
        {begin}
        {start}
        {text.declare("s")}
        int any = 0;
        for (tk_int r = begin + lane; r < end; r += {group}) {{
            {text.join(f"{text.state('m')} {take}", "s", "any")}
        }}
        {text.tree("s", group, "end - begin", apart=neighbours) if group > 1 else ""}
        if (active && lane == 0) {{ @FINISH }}
    }}"""
