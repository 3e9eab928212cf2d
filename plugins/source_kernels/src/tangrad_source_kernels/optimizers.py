"""Whole steps of optimizers: all tensors of a list in one launch, up to what numbers fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tangrad.plugin.render import KINDS
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

# Tensors in one launch: their addresses are numbers, of which a kernel gets 4,096 bytes at most.
_AT_ONCE = 64

_FRAME = """    for (int k = 0; k < g.count; ++k) {
{pointers}
        for (tk_int i = (tk_int)TG_BLOCK * TG_LANES + TG_LANE; i < g.size[k];
             i += (tk_int)TG_BLOCKS * TG_LANES) {
            x_r value = x_load(p[i]), grad = x_load(d[i]);
            if (g.scaled) {
                grad = grad / (x_r)*(TG_GLOBAL const float *)g.scaled;
                d[i] = x_store(grad);
            }
            if (g.maximize) grad = -grad;
{update}
            p[i] = x_store(value);
        }
    }"""

_SGD = """            if (g.decay != 0) grad = grad + value * (x_r)g.decay;
            if (g.momentum != 0) {
                x_r kept = x_load(m[i]);
                kept = g.first ? grad : kept * (x_r)g.momentum + grad * (x_r)(1 - g.dampening);
                m[i] = x_store(kept);
                grad = g.nesterov ? grad + kept * (x_r)g.momentum : kept;
            }
            value = value - grad * (x_r)g.lr;"""

_ADAM = """            if (g.decoupled) value = value * (x_r)(1 - g.lr * g.decay);
            else if (g.decay != 0) grad = grad + value * (x_r)g.decay;
            x_r first = x_load(m[i]), second = x_load(v[i]);
            first = first + (grad - first) * (x_r)(1 - g.beta1);
            second = second * (x_r)g.beta2 + grad * grad * (x_r)(1 - g.beta2);
            m[i] = x_store(first);
            v[i] = x_store(second);
            if (g.largest) {
                const x_r before = x_load(w[i]);
                if (!(second > before)) second = before;
                w[i] = x_store(second);
            }
            value = value - first * (x_r)rate / (x_sqrt(second) / (x_r)root + (x_r)g.eps);"""

_STEP = """        const double step = g.step_at[k] ? (double)*(TG_GLOBAL const float *)g.step_at[k]
                                         : g.step[k];
        const double rate = g.lr / (1 - POW(g.beta1, step));
        const double root = SQRT(1 - POW(g.beta2, step));"""


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of a fused step; a device without addresses has none."""
    if KINDS[dtype] != "f" or not driver.dialect.addresses:
        return None
    if op.name == "_fused_sgd_":
        return _Sgd(driver, op, dtype)
    return _Adam(driver, op, dtype)


class _Step:
    """What the steps of all optimizers have in common."""

    lists: tuple[str, ...] = ()
    update = ""
    before = ""
    fields: tuple[tuple[str, str, int], ...] = ()

    def __init__(self, driver: Compiler, op: Any, dtype: str) -> None:
        self.driver, self.dtype = driver, dtype
        self._decomposed = op.definition.decomposed

    def usual(self, args: Any, lists: Sequence[Any], scale: Any, found: Any) -> bool:
        """Return whether tensors lie as the kernel reads them; other calls are decomposed."""
        sizes = [tuple(t.shape) for t in lists[0]]
        return all(
            len(members) == len(sizes)
            and all(
                t.dtype.name == self.dtype
                and t.is_contiguous()
                and t.device == lists[0][0].device
                and tuple(t.shape) == size
                for t, size in zip(members, sizes, strict=True)
            )
            for members in lists
        ) and all(x is None or x.dtype.name == "float32" for x in (scale, found))

    def run(
        self, lists: Sequence[Any], of_tensors: Any, given: Any, scale: Any, found: Any
    ) -> None:
        """Launch the kernel for all tensors, some at a time."""
        unit = self.driver.unit((type(self).__name__, self.dtype), self._unit)
        device = lists[0][0].device
        scale, found = (_on(x, device) for x in (scale, found))
        for start in range(0, len(lists[0]), _AT_ONCE):
            members = [part[start : start + _AT_ONCE] for part in lists]
            sizes = [t.numel() for t in members[0]]
            if not any(sizes):
                continue
            numbers = [len(sizes), *_filled(sizes, 0)]
            for part in members:
                numbers += _filled([t.data_ptr() for t in part], 0)
            numbers += of_tensors(start, start + len(sizes))
            numbers += [0 if x is None else x.data_ptr() for x in (scale, found)]
            blocks = self.driver.blocks_for(max(sizes))
            unit.launch("step", blocks, [], [*numbers, *given], device.index)

    def _unit(self) -> Unit:
        dialect = self.driver.dialect
        frame = text.names(dialect, x=self.dtype)
        frame += f"#define POW(a, b) {dialect.library('pow', 'float64')}(a, b)\n"
        frame += f"#define SQRT(a) {dialect.library('sqrt', 'float64')}(a)\n"
        pointers = "\n".join(
            f"        TG_GLOBAL x_t *{name} = (TG_GLOBAL x_t *)g.{name}_at[k];"
            for name in self.lists
        )
        body = _FRAME.replace("{pointers}", f"{pointers}\n{self.before}")
        body = body.replace("{update}", self.update)
        body = f"    if (!g.found || *(TG_GLOBAL const float *)g.found == 0)\n{body}"
        fields = [("int64", "count", 0), ("int64", "size", _AT_ONCE)]
        fields += [("uint64", f"{name}_at", _AT_ONCE) for name in self.lists]
        return Unit(self.driver, [Kernel("step", (), (*fields, *self.fields), body)], frame)


