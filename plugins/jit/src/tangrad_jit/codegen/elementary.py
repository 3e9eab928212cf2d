"""Elementary functions of float32, step by step as tangrad-cpu's kernels compute them.

`tangrad_cpu/native/vmath/vmath_f32.h` has the functions that rendered kernels contain, which need
FMA; `elementary.c` those of the ops that have kernels of their own where there is AVX-512. The bits
are the same, so each step here is one there. Tests compare them over samples of all float32.
"""

from __future__ import annotations

from collections.abc import Callable

from tangrad_jit.codegen.vector import EQUAL, LESS, LESS_EQUAL, Builder

LOG2E, LN2_HIGH, LN2_LOW = (
    float.fromhex(t) for t in ("0x1.715476p+0", "0x1.62e4p-1", "0x1.7f7d1cp-20")
)
LN2_HALF_HIGH = float.fromhex("0x1.62e43p-1")
ROUND, SCALE_BIAS = 12582912.0, 254.0
FLT_MAX, INF, NAN = 3.4028234663852886e38, float("inf"), float("nan")


def _numbers(text: str) -> list[float]:
    return [float.fromhex(word) for word in text.split()]


EXP = _numbers("""
    0x1.6a24eep-10 0x1.123a6ep-7 0x1.5558f2p-5 0x1.555490p-3 0x1.fffffcp-2
""")
EXPM1 = _numbers("""
    0x1.a0331ep-13 0x1.6d72a2p-10 0x1.11118ap-7 0x1.5554b0p-5 0x1.555554p-3 0x1p-1
""")
LOG = _numbers("""
    -0x1.38b9ccp-4 0x1.055cc2p-3 -0x1.0d851ap-3 0x1.22d9ecp-3 -0x1.547242p-3
    0x1.99a00ap-3 -0x1.000228p-2 0x1.555554p-2
""")  # fmt: skip
TANH = _numbers("""
    -0x1.7561f6p-8 0x1.520b24p-6 -0x1.b83856p-5 0x1.11070ap-3 -0x1.555532p-2
""")
ERF = _numbers("""
    -0x1.366336p-17 0x1.ed30b8p-14 -0x1.4bae30p-11 0x1.b4e59cp-10 -0x1.4f7ba4p-13
    -0x1.39ced4p-6 0x1.a4fa72p-4 0x1.45f2fap-1 0x1.06eba8p-3
""")  # fmt: skip
ERF_SMALL = _numbers("""
    -0x1.61c9ap-11 0x1.4f291ep-8 -0x1.b7a832p-6 0x1.ce2ac2p-4 -0x1.81273ap-2 0x1.06eba8p-3
""")
ERFC_NEAR = _numbers("""
    -0x1.8f17acp-24 0x1.f47514p-22 -0x1.020f08p-20 -0x1.e120c2p-21 0x1.8f9f4cp-16
    -0x1.6dedb2p-13 0x1.f97234p-11 -0x1.2f1998p-8 0x1.50822cp-6 -0x1.70e294p-4 0x1.d6a43ep-2
    0x1.5f8106p-8
""")  # fmt: skip
ERFC_FAR = _numbers("""
    0x1.4d29d8p-35 -0x1.874b9p-32 0x1.f9e4p-30 -0x1.164b0ap-26 0x1.5a96b2p-23 -0x1.7cfdf2p-20
    0x1.a1c386p-17 -0x1.d80cp-14 0x1.16c20ap-10 -0x1.6aad64p-7 0x1.3406a4p-3 -0x1.6b2656p-5
""")  # fmt: skip


def horner(b: Builder, x: int, coefficients: list[float]) -> int:
    """Return a polynomial, coefficients of high powers first."""
    p = b.f4(coefficients[0])
    for c in coefficients[1:]:
        p = b.fma(p, x, b.f4(c))
    return p


def pairs(b: Builder, x: int, coefficients: list[float]) -> int:
    """Return the polynomial in x^2 whose coefficients are pairs: a x + b."""
    z = b.mul(x, x)
    rest = list(coefficients)
    p = b.f4(rest.pop(0)) if len(rest) % 2 else b.fma(b.f4(rest.pop(0)), x, b.f4(rest.pop(0)))
    while rest:
        p = b.fma(p, z, b.fma(b.f4(rest.pop(0)), x, b.f4(rest.pop(0))))
    return p


def bounded(b: Builder, x: int, low: float, high: float) -> int:
    """Return a number within bounds; NaN passes."""
    return b.min(b.f4(high), b.max(b.f4(low), x))


