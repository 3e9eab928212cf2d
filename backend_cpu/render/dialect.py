"""The dialect of C that the CPU backend renders: the core's helpers, made to vectorise.

The texts of the core call the C library and use branches where they read best. GCC vectorises
neither: here the library's functions become those of ``native/vmath/vmath.h``, and helpers with
branches or early returns are replaced by selects of values already computed.
"""

from __future__ import annotations

from tangrad.plugin.render import DIALECTS, Dialect, own_functions, prelude

# Functions of vmath.h by the C library's names: tgc_<name>_f32 and tgc_<name>_f64.
VMATH = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh"
    " atanh erf erfc pow atan2 hypot fmod floor ceil trunc rint".split()
)
# Those that vmath.h has in float32 only; in float64 they are among the long ones below, or lgamma.
SINGLE = ("erfinv", "ndtri", "lgamma")
# Functions of float32 in vmath_special.c, by their number of operands: loops call them by the
# vector function ABI. The long ones below are for float64, and for what these leave to them.
LANES = {
    **dict.fromkeys("bessel_j0 bessel_j1 bessel_y0 bessel_y1 i1e".split(), 1),
    **dict.fromkeys("digamma trigamma erfcx log_ndtr".split(), 1),
    **dict.fromkeys("zeta polygamma igamma igammac".split(), 2),
}
# GCC has instructions for these, given the built-in names.
BUILTIN = frozenset(("fabs", "sqrt", "copysign", "fma"))

_REAL = (("f32", "float", "f", "uint32_t", 31), ("f64", "double", "", "uint64_t", 63))


class CpuDialect(Dialect):
    """C for GCC with ``vmath.h``."""

    def library(self, name: str, dtype: str) -> str:
        """Return the function of vmath, the built-in or the C library's function."""
        single = dtype in ("float32", "complex64")
        if name in VMATH:
            return f"tgc_{name}_{'f32' if single else 'f64'}"
        text = super().library(name, dtype)
        return f"__builtin_{text}" if name in BUILTIN else text


def _real_helpers(mark: str, kind: str, f: str, word: str, top: int) -> dict[str, str]:
    """Return the helpers of one floating type that the core writes with branches."""
    head = f"static inline {kind}"

    def unary(name: str, text: str, result: str = kind) -> tuple[str, str]:
        key = f"tg_{name}_{mark}"
        return key, f"static inline {result} {key}({kind} a) {{ {text} }}"

    def binary(name: str, text: str) -> tuple[str, str]:
        key = f"tg_{name}_{mark}"
        return key, f"{head} {key}({kind} a, {kind} b) {{ {text} }}"

    # A select of float and double by one comparison each: two comparisons of integers that are
    # then converted need more conversions than arithmetic.
    sign = f"{kind} r = a > 0 ? 1 : 0; return a < 0 ? -1 : r;"
    return dict(
        [
            unary("sigmoid", f"return tgc_sigmoid_{mark}(a);"),
            unary("log_sigmoid", f"return tgc_log_sigmoid_{mark}(a);"),
            unary("sign", sign),
            unary("sgn", sign),
            unary("signbit", f"return (uint8_t)(tgc_bits_{mark}(a) >> {top});", "uint8_t"),
            unary("angle", f"{kind} r = a < 0 ? ({kind})3.14159265358979323846 : 0;"
                           " return a != a ? a : r;"),
            # The larger if they compare, the other one if one is nan: no C library call. Of equal
            # numbers, zeros, the first.
            binary("fmax", f"{kind} r = a >= b ? a : b; return b != b ? a : r;"),
            binary("fmin", f"{kind} r = a <= b ? a : b; return b != b ? a : r;"),
            # Of equal numbers, zeros, the first. nan is looked for in the second, which is often a
            # bound that no element changes: the question then leaves the loop.
            binary("maximum", f"{kind} r = b > a ? b : a; return b != b ? b : r;"),
            binary("minimum", f"{kind} r = b < a ? b : a; return b != b ? b : r;"),
            binary("remainder", f"{kind} r = tgc_fmod_{mark}(a, b), s = r + b;"
                                " return (r != 0) & ((b < 0) != (r < 0)) ? s : r;"),
            binary("floor_divide",
                   f"return tgc_floor_divide_{mark}(a, b, tgc_fmod_{mark}(a, b));"),
            binary("xlogy", f"{kind} r = a * tgc_log_{mark}(b); r = a == 0 ? 0 : r;"
                            " return b != b ? b : r;"),
            binary("nextafter", f"return tgc_nextafter_{mark}(a, b);"),
            unary("frexp_mantissa", f"return tgc_frexp_mantissa_{mark}(a);"),
            unary("frexp_exponent", f"return tgc_frexp_exponent_{mark}(a);"),
        ]
    )  # fmt: skip


def _gcd_helper(mark: str, kind: str, word: str) -> str:
    """Return the greatest common divisor by subtractions and shifts (Stein, 1967).

    A step takes less than the division of Euclid's algorithm, and only the end branches.
    """
    count = "__builtin_ctzll" if word == "uint64_t" else "__builtin_ctz"
    size = "{0}" if kind.startswith("u") else "{0} < 0 ? 0 - (" + word + "){0} : {0}"
    x, y = (f"({word})({size.format(letter)})" for letter in "ab")
    return f"""static inline {kind} tg_gcd_{mark}({kind} a, {kind} b) {{
    {word} x = {x}, y = {y}, all = x | y, less;
    int shift;
    if (x == 0 || y == 0) return ({kind})all;
    shift = {count}(all);
    x >>= {count}(x);
    do {{
        y >>= {count}(y);
        less = x < y ? x : y;
        y = x < y ? y - x : x - y;
        x = less;
    }} while (y);
    return ({kind})(x << shift);
}}"""


