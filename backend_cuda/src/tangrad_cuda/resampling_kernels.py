"""Kernels of `_resample_linear`: places and weights are computed where they are needed.

All ranks are volumes, of which the first dimensions may have one element. Sums are nested as those
of the tensor code: the first dimension within, the last without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad.plugin.compiled import CompilingDriver, Kernel, Unit, text

# Where element i of a dimension lies in the dimension of n elements that it is made of.
_PLACE = """{function} double tk_place(tk_int i, double ratio, tk_int corners) {{
    const double x = corners ? ratio * i : ratio * (i + 0.5) - 0.5;
    return x < 0 ? 0 : x;
}}
{function} tk_int tk_lower(double x, tk_int n) {{
    const tk_int lower = (tk_int)x;
    return lower < n - 1 ? lower : n - 1;
}}
{function} double tk_share(double x, tk_int lower) {{
    const double share = x - lower;
    return share > 1 ? 1 : share;
}}
"""

_FORWARD = """        const tk_int at2 = i % g.out[2], row = i / g.out[2], at1 = row % g.out[1];
        const tk_int at0 = row / g.out[1] % g.out[0], plane = row / g.out[1] / g.out[0];
        const tk_int at[3] = {at0, at1, at2};
        tk_int count[3], place[3][2];
        x_r weight[3][2];
        for (int d = 0; d < 3; ++d) {
            const double x = tk_place(at[d], g.ratio[d], g.corners);
            const tk_int lower = tk_lower(x, g.size[d]);
            const double share = tk_share(x, lower);
            count[d] = g.size[d] == g.out[d] ? 1 : 2;
            place[d][0] = count[d] == 1 ? at[d] : lower;
            place[d][1] = lower < g.size[d] - 1 ? lower + 1 : lower;
            weight[d][0] = count[d] == 1 ? 1 : (x_r)(1 - share);
            weight[d][1] = (x_r)share;
        }
        x_r total = 0;
        for (int c = 0; c < count[2]; ++c) {
            x_r line = 0;
            for (int b = 0; b < count[1]; ++b) {
                x_r sum = 0;
                for (int a = 0; a < count[0]; ++a) {
                    const tk_int from = (plane * g.size[0] + place[0][a]) * g.size[1] + place[1][b];
                    const x_r part = x_load(x[from * g.size[2] + place[2][c]]) * weight[0][a];
                    sum = a ? sum + part : part;
                }
                line = b ? line + sum * weight[1][b] : sum * weight[1][b];
            }
            total = c ? total + line * weight[2][c] : line * weight[2][c];
        }
        y[i] = x_store(total);"""

# The results that an element may be part of are those between two places; WEIGHT tells.
_RANGE = """{function} tk_int tk_bound(tk_int j, double ratio, tk_int corners, tk_int n, tk_int out,
                                      int last) {{
    if (n == out) return j;
    if (!(ratio > 0) || j == (last ? n - 1 : 0)) return last ? out - 1 : 0;
    {{
        const double x = j + (last ? 1 : -1);
        const double i = corners ? x / ratio : (x + 0.5) / ratio - 0.5;
        const tk_int found = last ? (i < out ? (tk_int)i + 1 : out) : (i > 1 ? (tk_int)i - 1 : 0);
        return found < out - 1 ? found : out - 1;
    }}
}}
{function} double tk_weight(tk_int i, tk_int j, double ratio, tk_int corners, tk_int n,
                                       tk_int out) {{
    if (n == out) return i == j;
    {{
        const double x = tk_place(i, ratio, corners);
        const tk_int lower = tk_lower(x, n), upper = lower < n - 1 ? lower + 1 : lower;
        const double share = tk_share(x, lower);
        return (lower == j ? 1 - share : 0) + (upper == j ? share : 0);
    }}
}}
"""

_BACKWARD = """        const tk_int at2 = i % g.size[2], row = i / g.size[2], at1 = row % g.size[1];
        const tk_int at0 = row / g.size[1] % g.size[0], plane = row / g.size[1] / g.size[0];
        const tk_int at[3] = {at0, at1, at2};
        tk_int begin[3], end[3];
        for (int d = 0; d < 3; ++d) {
            begin[d] = BOUND(d, 0);
            end[d] = BOUND(d, 1);
        }
        x_r total = 0;
        for (tk_int a = begin[0]; a <= end[0]; ++a) {
            const x_r of_a = WEIGHT(0, a);
            if (of_a != 0) {
                x_r plain = 0;
                for (tk_int b = begin[1]; b <= end[1]; ++b) {
                    const x_r of_b = WEIGHT(1, b);
                    if (of_b != 0) {
                        const tk_int from = ((plane * g.out[0] + a) * g.out[1] + b) * g.out[2];
                        x_r line = 0;
                        for (tk_int c = begin[2]; c <= end[2]; ++c) {
                            const x_r of_c = WEIGHT(2, c);
                            if (of_c != 0) line += x_load(x[from + c]) * of_c;
                        }
                        plain += line * of_b;
                    }
                }
                total += plain * of_a;
            }
        }
        y[i] = x_store(total);"""
_ARGUMENTS = "g.ratio[d], g.corners, g.size[d], g.out[d]"
_MACROS = f"""#define BOUND(d, last) tk_bound(at[d], {_ARGUMENTS}, last)
#define WEIGHT(d, k) (x_r)tk_weight(k, at[d], {_ARGUMENTS})
"""


def kernel_for(driver: CompilingDriver, op: Any, dtype: Any) -> Callable[..., None]:
    """Return the kernel of `_resample_linear` or of its gradient."""
    back = op.name.endswith("backward")

    def kernel(outs: Any, args: Any) -> None:
        x, _, *ratios, corners = args
        (out,) = outs
        if out.numel() == 0:
            return
        if x.numel() == 0:
            out.zero_()
            return
        unit = driver.unit((op.name, dtype.name), lambda: _unit(driver, dtype.name, back))
        small, large = (tuple(t.shape)[2:] for t in ((out, x) if back else (x, out)))
        lead = 3 - len(small)
        numbers = [out.numel(), *[1] * lead, *small, *[1] * lead, *large, int(corners)]
        numbers += ratios
        with text.Result(out) as y:
            buffers = [y, *text.contiguous(x)]
            unit.launch(
                "resample", driver.blocks_for(out.numel()), buffers, numbers, x.device.index
            )

    return kernel


def _unit(driver: CompilingDriver, dtype: str, back: bool) -> Unit:
    function = driver.dialect.function
    frame = text.names(driver.dialect, x=dtype) + _PLACE.format(function=function)
    if back:
        frame += _RANGE.format(function=function) + _MACROS
    fields = (
        ("int64", "n", 0),
        *(("int64", name, 3) for name in ("size", "out")),
        ("int64", "corners", 0),
        ("float64", "ratio", 3),
    )
    body = text.elements(_BACKWARD if back else _FORWARD)
    return Unit(driver, [Kernel("resample", ((dtype, "y"), (dtype, "x")), fields, body)], frame)
