"""The functions of vmath keep their error bounds and specials at every instruction-set level.

Each level this machine supports is compiled into a library of its own. The reference for float32
is NumPy's float64; for float64 it is mpmath. float32 is checked on the specials and on a million
bit patterns, with ``TANGRAD_TESTS=full`` on 64 million, and with ``exhaustive`` on all 2^32, which
takes some minutes for each function and level.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import runpy
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import mpmath
import numpy as np
import pytest

import tangrad
from tangrad.expr.composed import COMPOSED
from tangrad.expr.gaussian import erfinv
from tangrad.expr.numpy_eval import composed
from tangrad.plugin import include_directory

BACKEND = Path(__file__).parents[1]
NATIVE = BACKEND / "src" / "tangrad_cpu" / "native"
FLAGS = runpy.run_path(str(BACKEND / "render" / "levels.py"))["USUAL"]
FLAGS += "-std=gnu11 -ffp-contract=off -fno-math-errno -fno-trapping-math -shared -fPIC".split()
LEVELS = {
    "baseline": ([], []),
    "avx2": (["avx2", "fma"], ["-march=x86-64-v3", "-mprefer-vector-width=256"]),
    "avx512": (["avx512f", "avx512dq"], ["-march=x86-64-v4", "-mprefer-vector-width=512"]),
}
UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh"
    " atanh erf erfc sigmoid log_sigmoid"
).split()
SINGLE = ("erfinv", "ndtri", "lgamma")
BINARY = ("pow", "atan2", "hypot", "fmod")
FORM = os.environ.get("TANGRAD_TESTS", "fast")
PATTERNS = {"full": 1 << 26, "exhaustive": 1 << 32}.get(FORM, 1 << 20)

# Units in the last place.
BOUND = 2.0
# Without fused multiplication the factors of erfc(x) = exp(-x^2) P(t) / (x + 4) round once more.
BOUNDS_F64 = {("erfc", "baseline"): 2.1}


def _supported(level: str) -> bool:
    if platform.machine() not in ("x86_64", "AMD64"):
        return level == "baseline"
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return level == "baseline"
    return all(flag in flags for flag in LEVELS[level][0])


def _source() -> str:
    lines = ['#include "vmath/vmath.h"']
    for mark, kind in (("f32", "float"), ("f64", "double")):
        for name in (*UNARY, *(SINGLE if mark == "f32" else ()), "rint", "trunc", "floor", "ceil"):
            head = f"void {name}_{mark}(const {kind} *x, {kind} *y, int64_t n)"
            loop = f"for (int64_t i = 0; i < n; ++i) y[i] = tgc_{name}_{mark}(x[i]);"
            lines.append(f"{head} {{\n#pragma GCC ivdep\n{loop}\n}}")
        for name in BINARY:
            head = f"void {name}_{mark}(const {kind} *a, const {kind} *b, {kind} *y, int64_t n)"
            loop = f"for (int64_t i = 0; i < n; ++i) y[i] = tgc_{name}_{mark}(a[i], b[i]);"
            lines.append(f"{head} {{\n#pragma GCC ivdep\n{loop}\n}}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=LEVELS)
def level(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Level:
    """A library of array functions, compiled for one level."""
    name = request.param
    if not _supported(name):
        pytest.skip(f"this machine has no {name}")
    folder = tmp_path_factory.mktemp(name)
    (folder / "arrays.c").write_text(_source())
    command = ["gcc", *LEVELS[name][1], *FLAGS, f"-DTGC_LEVEL={name}", f"-I{NATIVE}"]
    command += [str(folder / "arrays.c"), str(NATIVE / "vmath" / "vmath.c"), "-lm"]
    subprocess.run([*command, "-o", str(folder / "arrays.so")], check=True)
    return Level(name, ctypes.CDLL(str(folder / "arrays.so")))


class Level:
    """The functions of one level on arrays."""

    def __init__(self, name: str, library: ctypes.CDLL) -> None:
        self.name, self.library = name, library

    def __call__(self, function: str, *arrays: np.ndarray) -> np.ndarray:
        mark = "f32" if arrays[0].dtype == np.float32 else "f64"
        arrays = tuple(np.ascontiguousarray(array) for array in arrays)
        result = np.empty_like(arrays[0])
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (*arrays, result))
        getattr(self.library, f"{function}_{mark}")(*pointers, ctypes.c_int64(result.size))
        return result


def _float32_inputs() -> Iterator[np.ndarray]:
    yield _specials(np.float32)
    # Multiplication by an odd constant visits every bit pattern once, and all neighbourhoods
    # evenly (Knuth).
    block = 1 << 20
    for start in range(0, PATTERNS, block):
        order = np.arange(start, start + block, dtype=np.uint64).astype(np.uint32)
        yield (order * np.uint32(2654435769)).view(np.float32)


def _specials(dtype: type) -> np.ndarray:
    info = np.finfo(dtype)
    sizes = [0, 1, 2, 3, 0.5, 1.5, 0.25, 88, 89, 104, 709.5, 710, 745, 1e10, math.inf, math.nan]
    sizes += [info.tiny, info.smallest_subnormal, info.max, math.pi / 2, math.pi, 1e5, 2.0**24]
    near_one = [1 + info.eps, 1 - info.epsneg]
    return np.array([s * x for x in sizes + near_one for s in (1, -1)], dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(value) for value in x])


def _erfc(x: np.ndarray) -> np.ndarray:
    return np.array([math.erfc(value) for value in x])


def _lgamma(x: np.ndarray) -> np.ndarray:
    poles = (x <= 0) & (x == np.floor(x)) | np.isinf(x)
    found = [math.lgamma(value) for value in np.where(poles, 1.0, x)]
    return np.where(poles, np.inf, found)


def _log_sigmoid(x: np.ndarray) -> np.ndarray:
    result = np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))
    return np.where(result == 0, 0.0, result)


REFERENCE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "erfinv": erfinv,
    "ndtri": lambda x: composed("ndtri", x),
    "lgamma": _lgamma,
    "erf": _erf,
    "erfc": _erfc,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "log_sigmoid": _log_sigmoid,
    **{f"a{name}": getattr(np, f"arc{name}") for name in "sin cos tan sinh cosh tanh".split()},
}


def _ulps(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the errors in units of float32's last place; inf for a wrong special."""
    rounded = wanted.astype(np.float32)
    exponent = np.maximum(np.frexp(wanted)[1], -125)
    size = np.ldexp(1.0, exponent - 24)
    error = np.abs(np.clip(got.astype(np.float64), -(2.0**128), 2.0**128)
                   - np.clip(wanted, -(2.0**128), 2.0**128)) / size  # fmt: skip
    error = np.where(np.isinf(wanted), np.where(got == wanted, 0, np.inf), error)
    wrong_zero = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded))
    error = np.where(wrong_zero, np.inf, error)
    nans = np.isnan(got), np.isnan(wanted)
    return np.where(nans[0] & nans[1], 0, np.where(nans[0] | nans[1], np.inf, error))


