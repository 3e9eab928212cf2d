"""The negative log-likelihood of each sample's class."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.expr.dtypes import KINDS
from tangrad.plugin.compiled import text
from tangrad.plugin.compiled.dialect import Kernel
from tangrad.plugin.compiled.reports import REPORT
from tangrad.plugin.compiled.unit import Unit

if TYPE_CHECKING:
    from tangrad.plugin.compiled.driver import CompilingDriver

_BODY = """        const tk_int target = (tk_int)t[i], sample = i / g.inner;
        x_r weight = 0, value = 0;
        if (target != g.ignored) {
            if (target < 0 || target >= g.classes) TG_REPORT(target, g.classes);
            else {
                weight = WEIGHT;
                value = -x_load(x[(sample * g.classes + target) * g.inner + i % g.inner]) * weight;
            }
        }
        loss[i] = x_store(value);
        scale[i] = x_store(weight);"""


def kernel_for(driver: CompilingDriver, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of `nll_loss_elements`."""
    if KINDS[dtype] != "f":
        return None
    site = driver.reports.site(IndexError, "Target {index} is out of bounds.")

    def kernel(outs: Any, args: Any) -> None:
        scores, target, weight, ignored = args
        if target.numel() == 0:
            return
        index, integers = target.device.index, target.dtype.name
        key = ("nll", dtype, integers, weight is not None)
        unit = driver.unit(key, lambda: _unit(driver, dtype, integers, weight is not None))
        classes, inner = scores.shape[1], text.count_of(scores.shape[2:])
        scores, target, weight = text.contiguous(scores, target, weight)
        with text.Result(*outs) as (loss, scale):
            buffers = [loss, scale, scores, target, weight, driver.error_cell(index)]
            given = [target.numel(), site, classes, inner, ignored]
            unit.launch("nll", driver.blocks_for(target.numel()), buffers, given, index)
        driver.reports.expect(index)

    return kernel


def _unit(driver: CompilingDriver, dtype: str, integers: str, weighted: bool) -> Unit:
    weight = "x_load(w[target])" if weighted else "1"
    frame = text.names(driver.dialect, x=dtype) + f"#define WEIGHT {weight}\n" + REPORT
    operands = (("loss", dtype), ("scale", dtype), ("x", dtype), ("t", integers), ("w", dtype))
    buffers = (*((kind, name) for name, kind in operands), ("int64", "err"))
    fields = tuple(("int64", n, 0) for n in ("n", "site", "classes", "inner", "ignored"))
    return Unit(driver, [Kernel("nll", buffers, fields, text.elements(_BODY))], frame)
