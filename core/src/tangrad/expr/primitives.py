r"""The table of primitives: meaning, NumPy, Python, C and derivative of each, side by side.

Columns of a row:

``kinds``
    What the operands may be: ``b`` bool, ``u`` unsigned, ``i`` signed, ``f`` floating, ``c``
    complex.
``numpy``, ``python``, ``c``
    Expressions in the operands ``a, b, c``; one text for all kinds, or a dict from groups of kinds
    to texts. NumPy sees ``np``, ``sp`` (``special.py``), ``composed`` (``numpy_eval.py``) and the
    operands' dtype ``T``; Python sees the functions of ``scalar_eval.py``; C sees ``$T`` (the
    operands' type), ``$U`` (an unsigned type no narrower than 32 bits), ``$R`` (the type of a
    complex's parts), ``$s`` (the suffix of helpers for that type), ``$bits``, and ``@exp`` (the
    library's function of that precision).
    Complex numbers are structures of ``re`` and ``im``. A text that begins with ``{`` is a
    function body.
``d``
    The derivative by each operand, an expression in the language itself, in ``a, b, c`` and the
    result ``y``; ``"0"`` if it is zero everywhere, ``"!reason"`` if there is none, ``"@name"`` if
    `composed.SLOPES` has it. For complex operands it is the complex derivative.
``wirtinger``
    For functions that are not holomorphic: the pair of derivatives by the operand and by its
    conjugate.

The rules where C, NumPy and PyTorch differ follow PyTorch: see each row.
"""

from __future__ import annotations

Text = str | dict[str, str]


class Primitive:
    """Describe one primitive; the module's docstring explains the fields."""

    __slots__ = (
        "arity",
        "c",
        "d",
        "divides",
        "folds",
        "keeps_bool",
        "kinds",
        "name",
        "numpy",
        "operands",
        "python",
        "result",
        "wirtinger",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        arity: int,
        kinds: str,
        *,
        numpy: Text,
        python: Text,
        c: Text,
        d: tuple[str, ...] | str,
        wirtinger: tuple[tuple[str, str], ...] | None = None,
        operands: str = "",
        result: str = "same",
        keeps_bool: bool = False,
        folds: bool = True,
        divides: bool = False,
    ) -> None:
        self.name, self.arity, self.kinds = name, arity, kinds
        # t: joined to a common type; c: condition; n: as it is; s: 64-bit integer.
        self.operands = operands or "t" * arity
        # same, bool, real (of a complex), complex (of reals), cast, float32
        self.result = result
        self.keeps_bool, self.folds, self.divides = keeps_bool, folds, divides
        self.numpy, self.python, self.c = numpy, python, c
        self.d = (d,) * arity if isinstance(d, str) else d
        self.wirtinger = wirtinger

    def text(self, column: str, kind: str) -> str | None:
        """Return the text of ``column`` for operands of ``kind``, None if there is none."""
        texts = getattr(self, column)
        if isinstance(texts, str):
            return texts
        return next((text for kinds, text in texts.items() if kind in kinds), None)


PRIMITIVES: dict[str, Primitive] = {}


def _row(name: str, arity: int, kinds: str, **columns: object) -> None:
    PRIMITIVES[name] = Primitive(name, arity, kinds, **columns)  # type: ignore[arg-type]


# The rows are tables: the formatter would give every column a line.
# fmt: off

# --- arithmetic -----------------------------------------------------------------------------
# Integers wrap around. C's signed overflow is undefined and its narrow types promote to int, so
# integer helpers work in $U.

_row("add", 2, "buifc", numpy="np.add(a, b)", python="a + b", d=("1", "1"),
     c={"b": "a | b", "ui": "($T)(($U)a + ($U)b)", "f": "a + b",
        "c": "tg_make_$s(a.re + b.re, a.im + b.im)"})
_row("sub", 2, "uifc", numpy="np.subtract(a, b)", python="a - b", d=("1", "-1"),
     c={"ui": "($T)(($U)a - ($U)b)", "f": "a - b",
        "c": "tg_make_$s(a.re - b.re, a.im - b.im)"})
