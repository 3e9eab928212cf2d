"""The matrix products in C, level by level, against NumPy's in double precision."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tangrad.plugin import include_directory

PROJECT = Path(__file__).parents[1]
NATIVE = PROJECT / "src/tangrad_cpu/native"
FLAGS = {
    "baseline": [],
    "avx2": ["-march=x86-64-v3"],
    "avx512": ["-march=x86-64-v4"],
}
# The extension's own scratch memory and errors need an interpreter; these count instead.
STAND_IN = r"""
#include "gemm/gemm.h"
#include <stdlib.h>
int64_t failing = -1;
size_t refused;
void *tgc_scratch(size_t bytes) {
    return failing == 0 ? NULL : aligned_alloc(64, (bytes + 64) / 64 * 64);
}
void tgc_scratch_free(void *memory) { free(memory); }
int tgc_no_memory(const char *op, size_t bytes) { (void)op; refused = bytes; return -1; }
#define PRODUCT(name) int product_##name(const tgc_gemm *g) { return TGC(tgc_gemm_##name)(g); }
"""
BFLOAT16 = "bfloat16"
# Name of the product: types of A, B and C.
PRODUCTS = {
    "f32": ("f4", "f4", "f4"),
    "f64": ("f8", "f8", "f8"),
    "bf16": (BFLOAT16, BFLOAT16, BFLOAT16),
    "f16": ("f2", "f2", "f2"),
    "s8": ("i1", "i1", "i4"),
    "u8s8": ("u1", "i1", "i4"),
    "i8": ("i1", "i1", "i1"),
    "i16": ("i2", "i2", "i2"),
    "i32": ("i4", "i4", "i4"),
    "i64": ("i8", "i8", "i8"),
    "c64": ("c8", "c8", "c8"),
    "c128": ("c16", "c16", "c16"),
}
# Units of the last place, as a part of the sum of magnitudes.
EPSILON = {"f4": 1e-6, "f8": 2e-15, "f2": 1.1e-3, BFLOAT16: 8e-3, "c8": 2e-6, "c16": 4e-15}
FLOAT32, FLOAT16, BF16 = 9, 11, 12  # of tgc.h

INTEGERS = ["m", "n", "k", "batch"]


def operand(name: str, *strides: str) -> list[tuple[str, type]]:
    pairs: list[tuple[str, type]] = [(name, ctypes.c_void_p)]
    return pairs + [(f"{name}_{stride}", ctypes.c_int64) for stride in strides]


class Gemm(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in INTEGERS),
        *operand("a", "row", "col", "batch"),
        *operand("b", "row", "col", "batch"),
        *operand("c", "row", "col", "batch"),
        *operand("bias", "row", "col"),
        ("activation", ctypes.c_void_p),
        ("alpha", ctypes.c_double),
        ("beta", ctypes.c_double),
        ("c_dtype", ctypes.c_int32),
    ]


def levels() -> list[str]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["baseline"]
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    needs = {"baseline": [], "avx2": ["avx2", "fma"], "avx512": ["avx512bw", "avx512vl"]}
    return [level for level, names in needs.items() if all(name in flags for name in names)]


def object_or_source(source: Path, level: str) -> Path:
    """Return what the build made of a file, or the file where that is missing or old."""
    headers = [*NATIVE.glob("*.h"), *NATIVE.glob("gemm/*.h")]
    changed = max(path.stat().st_mtime for path in (source, *headers))
    folder = f"build/temp.{sysconfig.get_platform()}-*/objects"
    for built in PROJECT.glob(f"{folder}/{source.stem}.{level}.o"):
        if built.stat().st_mtime > changed:
            return built
    return source


class Library:
    """The products of one level, linked outside the extension."""

    def __init__(self, level: str, folder: Path) -> None:
        stand_in = folder / "stand_in.c"
        stand_in.write_text(STAND_IN + "".join(f"PRODUCT({name})\n" for name in PRODUCTS))
        target = folder / f"gemm_{level}.so"
        sources = [object_or_source(path, level) for path in sorted((NATIVE / "gemm").glob("*.c"))]
        sources += [NATIVE / "pool.c", stand_in]
        include = [NATIVE, include_directory(), sysconfig.get_path("include")]
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-std=gnu11", "-ffp-contract=off"]
            + [*FLAGS[level], f"-DTGC_LEVEL={level}", *(f"-I{path}" for path in include)]
            + [*map(str, sources), "-o", str(target), "-lpthread", "-lm"],
            check=True,
        )
        self.c = ctypes.CDLL(str(target))
        self.set_threads = self.c.tgc_set_threads

    def __call__(self, name: str, a, b, c, bias=None, alpha=1.0, beta=0.0, c_dtype=None) -> int:
        g = Gemm(alpha=alpha, beta=beta, batch=c.shape[0])
        g.m, g.k, g.n = *a.shape[1:], b.shape[2]
        for place, x in (("a", a), ("b", b), ("c", c)):
            setattr(g, place, x.ctypes.data)
            for stride, count in zip(("batch", "row", "col"), x.strides, strict=True):
                setattr(g, f"{place}_{stride}", count // x.itemsize)
        if bias is not None:
            g.bias = bias.ctypes.data
            g.bias_row = 0 if bias.shape[0] == 1 else bias.strides[0] // bias.itemsize
            g.bias_col = 0 if bias.shape[1] == 1 else bias.strides[1] // bias.itemsize
        g.c_dtype = c_dtype or {"bf16": BF16, "f16": FLOAT16}.get(name, FLOAT32)
        return getattr(self.c, f"product_{name}")(ctypes.byref(g))


@pytest.fixture(scope="session", params=levels())
def gemm(request, tmp_path_factory) -> Library:
    return Library(request.param, tmp_path_factory.mktemp("gemm"))


def random(kind: str, rng, *shape: int) -> np.ndarray:
    if kind == BFLOAT16:
        return (rng.standard_normal(shape, "f4").view("u4") >> 16).astype("u2")
    dtype = np.dtype(kind)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def exact(kind: str, x: np.ndarray) -> np.ndarray:
    if kind == BFLOAT16:
        return (x.astype("u4") << 16).view("f4").astype("f8")
    return x.astype({"f": "f8", "c": "c16"}.get(x.dtype.kind, x.dtype))


LAYOUTS = {
    "rows": lambda make, b, r, c: make(b, r, c),
    "columns": lambda make, b, r, c: make(b, c, r).transpose(0, 2, 1),
    "part": lambda make, b, r, c: make(b, r + 1, c + 3)[:, 1:, 2:-1],
    "strided": lambda make, b, r, c: make(b, 2 * r, 2 * c)[:, ::2, ::2],
    "broadcast": lambda make, b, r, c: np.broadcast_to(make(1, r, c), (b, r, c)),
}


def lay(layout: str, kind: str, rng, *shape: int) -> np.ndarray:
    return LAYOUTS[layout](lambda *s: random(kind, rng, *s), *shape)


def check(gemm, name, shape, layouts=("rows",) * 3, bias=None, alpha=1, beta=0, wide=False) -> None:
    """Compare one product with NumPy's; shape is batch, m, k, n."""
    kind_a, kind_b, kind_c = PRODUCTS[name]
    kind_c = "f4" if wide else kind_c
    rng = np.random.default_rng(0)
    batch, m, k, n = shape
    a = lay(layouts[0], kind_a, rng, batch, m, k)
    b = lay(layouts[1], kind_b, rng, batch, k, n)
    c = lay(layouts[2], kind_c, rng, batch, m, n)
    extra = None
    if bias is not None:
        extra = random(kind_c, rng, *{"row": (1, n), "column": (m, 1), "one": (1, 1)}[bias])
    old = exact(kind_c, c).copy()
    added = exact(kind_c, extra) if extra is not None else 0
    if beta == 0:
        c[...] = {"u2": 0x7FC1}.get(c.dtype.str[1:], 77 if c.dtype.kind in "iu" else np.nan)
    status = gemm(name, a, b, c, extra, alpha, beta, FLOAT32 if wide else None)
    assert status == 0
    if np.dtype("u2" if kind_a == BFLOAT16 else kind_c).kind == "i":
        with np.errstate(over="ignore"):
            product = np.matmul(a.astype(kind_c), b.astype(kind_c))
            want = (product * alpha + old * beta + added).astype(kind_c)
        np.testing.assert_array_equal(c, want)
        return
    x, y = exact(kind_a, a), exact(kind_b, b)
    want = alpha * np.matmul(x, y) + (beta * old if beta else 0) + added
    size = abs(alpha) * np.matmul(abs(x), abs(y)) + abs(beta * old) + abs(added)
    # Halves are rounded once: relative to the result, beside float32's error of the sum.
    bound = EPSILON[kind_c] * (abs(want) if kind_c in ("f2", BFLOAT16) else size) + 2e-6 * size
    if kind_c in ("f8", "c16"):
        bound = EPSILON[kind_c] * size
    assert (abs(exact(kind_c, c) - want) <= bound + 1e-7 * (kind_c == "f2")).all()


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("a", LAYOUTS)
@pytest.mark.parametrize("b", LAYOUTS)
def test_layouts_need_no_copies(gemm, name, a, b):
    for shape in ((1, 5, 7, 3), (3, 33, 40, 65), (1, 1, 300, 70)):
        for c in ("rows", "columns", "strided"):
            check(gemm, name, shape, (a, b, c))


