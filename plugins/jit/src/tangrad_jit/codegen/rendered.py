"""Kernels of fused groups for devices that compile source: the same steps, in their language.

Each step is the scalar function that the device's own kernel of the op calls, from stored elements
to stored elements, so that results equal those of the ops called one by one to the bit. One loop
over the elements calls them all, and the device's compiler makes one of them. Groups with folds
have another frame: rendered_rows.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad.plugin import get_driver
from tangrad.plugin.compiled import CompilingDriver, Kernel, Unit
from tangrad.plugin.render import DerivativeError, ExpressionTypeError, Fold, describe
from tangrad_jit.codegen.group import Group
from tangrad_jit.codegen.step_texts import StepTexts, has_kernel_of
from tangrad_jit.codegen.tiles import Refused, Value

__all__ = ["RenderedGroup", "compiling_driver", "folds_in_groups", "render_group"]

_LOOP = """    for (tk_int i = (tk_int)TG_BLOCK * TG_LANES + TG_LANE; i < g.n;
         i += (tk_int)TG_BLOCKS * TG_LANES) {{
        const tk_int r = i / g.columns, c = i - r * g.columns;
{body}
    }}"""
# By whether a value differs between rows and columns: where its element is, and who writes it.
_PLACES = {
    (True, True): ("i", ""),
    (True, False): ("r", "if (c == 0) "),
    (False, True): ("c", "if (r == 0) "),
    (False, False): ("0", "if (i == 0) "),
}
_made: dict[tuple[Any, ...], Any] = {}


def compiling_driver(device: str) -> CompilingDriver | None:
    """Return the driver of a device that compiles source, None of every other."""
    driver = get_driver(device.partition(":")[0])
    return driver if isinstance(driver, CompilingDriver) else None


def folds_in_groups(driver: CompilingDriver, op: Any, dtype: str, rows: int, columns: int) -> bool:
    """Tell whether a fold of the last of `columns` columns may be part of a device's groups.

    It may where the device's kernel of it is the one that follows from its definition, and folds
    rows of that many elements in few parts.
    """
    from tangrad_jit.codegen.rendered_rows import shares_of

    fold = describe(op)
    if not isinstance(fold, Fold) or fold.is_scan or not has_kernel_of(driver, op, dtype):
        return False
    return shares_of(driver, rows, columns) is not None


def render_group(group: Group, driver: CompilingDriver) -> Any:
    """Return the kernel of a group for a device, or the reason why there is none, a text."""
    key = (driver.name, group.key)
    if key not in _made:
        try:
            if any(isinstance(step.described, Fold) for step in group.steps):
                from tangrad_jit.codegen.rendered_rows import RenderedRows

                _made[key] = RenderedRows(group, driver)
            else:
                _made[key] = RenderedGroup(group, driver)
        except (Refused, ExpressionTypeError, DerivativeError) as error:
            _made[key] = str(error)
    return _made[key]


class RenderedGroup:
    """The kernel of a group without folds, for all sizes.

    Args:
        group: what it computes.
        driver: of the device.

    Raises:
        Refused: a step is no scalar function of its operands, or the device has another kernel.
        ExpressionTypeError: the device's language has no text for it.
    """

    def __init__(self, group: Group, driver: CompilingDriver) -> None:
        self.group, self.driver = group, driver
        self._texts = texts = StepTexts(group, driver, lambda k, v: f"x{k}[{_place(v)[0]}]")
        lines = [line for k in range(len(group.steps)) for line in texts.call(k)]
        for k, output in enumerate(group.outputs):
            place, guard = _place(texts.values[output])
            lines.append(f"{guard}y{k}[{place}] = v{output};")
        fields = [("int64", "n", 0), ("int64", "columns", 0), *texts.fields()]
        loop = _LOOP.format(body="\n".join(f"        {line}" for line in lines))
        kernel = Kernel("group", texts.buffers(), tuple(fields), loop)
        self._unit = Unit(driver, [kernel], texts.functions)
        self._unit.label = texts.label

    def run(self, outs: Sequence[Any], ins: Sequence[Any], rows: int, columns: int) -> None:
        """Compute into `outs`: contiguous tensors of the device, as are those of `ins`.

        Args:
            outs: results.
            ins: operands, Python numbers in the places of numbers.
            rows, columns: how many there are.
        """
        blocks = self.driver.blocks_for(rows * columns)
        given = [rows * columns, columns, *self._texts.encoded(ins)]
        buffers = self._texts.tensors(outs, ins)
        self._unit.launch("group", blocks, buffers, given, outs[0].device.index)

    def serves(self, rows: int, columns: int) -> bool:
        """Tell whether it computes that many rows and columns: all."""
        return True

    def listing(self) -> str:
        """Return its source."""
        return self._unit.source


def _place(value: Value) -> tuple[str, str]:
    return _PLACES[value.row, value.column]