@pytest.mark.timeout(7200 if FORM == "exhaustive" else 900)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", [*UNARY, *SINGLE])
def test_float32_is_within_two_ulps(level: Level, function: str) -> None:
    reference = REFERENCE.get(function) or getattr(np, function)
    for x in _float32_inputs():
        x = x[:: 16 if function in SINGLE else 1]  # their references take a microsecond each
        wanted = reference(x.astype(np.float64))
        if function == "log_sigmoid":
            # Where the logarithm is below half of the smallest float32 the difference is +0.
            wanted = np.where(wanted.astype(np.float32) == 0, 0.0, wanted)
        error = _ulps(level(function, x), wanted)
        if function == "lgamma":
            # Below -2 it is a difference, which has zeros: held there by the test after this one.
            error = np.where((x < -2) & (np.abs(wanted) < 0.5), 0, error)
        worst = int(np.argmax(error))
        assert error[worst] <= BOUND, f"{function}({float(x[worst]).hex()}): {error[worst]} ulp"


def test_lgamma_near_its_negative_zeros(level: Level) -> None:
    x = np.linspace(-40, -2, 400_001).astype(np.float32)
    wanted = _lgamma(x.astype(np.float64))
    near = np.abs(wanted) < 0.5
    got = level("lgamma", x).astype(np.float64)
    np.testing.assert_allclose(got[near], wanted[near], rtol=2.0**-23, atol=1e-7)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", "exp log log2 log10 tanh sqrt sigmoid".split())