# C99's complex product recovers infinities; NumPy's and PyTorch's is the plain formula.
_row("mul", 2, "buifc", numpy="np.multiply(a, b)", python="a * b", d=("b", "a"),
     c={"b": "a & b", "ui": "($T)(($U)a * ($U)b)", "f": "a * b",
        "c": "tg_make_$s(a.re * b.re - a.im * b.im,"
             " a.re * b.im + a.im * b.re)"})
_row("truediv", 2, "fc", numpy="np.true_divide(a, b)", python="truediv(a, b)",
     d=("1 / b", "-(y / b)"),
     c={"f": "a / b", "c": """{
    /* Smith, 1962, Algorithm 116: complex division */
    $R ar = a.re, ai = a.im, br = b.re, bi = b.im, t, s;
    if (@fabs(br) >= @fabs(bi)) {
        if (br == 0 && bi == 0) return tg_make_$s(ar / @fabs(br), ai / @fabs(br));
        t = bi / br; s = 1 / (br + bi * t);
        return tg_make_$s((ar + ai * t) * s, (ai - ar * t) * s);
    }
    t = br / bi; s = 1 / (bi + br * t);
    return tg_make_$s((ar * t + ai) * s, (ai * t - ar) * s);
}"""})
# Rounds to minus infinity. Integer division by zero is an error; INT_MIN // -1 wraps around.
_row("floor_divide", 2, "uif", divides=True, python="floor_divide(a, b)",
     numpy={"ui": "sp.integer_floor_divide(a, b)", "f": "np.floor_divide(a, b)"},
     d="0",
     c={"u": "{ if (b == 0) { *err |= 1; return 0; } return ($T)(a / b); }",
        "i": """{
    if (b == 0) { *err |= 1; return 0; }
    if (b == -1) return ($T)(0 - ($U)a);
    $T q = ($T)(a / b);
    return ($T)(q - ((a % b != 0) && ((a < 0) != (b < 0))));
}""",
        "f": """{
    if (b == 0) return a / b;
    $T mod = @fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
    if (div == 0) return @copysign(($T)0, a / b);
    $T down = @floor(div);
    return div - down > ($T)0.5 ? down + 1 : down;
}"""})
# The result has the divisor's sign; a zero result keeps the dividend's.
_row("remainder", 2, "uif", divides=True, python="remainder(a, b)",
     numpy={"ui": "sp.integer_remainder(a, b)", "f": "sp.remainder(a, b)"},
     d=("1", "-floor_divide(a, b)"),
     c={"u": "{ if (b == 0) { *err |= 1; return 0; } return ($T)(a % b); }",
        "i": """{
    if (b == 0) { *err |= 1; return 0; }
    if (b == -1) return 0;
    $T r = ($T)(a % b);
    return ($T)(r != 0 && (r < 0) != (b < 0) ? r + b : r);
}""",
        "f": "{ $T r = @fmod(a, b); return r != 0 && (b < 0) != (r < 0) ? r + b : r; }"})
# The result has the dividend's sign.
_row("fmod", 2, "uif", divides=True, python="fmod(a, b)",
     numpy={"ui": "sp.integer_fmod(a, b)", "f": "np.fmod(a, b)"}, d=("1", "-round((a - y) / b)"),
     c={"u": "{ if (b == 0) { *err |= 1; return 0; } return ($T)(a % b); }",
        "i": "{ if (b == 0) { *err |= 1; return 0; } return ($T)(b == -1 ? 0 : a % b); }",
        "f": "@fmod(a, b)"})
# Rounds to zero.
_row("trunc_divide", 2, "uif", divides=True, python="trunc_divide(a, b)", d="0",
     numpy={"ui": "sp.integer_trunc_divide(a, b)", "f": "np.trunc(np.true_divide(a, b))"},
     c={"u": "{ if (b == 0) { *err |= 1; return 0; } return ($T)(a / b); }",
        "i": """{
    if (b == 0) { *err |= 1; return 0; }
    return b == -1 ? ($T)(0 - ($U)a) : ($T)(a / b);
}""",
        "f": "@trunc(a / b)"})