def _complex_helpers(mark: str, kind: str, fma: str, f: str) -> dict[str, str]:
    """Return product and quotient of complex numbers with the sums fused where there is FMA.

    GCC turns the plain formulas into fused alternating sums in its vector loops, even with
    -ffp-contract=off, but not in what is left over: a number's bits would depend on its place.
    """
    pair = f"tg_{mark}"
    head = f"static inline {pair}"
    return {
        f"tg_mul_{mark}": f"""{head} tg_mul_{mark}({pair} a, {pair} b) {{
    return tg_make_{mark}({fma}(a.re, b.re, -(a.im * b.im)), {fma}(a.re, b.im, a.im * b.re));
}}""",
        f"tg_truediv_{mark}": f"""{head} tg_truediv_{mark}({pair} a, {pair} b) {{
    /* Smith, 1962, Algorithm 116: complex division */
    {kind} ar = a.re, ai = a.im, br = b.re, bi = b.im, t, s;
    if (__builtin_fabs{f}(br) >= __builtin_fabs{f}(bi)) {{
        {kind} size = __builtin_fabs{f}(br);
        if (br == 0 && bi == 0) return tg_make_{mark}(ar / size, ai / size);
        t = bi / br; s = 1 / {fma}(bi, t, br);
        return tg_make_{mark}({fma}(ai, t, ar) * s, {fma}(-ar, t, ai) * s);
    }}
    t = br / bi; s = 1 / {fma}(br, t, bi);
    return tg_make_{mark}({fma}(ar, t, ai) * s, {fma}(ai, t, -ar) * s);
}}""",
    }


# NaN becomes the quiet NaN of the core's text; others round to nearest, ties to even.
_HALF = {
    "tg_load_bfloat16": "static inline float tg_load_bfloat16(uint16_t h)"
    " { return tgc_float_f32((uint32_t)h << 16); }",
    "tg_store_bfloat16": "static inline uint16_t tg_store_bfloat16(float a)"
    " { return tgc_bfloat16_f32(a); }",
    "tg_load_float16": "static inline float tg_load_float16(uint16_t h)"
    " { return tgc_from_float16_f32(h); }",
    "tg_store_float16": "static inline uint16_t tg_store_float16(float a)"
    " { return tgc_float16_f32(a); }",
}


# Functions in float64 that are too long to vectorise: compiled once, instead of into every kernel
# file of every level that uses them.
SHARED = own_functions()

# But these, short and without loops and sines, vectorise with the loop that they are inlined into.
# Of ndtri and log_ndtr a loop would compute all branches, which takes longer than calling them.
VECTORISED = frozenset(("i0", "i0e", "i1", "i1e"))


def _head(name: str) -> str:
    parameters = ", ".join(f"double {letter}" for letter in "ab"[: SHARED[name]])
    return f"double tgc_{name}({parameters})"


def shared_source() -> str:
    """Return the C file of the functions that all kernel files share, by the C library."""
    calls = {name: f"tg_{name}({', '.join('ab'[:count])})" for name, count in SHARED.items()}
    return "\n".join(
        [
            "/* Rendered from the core's own special functions by render/dialect.py. */",
            prelude(DIALECTS["c"], " ".join(calls.values())),
            *(f"{_head(name)};\n{_head(name)} {{ return {calls[name]}; }}" for name in SHARED),
            "",
        ]
    )


def _lanes_helper(name: str, operands: int) -> str:
    """Return the helper of float32 that calls a function of vmath_special.c."""
    symbol = f"tgc_{name}_f32"
    parameters = ", ".join(f"float {letter}" for letter in "ab"[:operands])
    return (
        f"#define {symbol} TGC_VMATH_JOIN({symbol}, TGC_LEVEL)\n"
        f"TGC_CLONED float {symbol}({parameters});\n"
        f"static inline float tg_{name}_f32({parameters})"
        f" {{ return {symbol}({', '.join('ab'[:operands])}); }}"
    )


def cpu_dialect() -> CpuDialect:
    """Return the dialect "cpu"."""
    base = DIALECTS["c"]
    helpers = dict(_HALF)
    helpers |= {
        f"tg_{n}": f"{_head(n)};\n#define tg_{n} tgc_{n}" for n in SHARED if n not in VECTORISED
    }
    for row in _REAL:
        helpers |= _real_helpers(*row)
    for bits in (8, 16, 32, 64):
        for mark, kind in ((f"u{bits}", f"uint{bits}_t"), (f"i{bits}", f"int{bits}_t")):
            word = "uint64_t" if bits == 64 else "uint32_t"
            helpers[f"tg_gcd_{mark}"] = _gcd_helper(mark, kind, word)
    for name in SINGLE:
        helpers[f"tg_{name}_f32"] = (
            f"static inline float tg_{name}_f32(float a) {{ return tgc_{name}_f32(a); }}"
        )
    helpers |= {f"tg_{n}_f32": _lanes_helper(n, operands) for n, operands in LANES.items()}
    for row in (("c64", "float", "TGC_FMAF", "f"), ("c128", "double", "TGC_FMA", "")):
        helpers |= _complex_helpers(*row)
    return CpuDialect(
        "cpu",
        function=base.function,
        types=base.types,
        header=base.header + '#include "vmath/vmath.h"\n',
        c99_complex=base.c99_complex,
        helpers=helpers,
    )