def reduce(b: Builder, x: int, bias: float) -> tuple[int, int, int]:
    """Return n + ROUND + bias, n, and x - n ln 2."""
    rounded = b.fma(x, b.f4(LOG2E), b.f4(ROUND + bias))
    n = b.sub(rounded, b.f4(ROUND + bias))
    return rounded, n, b.fma(n, b.f4(-LN2_LOW), b.fma(n, b.f4(-LN2_HIGH), x))


def reduce_short(b: Builder, x: int, bias: float) -> tuple[int, int]:
    """Return n + ROUND + bias and x - n ln 2, where one constant for ln 2 does."""
    rounded = b.fma(x, b.f4(LOG2E), b.f4(ROUND + bias))
    return rounded, b.fma(b.sub(rounded, b.f4(ROUND + bias)), b.f4(-LN2_HALF_HIGH), x)


def power(b: Builder, rounded: int) -> int:
    """Return 2^n of the biased exponent in the low bits."""
    return b.make("as", "f4", (b.shift("shl", rounded, 23),))


def exp(b: Builder, x: int) -> int:
    """Compute exp of each lane."""
    rounded, _, r = reduce(b, bounded(b, x, -104.0, 89.0), SCALE_BIAS)
    return exp_scaled(b, r, rounded)


def exp_scaled(b: Builder, r: int, rounded: int) -> int:
    """Return exp(r) times 2^n in two steps, neither of which overflows."""
    one = b.f4(1.0)
    e = b.fma(r, b.fma(r, horner(b, r, EXP), one), one)
    half = b.shift("shr", rounded, 1)
    rest = b.sub(b.make("as", "i4", (rounded,)), half)
    return b.mul(b.mul(e, power(b, half)), power(b, rest))


def expm1(b: Builder, x: int) -> int:
    """Return exp(x) less 1."""
    _, n, r = reduce(b, bounded(b, x, -18.0, 89.0), 0.0)
    q = b.fma(b.mul(r, r), pairs(b, r, EXPM1), r)
    half = power_of_two(b, b.add(b.sub(n, b.f4(1.0)), b.f4(ROUND)))
    y = b.mul(b.f4(2.0), b.fma(q, half, b.sub(half, b.f4(0.5))))
    zero = b.f4(0.0)
    y = b.select(b.compare(EQUAL, n, zero), q, y)
    return b.select(b.compare(EQUAL, x, zero), x, y)


def power_of_two(b: Builder, rounded: int) -> int:
    """Return 2^n of the integer in the low bits."""
    moved = b.add(b.shift("shl", rounded, 23), b.bits("i4", 0x3F800000))
    return b.make("as", "f4", (moved,))


def split(b: Builder, x: int) -> tuple[int, int]:
    """Return k and m - 1 of x = m 2^k, m between the roots of 1/2 and 2."""
    small = b.compare(LESS, x, b.f4(2.0**-126))
    normal = b.make("as", "i4", (b.select(small, b.mul(x, b.f4(2.0**24)), x),))
    root = b.select(small, b.bits("i4", 0x3F3504F3 + (24 << 23)), b.bits("i4", 0x3F3504F3))
    shifted = b.sub(normal, root)
    k = b.make("convert", "f4", (b.shift("sar", shifted, 23),), "i4")
    mantissa = b.add(b.bitwise("and", shifted, b.bits("i4", 0x007FFFFF)), b.bits("i4", 0x3F3504F3))
    return k, b.sub(b.make("as", "f4", (mantissa,)), b.f4(1.0))


def log_specials(b: Builder, x: int, y: int) -> int:
    """Return the logarithm where its argument is not positive and finite, too."""
    zero = b.f4(0.0)
    special = b.select(b.compare(LESS, x, zero), b.bits("f4", 0x7FC00000), x)
    special = b.select(b.compare(EQUAL, x, zero), b.f4(-INF), special)
    # Two selections: with AVX-512 a comparison is a mask of its own, and to join two takes more.
    finite = b.select(b.compare(LESS_EQUAL, x, b.f4(FLT_MAX)), y, special)
    return b.select(b.compare(LESS, zero, x), finite, special)


def log_reduced(b: Builder, k: int, f: int) -> int:
    """Return k ln 2 + log(1 + f)."""
    tail = b.fma(f, pairs(b, f, LOG), b.f4(-0.5))
    small = b.fma(b.mul(f, f), tail, b.fma(k, b.f4(LN2_LOW), f))
    return b.fma(k, b.f4(LN2_HIGH), small)