# Integers to a negative power: 1 and -1 have one, the others truncate to 0.
_row("pow", 2, "uifc", python="power(a, b)",
     numpy={"ui": "sp.integer_power(a, b)", "f": "np.power(a, b)", "c": "sp.complex_power(a, b)"},
     d=("where(b == 0, 0, b * a ** (b - 1))",
        "where(logical_and(a == 0, real(b) >= 0), 0, y * log(a))"),
     c={"u": """{
    $U r = 1, x = a;
    for (; b; b = ($T)(b >> 1)) { if (b & 1) r *= x; x *= x; }
    return ($T)r;
}""",
        "i": """{
    if (b < 0) return ($T)(a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0);
    $U r = 1, x = ($U)a;
    for (; b; b = ($T)(b >> 1)) { if (b & 1) r *= x; x *= x; }
    return ($T)r;
}""",
        "f": "@pow(a, b)", "c": "@cpow(a, b)"})
_row("neg", 1, "uifc", numpy="np.negative(a)", python="-a", d="-1",
     c={"ui": "($T)(0 - ($U)a)", "f": "-a", "c": "tg_make_$s(-a.re, -a.im)"})
_row("abs", 1, "buifc", numpy={"b": "a", "uifc": "np.abs(a)"}, python="abs(a)", result="real",
     d="sgn(a)", wirtinger=(("conj(sgn(a)) / 2", "sgn(a) / 2"),),
     c={"bu": "a", "i": "($T)(a < 0 ? 0 - ($U)a : ($U)a)", "f": "@fabs(a)",
        "c": "@hypot(a.re, a.im)"})
_row("reciprocal", 1, "fc", numpy="np.true_divide(T.type(1), a)", python="truediv(1, a)",
     d="-(y * y)", c={"f": "1 / a", "c": "tg_truediv_$s(tg_make_$s(1, 0), a)"})
_row("square", 1, "uifc", numpy="np.multiply(a, a)", python="a * a", d="2 * a",
     c="tg_mul_$s(a, a)")
# One rounding: only this primitive contracts a product and a sum.
_row("fma", 3, "f", numpy="sp.fma(a, b, c)", python="fma(a, b, c)", d=("b", "a", "1"),
     c="@fma(a, b, c)")
_row("hypot", 2, "f", numpy="np.hypot(a, b)", python="hypot(a, b)",
     d=("hypot_slope(a, b)", "hypot_slope(b, a)"), c="@hypot(a, b)")
# a / hypot(a, b), whose derivative is no difference: that of the quotient loses digits.
_row("hypot_slope", 2, "f", numpy="np.true_divide(a, np.hypot(a, b))",
     python="truediv(a, hypot(a, b))", c="a / @hypot(a, b)",
     d=("hypot_slope(b, a) * hypot_slope(b, a) / hypot(a, b)",
        "-(y * hypot_slope(b, a) / hypot(a, b))"))
_row("gcd", 2, "ui", numpy="np.gcd(a, b)", python="gcd(a, b)", d="0",
     c={"u": "{ while (b) { $T t = ($T)(a % b); a = b; b = t; } return a; }",
        "i": """{
    $U x = a < 0 ? 0 - ($U)a : ($U)a, y = b < 0 ? 0 - ($U)b : ($U)b;
    while (y) { $U t = x % y; x = y; y = t; }
    return ($T)x;
}"""})
_row("lcm", 2, "ui", numpy="np.lcm(a, b)", python="lcm(a, b)", d="0",
     c={"u": "{ $T g = tg_gcd_$s(a, b); return ($T)(g ? (a / g) * ($U)b : 0); }",
        "i": """{
    $T d = tg_gcd_$s(a, b);
    $U g = d < 0 ? 0 - ($U)d : ($U)d, x = a < 0 ? 0 - ($U)a : ($U)a, y = b < 0 ? 0 - ($U)b : ($U)b;
    return g ? ($T)(x / g * y) : 0;
}"""})

# --- order ----------------------------------------------------------------------------------
# maximum and minimum propagate nan and split the derivative at ties; fmax and fmin ignore nan. Of
# zeros, they all give the first, so that a bound leaves a zero its sign: np.maximum gives the
# second, and np.fmax either, by the processor.