class _Sgd(_Step):
    lists = ("p", "d", "m")
    update = _SGD
    fields = (
        *(("uint64", name, 0) for name in ("scaled", "found")),
        *(("float64", name, 0) for name in ("decay", "momentum", "lr", "dampening")),
        *(("int64", name, 0) for name in ("nesterov", "maximize", "first")),
    )

    def __call__(self, outs: Any, args: Any) -> None:
        """Take a step: the kernel, as the core calls it."""
        parameters, grads, momenta, decay, momentum, lr, dampening = args[:7]
        nesterov, maximize, first, scale, found = args[7:12]
        kept = momenta if momentum != 0 else parameters
        lists = (parameters, grads, kept)
        if not parameters or not self.usual(args, lists, scale, found):
            self._decomposed(args)
            return
        given = [float(v) for v in (decay, momentum, lr, dampening)]
        given += [int(v) for v in (nesterov, maximize, first)]
        self.run(lists, lambda start, end: [], given, scale, found)


class _Adam(_Step):
    lists = ("p", "d", "m", "v", "w")
    update = _ADAM
    before = _STEP
    fields = (
        ("uint64", "step_at", _AT_ONCE),
        ("float64", "step", _AT_ONCE),
        *(("uint64", name, 0) for name in ("scaled", "found")),
        *(("float64", name, 0) for name in ("lr", "beta1", "beta2", "decay", "eps")),
        *(("int64", name, 0) for name in ("largest", "maximize", "decoupled")),
    )

    def __init__(self, driver: Compiler, op: Any, dtype: str) -> None:
        super().__init__(driver, op, dtype)
        self.decoupled = op.name == "_fused_adamw_"

    def __call__(self, outs: Any, args: Any) -> None:
        """Take a step: the kernel, as the core calls it."""
        parameters, grads, first, second, largest, steps = args[:6]
        lr, beta1, beta2, decay, eps, amsgrad, maximize, scale, found = args[6:15]
        lists = (parameters, grads, first, second, largest if amsgrad else second)
        known = bool(parameters) and len(steps) == len(parameters)
        if not known or not self.usual(args, lists, scale, found):
            self._decomposed(args)
            return
        device = parameters[0].device
        given = [float(v) for v in (lr, beta1, beta2, decay, eps)]
        given += [int(v) for v in (amsgrad, maximize, self.decoupled)]
        here = [s.device == device and s.dtype.name == "float32" for s in steps]

        def of_tensors(start: int, end: int) -> list[Any]:
            part = list(zip(steps[start:end], here[start:end], strict=True))
            places = [s.data_ptr() if inside else 0 for s, inside in part]
            values = [0.0 if inside else float(s.item()) for s, inside in part]
            return _filled(places, 0) + _filled(values, 0.0)

        self.run(lists, of_tensors, given, scale, found)


def _filled(values: list[Any], fill: Any) -> list[Any]:
    return values + [fill] * (_AT_ONCE - len(values))


def _on(tensor: Any, device: Any) -> Any:
    return tensor if tensor is None or tensor.device == device else tensor.to(device)