def log(b: Builder, x: int) -> int:
    """Compute log of each lane."""
    k, f = split(b, x)
    return log_specials(b, x, log_reduced(b, k, f))


def log1p(b: Builder, x: int) -> int:
    """Compute log1p of each lane."""
    one = b.f4(1.0)
    u = b.add(one, x)
    k, _ = split(b, u)
    scale = power_of_two(b, b.add(b.sub(b.f4(2.0), k), b.f4(ROUND)))
    quarter = b.f4(0.25)
    f = b.add(b.mul(b.mul(x, scale), quarter), b.sub(b.mul(scale, quarter), one))
    y = log_specials(b, u, log_reduced(b, k, f))
    return b.select(b.compare(EQUAL, x, b.f4(0.0)), x, y)


def sigmoid(b: Builder, x: int) -> int:
    """Compute sigmoid of each lane."""
    a = b.neg(bounded(b, x, -104.0, 60.0))
    rounded, _, r = reduce(b, a, 127.0 - 24.0)
    w = b.fma(b.mul(r, r), horner(b, r, EXP), r)
    p, bound, tiny = power(b, rounded), b.f4(2.0**-12), b.f4(2.0**-24)
    small = b.compare(LESS, p, bound)
    total = b.fma(p, w, b.select(small, b.add(p, tiny), tiny))
    return b.div(tiny, b.select(small, total, b.add(total, p)))


def sigmoid_slope(b: Builder, x: int) -> int:
    """Return exp(-x) / (1 + exp(-x))^2."""
    e = exp(b, b.neg(b.abs(x)))
    d = b.add(b.f4(1.0), e)
    return b.div(e, b.mul(d, d))


def log_sigmoid(b: Builder, x: int) -> int:
    """Return -log(1 + exp(-x))."""
    e = exp(b, b.neg(b.abs(x)))
    zero = b.f4(0.0)
    y = b.sub(b.select(b.compare(LESS, x, zero), x, zero), log1p(b, e))
    return b.select(b.nan(x), x, y)


def tanh(b: Builder, x: int) -> int:
    """Compute tanh of each lane."""
    a = b.min(b.f4(9.1), b.abs(x))
    z = b.mul(a, a)
    small = b.fma(b.mul(a, z), horner(b, z, TANH), a)
    rounded, r = reduce_short(b, b.mul(b.f4(2.0), a), 127.0)
    w = b.fma(b.mul(r, r), horner(b, r, EXP), r)
    p, one, two = power(b, rounded), b.f4(1.0), b.f4(2.0)
    large = b.sub(one, b.div(two, b.fma(p, w, b.add(p, one))))
    return b.copysign(b.select(b.compare(LESS, a, b.f4(0.625)), small, large), x)


def erf(b: Builder, x: int) -> int:
    """Compute erf of each lane."""
    a = b.min(b.f4(3.95), b.abs(x))
    t = b.fma(a, pairs(b, a, ERF), a)
    rounded, r = reduce_short(b, b.neg(t), 127.0)
    w = b.fma(b.mul(r, r), pairs(b, r, EXPM1), r)
    p = power(b, rounded)
    return b.copysign(b.fma(p, w, b.sub(p, b.f4(1.0))), x)


def erfc(b: Builder, x: int) -> int:
    """Return 1 - erf(x) to the last digits."""
    zero, a = b.f4(0.0), b.abs(x)
    small = b.fma(b.neg(x), horner(b, b.mul(x, x), ERF_SMALL), b.sub(b.f4(1.0), x))
    c = b.min(b.f4(10.1), a)
    high = b.make("as", "f4", (b.bitwise("and", c, b.bits("f4", 0xFFFFF000)),))
    low = b.mul(b.sub(c, high), b.add(c, high))
    near = b.compare(LESS, c, b.f4(3.0))
    far = horner(b, b.sub(c, b.f4(6.5)), ERFC_FAR)
    h = b.select(near, horner(b, b.sub(c, b.f4(1.75)), ERFC_NEAR), far)
    leading, square = b.select(near, b.f4(1.25), b.f4(2.5)), b.mul(high, high)
    total = b.add(square, b.add(leading, h))
    rounded = b.fma(total, b.f4(-LOG2E), b.f4(ROUND + SCALE_BIAS))
    n = b.sub(rounded, b.f4(ROUND + SCALE_BIAS))
    r = b.sub(b.sub(b.fma(n, b.f4(-LN2_HIGH), b.neg(square)), leading), h)
    r = b.sub(r, b.fma(n, b.f4(LN2_LOW), low))
    y = exp_scaled(b, r, rounded)
    y = b.select(b.compare(LESS, x, zero), b.sub(b.f4(2.0), y), y)
    return b.select(b.compare(LESS, a, b.f4(0.75)), small, y)


