"""Numbers of Poisson's, gamma and binomial distributions, from the stream that all devices share.

What is drawn by rejection is drawn in rounds, as the definitions say: those that are left take
the next numbers of the stream side by side, so the host asks after each round how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin.render import KINDS, render_conversion
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.draws import stream_functions
from tangrad_source_kernels.numbers import signed
from tangrad_source_kernels.reports import REPORT
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

_TRIES = 32
_TINY = {"float64": 2.0**-1022}  # others are drawn as float32

_POISSON = """        const double mean = IN(x[i]), u = 1 - U(0, i);
        if (!(mean >= 0)) TG_REPORT(i, 0);
        const double z = tg_ndtri_f64(u < 1e-300 ? 1e-300 : u > 0.9999999999999999
                                          ? 0.9999999999999999 : u);
        double count = @floor(mean + @sqrt(mean) * z + (z * z - 1) / 6);
        if (!(count > 0)) count = 0;
        for (int step = 0; step < 60; ++step) {
            if (tg_igammac_f64(count + 1, mean) < u) count += 1;
            else if (count > 0 && tg_igammac_f64(count, mean) >= u) count -= 1;
            else break;
        }
        if (mean == 0) count = 0;
        y[i] = OUT(count);"""

# One round of all that are left; z is normal, u uniform in (0, 1].
_ROUND = """        if (left[i]) {{
            const tk_u64 r = rank[i] - 1;
            const double z = @sqrt(-2 * @log(1 - U(0, 2 * r))) *
                             @cos(6.283185307179586 * U(0, 2 * r + 1));
            const double u = 1 - U(g.total, r);
{body}
        }}"""

_GAMMA = """            const double shape = IN(x[i]);
            const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
            const double root = 1 + 1 / @sqrt(9 * d) * z;
            const double v = root > 0 ? root * root * root : 1;
            drawn[i] = @log(d * v);
            left[i] = !(root > 0 && @log(u) < z * z / 2 + d * (1 - v + @log(v)));"""

_GAMMA_LAST = """        const double shape = IN(x[i]);
        double value = @exp(drawn[i] + (shape < 1 ? @log(1 - U(0, i)) / shape : 0));
        value = value < TINY ? TINY : value;
        y[i] = OUT(shape == 0 ? 0 : value);"""

# Of both kinds of outcome the less probable is counted; NaN where there is no distribution.
_BINOMIAL = """{pad}const double n = IN(x[i]), given = IN(p[i]);
{pad}const int is = n >= 0 && given >= 0 && given <= 1;
{pad}const double rare = !is ? TG_NAN : given > 1 - given ? 1 - given : given;
"""
_FEW = """        const int many = n * rare >= 10;
        double rest = U(0, i), chance = @exp(n * @log1p(-rare)), k = 0;
        while (!many && rest >= chance && k < n) {
            rest -= chance;
            chance = chance * (n - k) / (k + 1) * (rare / (1 - rare));
            k += 1;
        }
        drawn[i] = k;
        left[i] = many;"""
_MANY = """            const double spread = @sqrt(n * rare * (1 - rare)), b = 1.15 + 2.53 * spread;
            const double a = -0.0873 + 0.0248 * b + 0.01 * rare, mode = @floor((n + 1) * rare);
            const double w = tg_erf_f64(z * 0.7071067811865476) / 2;
            const double margin = 0.5 - @fabs(w);
            const double k = @floor((2 * a / margin + b) * w + (n * rare + 0.5));
            const double height =
                @log(u * ((2.83 + 5.1 / b) * spread) / (a / (margin * margin) + b));
            const double bound = tg_lgamma_f64(mode + 1) + tg_lgamma_f64(n - mode + 1) -
                                 tg_lgamma_f64(k + 1) - tg_lgamma_f64(n - k + 1);
            drawn[i] = k;
            left[i] = !(k >= 0 && k <= n &&
                        height <= bound + (k - mode) * @log(rare / (1 - rare)));"""
_BINOMIAL_LAST = """        y[i] = OUT(!is ? TG_NAN : given > 0.5 ? n - drawn[i] : drawn[i]);"""


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of an op that draws numbers of a distribution."""
    if KINDS[dtype] != "f":
        return None
    make = {"poisson_tensor": _poisson, "_standard_gamma": _gamma, "_binomial": _binomial}
    return make[op.name](driver, dtype)


