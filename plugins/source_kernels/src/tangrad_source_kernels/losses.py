"""The negative log-likelihood of each sample's class, and of all in one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.plugin.render import KINDS, compute_type
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.reports import REPORT
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

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


# One block adds up all samples, lane by lane: which lane adds what depends on their number alone.
_TOTAL = """    if (TG_BLOCK == 0) {
        x_r total = x_zero;
        tk_int counted = 0;
        for (tk_int i = TG_LANE; i < g.n; i += TG_LANES) {
            const tk_int target = (tk_int)t[i], sample = i / g.inner;
            if (target == g.ignored) continue;
            if (target < 0 || target >= g.classes) { TG_REPORT(target, g.classes); continue; }
            total += -x_load(x[(sample * g.classes + target) * g.inner + i % g.inner]);
            ++counted;
        }
        total = tk_sum(total, shared);
        counted = tk_count(counted, counts);
        if (TG_LANE == 0) {
            loss[0] = x_store(g.mean ? total / (x_r)counted : total);
            count[0] = counted;
        }
    }"""

_OWED = """        const tk_int inner = i % g.inner, above = i / g.inner;
        const tk_int target = (tk_int)t[above / g.classes * g.inner + inner];
        x_r owed = x_zero;
        if (target != g.ignored && target == above % g.classes)
            owed = -(g.mean ? x_load(d[0]) / (x_r)count[0] : x_load(d[0]));
        y[i] = x_store(owed);"""


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of a loss of classes or of its gradient."""
    if KINDS[dtype] != "f":
        return None
    if op.name != "nll_loss_elements":
        return (_total if op.name == "nll_loss_total" else _owed)(driver, dtype)
    site = _site(driver)

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


def _site(driver: Compiler) -> int:
    known = "Target {index} is out of bounds. There are {bound} classes."
    return driver.reports.site(IndexError, known)


def _total(driver: Compiler, dtype: str) -> Callable[..., None]:
    site, dialect = _site(driver), driver.dialect

    def make(integers: str) -> Unit:
        compute, lanes = compute_type(dtype), dialect.lanes
        frame = text.names(dialect, x=dtype) + REPORT
        frame += text.fold_function(dialect, lanes, compute, "tk_sum", "v + w")
        frame += text.fold_function(dialect, lanes, "int64", "tk_count", "v + w")
        buffers = ((dtype, "loss"), ("int64", "count"), (dtype, "x"), (integers, "t"))
        fields = tuple(
            ("int64", n, 0) for n in ("n", "site", "classes", "inner", "ignored", "mean")
        )
        body = text.shared_places(lanes, compute, dialect)
        body += "    TG_SHARED tk_int counts[TG_LANES];\n" + _TOTAL
        return Unit(driver, [Kernel("total", (*buffers, ("int64", "err")), fields, body)], frame)

    def kernel(outs: Any, args: Any) -> None:
        scores, target, ignored, mean = args
        index, integers = scores.device.index, target.dtype.name
        unit = driver.unit(("nll_total", dtype, integers), lambda: make(integers))
        scores, target = text.contiguous(scores, target)
        inner = text.count_of(scores.shape[2:])
        given = [target.numel(), site, scores.shape[1], inner, ignored, int(mean)]
        buffers = [*outs, scores, target, driver.error_cell(index)]
        unit.launch("total", 1, buffers, given, index)
        driver.reports.expect(index)

    return kernel


def _owed(driver: Compiler, dtype: str) -> Callable[..., None]:
    def make(integers: str) -> Unit:
        buffers = ((dtype, "y"), (dtype, "d"), ("int64", "count"), (integers, "t"))
        fields = tuple(("int64", n, 0) for n in ("n", "classes", "inner", "ignored", "mean"))
        kernel = Kernel("owed", buffers, fields, text.elements(_OWED))
        return Unit(driver, [kernel], text.names(driver.dialect, x=dtype))

    def kernel(outs: Any, args: Any) -> None:
        grad, count, target, ignored, mean, shape = args
        if outs[0].numel() == 0:
            return
        index, integers = grad.device.index, target.dtype.name
        unit = driver.unit(("nll_owed", dtype, integers), lambda: make(integers))
        with text.Result(*outs) as y:
            given = [y.numel(), shape[1], text.count_of(shape[2:]), ignored, int(mean)]
            buffers = [y, grad, count, target.contiguous()]
            unit.launch("owed", driver.blocks_for(y.numel()), buffers, given, index)

    return kernel


def _unit(driver: Compiler, dtype: str, integers: str, weighted: bool) -> Unit:
    weight = "x_load(w[target])" if weighted else "1"
    frame = text.names(driver.dialect, x=dtype) + f"#define WEIGHT {weight}\n" + REPORT
    operands = (("loss", dtype), ("scale", dtype), ("x", dtype), ("t", integers), ("w", dtype))
    buffers = (*((kind, name) for name, kind in operands), ("int64", "err"))
    fields = tuple(("int64", n, 0) for n in ("n", "site", "classes", "inner", "ignored"))
    return Unit(driver, [Kernel("nll", buffers, fields, text.elements(_BODY))], frame)