def test_kernels_of_their_own_are_within_two_ulps_wherever_an_element_lies(function: str) -> None:
    """Those of elementary.c, where this machine has AVX-512; their last vector is masked."""
    for x in _float32_inputs():
        got = getattr(tangrad, function)(tangrad.tensor(x)).numpy()
        wide = x.astype(np.float64)
        exact = 1 / (1 + np.exp(-wide)) if function == "sigmoid" else getattr(np, function)(wide)
        error = _ulps(got, exact)
        worst = int(np.argmax(error))
        bound = 0.5 if function == "sqrt" else BOUND
        assert error[worst] <= bound, f"{function}({float(x[worst]).hex()}): {error[worst]} ulp"
        for first in range(1, 18):
            part = getattr(tangrad, function)(tangrad.tensor(x[first : 2 * first + 1])).numpy()
            np.testing.assert_array_equal(part, got[first : 2 * first + 1])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gates_keep_the_precision_of_their_definitions() -> None:
    """A gate is a number times what lies in [0, 1]: gelu's to 2^-23, silu's as sigmoid's."""
    for x in (*_float32_inputs(), np.linspace(-9, 9, 1 << 20, dtype=np.float32)):
        tensor, wide = tangrad.from_numpy(x), x.astype(np.float64)
        silu = tangrad.nn.functional.silu(tensor)
        np.testing.assert_array_equal(silu.numpy(), (tensor * tensor.sigmoid()).numpy())
        got = tangrad.nn.functional.gelu(tensor).numpy()
        inner = np.abs(wide) < 40
        exact = np.where(inner, wide * _phi(np.where(inner, wide, 0)), np.maximum(wide, wide * 0))
        finite = np.isfinite(wide)
        error = np.abs(got - exact)[finite]
        # What is smaller than normal numbers is rounded absolutely.
        assert np.all(error <= np.abs(wide[finite]) * 2.0**-23 + 2.0**-149)
    special = tangrad.tensor([float("nan"), float("inf"), -0.0, -1e30])
    results = tangrad.nn.functional.gelu(special).tolist()
    assert str(results) == "[nan, inf, -0.0, -0.0]"


def _phi(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + tangrad.erf(tangrad.from_numpy(x * 0.5**0.5)).numpy())


@cache
def _float64_inputs(function: str) -> np.ndarray:
    random = np.random.default_rng(7)
    bits = random.integers(0, 1 << 64, 400, dtype=np.uint64).view(np.float64)
    middle = random.standard_normal(400) * np.exp2(random.uniform(-30, 11, 400))
    inner = random.uniform(-1.5, 1.5, 400)
    tail = random.uniform(-30, 30, 400)
    return np.concatenate([bits, middle, inner, tail, 1 + inner / 3, _specials(np.float64)])


def _exact(function: str, x: float) -> mpmath.mpf:
    """Return the value by mpmath, with enough digits for any argument."""
    with mpmath.workprec(1400 if function in ("sin", "cos", "tan") else 300):
        a = mpmath.mpf(x)
        if function == "exp2":
            return mpmath.mpf(2) ** a
        if function == "log2":
            return mpmath.log(a, 2)
        if function == "sigmoid":
            return 1 / (1 + mpmath.exp(-a))
        if function == "log_sigmoid":
            return -mpmath.log1p(mpmath.exp(-a)) if x > 0 else a - mpmath.log1p(mpmath.exp(a))
        if function in ("erf", "erfc"):
            # The same numbers from there on, but mpmath's bounds are integers.
            a = max(mpmath.mpf(-100), min(a, mpmath.mpf(100)))
        if function in ("expm1", "log1p", "sinh", "asinh", "atanh") and abs(x) < 1e-60:
            return a
        return getattr(mpmath, function)(a)


DOMAIN: dict[str, Callable[[float], bool]] = {
    **dict.fromkeys(("log", "log2", "log10"), lambda x: x > 0),
    "log1p": lambda x: x > -1,
    **dict.fromkeys(("asin", "acos"), lambda x: abs(x) <= 1),
    "acosh": lambda x: x >= 1,
    "atanh": lambda x: abs(x) < 1,
}


@pytest.mark.parametrize("function", UNARY)
def test_float64_is_within_two_ulps(level: Level, function: str) -> None:
    inside = DOMAIN.get(function, lambda x: True)
    x = _float64_inputs(function)
    x = np.array([value for value in x if math.isfinite(value) and inside(value)])
    if function in ("sin", "cos", "tan"):
        # Beyond, it is the C library's.
        x = x[np.abs(x) <= 2.0**20]
    bound = BOUNDS_F64.get((function, level.name), BOUND)
    for value, got in zip(x, level(function, x), strict=True):
        wanted = _exact(function, float(value))
        if abs(wanted) > np.finfo(np.float64).max:
            assert math.isinf(got) or abs(wanted) < 2.0**1024, f"{function}({value.hex()})"
            continue
        size = math.ulp(float(wanted)) if wanted else math.ulp(0.0)
        error = abs(mpmath.mpf(float(got)) - wanted) / size
        assert error <= bound, f"{function}({float(value).hex()}): {mpmath.nstr(error)} ulp"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", UNARY)
def test_specials_are_those_of_the_c_standard(level: Level, function: str, dtype: type) -> None:
    reference = REFERENCE.get(function) or getattr(np, function)
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1, -1, 2, -2], dtype)
    got, wanted = level(function, x), reference(x.astype(np.float64)).astype(dtype)
    special = ~np.isfinite(wanted) | (wanted == 0)
    np.testing.assert_array_equal(got[special], wanted[special])
    np.testing.assert_array_equal(np.signbit(got[wanted == 0]), np.signbit(wanted[wanted == 0]))
    assert np.isfinite(got[~special]).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", BINARY)
