"""Elementary and special functions of one number, rounding, and tests of what a number is.

Of integers and bools the functions are computed in the default dtype; rounding and the tests leave
them as they are. Derivatives that the result gives more cheaply than the input are written out.
"""

from __future__ import annotations

from tangrad.ops.definition.define import overload, pointwise

REAL = "bool integral floating"


def log_of_sum(a: str, b: str) -> str:
    """Write the logarithm of a sum of two exponentials; the larger one is taken out.

    Of complex numbers it is the one with the larger real part.
    """
    small, large = (f"where(real({a}) < real({b}), {x}, {y})" for x, y in ((a, b), (b, a)))
    return (
        f"low = {small}; high = {large}; select_complex({a}, "
        f"where(real(low) == -inf, high, high + log1p(exp(low - high))), "
        f"where({a} == {b}, {a} + 0.6931471805599453, "
        f"maximum({a}, {b}) + log1p(exp(-abs({a} - {b})))))"
    )


# Exponentials and logarithms

exp = pointwise(
    "exp(Tensor self) -> Tensor",
    "exp(self)",
    promote="float",
    partials={"self": "result"},
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute the exponential `e**self`.",
)

exp2 = pointwise(
    "exp2(Tensor self) -> Tensor",
    "exp2(self)",
    promote="float",
    partials={"self": "result * 0.6931471805599453"},
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute `2**self`.",
)

expm1 = pointwise(
    "expm1(Tensor self) -> Tensor",
    "expm1(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute `exp(self) - 1` without loss of digits near zero.",
)

log = pointwise(
    "log(Tensor self) -> Tensor",
    "log(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(0.1, 9),
    doc="Compute the natural logarithm.",
)

log2 = pointwise(
    "log2(Tensor self) -> Tensor",
    "log2(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(0.1, 9, specials=not s.is_complex),
    doc="Compute the logarithm to base 2.",
)

log10 = pointwise(
    "log10(Tensor self) -> Tensor",
    "log10(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(0.1, 9),
    doc="Compute the logarithm to base 10.",
)

log1p = pointwise(
    "log1p(Tensor self) -> Tensor",
    "log1p(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(-0.9, 9),
    doc="Compute `log(1 + self)` without loss of digits near zero.",
)

xlogy = pointwise(
    "xlogy(Operand self, Operand other) -> Tensor",
    "xlogy(self, other)",
    promote="float",
    dtypes="floating",
    beyond="wrapped",
    inplace=True,
    samples=lambda s: [*s.binary(0.1, 9), s(0, s.specials()), s(s.specials(), 0)],
    doc="Compute `self * log(other)`, which is zero where `self` is, unless `other` is NaN.",
)

logaddexp = pointwise(
    "logaddexp(Tensor self, Tensor other) -> Tensor",
    log_of_sum("self", "other"),
    dtypes="floating complex",
    partials={"self": "sigmoid(self - other)", "other": "sigmoid(other - self)"},
    samples=lambda s: s.binary(number=False),
    doc="Compute `log(exp(self) + exp(other))` without overflow.",
)

logaddexp2 = pointwise(
    "logaddexp2(Tensor self, Tensor other) -> Tensor",
    "where(self == other, self + 1, "
    "maximum(self, other) + log1p(exp2(-abs(self - other))) * 1.4426950408889634)",
    dtypes="floating",
    partials={
        "self": "sigmoid((self - other) * 0.6931471805599453)",
        "other": "sigmoid((other - self) * 0.6931471805599453)",
    },
    samples=lambda s: s.binary(number=False),
    doc="Compute `log2(2**self + 2**other)` without overflow.",
)


# Trigonometric functions and their inverses

sin = pointwise(
    "sin(Tensor self) -> Tensor",
    "sin(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute the sine.",
)

cos = pointwise(
    "cos(Tensor self) -> Tensor",
    "cos(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute the cosine.",
)

tan = pointwise(
    "tan(Tensor self) -> Tensor",
    "tan(self)",
    promote="float",
    partials={"self": "1 + result * result"},
    inplace=True,
    samples=lambda s: s.unary(-1.4, 1.4),
    doc="Compute the tangent.",
)

