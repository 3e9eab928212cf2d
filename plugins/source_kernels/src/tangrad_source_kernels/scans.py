"""Scans: each row by one lane, or by all lanes of a block, a tile of elements after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.plugin.render import ExpressionTypeError, Fold, TypedFold
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.folding import FoldText, decompose
from tangrad_source_kernels.geometry import loop_over, rank_for
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of a scan, None where its expressions have no meaning."""
    try:
        kernel = Scan(driver, Fold(op).typed(dtype))
        kernel.text(tuple(kernel.typed.result_types)).functions  # noqa: B018
    except ExpressionTypeError:
        return None
    return kernel


class Scan:
    """The kernels of one scan for one dtype."""

    def __init__(self, driver: Compiler, typed: TypedFold) -> None:
        self.driver, self.typed = driver, typed
        self._texts: dict[tuple[str, ...], FoldText] = {}
        self._units: dict[Any, Unit] = {}

    def text(self, results: tuple[str, ...]) -> FoldText:
        """Return the functions for results of some dtypes."""
        if results not in self._texts:
            self._texts[results] = FoldText(self.typed, results, self.driver.dialect)
        return self._texts[results]

    def __call__(self, outs: Any, x: Any, dim: int, params: dict[str, Any]) -> None:
        """Scan `x` along `dim`: the kernel, as the core calls it."""
        if x.numel() == 0:
            return
        tensors = [*outs, x]
        keeps = [d for d in range(x.ndim) if d != dim]
        sizes = tuple(x.shape[d] for d in keeps)
        rows = loop_over(sizes, [(sizes, tuple(t.stride(d) for d in keeps)) for t in tensors])
        length = x.shape[dim] if x.ndim else 1
        steps = [t.stride(dim) if x.ndim else 0 for t in tensors]
        group, rank = self._group(rows.elements, length), rank_for(len(rows.shape))
        text = self.text(tuple(out.dtype.name for out in outs))
        unit = self._unit(text, group, rank)
        given = [rows.elements, length, *steps, *rows.padded(rank), *text.encode(params)]
        blocks = self.driver.blocks_for(rows.elements * group)
        unit.launch("scan", blocks, tensors, given, x.device.index)

    def _group(self, rows: int, length: int) -> int:
        dialect = self.driver.dialect
        busy = rows * 2 >= dialect.max_blocks * dialect.lanes
        return 1 if busy or length <= 32 else dialect.lanes

    def _unit(self, text: FoldText, group: int, rank: int) -> Unit:
        key = text.results, group, rank
        if key not in self._units:
            self._units[key] = Unit(self.driver, [self._kernel(text, group, rank)], text.functions)
        return self._units[key]

    def _kernel(self, text: FoldText, group: int, rank: int) -> Kernel:
        names = [*(f"y{k}" for k in range(len(text.results))), "x"]
        fields = [("int64", "count", 0), ("int64", "length", 0)]
        fields += [("int64", f"step_{name}", 0) for name in names]
        fields += [("int64", "rows", rank), *(("int64", f"of_{n}", rank) for n in names)]
        buffers = (*((t, f"y{k}") for k, t in enumerate(text.results)), (text.dtype, "x"))
        offsets = "tk_int " + ", ".join(f"at_{name} = 0" for name in names) + ";"
        place = decompose("row", rank, "rows", {f"at_{name}": f"of_{name}" for name in names})
        stores = " ".join(
            f"y{k}[at_y{k} + j * g.step_y{k}] = o{k};" for k in range(len(text.results))
        )
        body = f"""
    {text.shared() if group > 1 else ""}
    const int lane = TG_LANE % {group};
    for (tk_int first = (tk_int)TG_BLOCK * (TG_LANES / {group}); first < g.count;
         first += (tk_int)TG_BLOCKS * (TG_LANES / {group})) {{
        const int active = first + TG_LANE / {group} < g.count;
        const tk_int row = active ? first + TG_LANE / {group} : 0;
        {offsets} {place}
        {text.declare("carry")}
        for (tk_int tile = 0; tile < g.length; tile += {group}) {{
            const tk_int j = tile + lane;
            const int inside = j < g.length;
            {text.declare("s")}
            if (inside) {{ {text.map("x[at_x + j * g.step_x]", "j", "s")} }}
            {self._among_lanes(text, group) if group > 1 else ""}
            if (tile > 0 && inside) {{
                {text.combine(text.names("carry"), text.names("s"), "s")}
            }}
            if (inside && active) {{ {text.finish("s", "g.length", "o")} {stores} }}
            {self._carry(text, group)}
        }}
    }}"""
        return Kernel("scan", buffers, (*fields, *text.fields()), body)

    def _among_lanes(self, text: FoldText, group: int) -> str:
        """Hillis and Steele's scan ("Data parallel algorithms", 1986): log2 of the lanes steps."""
        here, before = "[TG_LANE]", "[TG_LANE - back]"
        kinds = " ".join(f"{text.dialect.type(t)} b{k};" for k, t in enumerate(text.states))
        return f"""{text.assign("shared", "s", at=here)}
            TG_BARRIER;
            for (int back = 1; back < {group}; back <<= 1) {{
                {kinds}
                if (lane >= back) {{ {text.assign("b", "shared", of=before)} }}
                TG_BARRIER;
                if (lane >= back) {{
                    {text.combine(text.names("b"), text.names("s"), "s")}
                    {text.assign("shared", "s", at=here)}
                }}
                TG_BARRIER;
            }}"""

    def _carry(self, text: FoldText, group: int) -> str:
        if group == 1:
            return text.assign("carry", "s")
        last = f"[TG_LANE - lane + {group - 1}]"
        return f"""{text.assign("shared", "s", at="[TG_LANE]")}
            TG_BARRIER;
            {text.assign("carry", "shared", of=last)}
            TG_BARRIER;"""
