"""Tensors that are filled by one value, or by evenly spaced numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.plugin.render import KINDS, compute_type, render_conversion
from tangrad_source_kernels import numbers
from tangrad_source_kernels.copies import COPY
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.pointwise import Loops
from tangrad_source_kernels.text import Result, elements
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of `fill_`, `_sequence` or `_spaced`."""
    if op.name == "fill_":
        return _fill(driver, dtype)
    if op.name == "_sequence":
        return _sequence(driver, dtype)
    return _spaced(driver, dtype) if dtype in ("float32", "float64") else None


def _fill(driver: Compiler, dtype: str) -> Callable[..., None]:
    loops = Loops(driver, COPY, compute_type(dtype))

    def kernel(outs: Any, args: Any) -> None:
        value = args[1]
        if getattr(value, "device", outs[0].device) != outs[0].device:
            value = value.item()
        loops(outs, (value,), {})

    return kernel


def _sequence(driver: Compiler, dtype: str) -> Callable[..., None]:
    def kernel(outs: Any, args: Any) -> None:
        _, start, step = args
        if outs[0].numel() == 0:
            return
        exact = KINDS[dtype] in "bui" and isinstance(start, int) and isinstance(step, int)
        kind = "int64" if exact else "float64"
        unit = driver.unit(("sequence", dtype, kind), lambda: _sequence_unit(driver, dtype, kind))
        given = [*numbers.encode(start, kind), *numbers.encode(step, kind)]
        with Result(*outs) as out:
            count, index = out.numel(), out.device.index
            unit.launch("sequence", driver.blocks_for(count), [out], [count, *given], index)

    return kernel


def _sequence_unit(driver: Compiler, dtype: str, kind: str) -> Unit:
    dialect = driver.dialect
    value = f"({dialect.types[kind]})i * g.step + g.start"
    stored = render_conversion(f"({value})", kind, dtype)
    body = elements(f"        y[i] = {stored};")
    fields = (("int64", "n", 0), (kind, "start", 0), (kind, "step", 0))
    return Unit(driver, [Kernel("sequence", ((dtype, "y"),), fields, body)])


def _spaced(driver: Compiler, dtype: str) -> Callable[..., None]:
    def kernel(outs: Any, args: Any) -> None:
        _, start, end = args
        count = outs[0].numel()
        if count == 0:
            return
        unit = driver.unit(("spaced", dtype), lambda: _spaced_unit(driver, dtype))
        with Result(*outs) as out:
            given = [count, max(count // 2, int(count == 1)), float(start), float(end)]
            unit.launch("spaced", driver.blocks_for(count), [out], given, out.device.index)

    return kernel


def _spaced_unit(driver: Compiler, dtype: str) -> Unit:
    dialect = driver.dialect
    kind, fma = dialect.type(dtype), dialect.library("fma", dtype)
    body = f"""    const {kind} start = ({kind})g.start, end = ({kind})g.end;
    const {kind} step = (end - start) / ({kind})(g.n > 1 ? g.n - 1 : 1);
""" + elements(
        f"        y[i] = i < g.half ? {fma}(({kind})i, step, start)\n"
        f"                          : {fma}(({kind})(g.n - 1 - i), -step, end);"
    )
    fields = (
        ("int64", "n", 0),
        ("int64", "half", 0),
        ("float64", "start", 0),
        ("float64", "end", 0),
    )
    return Unit(driver, [Kernel("spaced", ((dtype, "y"),), fields, body)])