def _unit(driver: Compiler, dtype: str, bodies: dict[str, str]) -> Unit:
    """Return kernels over elements `i` with the operands that the names in them are of."""
    dialect = driver.dialect
    frame = f"#define tk_u64 {dialect.types['uint64']}\n" + stream_functions(driver) + REPORT
    frame += "#define U(after, i) tk_double((tk_u64)g.seed, (tk_u64)(g.offset + (after)), i)\n"
    frame += f"#define IN(v) ({render_conversion('(v)', dtype, 'float64')})\n"
    frame += f"#define OUT(v) ({render_conversion('(v)', 'float64', dtype)})\n"
    frame += f"#define TINY {_TINY.get(dtype, 2.0**-126)!r}\n"
    fields = tuple(("int64", n, 0) for n in ("n", "site", "seed", "offset", "total"))
    buffers = [(dtype, "y"), (dtype, "x"), (dtype, "p")]
    buffers += [("float64", "drawn"), ("int64", "left"), ("int64", "rank"), ("int64", "err")]
    kernels = []
    for name, body in bodies.items():
        for function in ("floor", "sqrt", "log1p", "log", "cos", "exp", "fabs"):
            body = body.replace(f"@{function}(", f"{dialect.library(function, 'float64')}(")
        kernels.append(Kernel(name, tuple(buffers), fields, text.elements(body)))
    return Unit(driver, kernels, frame)


class _Draw:
    """One call: its kernels' operands, and where in the stream it is."""

    def __init__(self, unit: Unit, driver: Compiler, out: Any, args: Any) -> None:
        self.unit, self.driver, self.out = unit, driver, out
        self.operands = [t.contiguous() for t in args[:-2] if isinstance(t, tangrad.Tensor)]
        self.seed, self.offset = args[-2:]
        self.drawn = out.new_empty((out.numel(),), dtype=tangrad.float64)
        self.left = out.new_empty((out.numel(),), dtype=tangrad.int64)

    def launch(self, name: str, *, ranks: Any = None, total: int = 0, site: int = 0) -> None:
        """Launch a kernel at the call's place in the stream."""
        index, count = self.out.device.index, self.out.numel()
        x, p = (*self.operands, None)[:2]
        buffers = [self.out, x, p, self.drawn, self.left, ranks, self.driver.error_cell(index)]
        given = [count, site, signed(self.seed), signed(self.offset), total]
        self.unit.launch(name, self.driver.blocks_for(count), buffers, given, index)

    def rounds(self) -> None:
        """Draw until none is left."""
        total = None
        for _ in range(_TRIES):
            ranks = self.left.cumsum(0)
            count = int(ranks[-1].item())
            if count == 0:
                return
            total = count if total is None else total
            self.launch("attempt", ranks=ranks, total=total)
            self.offset += 2 * total


def _poisson(driver: Compiler, dtype: str) -> Callable[..., None]:
    known = "invalid Poisson rate, expected rate to be non-negative, but element {index} is not"
    site = driver.reports.site(RuntimeError, known)

    def kernel(outs: Any, args: Any) -> None:
        if outs[0].numel() == 0:
            return
        unit = driver.unit(("poisson", dtype), lambda: _unit(driver, dtype, {"draw": _POISSON}))
        with text.Result(*outs) as out:
            _Draw(unit, driver, out, args).launch("draw", site=site)
        driver.reports.expect(out.device.index)

    return kernel


def _gamma(driver: Compiler, dtype: str) -> Callable[..., None]:
    bodies = {"attempt": _ROUND.format(body=_GAMMA), "finish": _GAMMA_LAST}

    def kernel(outs: Any, args: Any) -> None:
        if outs[0].numel() == 0:
            return
        unit = driver.unit(("gamma", dtype), lambda: _unit(driver, dtype, bodies))
        with text.Result(*outs) as out:
            draw = _Draw(unit, driver, out, args)
            draw.left.fill_(1)
            draw.rounds()
            draw.offset = args[-1] + 2 * _TRIES * out.numel()
            draw.launch("finish")

    return kernel


def _binomial(driver: Compiler, dtype: str) -> Callable[..., None]:
    outer, inner = (_BINOMIAL.format(pad=" " * pad) for pad in (8, 12))
    bodies = {"few": outer + _FEW, "finish": outer + _BINOMIAL_LAST}
    bodies["attempt"] = _ROUND.format(body=inner + _MANY)

    def kernel(outs: Any, args: Any) -> None:
        if outs[0].numel() == 0:
            return
        unit = driver.unit(("binomial", dtype), lambda: _unit(driver, dtype, bodies))
        with text.Result(*outs) as out:
            draw = _Draw(unit, driver, out, args)
            draw.launch("few")
            draw.rounds()
            draw.launch("finish")

    return kernel
