"""Random numbers: each element of its own words of the Philox stream that all devices share.

A call's place in the stream and its settings are the last of a kernel's parameters, and a kernel's
`places_of_numbers` says which numbers of a call they are, for drivers that replay launches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin import find_op
from tangrad.plugin.render import KINDS, render_conversion
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.numbers import Place, signed
from tangrad_source_kernels.reports import REPORT
from tangrad_source_kernels.text import Result, elements
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

# Bits of a uniform number with one word, where the dtype holds fewer than float32's.
_BITS = {"float16": 11, "bfloat16": 8}

_WORDS = """
@fn void tk_words(@u64 seed, @u64 counter, @u32 *x) {
    @u32 k0 = (@u32)seed, k1 = (@u32)(seed >> 32);
    x[0] = (@u32)counter; x[1] = (@u32)(counter >> 32); x[2] = 0; x[3] = 0;
    for (int round = 0; round < 10; ++round) {
        const @u64 p0 = (@u64)x[0] * 0xD2511F53u, p1 = (@u64)x[2] * 0xCD9E8D57u;
        x[0] = (@u32)(p1 >> 32) ^ x[1] ^ k0; x[1] = (@u32)p1;
        x[2] = (@u32)(p0 >> 32) ^ x[3] ^ k1; x[3] = (@u32)p0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
}
@fn @u32 tk_word(@u64 seed, @u64 offset, @u64 i) {
    @u32 x[4];
    tk_words(seed, offset + (i >> 2), x);
    return x[i & 3];
}
@fn @u64 tk_integer(@u64 seed, @u64 offset, @u64 i) {
    @u32 x[4];
    tk_words(seed, offset + (i >> 1), x);
    return (i & 1) ? ((@u64)x[2] | (@u64)x[3] << 32) : ((@u64)x[0] | (@u64)x[1] << 32);
}
@fn double tk_single(@u64 seed, @u64 offset, @u64 i) {
    return (double)(tk_word(seed, offset, i) >> 8) * 5.9604644775390625e-8;
}
@fn double tk_double(@u64 seed, @u64 offset, @u64 i) {
    return (double)(@i64)(tk_integer(seed, offset, i) >> 11) * 1.1102230246251565e-16;
}
@fn @u64 tk_high_product(@u64 a, @u64 b) {
    const @u64 mask = 0xffffffffu, low = a & mask, high = a >> 32;
    const @u64 middle = (low * (b & mask) >> 32) + high * (b & mask);
    return high * (b >> 32) + (middle >> 32) + ((middle & mask) + low * (b >> 32) >> 32);
}
"""

# Which arguments of an op its kernel gets, as `g.a` and `g.b`.
_SETTINGS = {
    "uniform_": (2, 1),
    "normal_": (2, 1),
    "exponential_": (1,),
    "bernoulli_number_": (1,),
}

# The i-th number of a kind, in float64 or as what it is stored as.
_VALUES = {
    "normal_": "double u = 1.0 - U(2 * i), v = U(2 * i + 1); double value = "
    "@sqrt(-2.0 * @log(u)) * @cos(6.283185307179586 * v);",
    "exponential_": "double value = @fabs(@log(1.0 - U(i)) / g.a);",
    "bernoulli_number_": "double value = U(i) < g.a;",
}


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of an op that draws numbers."""
    name = op.name
    if name == "bernoulli_tensor":
        return _bernoulli(driver, dtype)
    if name == "random_between_":
        return _between(driver, dtype)
    if name == "native_dropout":
        return _dropout(driver, dtype)

    settings = _SETTINGS[name]

    def kernel(outs: Any, args: Any) -> None:
        if outs[0].numel() == 0:
            return
        unit = driver.unit((name, dtype), lambda: _unit(driver, name, dtype))
        with Result(*outs) as out:
            count = out.numel() * (2 if KINDS[dtype] == "c" else 1)
            given = [count, *map(signed, args[-2:]), *(float(args[k]) for k in settings)]
            unit.launch("draw", driver.blocks_for(count), [out], given, out.device.index)

    return _replayable(kernel, *((k, "f") for k in settings))


def _replayable(kernel: Any, *settings: tuple[int, str]) -> Callable[..., None]:
    """Let a kernel say where it gets seed, offset and some arguments: which, and of what kind."""

    def places(outs: Any, args: Any) -> list[Place]:
        # The first argument is a tensor, all others of a call that is replayed are numbers or None.
        stream = [(len(args) - 2, "i"), (len(args) - 1, "i")]
        return [(k - 1, kind, 64) for k, kind in (*stream, *settings)]

    kernel.places_of_numbers = places
    drawn: Callable[..., None] = kernel
    return drawn


def _dropout(driver: Compiler, dtype: str) -> Callable[..., None] | None:
    """Return the pointwise op that a dropout is, with numbers of its own, as the driver runs it."""
    masked = driver.kernel_for(find_op("dropout_mask_scale"), getattr(tangrad, dtype))
    if masked is None:
        return None

    def kernel(outs: Any, args: Any) -> None:
        x, p, _, seed, offset = args
        masked(outs, (x,), {"p": p, "seed": seed, "offset": offset})

    def places(outs: Any, args: Any) -> list[Place] | None:
        of_masked = getattr(masked, "places_of_numbers", None)
        if of_masked is None:
            return None
        found = of_masked(outs, args[:1], {"p": 0, "seed": 0, "offset": 0})
        # The generator, None in a call that is replayed, stands between p and seed.
        return found and [((0, 2, 3)[number], *form) for number, *form in found]

    kernel.places_of_numbers = places  # type: ignore[attr-defined]
    return kernel


def stream_functions(driver: Compiler) -> str:
    """Return the functions of the stream."""
    dialect, text = driver.dialect, _WORDS
    for mark, name in {"@u64": "uint64", "@u32": "uint32", "@i64": "int64"}.items():
        text = text.replace(mark, dialect.types[name])
    return text.replace("@fn", dialect.function)


def _width(name: str, dtype: str) -> str:
    wide = dtype in ("float64", "complex128") and name != "bernoulli_number_"
    return "float64" if wide else "float32"


def _unit(driver: Compiler, name: str, dtype: str) -> Unit:
    width = _width(name, dtype)
    part = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    drawn = "tk_double" if width == "float64" else "tk_single"
    text = (
        stream_functions(driver)
        + f"#define U(i) {drawn}((tk_u64)g.seed, (tk_u64)g.offset, (tk_u64)(i))\n"
    )
    text = f"#define tk_u64 {driver.dialect.types['uint64']}\n" + text
    body = elements(f"        {_value(driver, name, dtype, width, part)}")
    fields = [("int64", n, 0) for n in ("n", "seed", "offset")]
    fields += [("float64", n, 0) for n, _ in zip("ab", _SETTINGS[name], strict=False)]
    kernel = Kernel("draw", ((part, "y"),), tuple(fields), body)
    return Unit(driver, [kernel], text)


def _value(driver: Compiler, name: str, dtype: str, width: str, part: str) -> str:
    kind = driver.dialect.types[width]
    if name == "uniform_":
        bits = _BITS.get(dtype)
        value = f"({kind})U(i)"
        if bits is not None:
            word = "tk_word((tk_u64)g.seed, (tk_u64)g.offset, (tk_u64)i)"
            value = f"({kind})({word} >> {32 - bits}) * {2.0**-bits!r}f"
        value = f"{kind} value = {value} * ({kind})(g.a - g.b) + ({kind})g.b;"
        return f"{value} y[i] = {render_conversion('value', width, part)};"
    text = _VALUES[name]
    for function in ("sqrt", "log", "cos", "fabs"):
        text = text.replace(f"@{function}(", f"{driver.dialect.library(function, 'float64')}(")
    if name == "normal_":
        # Standard numbers are rounded to the width first, as they are defined.
        scale = f"(g.a * {0.5**0.5!r})" if KINDS[dtype] == "c" else "g.a"
        text += f" value = (double)({kind})value * {scale} + g.b;"
    if name == "bernoulli_number_":
        return f"{text} y[i] = {render_conversion('value', 'float64', part)};"
    rounded = render_conversion(f"({kind})value", width, part)
    return f"{text} y[i] = {rounded};"


def _bernoulli(driver: Compiler, dtype: str) -> Callable[..., None]:
    message = "Expected p_in >= 0 && p_in <= 1 to be true for every probability"
    site = driver.reports.site(RuntimeError, message)

    def make() -> Unit:
        dialect = driver.dialect
        drawn = "tk_double" if dtype == "float64" else "tk_single"
        value = render_conversion("x[i]", dtype, "float64")
        stored = render_conversion("chosen", "float64", dtype)
        kind = dialect.types["uint64"]
        body = elements(
            f"        const double p = {value}; if (!(p >= 0 && p <= 1)) TG_REPORT(i, 0);\n"
            f"        const double chosen = {drawn}(({kind})g.seed, ({kind})g.offset, i) < p;\n"
            f"        y[i] = {stored};"
        )
        buffers = ((dtype, "y"), (dtype, "x"), ("int64", "err"))
        fields = tuple(("int64", n, 0) for n in ("n", "site", "seed", "offset"))
        return Unit(
            driver, [Kernel("draw", buffers, fields, body)], REPORT + stream_functions(driver)
        )

    def kernel(outs: Any, args: Any) -> None:
        x = args[0].contiguous()
        seed, offset = args[-2:]
        if x.numel() == 0:
            return
        unit, index = driver.unit(("bernoulli_tensor", dtype), make), x.device.index
        with Result(*outs) as out:
            given = [x.numel(), site, signed(seed), signed(offset)]
            buffers = [out, x, driver.error_cell(index)]
            unit.launch("draw", driver.blocks_for(x.numel()), buffers, given, index)
        driver.reports.expect(index)

    return _replayable(kernel)


def _between(driver: Compiler, dtype: str) -> Callable[..., None]:
    def make(kind: str) -> Unit:
        dialect = driver.dialect
        u64 = dialect.types["uint64"]
        stored = render_conversion(f"(({dialect.types[kind]})value)", kind, dtype)
        body = elements(
            f"        const {u64} drawn = tk_integer(({u64})g.seed, ({u64})g.offset, i);\n"
            f"        const {u64} range = ({u64})g.high - ({u64})g.low;\n"
            f"        const {u64} high = tk_high_product(drawn, range);\n"
            f"        const {u64} value = (range ? high : drawn) + ({u64})g.low;\n"
            f"        y[i] = {stored};"
        )
        fields = tuple(("int64", n, 0) for n in ("n", "seed", "offset", "low", "high"))
        return Unit(
            driver, [Kernel("draw", ((dtype, "y"),), fields, body)], stream_functions(driver)
        )

    def kernel(outs: Any, args: Any) -> None:
        _, low, high = args[:3]
        seed, offset = args[-2:]
        if outs[0].numel() == 0:
            return
        # Integers are stored by their lowest bits, whatever the sign of all.
        kind = "uint64" if high > 2**63 and KINDS[dtype] in "fc" else "int64"
        unit = driver.unit(("between", dtype, kind), lambda: make(kind))
        with Result(*outs) as out:
            given = [out.numel(), *(signed(v) for v in (seed, offset, low, high))]
            unit.launch("draw", driver.blocks_for(out.numel()), [out], given, out.device.index)

    return kernel if KINDS[dtype] in "fc" else _replayable(kernel, (1, "i"), (2, "i"))
