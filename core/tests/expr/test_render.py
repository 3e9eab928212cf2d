"""Rendered C computes what NumPy computes, for every primitive and dtype."""

import re
import shutil

import numpy as np
import pytest
from compiled import compile_programs
from dialects import DIALECTS
from primitive_cases import (
    COMPUTE_TYPES,
    SCALAR_PRIMITIVES,
    accepts,
    expression,
    operand_types,
    operands,
)

from tangrad.expr import ExpressionTypeError, c_prelude, parse
from tangrad.expr.dtypes import KINDS
from tangrad.expr.render import Dialect

CASES = [(n, d) for n in SCALAR_PRIMITIVES for d in COMPUTE_TYPES if accepts(n, d)]
# The C library's float32 functions and NumPy's differ in the last bits.
ULPS = {"f": 4, "c": 16}
# Functions that amplify an error of their float32 argument's reduction or of their own power.
LOOSE = {"pow": 64, "tan": 64, "lgamma": 64, "sigmoid": 16, "gamma_density": 16}


def program(name, dtype):
    return expression(name).typed(operand_types(name, dtype), dtype)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    programs = {f"{name}_{dtype}": program(name, dtype) for name, dtype in CASES}
    return compile_programs(programs, tmp_path_factory.mktemp("c"))


def same(actual, expected, ulps):
    if expected.dtype.kind in "bui":
        np.testing.assert_array_equal(actual, expected)
        return
    tolerance = ulps * np.finfo(expected.dtype).eps
    finite = np.isfinite(expected)
    scale = np.max(np.abs(expected[finite]), initial=1e-30) if expected.dtype.kind == "c" else 0
    np.testing.assert_allclose(
        actual[finite], expected[finite], rtol=tolerance, atol=tolerance * min(scale, 1.0)
    )
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(actual[~finite], expected[~finite])


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_c_agrees_with_numpy(compiled, name, dtype):
    arrays = operands(name, dtype)
    (expected,) = program(name, dtype).numpy()(*arrays)
    (actual,) = compiled[f"{name}_{dtype}"](*arrays)
    same(actual, expected, LOOSE.get(name, ULPS.get(KINDS[dtype], 0)))


