"""Averages and greatest elements of windows, and their gradients: each result by a lane of its own.

Windows are a kernel of a fixed size that moves by strides, or, where no size is given, those that
divide the input as evenly as possible. A gradient's lane looks at the windows that its place is in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.plugin.render import BITS, KINDS
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

_SPLIT = """        const tk_int P2 = i % g.SIZES[2], above1 = i / g.SIZES[2];
        const tk_int P1 = above1 % g.SIZES[1], above0 = above1 / g.SIZES[1];
        const tk_int P0 = above0 % g.SIZES[0], plane = above0 / g.SIZES[0];
"""
_INPUT = "((plane * g.input[0] + p0) * g.input[1] + p1) * g.input[2] + p2"
_OUTPUT = "((plane * g.output[0] + u0) * g.output[1] + u1) * g.output[2] + u2"
_OWN = "(p0 * g.input[1] + p1) * g.input[2] + p2"

# How many elements a window's sum is divided by, along one dimension.
_COUNTS = """
FN tk_int tk_counted(tk_int start, tk_int kernel, tk_int size, tk_int padding, int padded) {
    tk_int stop = start + kernel < size + padding ? start + kernel : size + padding;
    if (!padded) stop = stop < size ? stop : size;
    return stop - (padded || start > 0 ? start : 0);
}
"""
_COUNT = (
    "tk_counted(u{d} * g.stride[{d}] - g.padding[{d}], g.kernel[{d}], g.input[{d}], "
    "g.padding[{d}], g.divisor == 0)"
)
_BEGIN, _END = (
    "(u{d} * g.input[{d}] / g.output[{d}])",
    "(((u{d} + 1) * g.input[{d}] + g.output[{d}] - 1) / g.output[{d}])",
)

# {whether sizes are fixed: a loop along dimension d over the places p of the window u}
_PLACES_OF = {
    True: """for (tk_int t{d} = 0; t{d} < g.kernel[{d}]; ++t{d}) {{
            const tk_int p{d} = u{d} * g.stride[{d}] + t{d} * g.dilation[{d}] - g.padding[{d}];
            if (p{d} < 0 || p{d} >= g.input[{d}]) continue;
""",
    False: f"for (tk_int p{{d}} = {_BEGIN}; p{{d}} < {_END}; ++p{{d}}) {{{{\n",
}
# The same over the windows u that the place p is in.
_WINDOWS_OF = {
    True: """for (tk_int t{d} = 0; t{d} < g.kernel[{d}]; ++t{d}) {{
            const tk_int q{d} = p{d} + g.padding[{d}] - t{d} * g.dilation[{d}];
            const tk_int u{d} = q{d} / g.stride[{d}];
            if (q{d} < 0 || u{d} * g.stride[{d}] != q{d} || u{d} >= g.output[{d}]) continue;
""",
    False: """for (tk_int u{d} = p{d} * g.output[{d}] / g.input[{d}];
             u{d} < ((p{d} + 1) * g.output[{d}] + g.input[{d}] - 1) / g.input[{d}]; ++u{d}) {{
""",
}

# The greatest of windows that may reach out: what pads is below all others; NaN wins, the last of
# several; of equal ones the first.
_GREATEST = """        x_r best = LOWEST;
        tk_int place = 0, tap = 0;
        for (tk_int a = 0; a < g.kernel[0]; ++a)
            for (tk_int b = 0; b < g.kernel[1]; ++b)
                for (tk_int c = 0; c < g.kernel[2]; ++c, ++tap) {
                    tk_int p0 = u0 * g.stride[0] + a * g.dilation[0] - g.padding[0];
                    tk_int p1 = u1 * g.stride[1] + b * g.dilation[1] - g.padding[1];
                    tk_int p2 = u2 * g.stride[2] + c * g.dilation[2] - g.padding[2];
                    x_r value = LOWEST;
                    const int inside = p0 >= 0 && p0 < g.input[0] && p1 >= 0 &&
                                       p1 < g.input[1] && p2 >= 0 && p2 < g.input[2];
                    if (inside) value = x_load(x[@INPUT]);
                    if (tap == 0 || value > best || value != value) {
                        best = value;
                        p0 = p0 < 0 ? 0 : p0 >= g.input[0] ? g.input[0] - 1 : p0;
                        p1 = p1 < 0 ? 0 : p1 >= g.input[1] ? g.input[1] - 1 : p1;
                        p2 = p2 < 0 ? 0 : p2 >= g.input[2] ? g.input[2] - 1 : p2;
                        place = @OWN;
                    }
                }
"""
_GREATEST_INSIDE = """        x_r best = LOWEST;
        tk_int place = -1;
        @LOOPS const x_r value = x_load(x[@INPUT]);
            if (place < 0 || value > best || value != value) { best = value; place = @OWN; } @ENDS
"""
_KEPT = """        y[i] = x_store(best);
        if (g.divisor) at[i] = place;"""
_BODIES = {
    "average": """        x_r total = x_zero;
        @LOOPS total += x_load(x[@INPUT]); @ENDS
        y[i] = x_store(total / (x_r)(@COUNT));""",
    "average_backward": """        x_r total = x_zero;
        @LOOPS total += x_load(x[@OUTPUT]) / (x_r)(@COUNT); @ENDS
        y[i] = x_store(total);""",
    "greatest": _GREATEST + _KEPT,
    "greatest_inside": _GREATEST_INSIDE + _KEPT,
    "greatest_backward": """        x_r total = x_zero;
        const tk_int own = @OWN;
        @LOOPS if (at[@OUTPUT] == own) total += x_load(x[@OUTPUT]); @ENDS
        y[i] = x_store(total);""",
}


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of a pooling op."""
    if KINDS[dtype] == "c":
        return None
    pool = _Pool(driver, op, dtype)
    found: Callable[..., None] = getattr(pool, f"call_{op.name}")
    return found


class _Pool:
    """The kernels of pooling for one dtype."""

    def __init__(self, driver: Compiler, op: Any, dtype: str) -> None:
        self.driver, self.op, self.dtype = driver, op, dtype

    def call_max_pool_with_indices(self, outs: Any, args: Any) -> None:
        """Take the greatest elements and where they were."""
        x, size, stride, padding, dilation, _ = args
        if len(size) > 3:
            from tangrad.plugin import fallback

            fallback(self.op)(outs, args)
            return
        self._run("greatest", outs, x, (size, stride, padding, dilation), outs[0], x, len(outs) - 1)

    call_max_pool_values = call_max_pool_with_indices

    def call_adaptive_max_pool(self, outs: Any, args: Any) -> None:
        """Take the greatest elements of windows without a size, and where they were."""
        x, output_size = args
        no_size = ((), *[(1,) * len(output_size)] * 3)
        self._run("greatest_inside", outs, x, no_size, outs[0], x, 1)

    def call_max_pool_backward(self, outs: Any, args: Any) -> None:
        """Give each gradient to where the greatest element was."""
        grad, places, _, *windows = args
        self._run("greatest_backward", outs, grad, windows, grad, outs[0], 0, places)

    def call_window_average(self, outs: Any, args: Any) -> None:
        """Average windows."""
        x, _, *windows, divisor = args
        ones = (1,) * len(windows[1])
        self._run("average", outs, x, (*windows, ones), outs[0], x, divisor)

    def call_window_average_backward(self, outs: Any, args: Any) -> None:
        """Give each place what the windows that it is in bring it."""
        grad, _, *windows, divisor = args
        ones = (1,) * len(windows[1])
        self._run("average_backward", outs, grad, (*windows, ones), grad, outs[0], divisor)

    def _run(
        self,
        name: str,
        outs: Any,
        x: Any,
        windows: Any,
        pooled: Any,
        whole: Any,
        divisor: int,
        places: Any = None,
    ) -> None:
        """Launch a kernel from `x` to `outs`, of which one is `pooled` from the `whole`."""
        if outs[0].numel() == 0:
            return
        driver, fixed, spatial = self.driver, bool(windows[0]), len(windows[1])
        key = ("pooling", name, self.dtype, fixed)
        unit = driver.unit(key, lambda: self._unit(name, fixed))
        numbers = [outs[0].numel(), divisor]
        shapes = (whole.shape[-spatial:], pooled.shape[-spatial:])
        for values, fill in zip((*shapes, *windows), (1, 1, 1, 1, 0, 1), strict=True):
            numbers += [fill] * (3 - len(values)) + list(values)
        x, places = text.contiguous(x, places)
        with text.Result(*outs) as made:
            y, at = made if len(outs) == 2 else (made, places)
            blocks = driver.blocks_for(y.numel())
            unit.launch(name, blocks, [y, at, x], numbers, x.device.index)

    def _unit(self, name: str, fixed: bool) -> Unit:
        dialect, dtype = self.driver.dialect, self.dtype
        lowest = "-(x_r)TG_INF"
        if KINDS[dtype] != "f":
            lowest = dialect.literal(-(1 << BITS[dtype] - 1) if KINDS[dtype] == "i" else 0, dtype)
        frame = text.names(dialect, x=dtype) + f"#define LOWEST {lowest}\n"
        frame += f"#define FN {dialect.function}\n{_COUNTS}"
        fields = [("int64", "n", 0), ("int64", "divisor", 0)]
        fields += [
            ("int64", n, 3) for n in ("input", "output", "kernel", "stride", "padding", "dilation")
        ]
        buffers = ((dtype, "y"), ("int64", "at"), (dtype, "x"))
        kernel = Kernel(name, buffers, tuple(fields), text.elements(_body(name, fixed)))
        return Unit(self.driver, [kernel], frame)


def _body(name: str, fixed: bool) -> str:
    backward = name.endswith("backward")
    loop = (_WINDOWS_OF if backward else _PLACES_OF)[fixed]
    count = _COUNT if fixed else f"{_END} - {_BEGIN}"
    product = " * ".join(f"({count.format(d=d)})" for d in range(3))
    parts = {
        "@LOOPS": "".join(loop.format(d=d) for d in range(3)),
        "@ENDS": "}}}",
        "@INPUT": _INPUT,
        "@OUTPUT": _OUTPUT,
        "@OWN": _OWN,
        "@COUNT": f"g.divisor > 0 ? g.divisor : {product}",
    }
    body = _SPLIT.replace("SIZES", "input" if backward else "output")
    body = body.replace("P", "p" if backward else "u") + _BODIES[name]
    for mark, meant in parts.items():
        body = body.replace(mark, meant)
    return body