# Functions inside of expressions, of float32.
FUNCTIONS: dict[str, Callable[[Builder, int], int]] = {
    "exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "sigmoid": sigmoid,
    "sigmoid_slope": sigmoid_slope, "log_sigmoid": log_sigmoid,
    "tanh": tanh, "erf": erf, "erfc": erfc,
}  # fmt: skip


# --- ops that have kernels of their own with AVX-512 ----------------------------------------

GAUSSIAN = [
    _numbers("""
        0x0p0 0x1.2f28eep-3 0x1.1b0172p-2 0x1.7dce3p-2 0x1.be33dp-2 0x1.e2982p-2
        0x1.f46cc4p-2 0x1.fbffccp-2 0x1.fec9eap-2 0x1.ffadecp-2 0x1.ffed08p-2 0x1.fffc2ep-2
        0x1.ffff54p-2 0x1.ffffe6p-2 0x1.fffffcp-2 0x1p-1
    """),
    _numbers("""
        0x1.988454p-2 0x1.7c0fc4p-2 0x1.320b9cp-2 0x1.aa9d46p-3 0x1.015c76p-3 0x1.0cc32cp-4
        0x1.e5dc5ap-6 0x1.7c1cfep-7 0x1.01656cp-8 0x1.2db934p-10 0x1.3220eep-12
        0x1.0cd5eap-14 0x1.98af1ap-17 0x1.0cdf62p-19 0x1.323684p-22 0x0p0
    """),
    _numbers("""
        0x0p0 -0x1.20d6cp-4 -0x1.d12e0ep-4 -0x1.e65632p-4 -0x1.8730fp-4 -0x1.fea82ap-5
        -0x1.14f23cp-5 -0x1.f98e7ap-7 -0x1.873c66p-8 -0x1.01f49p-9 -0x1.22c67ap-11
        -0x1.18d978p-13 -0x1.d1ab9ep-16 -0x1.4bce6cp-18 -0x1.96d02p-21 0x0p0
    """),
    _numbers("""
        -0x1.10575p-4 -0x1.b19204p-5 -0x1.58bbdep-6 0x1.54d0fap-7 0x1.c1a7b4p-6
        0x1.d3a58cp-6 0x1.53f9e6p-6 0x1.80e868p-7 0x1.619014p-8 0x1.0cf1e8p-9 0x1.56da4p-11
        0x1.71002ap-13 0x1.5100fep-15 0x1.061ff2p-17 0x1.5c367p-20 0x0p0
    """),
    _numbers("""
        0x0p0 0x1.10987p-6 0x1.74f5b8p-6 0x1.1293d8p-6 0x1.6a438p-8 -0x1.957458p-9
        -0x1.92917p-8 -0x1.568812p-8 -0x1.97ecc6p-9 -0x1.789a34p-10 -0x1.18b66ap-11
        -0x1.58fc4ep-13 -0x1.61dbaap-15 -0x1.315e3ep-17 -0x1.bde1eep-20 0x0p0
    """),
    _numbers("""
        0x1.44b70cp-7 0x1.b2691ap-8 -0x1.44001ap-12 -0x1.5eadd2p-8 -0x1.7943fep-8
        -0x1.936eeap-9 -0x1.3daf58p-12 0x1.09d5c4p-10 0x1.19c304p-10 0x1.5e8392p-11
        0x1.40427ep-12 0x1.cc32a8p-14 0x1.0c3be4p-15 0x1.021a9cp-17 0x1.9e7704p-20 0x0p0
    """),
]  # fmt: skip
LOG_512 = _numbers("""
    -0x1.7142d2p-5 0x1.ac924ap-4 -0x1.0d8ad8p-3 0x1.288472p-3 -0x1.54efd4p-3
    0x1.9969b0p-3 -0x1.000040p-2 0x1.5555a4p-2
""")  # fmt: skip
TANH_512 = _numbers("""
    0x1.a0331ep-7 0x1.6d72a2p-5 0x1.11118ap-3 0x1.5554b0p-2 0x1.555554p-1 0x1p0
""")