@pytest.mark.parametrize("name", PRODUCTS)
@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(0, 70), st.integers(0, 70), st.integers(0, 70)),
    layouts=st.tuples(*[st.sampled_from(["rows", "columns", "part", "strided"])] * 3),
    bias=st.sampled_from([None, "row", "column", "one"]),
    alpha=st.sampled_from([1, 2]),
    beta=st.sampled_from([0, 1, 3]),
)
def test_any_shape(gemm, name, shape, layouts, bias, alpha, beta):
    check(gemm, name, shape, layouts, bias, alpha, beta)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(
    "shape",
    [(1, 150, 1100, 170), (1, 700, 20, 40), (1, 40, 20, 700), (9, 90, 90, 90), (1, 8, 600, 520)],
)
@pytest.mark.parametrize("beta", [0, 1, 3])
def test_blocked_shapes(gemm, name, shape, beta):
    check(gemm, name, shape, bias="row", beta=beta)
    check(gemm, name, shape, ("columns", "columns", "rows"), beta=beta)


@pytest.mark.parametrize("name", ["bf16", "f16"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 33, 1100, 40),
        (1, 700, 1600, 70),
        (1, 1300, 1025, 33),
        (1, 40, 5000, 300),
        (1, 33, 17000, 33),
    ],
)
def test_long_sums_of_halves(gemm, name, shape):
    check(gemm, name, shape, bias="row", beta=3)
    check(gemm, name, shape, ("columns", "columns", "rows"))