asin = pointwise(
    "asin(Tensor self) -> Tensor",
    "asin(self)",
    promote="float",
    alias=("arcsin",),
    inplace=True,
    samples=lambda s: s.unary(-0.9, 0.9),
    doc="Compute the arc sine; NaN for real numbers outside [-1, 1].",
)

acos = pointwise(
    "acos(Tensor self) -> Tensor",
    "acos(self)",
    promote="float",
    alias=("arccos",),
    inplace=True,
    samples=lambda s: s.unary(-0.9, 0.9),
    doc="Compute the arc cosine; NaN for real numbers outside [-1, 1].",
)

atan = pointwise(
    "atan(Tensor self) -> Tensor",
    "atan(self)",
    promote="float",
    alias=("arctan",),
    inplace=True,
    samples=lambda s: s.unary(specials=not s.is_complex),
    doc="Compute the arc tangent.",
)

atan2 = pointwise(
    "atan2(Tensor self, Tensor other) -> Tensor",
    "atan2(self, other)",
    promote="float",
    dtypes="floating",
    partials={
        "self": "r = hypot(self, other); where(r == 0, 0, other / r / r)",
        "other": "r = hypot(self, other); where(r == 0, 0, -self / r / r)",
    },
    alias=("arctan2",),
    inplace=True,
    samples=lambda s: s.binary(number=False),
    doc="Compute the angle of the vector (other, self), in [-pi, pi].",
)


deg2rad = pointwise(
    "deg2rad(Tensor self) -> Tensor",
    "self * 0.017453292519943295",
    promote="float",
    dtypes="floating",
    inplace=True,
    samples=lambda s: s.unary(-360, 360),
    doc="Convert degrees to radians.",
)

rad2deg = pointwise(
    "rad2deg(Tensor self) -> Tensor",
    "self * 57.29577951308232",
    promote="float",
    dtypes="floating",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Convert radians to degrees.",
)

sinc = pointwise(
    "sinc(Tensor self) -> Tensor",
    "x = self * pi; where(self == 0, 1, sin(x) / x)",
    promote="float",
    # Near zero, where the difference has no digits, by its series.
    partials={
        "self": "x = self * pi; where(abs(x) < 0.5, -x * pi * polynomial(x * x, "
        "0.3333333333333333, -0.03333333333333333, 0.0011904761904761906, -2.2045855379188714e-05, "
        "2.505210838544172e-07, -1.92708526041859e-09, 1.0706029224547723e-11, "
        "-4.498331606952825e-14, 1.4797143443923766e-16), (x * cos(x) - sin(x)) / (x * self))"
    },
    inplace=True,
    samples=lambda s: s.unary(specials=False),
    doc="Compute the normalised `sin(pi * self) / (pi * self)`, which is 1 at zero.",
)


# Hyperbolic functions and their inverses

sinh = pointwise(
    "sinh(Tensor self) -> Tensor",
    "sinh(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute the hyperbolic sine.",
)

cosh = pointwise(
    "cosh(Tensor self) -> Tensor",
    "cosh(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute the hyperbolic cosine.",
)

tanh = pointwise(
    "tanh(Tensor self) -> Tensor",
    "tanh(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute the hyperbolic tangent.",
)

asinh = pointwise(
    "asinh(Tensor self) -> Tensor",
    "asinh(self)",
    promote="float",
    alias=("arcsinh",),
    inplace=True,
    samples=lambda s: s.unary(specials=not s.is_complex),
    doc="Compute the inverse hyperbolic sine.",
)

acosh = pointwise(
    "acosh(Tensor self) -> Tensor",
    "acosh(self)",
    promote="float",
    # The root of the product is wrong beyond the branch cut, the product of roots beyond -1.
    partials={
        "self": "select_complex(self, rsqrt(self - 1) * rsqrt(self + 1), "
        "where(abs(self) > 1e9, 1 / abs(self), rsqrt((self - 1) * (self + 1))))"
    },
    alias=("arccosh",),
    inplace=True,
    samples=lambda s: s.unary(1.1, 9),
    doc="Compute the inverse hyperbolic cosine; NaN for real numbers below 1.",
)

atanh = pointwise(
    "atanh(Tensor self) -> Tensor",
    "atanh(self)",
    promote="float",
    alias=("arctanh",),
    inplace=True,
    samples=lambda s: s.unary(-0.9, 0.9, specials=not s.is_complex),
    doc="Compute the inverse hyperbolic tangent; NaN for real numbers outside [-1, 1].",
)