def test_functions_of_two_numbers(level: Level, function: str, dtype: type) -> None:
    random = np.random.default_rng(3)
    special = _specials(dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(special, special))
    size = np.exp2(random.uniform(-40, 40, (2, 1 << 14))) * random.choice([-1, 1], (2, 1 << 14))
    exponent = random.uniform(-8, 8, 1 << 14)
    a = np.concatenate([a, size[0].astype(dtype)])
    b = np.concatenate([b, (exponent if function == "pow" else size[1]).astype(dtype)])
    if function == "pow":
        a = np.where(np.arange(a.size) % 3, a, np.abs(a))
    # NumPy calls the C library, which is right within 1 ulp in long double.
    name = {"pow": "power", "atan2": "arctan2"}.get(function, function)
    wide = np.float64 if dtype is np.float32 else np.longdouble
    wanted = getattr(np, name)(a.astype(wide), b.astype(wide))
    got = level(function, a, b)
    rounded = wanted.astype(dtype)
    regular = np.isfinite(rounded) & (rounded != 0)
    np.testing.assert_array_equal(got[~regular], rounded[~regular])
    np.testing.assert_array_equal(np.signbit(got[rounded == 0]), np.signbit(rounded[rounded == 0]))
    error = np.abs(got[regular] - wanted[regular]) / np.spacing(np.abs(rounded[regular]))
    bound = 0 if function == "fmod" else BOUND
    worst = int(np.argmax(error))
    assert error[worst] <= bound, (function, a[regular][worst], b[regular][worst], error[worst])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", ["rint", "trunc", "floor", "ceil"])
def test_rounding_to_integers_is_exact(level: Level, function: str, dtype: type) -> None:
    steps = np.arange(-40, 41) / 4
    large = np.array([2.0**22 + 0.5, 2.0**23, 2.0**51 + 0.5, 2.0**52 + 1, 1e30, 1e-30])
    x = np.concatenate([np.concatenate([steps, large, -large]).astype(dtype), _specials(dtype)])
    got, wanted = level(function, x), getattr(np, function)(x)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


# What GCC 12 leaves scalar at the widest level: functions that are iterations, and copies.
SCALAR = frozenset("cbrt lgamma digamma trigamma polygamma zeta erfinv".split()) | set(COMPOSED)
COPIES = frozenset("real conj imag cast".split())


@pytest.mark.skipif(not _supported("avx512"), reason="this machine has no avx512")
def test_every_other_helper_of_the_dialect_vectorises() -> None:
    script = BACKEND / "render" / "check_vectorised.py"
    done = subprocess.run(
        [sys.executable, str(script), "avx512"], capture_output=True, text=True, check=True
    )
    names = {name.split("_", 1)[1].rsplit("_", 1)[0] for name in done.stdout.split()[1:]}
    assert {name for name in names if not name.startswith("cast")} <= SCALAR | COPIES


# Ops whose functions are long, each called by several kernels of a file.
LONG = "pow elu gelu_none sinh cosh isposinf".split()
RENDER = f"""
import sys
sys.path.insert(0, {str(BACKEND)!r})
from render.pointwise import file_source, kernels
family = lambda key: key.partition("(")[0].removesuffix("_backward").removesuffix("_jvp")
members = [k for k in kernels() if k.compute == "float64" and family(k.key) in {LONG!r}]
print(file_source("long", members))
"""


@pytest.mark.skipif(not _supported("avx512"), reason="this machine has no avx512")
def test_loops_around_long_functions_vectorise(tmp_path: Path) -> None:
    """A function that GCC optimizes before it becomes part of a loop leaves branches there."""
    rendered = subprocess.run(
        [sys.executable, "-c", RENDER], capture_output=True, text=True, check=True
    )
    source = tmp_path / "long.c"
    source.write_text(rendered.stdout)
    folders = (NATIVE, include_directory(), sysconfig.get_path("include"))
    command = ["gcc", *LEVELS["avx512"][1], *FLAGS, "-DTGC_LEVEL=avx512", "-fopt-info-vec-missed"]
    command += [f"-I{folder}" for folder in folders]
    done = subprocess.run(
        [*command, "-c", str(source), "-o", str(tmp_path / "long.o")],
        capture_output=True,
        text=True,
        check=True,
    )
    scalar = [line for line in done.stderr.splitlines() if "couldn't vectorize loop" in line]
    assert not [line for line in scalar if line.startswith(str(source))]