_row("maximum", 2, "buif", numpy="np.maximum(b, a)", python="maximum(a, b)", keeps_bool=True,
     d=("where(a == b, 0.5, where(a < b, 0, 1))", "where(a == b, 0.5, where(a > b, 0, 1))"),
     c={"bui": "a > b ? a : b", "f": "a != a ? a : (b != b ? b : (b > a ? b : a))"})
_row("minimum", 2, "buif", numpy="np.minimum(b, a)", python="minimum(a, b)", keeps_bool=True,
     d=("where(a == b, 0.5, where(a > b, 0, 1))", "where(a == b, 0.5, where(a < b, 0, 1))"),
     c={"bui": "a < b ? a : b", "f": "a != a ? a : (b != b ? b : (b < a ? b : a))"})
_row("fmax", 2, "buif", python="fmax(a, b)", keeps_bool=True,
     numpy={"bui": "np.fmax(a, b)", "f": "np.where((a >= b) | (b != b), a, b)"},
     d=("where(logical_or(a >= b, isnan(b)), 1, 0)", "where(logical_or(a >= b, isnan(b)), 0, 1)"),
     c={"bui": "a > b ? a : b", "f": "@fmax(a, b)"})
_row("fmin", 2, "buif", python="fmin(a, b)", keeps_bool=True,
     numpy={"bui": "np.fmin(a, b)", "f": "np.where((a <= b) | (b != b), a, b)"},
     d=("where(logical_or(a <= b, isnan(b)), 1, 0)", "where(logical_or(a <= b, isnan(b)), 0, 1)"),
     c={"bui": "a < b ? a : b", "f": "@fmin(a, b)"})
for _name, _symbol in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    _row(_name, 2, "buif", numpy=f"a {_symbol} b", python=f"a {_symbol} b", c=f"a {_symbol} b",
         d="0", result="bool")
_row("eq", 2, "buifc", numpy="a == b", python="a == b", d="0", result="bool",
     c={"buif": "a == b", "c": "a.re == b.re && a.im == b.im"})
_row("ne", 2, "buifc", numpy="a != b", python="a != b", d="0", result="bool",
     c={"buif": "a != b", "c": "a.re != b.re || a.im != b.im"})
# The sign of nan is 0, as in PyTorch.
_row("sign", 1, "buif", python="sign(a)", d="0",
     numpy={"bu": "np.sign(a) if T.kind != 'b' else a", "i": "np.sign(a)",
            "f": "sp.sign(a)"},
     c={"b": "a", "u": "a > 0", "if": "($T)((a > 0) - (a < 0))"})
_row("sgn", 1, "buifc", python="sgn(a)", d="0",
     wirtinger=(("where(a == 0, 0, 0.5 / abs(a))", "where(a == 0, 0, -(y * y) / (2 * abs(a)))"),),
     numpy={"b": "a", "ui": "np.sign(a)", "f": "sp.sign(a)", "c": "sp.complex_sign(a)"},
     c={"b": "a", "u": "a > 0", "if": "($T)((a > 0) - (a < 0))",
        "c": "{ $R r = @hypot(a.re, a.im); return r == 0 ? tg_make_$s(0, 0)"
             " : tg_make_$s(a.re / r, a.im / r); }"})
_row("where", 3, "buifc", operands="ctt", keeps_bool=True, numpy="np.where(a, b, c)",
     python="b if a else c", c="a ? b : c", d=("0", "where(a, 1, 0)", "where(a, 0, 1)"))

# --- logic and bits -------------------------------------------------------------------------

_row("logical_and", 2, "b", operands="cc", result="bool", numpy="np.logical_and(a, b)",
     python="bool(a) and bool(b)", c="a & b", d="0")
_row("logical_or", 2, "b", operands="cc", result="bool", numpy="np.logical_or(a, b)",
     python="bool(a) or bool(b)", c="a | b", d="0")
_row("logical_xor", 2, "b", operands="cc", result="bool", numpy="np.logical_xor(a, b)",
     python="bool(a) != bool(b)", c="a ^ b", d="0")
_row("logical_not", 1, "b", operands="c", result="bool", numpy="np.logical_not(a)",
     python="not a", c="!a", d="0")