# The logistic function

sigmoid = pointwise(
    "sigmoid(Tensor self) -> Tensor",
    "sigmoid(self)",
    promote="float",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute the logistic function `1 / (1 + exp(-self))`.",
)

logit_plain = pointwise(
    "logit_plain(Tensor self, any eps=None) -> Tensor",
    "log(self / (1 - self))",
    promote="float",
    dtypes="floating",
    partials={
        "self": "where((self < 0) | (self > 1), nan, "
        "where((self == 0) | (self == 1), inf, 1 / (self * (1 - self))))"
    },
    inplace=True,
    function=False,
    method=False,
    oracle="logit",
    samples=lambda s: s.unary(0.1, 0.9, specials=not s.is_floating),
    doc="Compute `log(self / (1 - self))`.",
)

logit_clamped = pointwise(
    "logit_clamped(Tensor self, float eps) -> Tensor",
    "x = minimum(maximum(self, eps), 1 - eps); log(x / (1 - x))",
    promote="float",
    dtypes="floating",
    partials={"self": "where((self < eps) | (self > 1 - eps), 0, 1 / (self * (1 - self)))"},
    inplace=True,
    function=False,
    method=False,
    oracle="logit",
    samples=lambda s: [
        s(s.tensor(3, 4, low=0.05, high=0.95), 0.2),
        s(s.values([0, 0.5, 1]), eps=0.1),
    ],
    doc="Compute `log(x / (1 - x))` of `x = clamp(self, eps, 1 - eps)`.",
)

logit = overload(
    "logit",
    "logit_clamped",
    "logit_plain",
    inplace=True,
    samples=lambda s: [s(s.tensor(3, low=0.1, high=0.9)), s(s.tensor(3), eps=0.1)],
    doc="Compute the inverse of the logistic function; `eps` keeps the input off 0 and 1.",
)


# Special functions

erf = pointwise(
    "erf(Tensor self) -> Tensor",
    "erf(self)",
    promote="float",
    dtypes="floating",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute the error function, `2 / sqrt(pi)` times the integral of `exp(-t*t)` from 0.",
)

erfc = pointwise(
    "erfc(Tensor self) -> Tensor",
    "erfc(self)",
    promote="float",
    dtypes="floating",
    inplace=True,
    samples=lambda s: s.unary(),
    doc="Compute the complementary error function `1 - erf(self)` without loss of digits.",
)

erfinv = pointwise(
    "erfinv(Tensor self) -> Tensor",
    "erfinv(self)",
    promote="float",
    dtypes="floating",
    partials={"self": "0.886226925452758 * exp(result * result)"},
    inplace=True,
    samples=lambda s: s.unary(-0.9, 0.9),
    doc="Compute the inverse of the error function on (-1, 1).",
)

lgamma = pointwise(
    "lgamma(Tensor self) -> Tensor",
    "lgamma(self)",
    promote="float",
    dtypes="floating",
    inplace=True,
    samples=lambda s: s.unary(0.2, 9, specials=not s.is_floating),
    doc="Compute the logarithm of the absolute value of the gamma function.",
)

digamma = pointwise(
    "digamma(Tensor self) -> Tensor",
    "digamma(self)",
    promote="float",
    dtypes="floating",
    inplace=True,
    samples=lambda s: s.unary(0.2, 9, specials=not s.is_floating),
    doc="Compute the derivative of `lgamma`.",
)


# Rounding

floor = pointwise(
    "floor(Tensor self) -> Tensor",
    "floor(self)",
    dtypes="integral floating",
    inplace=True,
    strict_out_dtype=True,
    samples=lambda s: s.unary(),
    errors=lambda s: [(s(s.tensor(2, dtype="complex64")), RuntimeError, "floor")],
    doc="Round towards minus infinity.",
)

ceil = pointwise(
    "ceil(Tensor self) -> Tensor",
    "ceil(self)",
    dtypes="integral floating",
    inplace=True,
    strict_out_dtype=True,
    samples=lambda s: s.unary(),
    errors=lambda s: [(s(s.tensor(2, dtype="complex64")), RuntimeError, "ceil")],
    doc="Round towards plus infinity.",
)