@pytest.mark.parametrize("name", ["f32", "f64", "i32"])
@pytest.mark.parametrize(
    "shape", [(1, 250, 250, 250), (1, 2000, 130, 70), (1, 60, 200, 250), (9, 130, 110, 100)]
)
def test_shapes_of_which_a_is_read_where_it_lies(gemm, name, shape):
    check(gemm, name, shape)
    check(gemm, name, shape, ("strided", "columns", "rows"), bias="row", beta=3)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("rows", [9, 16, 23])
def test_few_rows_of_a_far_matrix(gemm, name, rows):
    shape = (1, rows, 2105, 1031)
    check(gemm, name, shape, ("rows", "columns", "rows"), bias="row")
    check(gemm, name, (1, 1031, 2105, rows), ("rows", "columns", "rows"), beta=3)


@pytest.mark.parametrize("name", ["bf16", "f16"])
@pytest.mark.parametrize("shape", [(1, 150, 1100, 170), (1, 3, 900, 70), (2, 9, 5, 11)])
def test_halves_may_give_float32(gemm, name, shape):
    check(gemm, name, shape, bias="row", wide=True)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(
    "shape",
    [(1, 300, 300, 300), (1, 2, 5000, 900), (40, 60, 60, 60)]
    + [(1, 250, 250, 250), (1, 3000, 90, 50), (5, 300, 100, 90)],
)
def test_threads_change_no_bit(gemm, name, shape):
    kinds = PRODUCTS[name]
    rng = np.random.default_rng(1)
    batch, m, k, n = shape
    a, b = random(kinds[0], rng, batch, m, k), random(kinds[1], rng, batch, k, n)
    results = []
    for threads in (1, 2, 4):
        gemm.set_threads(threads)
        c = np.zeros((batch, m, n), "u2" if kinds[2] == BFLOAT16 else kinds[2])
        assert gemm(name, a, b, c) == 0
        results.append(c.tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("n", [1, 63, 100_003])
@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("layout", ["rows", "strided"])
def test_inner_product(gemm, name, n, layout):
    check(gemm, name, (1, 1, n, 1), (layout, layout, "rows"), wide=name in ("bf16", "f16"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (1, 1, 64, 64), (1, 200, 300, 100)])
def test_nan_and_infinity_reach_what_they_touch(gemm, value, shape):
    batch, m, k, n = shape
    a, b = np.ones((batch, m, k), "f4"), np.ones((batch, k, n), "f4")
    a[0, m - 1, k - 1] = value
    b[0, k - 1, 0] = 0
    c = np.zeros((batch, m, n), "f4")
    assert gemm("f32", a, b, c) == 0
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, np.matmul(a, b))


def test_activation_sees_finished_rows(gemm):
    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_float), ctypes.c_int64)
    def square(row, n):
        for i in range(n):
            row[i] *= row[i]

    a = np.arange(6, dtype="f4").reshape(1, 2, 3)
    b = np.arange(12, dtype="f4").reshape(1, 3, 4)
    c = np.zeros((1, 2, 4), "f4")
    g = Gemm(m=2, n=4, k=3, batch=1, alpha=1, a_row=3, a_col=1, b_row=4, b_col=1, c_row=4, c_col=1)
    g.a, g.b, g.c = a.ctypes.data, b.ctypes.data, c.ctypes.data
    g.activation = ctypes.cast(square, ctypes.c_void_p)
    assert gemm.c.product_f32(ctypes.byref(g)) == 0
    np.testing.assert_array_equal(c, np.matmul(a, b) ** 2)


@pytest.mark.parametrize("name", PRODUCTS)
def test_without_memory_c_is_untouched(gemm, name):
    kinds = PRODUCTS[name]
    rng = np.random.default_rng(2)
    a, b = random(kinds[0], rng, 1, 150, 1100), random(kinds[1], rng, 1, 1100, 180)
    c = random(kinds[2], rng, 1, 150, 180)
    before = c.tobytes()
    failing = ctypes.c_int64.in_dll(gemm.c, "failing")
    failing.value = 0
    try:
        assert gemm(name, a, b, c) == -1
    finally:
        failing.value = -1
    assert c.tobytes() == before
    assert ctypes.c_size_t.in_dll(gemm.c, "refused").value > 0
