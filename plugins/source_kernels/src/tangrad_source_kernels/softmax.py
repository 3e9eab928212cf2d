"""Softmax, its logarithm and their gradients: a row per group of lanes, one pass each.

The rows of an inner dimension lie side by side; then every lane has a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.plugin.render import KINDS, compute_type
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

_PLACE = (
    "        const tk_int base = row / g.inner * g.length * g.inner + row % g.inner;\n"
    "#define AT(j) (base + (j) * g.inner)\n"
)

_FORWARD = """
        x_r most = -(x_r)TG_INF, total = 0;
        for (tk_int j = lane; j < length; j += GROUP) {
            const x_r v = x_load(x[AT(j)]);
            if (v > most) most = v;
        }
        most = tk_max(most, shared);
        for (tk_int j = lane; j < length; j += GROUP) total += x_exp(x_load(x[AT(j)]) - most);
        total = tk_sum(total, shared);
"""

_BODIES = {
    "_softmax": _FORWARD
    + """        for (tk_int j = lane; j < length; j += GROUP)
            y[AT(j)] = x_store(x_exp(x_load(x[AT(j)]) - most) / total);
""",
    "_log_softmax": _FORWARD
    + """        total = x_log(total);
        for (tk_int j = lane; j < length; j += GROUP)
            y[AT(j)] = x_store(x_load(x[AT(j)]) - most - total);
""",
    "_softmax_backward_data": """
        x_r total = 0;
        for (tk_int j = lane; j < length; j += GROUP)
            total += x_load(x[AT(j)]) * x_load(r[AT(j)]);
        total = tk_sum(total, shared);
        for (tk_int j = lane; j < length; j += GROUP)
            y[AT(j)] = x_store(x_load(r[AT(j)]) * (x_load(x[AT(j)]) - total));
""",
    "_log_softmax_backward_data": """
        x_r total = 0;
        for (tk_int j = lane; j < length; j += GROUP) total += x_load(x[AT(j)]);
        total = tk_sum(total, shared);
        for (tk_int j = lane; j < length; j += GROUP)
            y[AT(j)] = x_store(x_load(x[AT(j)]) - x_exp(x_load(r[AT(j)])) * total);
""",
}


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of one of the four ops."""
    if KINDS[dtype] != "f":
        return None
    name = op.name

    def kernel(outs: Any, args: Any) -> None:
        *tensors, dim = args
        x = tensors[0]
        if x.numel() == 0:
            return
        shape = tuple(x.shape) or (1,)
        length, inner = shape[dim], text.count_of(shape[dim + 1 :])
        rows = x.numel() // length
        group = driver.group_for(length, side_by_side=inner > 1)
        unit = driver.unit((name, dtype, group), lambda: _unit(driver, name, dtype, group))
        with text.Result(*outs) as out:
            buffers = [out, *text.contiguous(*tensors)]
            blocks = driver.blocks_for(rows * group)
            unit.launch(name, blocks, buffers, [rows, length, inner], x.device.index)

    return kernel


def _unit(driver: Compiler, name: str, dtype: str, group: int) -> Unit:
    dialect, compute = driver.dialect, compute_type(dtype)
    frame = text.names(dialect, x=dtype) + f"#define GROUP {group}\n"
    frame += text.fold_functions(dialect, group, compute)
    body = text.shared_places(group, compute, dialect) + text.rows(group, _PLACE + _BODIES[name])
    inputs = ("x", "r") if name.endswith("backward_data") else ("x",)
    buffers = tuple((dtype, operand) for operand in ("y", *inputs))
    fields = tuple(("int64", field, 0) for field in ("rows", "length", "inner"))
    return Unit(driver, [Kernel(name, buffers, fields, body)], frame)