trunc = pointwise(
    "trunc(Tensor self) -> Tensor",
    "trunc(self)",
    dtypes="integral floating",
    alias=("fix",),
    inplace=True,
    strict_out_dtype=True,
    samples=lambda s: s.unary(),
    errors=lambda s: [(s(s.tensor(2, dtype="complex64")), RuntimeError, "trunc")],
    doc="Round towards zero.",
)

frac = pointwise(
    "frac(Tensor self) -> Tensor",
    "frac(self)",
    dtypes="floating",
    inplace=True,
    strict_out_dtype=True,
    samples=lambda s: s.unary(specials=False),
    doc="Compute the fractional part, which has the sign of the number.",
)

round_whole = pointwise(
    "round_whole(Tensor self) -> Tensor",
    "round(self)",
    dtypes="integral floating",
    inplace=True,
    strict_out_dtype=True,
    function=False,
    method=False,
    oracle="round",
    samples=lambda s: [*s.unary(), s(s.values([0.5, 1.5, 2.5, -0.5]))],
    doc="Round to the nearest integer, halves to the even one.",
)

round_decimal = pointwise(
    "round_decimal(Tensor self, *, int decimals) -> Tensor",
    "ten = 10.0 ** abs(decimals); "
    "where(decimals < 0, round(self / ten) * ten, round(self * ten) / ten)",
    dtypes="floating",
    partials={"self": "0"},
    inplace=True,
    strict_out_dtype=True,
    function=False,
    method=False,
    oracle="round",
    samples=lambda s: [
        s(s.tensor(3, 4), decimals=1),
        s(s.tensor(3, 4, low=-99, high=99), decimals=-1),
        s(s.tensor(3), decimals=0),
    ],
    doc="Round to a number of decimals; a negative one rounds to tens, hundreds, ...",
)

round = overload(
    "round",
    "round_whole",
    "round_decimal",
    inplace=True,
    samples=lambda s: [s(s.tensor(3, 4))],
    errors=lambda s: [(s(s.tensor(2, dtype="complex64")), RuntimeError, "round")],
    doc="Round to the nearest integer or decimal, halves to the even digit.",
)


# What a number is

isnan = pointwise(
    "isnan(Tensor self) -> Tensor",
    "isnan(self)",
    results=("bool",),
    vjp="none: bool output",
    samples=lambda s: s.unary(),
    doc="Tell which elements are NaN (complex: in either part).",
)

isinf = pointwise(
    "isinf(Tensor self) -> Tensor",
    "isinf(self)",
    results=("bool",),
    vjp="none: bool output",
    samples=lambda s: s.unary(),
    doc="Tell which elements are infinite (complex: in either part).",
)

isfinite = pointwise(
    "isfinite(Tensor self) -> Tensor",
    "isfinite(self)",
    results=("bool",),
    vjp="none: bool output",
    samples=lambda s: s.unary(),
    doc="Tell which elements are neither infinite nor NaN.",
)

isposinf = pointwise(
    "isposinf(Tensor self) -> Tensor",
    "isinf(self) & (self > 0)",
    dtypes=REAL,
    results=("bool",),
    strict_out_dtype=True,
    vjp="none: bool output",
    samples=lambda s: s.unary(),
    doc="Tell which elements are plus infinity.",
)

isneginf = pointwise(
    "isneginf(Tensor self) -> Tensor",
    "isinf(self) & signbit(self)",
    dtypes=REAL,
    results=("bool",),
    strict_out_dtype=True,
    vjp="none: bool output",
    samples=lambda s: s.unary(),
    doc="Tell which elements are minus infinity.",
)

isreal = pointwise(
    "isreal(Tensor self) -> Tensor",
    "imag(self) == 0",
    results=("bool",),
    vjp="none: bool output",
    samples=lambda s: s.unary(),
    doc="Tell which elements have no imaginary part.",
)

signbit = pointwise(
    "signbit(Tensor self) -> Tensor",
    "signbit(self)",
    dtypes=REAL,
    results=("bool",),
    strict_out_dtype=True,
    vjp="none: bool output",
    samples=lambda s: [*s.unary(specials=not s.is_floating), s(s.values([0, -0.0, -1, 1]))],
    errors=lambda s: [(s(s.tensor(2, dtype="complex64")), RuntimeError, "signbit")],
    doc="Tell which elements have the sign bit set, -0.0 and negative NaN included.",
)