@pytest.fixture(scope="session")
def compiled_as_opencl(tmp_path_factory):
    """Compile the OpenCL text as C: <tgmath.h> overloads the library as OpenCL does."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    opencl = DIALECTS["opencl"]
    names = zip(("uchar", "ushort", "uint", "ulong"), ("char", "short", "int", "long"), strict=True)
    typedefs = "".join(f"typedef unsigned {signed} {unsigned};\n" for unsigned, signed in names)
    header = "#include <tgmath.h>\n#undef I\n" + typedefs + opencl.header
    as_c = Dialect(
        "opencl as c",
        function=opencl.function,
        types=opencl.types,
        header=header,
        float_suffix=opencl.float_suffix,
    )
    programs = {f"{name}_{dtype}": program(name, dtype) for name, dtype in CASES}
    return compile_programs(programs, tmp_path_factory.mktemp("cl"), as_c)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_opencl_text_agrees_with_numpy(compiled_as_opencl, name, dtype):
    arrays = operands(name, dtype)
    (expected,) = program(name, dtype).numpy()(*arrays)
    (actual,) = compiled_as_opencl[f"{name}_{dtype}"](*arrays)
    # Without a complex library the plain formulas lose some digits.
    ulps = 64 if KINDS[dtype] == "c" else ULPS.get(KINDS[dtype], 0)
    same(actual, expected, LOOSE.get(name, ulps))


def compile_one(source, types, compute, folder, results=None):
    names = tuple(types)
    typed = parse(source, names).typed(types, compute, results)
    return compile_programs({"it": typed}, folder)["it"], typed.numpy()


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_every_half_number_is_loaded_and_stored_exactly(half, tmp_path):
    bits = np.arange(1 << 16, dtype=np.uint16)
    array = bits.view(np.float16) if half == "float16" else bits
    c, numpy = compile_one("x", {"x": half}, "float32", tmp_path, [half])
    loaded, _ = compile_one("x * 1.0", {"x": half}, "float32", tmp_path_sub(tmp_path))
    np.testing.assert_array_equal(
        loaded(array)[0], parse("x", ("x",)).typed({"x": half}, "float32").numpy()(array)[0]
    )
    nan = np.isnan(loaded(array)[0])
    (back,), (same_back,) = c(array), numpy(array)
    np.testing.assert_array_equal(back.view(np.uint16)[~nan], bits[~nan])
    np.testing.assert_array_equal(same_back.view(np.uint16)[~nan], bits[~nan])
    assert np.isnan(loaded(back)[0][nan]).all()


def tmp_path_sub(path):
    (path / "sub").mkdir()
    return path / "sub"


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_stores_round_half_to_even(half, tmp_path):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    ties = (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    small = np.ldexp(rng.integers(0, 1 << 13, 4096).astype(np.float32), -26)
    array = np.concatenate([values, ties, small])
    c, numpy = compile_one("x", {"x": "float32"}, "float32", tmp_path, [half])
    (actual,), (expected,) = c(array), numpy(array)
    number = ~np.isnan(array)
    np.testing.assert_array_equal(actual.view(np.uint16)[number], expected.view(np.uint16)[number])


@pytest.mark.parametrize("source", COMPUTE_TYPES)
def test_casts_between_all_types(source, tmp_path):
    body = "; ".join("x" for _ in COMPUTE_TYPES)
    c, numpy = compile_one(body, {"x": source}, source, tmp_path, COMPUTE_TYPES)
    rng = np.random.default_rng(0)
    low = 0 if KINDS[source] in "bu" else -100
    array = rng.integers(low, 100, 64).astype(source)
    if KINDS[source] in "fc":
        array = array + array.dtype.type(0.5)
    for actual, expected in zip(c(array), numpy(array), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("operator", ["a // b", "a % b", "fmod(a, b)"])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_integer_division_by_zero_is_an_error_everywhere(operator, dtype, tmp_path):
    c, numpy = compile_one(operator, {"a": dtype, "b": dtype}, dtype, tmp_path)
    a, zero = np.array([7, 1], dtype), np.array([2, 0], dtype)
    for run in (c, numpy):
        with pytest.raises(ZeroDivisionError):
            run(a, zero)


def test_extreme_integers_do_not_kill_the_process(tmp_path):
    source = "a // b; a % b; fmod(a, b); -a; abs(a); a * a; a << b; a ** 5"
    c, numpy = compile_one(source, {"a": "int32", "b": "int32"}, "int32", tmp_path)
    a, b = np.int32([-(2**31), 2**31 - 1]), np.int32([-1, -1])
    for actual, expected in zip(c(a, b), numpy(a, b), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_integer_literals_of_every_size(tmp_path):
    body = "x + -9223372036854775808; x + 9223372036854775807; x - 1"
    c, numpy = compile_one(body, {"x": "int64"}, "int64", tmp_path)
    array = np.int64([0, 5])
    for actual, expected in zip(c(array), numpy(array), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_random_bits_are_the_same(tmp_path):
    types = {"seed": "int64", "offset": "int64"}
    c, numpy = compile_one("philox_uniform(seed, offset)", types, "float32", tmp_path)
    seed = np.full(1000, -1234567890123456789)
    offset = np.full(1000, (1 << 62) + 3)
    (actual,), (expected,) = c(seed, offset), numpy(seed, offset, index=np.arange(1000))
    np.testing.assert_array_equal(actual, expected)


def test_fused_multiply_add_rounds_once(tmp_path):
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        folder = tmp_path / dtype
        folder.mkdir()
        c, numpy = compile_one("fma(a, b, c)", dict.fromkeys("abc", dtype), dtype, folder)
        a, b = rng.normal(size=(2, 4000)).astype(dtype)
        third = (-(a * b) * (1 + rng.integers(-2, 3, 4000) * np.finfo(dtype).eps)).astype(dtype)
        np.testing.assert_array_equal(c(a, b, third)[0], numpy(a, b, third)[0])


def test_rendered_source_is_readable():
    typed = parse("where(x > 0, x, a * x)", ("x",), ("a",)).typed({"x": "bfloat16"}, "float32")
    assert typed.render_c("leaky", out_types=["bfloat16"]) == (
        "static inline void leaky(uint16_t in_x, float p_a, uint16_t *out0) {\n"
        "    const float v0 = tg_load_bfloat16(in_x);\n"
        "    const float v1 = 0x0.0p+0f;\n"
        "    const uint8_t v2 = tg_gt_f32(v0, v1);\n"
        "    const float v3 = p_a;\n"
        "    const float v4 = tg_mul_f32(v3, v0);\n"
        "    const float v5 = tg_where_f32(v2, v0, v4);\n"
        "    *out0 = tg_store_bfloat16(v5);\n"
        "}\n"
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_every_helper_it_calls(dialect):
    text = c_prelude(dialect)
    defined = set(re.findall(r"\b(tg_\w+)\([^;{]*\) \{", text)) | set(
        re.findall(r"} (tg_\w+);", text)
    )
    assert set(re.findall(r"\btg_\w+", text)) <= defined
    assert not re.search(r"[$@]", text)


def test_the_prelude_can_be_cut_to_what_is_used():
    source = parse("maximum(x, 0)", ("x",)).typed({"x": "float32"}, "float32").render_c("relu")
    text = c_prelude("cuda", used=source)
    assert re.findall(r"\b(tg_\w+)\(", text) == ["tg_maximum_f32"]
    assert "__device__" in text


def test_a_dialect_can_bring_its_own_helpers():
    c = DIALECTS["c"]
    text = "static inline float tg_exp_f32(float a) { return fast(a); }"
    own = Dialect("own", function="", types=c.types, header="", helpers={"tg_exp_f32": text})
    source = parse("exp(x)", ("x",)).typed({"x": "float32"}, "float32").render_c("f", dialect=own)
    assert c_prelude(own, used=source).strip() == text


def test_an_operation_without_c_text_is_an_error():
    with pytest.raises(ExpressionTypeError, match="substitute"):
        parse("where(m == 'a', x, 0)", ("x",), ("m",)).typed({"x": "float32"}, "float32")