for _name, _symbol in (("bitwise_and", "&"), ("bitwise_or", "|"), ("bitwise_xor", "^")):
    _row(_name, 2, "bui", keeps_bool=True, numpy=f"np.{_name}(a, b)", python=f"a {_symbol} b",
         c=f"($T)(a {_symbol} b)", d="0")
_row("bitwise_not", 1, "bui", keeps_bool=True, folds=False, numpy="np.invert(a)",
     python={"b": "not a", "ui": "~a"}, c={"b": "!a", "ui": "($T)~a"}, d="0")
# A count out of range shifts everything out: 0, or -1 for a negative number shifted right.
_row("lshift", 2, "ui", folds=False, numpy="sp.left_shift(a, b)", python="lshift(a, b)", d="0",
     c={"u": "b >= $bits ? 0 : ($T)(($U)a << b)",
        "i": "b < 0 || b >= $bits ? 0 : ($T)(($U)a << b)"})
_row("rshift", 2, "ui", folds=False, numpy="sp.right_shift(a, b)", python="rshift(a, b)", d="0",
     c={"u": "b >= $bits ? 0 : ($T)(a >> b)",
        "i": "($T)(a >> (b < 0 || b >= $bits ? $bits - 1 : b))"})

# --- types and complex parts ----------------------------------------------------------------

_row("cast", 1, "buifc", operands="n", result="cast", folds=False, numpy="sp.cast(a, T)",
     python="a", c="", d="!a cast has the derivative 1 by its operand")
# Chooses by the operand's type, not by its value: resolved when the expression is typed.
_row("select_complex", 3, "buifc", operands="ntt", keeps_bool=True, folds=False, numpy="",
     python="", c="", d="!the typed program has no select_complex")
_row("real", 1, "buifc", result="real", numpy={"buif": "a", "c": "np.real(a)"}, python="real(a)",
     c={"buif": "a", "c": "a.re"}, d="1", wirtinger=(("0.5", "0.5"),))
_row("imag", 1, "buifc", result="real", numpy={"buif": "np.zeros_like(a)", "c": "np.imag(a)"},
     python="imag(a)", c={"buif": "0", "c": "a.im"}, d="0",
     wirtinger=(("-0.5j", "0.5j"),))
_row("conj", 1, "buifc", numpy={"buif": "a", "c": "np.conj(a)"}, python="conj(a)",
     c={"buif": "a", "c": "tg_make_$s(a.re, -a.im)"}, d="1", wirtinger=(("0", "1"),))
# Of a real number: 0, pi for a negative one, nan for nan.
_row("angle", 1, "fc", result="real", numpy={"f": "sp.real_angle(a)", "c": "np.angle(a)"},
     python="angle(a)", d="0", wirtinger=(("where(a == 0, 0, -0.5j / a)",
                                           "where(a == 0, 0, 0.5j / conj(a))"),),
     c={"f": "a != a ? a : (a < 0 ? ($T)3.14159265358979323846 : 0)", "c": "@atan2(a.im, a.re)"})
_row("complex", 2, "f", result="complex", numpy="sp.make_complex(a, b)",
     python="complex(a, b)", c="tg_make_$s(a, b)", d=("1", "1j"))

# --- rounding and floating-point representation ----------------------------------------------