def _unary(b: Builder, op: str, a: int, imm: int | None = None) -> int:
    return b.make(op, "f4", (a,), imm)


def _exp_reduced(b: Builder, x: int) -> tuple[int, int]:
    rounded = b.fma(x, b.f4(LOG2E), b.f4(ROUND))
    n = b.sub(rounded, b.f4(ROUND))
    r = b.fma(n, b.f4(-LN2_LOW), b.fma(n, b.f4(-LN2_HIGH), x))
    return b.fma(b.fma(horner(b, r, EXP), r, b.f4(1.0)), r, b.f4(1.0)), n


def exp_512(b: Builder, x: int) -> int:
    """Compute exp of each lane."""
    m, n = _exp_reduced(b, bounded(b, x, -105.0, 90.0))
    return b.make("scalef", "f4", (m, n))


def sigmoid_512(b: Builder, x: int) -> int:
    """Compute sigmoid of each lane."""
    below = b.bitwise("or", x, b.sign("f4"))
    m, n = _exp_reduced(b, b.max(b.f4(-105.0), below))
    e, one = b.make("scalef", "f4", (m, n)), b.f4(1.0)
    guess = _unary(b, "rcp14", b.add(e, one))
    rest = b.fnma(guess, e, b.sub(one, guess))
    negative = b.compare(LESS, b.make("as", "i4", (x,)), b.bits("i4", 0))
    q = b.select(negative, b.mul(guess, m), guess)
    y = b.fma(q, rest, q)
    return b.select(negative, b.make("scalef", "f4", (y, n)), y)


def silu_512(b: Builder, x: int) -> int:
    """Return x sigmoid(x)."""
    return b.mul(x, sigmoid_512(b, x))


def gelu_512(b: Builder, x: int) -> int:
    """Return x Phi(x), by a table of polynomials."""
    step = float.fromhex("0x1.851eb8p-2")  # 0.38 of float32
    a = b.min(b.f4(15 * step), b.abs(x))
    rounded = b.fma(a, b.f4(1 / step), b.f4(ROUND))
    t = b.fma(b.sub(rounded, b.f4(ROUND)), b.f4(-step), a)
    picked = [b.make("permute", "f4", (rounded, b.table(row))) for row in GAUSSIAN]
    p = b.fma(picked[5], t, picked[4])
    for row in picked[3::-1]:
        p = b.fma(p, t, row)
    sign = b.bitwise("and", x, b.sign("f4"))
    return b.mul(x, b.add(b.f4(0.5), b.bitwise("xor", p, sign)))


def log_512(b: Builder, x: int) -> int:
    """Compute log of each lane."""
    m, one = _unary(b, "getmant", x, 11), b.f4(1.0)
    exponent = _unary(b, "getexp", x)
    k = b.select(b.compare(LESS, m, one), b.add(exponent, one), exponent)
    f = b.sub(m, one)
    z = b.mul(f, f)
    low = b.fma(k, b.f4(LN2_LOW), f)
    y = b.fma(z, b.fma(f, pairs(b, f, LOG_512), b.f4(-0.5)), low)
    return b.fma(k, b.f4(LN2_HIGH), y)


def tanh_512(b: Builder, x: int) -> int:
    """Compute tanh of each lane."""
    a = b.min(b.f4(9.02), b.abs(x))
    rounded = b.fma(a, b.f4(2 * LOG2E), b.f4(ROUND + 128.0))
    n = b.sub(rounded, b.f4(ROUND + 128.0))
    r = b.fma(n, b.f4(-LN2_HALF_HIGH / 2), a)
    z = b.mul(r, r)
    w, p = b.fma(pairs(b, r, TANH_512), z, r), power(b, rounded)
    e = b.fma(p, w, b.fma(p, b.f4(0.5), b.f4(-1.0)))
    guess = _unary(b, "rcp14", b.add(e, b.f4(2.0)))
    q = b.mul(e, guess)
    y = b.fma(b.fnma(q, e, b.fma(b.f4(-2.0), q, e)), guess, q)
    return b.copysign(y, x)


# Ops by their keys, of float32.
OPS_512: dict[str, Callable[[Builder, int], int]] = {
    "exp": exp_512, "sigmoid": sigmoid_512, "silu": silu_512, "gelu_none": gelu_512, "log": log_512,
    "tanh": tanh_512, "sqrt": lambda b, x: b.sqrt(x),
}  # fmt: skip
# Those that the compiled kernels compute otherwise, which are called.
CALLED_512 = frozenset(("log2", "log10"))