for _name, _c in (("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("round", "rint")):
    _row(_name, 1, "uif", numpy={"ui": "a", "f": f"np.{_c}(a)"}, python=f"{_name}(a)",
         c={"ui": "a", "f": f"@{_c}(a)"}, d="0")
_row("frac", 1, "f", numpy="a - np.trunc(a)", python="a - trunc(a)", c="a - @trunc(a)", d="1")
_row("isnan", 1, "buifc", result="bool", numpy={"bui": "sp.no(a)", "fc": "np.isnan(a)"},
     python="isnan(a)", d="0", c={"bui": "0", "f": "a != a", "c": "a.re != a.re || a.im != a.im"})
_row("isinf", 1, "buifc", result="bool", numpy={"bui": "sp.no(a)", "fc": "np.isinf(a)"},
     python="isinf(a)", d="0",
     c={"bui": "0", "f": "@fabs(a) == ($T)TG_INF",
        "c": "@fabs(a.re) == ($R)TG_INF || @fabs(a.im) == ($R)TG_INF"})
_row("isfinite", 1, "buifc", result="bool", numpy={"bui": "~sp.no(a)", "fc": "np.isfinite(a)"},
     python="isfinite(a)", d="0",
     c={"bui": "1", "f": "@fabs(a) < ($T)TG_INF",
        "c": "@fabs(a.re) < ($R)TG_INF && @fabs(a.im) < ($R)TG_INF"})
_row("signbit", 1, "buif", result="bool", python="signbit(a)", d="0",
     numpy={"bu": "sp.no(a)", "i": "a < 0", "f": "np.signbit(a)"},
     c={"bu": "0", "i": "a < 0", "f": "@copysign(($T)1, a) < 0"})
_row("copysign", 2, "f", numpy="np.copysign(a, b)", python="copysign(a, b)",
     c="@copysign(a, b)", d=("where(a == 0, 0, copysign(1, a) * copysign(1, b))", "0"))
# a = mantissa * 2**exponent with abs(mantissa) in [0.5, 1); the exponent of inf and nan is 0.
_row("frexp_mantissa", 1, "f", numpy="np.frexp(a)[0]", python="frexp(a)[0]",
     d="exp2(-frexp_exponent(a))", c="{ int n; return @frexp(a, &n); }")
_row("frexp_exponent", 1, "f", numpy="np.frexp(a)[1].astype(T)", python="frexp(a)[1]", d="0",
     c="{ int n; return isfinite(@frexp(a, &n)) ? ($T)n : ($T)0; }")
_row("nextafter", 2, "f", folds=False, numpy="np.nextafter(a, b)", python="nextafter(a, b)",
     c="@nextafter(a, b)", d="!nextafter is a step between neighbouring numbers")

# --- exponential and logarithm ---------------------------------------------------------------


def _analytic(name: str, d: str, numpy: str | None = None, c: str | None = None,
              complex_numpy: str | None = None, complex_c: str | None = None) -> None:
    """Add a unary function; its complex C text defaults to the library's ``c<name>``."""
    real = numpy or f"np.{name}(a)"
    _row(name, 1, "fc", python=f"{name}(a)", d=d, numpy={"f": real, "c": complex_numpy or real},
         c={"f": c or f"@{name}(a)", "c": complex_c or f"@c{name}(a)"})


def _real_function(name: str, d: str, numpy: str | None = None, c: str | None = None) -> None:
    """Add a unary function of a real number."""
    _row(name, 1, "f", python=f"{name}(a)", d=d, numpy=numpy or f"np.{name}(a)",
         c=c or f"@{name}(a)")


_LN2, _LN10 = "0.69314718055994530942", "2.30258509299404568402"

_analytic("exp", "y")
_analytic("exp2", f"y * {_LN2}", complex_numpy=f"np.exp(a * T.type({_LN2}))",
          complex_c=f"@cexp(tg_make_$s(a.re * ($R){_LN2}, a.im * ($R){_LN2}))")
_analytic("expm1", "exp(a)", complex_c="""{
    /* exp(x) cos(y) - 1 without cancellation for small x and y */
    $R x = a.re, y = a.im, h = @sin(y / 2);
    return tg_make_$s(@expm1(x) * @cos(y) - 2 * h * h, @exp(x) * @sin(y));
}""")
_analytic("log", "1 / a")
_analytic("log2", f"1 / (a * {_LN2})",
          complex_c="{ $T l = @clog(a); return tg_make_$s(l.re / ($R)" + _LN2
                    + ", l.im / ($R)" + _LN2 + "); }")
_analytic("log10", f"1 / (a * {_LN10})",
          complex_c="{ $T l = @clog(a); return tg_make_$s(l.re / ($R)" + _LN10
                    + ", l.im / ($R)" + _LN10 + "); }")
_analytic("log1p", "1 / (1 + a)", complex_c="""{
    /* log|1 + a| = log1p(x (2 + x) + y y) / 2 without cancellation for small a */
    $R x = a.re, y = a.im;
    if (@fabs(x) > ($R)0.5 || @fabs(y) > ($R)0.5) return @clog(tg_make_$s(1 + x, y));
    return tg_make_$s(@log1p(x * (2 + x) + y * y) / 2, @atan2(y, 1 + x));
}""", complex_numpy="sp.complex_log1p(a)")
_analytic("sqrt", "1 / (2 * y)")
_analytic("rsqrt", "-0.5 * y * y * y", numpy="np.true_divide(T.type(1), np.sqrt(a))",
          c="1 / @sqrt(a)", complex_c="tg_truediv_$s(tg_make_$s(1, 0), @csqrt(a))")
_real_function("cbrt", "1 / (3 * y * y)")
_row("xlogy", 2, "f", numpy="sp.xlogy(a, b)", python="xlogy(a, b)",
     c="b != b ? b : (a == 0 ? 0 : a * @log(b))",
     d=("where(logical_and(a == 0, b <= 0), 0, log(b))", "a / b"))
# Never overflows: the exponential is of a number below 0.
_analytic("sigmoid", "sigmoid_slope(a)", numpy="sp.sigmoid(a)",
          complex_numpy="np.true_divide(T.type(1), T.type(1) + np.exp(-a))",
          c="{ $T e = @exp(-@fabs(a)); return (a >= 0 ? 1 : e) / (1 + e); }",
          complex_c="{ $T e = @cexp(tg_make_$s(-a.re, -a.im));"
                    " return tg_truediv_$s(tg_make_$s(1, 0),"
                    " tg_make_$s(1 + e.re, e.im)); }")
# 1 / (2 cosh(a / 2))^2: from the result, y (1 - y), it has no digits where that is near 1.
_analytic("sigmoid_slope", "-y * tanh(0.5 * a)", numpy="sp.sigmoid_slope(a)",
          c="{ $T e = @exp(-@fabs(a)), d = 1 + e; return e / (d * d); }",
          complex_c="{ $T e = @cexp(a.re < 0 ? a : tg_make_$s(-a.re, -a.im)),"
                    " d = tg_make_$s(1 + e.re, e.im); return tg_truediv_$s(e, tg_mul_$s(d, d)); }")
_real_function("log_sigmoid", "sigmoid(-a)", numpy="sp.log_sigmoid(a)",
               c="(a < 0 ? a : (a != a ? a : 0)) - @log1p(@exp(-@fabs(a)))")

# --- trigonometric and hyperbolic -------------------------------------------------------------

_analytic("sin", "cos(a)")
_analytic("cos", "-sin(a)")
_analytic("tan", "1 + y * y")
_analytic("asin", "rsqrt(1 - a * a)", numpy="np.arcsin(a)")
_analytic("acos", "-rsqrt(1 - a * a)", numpy="np.arccos(a)")
# Beyond 1e9, whose square is within every range, 1 is nothing.
_analytic("atan", "where(abs(a) > 1e9, 1 / a * (1 / a), 1 / (1 + a * a))", numpy="np.arctan(a)")
_analytic("sinh", "cosh(a)")
_analytic("cosh", "sinh(a)")
_analytic("tanh", "4 * sigmoid_slope(2 * a)")
_analytic("asinh", "select_complex(a, rsqrt(a * a + 1),"
                   " where(abs(a) > 1e9, 1 / abs(a), rsqrt(a * a + 1)))", numpy="np.arcsinh(a)")
# The product of two roots has acosh's branch cut; the root of the product has not.
_analytic("acosh", "rsqrt(a - 1) * rsqrt(a + 1)", numpy="np.arccosh(a)")
_analytic("atanh", "1 / (1 - a * a)", numpy="np.arctanh(a)")
_row("atan2", 2, "f", numpy="np.arctan2(a, b)", python="atan2(a, b)", c="@atan2(a, b)",
     d=("b / hypot(a, b) / hypot(a, b)", "-a / hypot(a, b) / hypot(a, b)"))

# --- special functions -------------------------------------------------------------------------

_TWO_OVER_ROOT_PI, _HALF_ROOT_PI = "1.12837916709551257390", "0.88622692545275801365"

_real_function("erf", f"{_TWO_OVER_ROOT_PI} * exp(-(a * a))", numpy="sp.erf(a)")
_real_function("erfc", f"-{_TWO_OVER_ROOT_PI} * exp(-(a * a))", numpy="sp.erfc(a)")
_real_function("erfinv", f"{_HALF_ROOT_PI} * exp(y * y)", numpy="sp.erfinv(a)",
               c="($T)tg_erfinv(a)")
_real_function("lgamma", "digamma(a)", numpy="sp.lgamma(a)")
_real_function("digamma", "trigamma(a)", numpy="sp.digamma(a)", c="($T)tg_digamma(a)")
_real_function("trigamma", "polygamma(2, a)", numpy="sp.trigamma(a)", c="($T)tg_polygamma(1, a)")
# polygamma(n, a) is the (n+1)-th derivative of lgamma.
_row("polygamma", 2, "f", numpy="sp.polygamma(a, b)", python="polygamma(a, b)",
     c="($T)tg_polygamma(a, b)",
     d=("!polygamma's order is an integer", "polygamma(a + 1, b)"))
# The Hurwitz zeta function, sum of (b + k) ** -a over k >= 0.
_row("zeta", 2, "f", numpy="sp.zeta(a, b)", python="zeta(a, b)", c="($T)tg_zeta(a, b)",
     d=("!zeta has no derivative by its exponent in closed form", "-a * zeta(a + 1, b)"))



def _composed(name: str, *d: str) -> None:
    """Add a function whose NumPy code and C text follow from ``composed.py``."""
    operands = ", ".join("ab"[: len(d)])
    _row(name, len(d), "f", numpy=f"composed({name!r}, {operands})",
         python=f"{name}({operands})", c=f"($T)tg_{name}({operands})", d=d)


_composed("i0", "i1(a)")
_composed("i0e", "@i0e")
_composed("i1", "@i1")
_composed("i1e", "@i1e")
_composed("erfcx", "@erfcx")
_composed("ndtri", "x = abs(y); where(x < inf, 1.25331413731550025121 * "
                   "erfcx(x * 0.70710678118654752440) / where(a < 0.5, a, 1 - a), x)")
_composed("log_ndtr", "where(a < -1, 0.79788456080286535588 / erfcx(a * -0.70710678118654752440),"
                      " 0.39894228040143267794 * exp(a * a * -0.5 - y))")
# b^(a - 1) exp(-b) / gamma(a)
_composed("gamma_density", "y * (log(b) - digamma(a))", "y * (a - 1 - b) / b")
_DENSITY = "gamma_density(a, b)"
_composed("igamma", "!igamma has none by its first argument in closed form", _DENSITY)
_composed("igammac", "!igammac has none by its first argument in closed form", f"-{_DENSITY}")
# PyTorch differentiates none of these.
for _name in ("bessel_j0 bessel_j1 bessel_y0 bessel_y1 airy_ai modified_bessel_k0"
              " modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1").split():
    _composed(_name, f"!that of {_name} is not declared")
for _name in ("chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v"
              " chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he"
              " laguerre_polynomial_l legendre_polynomial_p").split():
    _composed(_name, f"!that of {_name} is not declared", "!the degree is an integer")

# --- random bits -------------------------------------------------------------------------------
# Uniform in [0, 1): Philox 4x32-10 (Salmon et al., 2011, "Parallel random numbers: as easy as
# 1, 2, 3"), key = seed, counter = offset + index // 4, lane = index % 4, top 24 bits of the lane.

_row("philox_uniform", 2, "ui", operands="ss", result="float32", folds=False,
     numpy="sp.philox_uniform(a, b, index)", python="philox_uniform(a, b, index)",
     c="tg_philox_uniform(a, b, index)", d="0")

# fmt: on

OPERATORS: dict[str, str] = {
    "Add": "add", "Sub": "sub", "Mult": "mul", "Div": "truediv", "FloorDiv": "floor_divide",
    "Mod": "remainder", "Pow": "pow", "BitAnd": "bitwise_and", "BitOr": "bitwise_or",
    "BitXor": "bitwise_xor", "LShift": "lshift", "RShift": "rshift", "USub": "neg",
    "Invert": "bitwise_not", "Not": "logical_not", "Lt": "lt", "LtE": "le", "Gt": "gt",
    "GtE": "ge", "Eq": "eq", "NotEq": "ne", "And": "logical_and", "Or": "logical_or",
}  # fmt: skip
