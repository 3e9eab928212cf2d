"""What a loaded model may take: memory that a few bytes ask for, steps of loops, patterns."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import tangrad  # noqa: E402
from tangrad_onnx.operators.patterns import Pattern  # noqa: E402

HEAD = '<ir_version: 11, opset_import: ["": 23]>'
HUGE = 2**36


def load(text: str, **limits: int) -> Any:
    return tangrad.onnx.load(onnx.parser.parse_model(HEAD + text), **limits)


@pytest.mark.parametrize(
    "text",
    [
        f"g (float[2] x) => (float[N] y) <int64[1] n = {{{HUGE}}}> {{ y = Tile(x, n) }}",
        f"g (float[1] x) => (float[N] y) <int64[1] n = {{{HUGE}}}> {{ y = Expand(x, n) }}",
        f"g (float[2] x) => (float[N] y) <int64[2] n = {{0, {HUGE}}}> {{ y = Pad(x, n) }}",
        f"g (float[2] x) => (float[N] y) <int64[1] n = {{{HUGE}}}> {{ y = ConstantOfShape(n) }}",
        f"g (float[2] x) => (int64[N] y) <int64 a = {{0}}, int64 n = {{{HUGE}}}, int64 d = {{1}}> "
        "{ y = Range(a, n, d) }",
        f"g (float[2] x) => (float[N] y) <int64[1] n = {{{HUGE}}}> {{ y = Resize(x, , , n) }}",
        f"g (float[2] x) => (float[N] y) <int64 n = {{{HUGE}}}> {{ y = HannWindow(n) }}",
        f"g (float[2] x) => (float[N] y) {{ y = RandomNormal <shape=[{HUGE}]> () }}",
        f"g (float[2] x) => (int64[N] y) <int64 n = {{{HUGE}}}, int64[2] v = {{0, 1}}> "
        "{ i = Cast <to=7> (x) y = OneHot(i, n, v) }",
        f"g (float[1,4] x) => (int64[N] y) {{ y = Multinomial <sample_size={HUGE}> (x) }}",
        "g (float[1,1,2] x) => (float[A,B,C] y) <float[1,1,2] w = {1, 2}> "
        f"{{ y = ConvTranspose <strides=[{HUGE}]> (x, w) }}",
        "g (float[1,1,2] x) => (float[A,B,C] y) <float[1,1,2] w = {1, 2}> "
        f"{{ y = Conv <pads=[{HUGE}, 0]> (x, w) }}",
        "g (float[1,2,2] x) => (float[A,B,C] y) <int64 n = {" + str(HUGE) + "}, int64 d = {1}> "
        "{ y = DFT(x, n, d) }",
        f"g (float[2] x) => (float[N] y) <int64[2] n = {{{HUGE}, 0}}> {{ y = ConstantOfShape(n) }}",
    ],
)
def test_a_size_that_is_asked_for_is_checked_before_memory_is_taken(text: str) -> None:
    module = load(text)
    x = tangrad.ones(*(module._expected[0][1] or ()))
    with pytest.raises(tangrad.onnx.OnnxError, match="may hold 1073741824"):
        module(x)


@pytest.mark.parametrize("node", ["MatMul(x, w)", "Add(x, w)", 'Einsum <equation="ij,jk"> (x, w)'])
def test_products_of_vectors_are_checked(node: str) -> None:
    module = load(f"g (float[M,1] x, float[1,N] w) => (float[M,N] y) {{ y = {node} }}")
    assert module(tangrad.ones(3, 1), tangrad.ones(1, 2)).shape == (3, 2)
    module.memory_limit = 2**30
    with pytest.raises(tangrad.onnx.OnnxError, match="takes 40000000000 bytes"):
        module(tangrad.ones(100_000, 1), tangrad.ones(1, 100_000))


@pytest.mark.parametrize(
    "node",
    [
        *(f"{name}(x, w)" for name in ("Equal", "Less", "Pow", "Max", "Sum", "Mean", "PRelu")),
        "Where(positive, x, w)",
        "Clip(x, w)",
        "LayerNormalization(x, w)",
        "RMSNormalization(x, w)",
    ],
)
def test_operands_that_broadcast_are_checked(node: str) -> None:
    made = load(
        "g (float[M,1] x, float[1,N] w) => (float[M,N] y) "
        f"<float zero = {{0}}> {{ positive = Greater(x, zero) y = {node} }}"
    )
    with pytest.raises(tangrad.onnx.OnnxError, match="may hold 1073741824"):
        made(tangrad.ones(100_000, 1), tangrad.ones(1, 100_000))


def test_results_that_live_together_are_counted() -> None:
    names = [f"v{i}" for i in range(40)]
    nodes = " ".join(f"{name} = Tile(x, n)" for name in names)
    outputs = ", ".join(f"float[N] {name}" for name in names)
    module = load(
        f"g (float[1024] x) => ({outputs}) <int64[1] n = {{1024}}> {{ {nodes} }}",
        memory_limit=32 * 2**20,
    )
    with pytest.raises(tangrad.onnx.OnnxError, match="memory_limit"):
        module(tangrad.ones(1024))
    module.memory_limit = 400 * 2**20
    assert len(module(tangrad.ones(1024))) == 40


def test_results_that_are_let_go_are_not_counted() -> None:
    chain = " ".join(f"v{i + 1} = Neg(v{i})" for i in range(40))
    module = load(
        "g (float[1024] x) => (float[N] v40) <int64[1] n = {1024}> "
        f"{{ v0 = Tile(x, n) {chain} }}",
        memory_limit=32 * 2**20,
    )
    with tangrad.no_grad():
        assert module(tangrad.ones(1024)).shape == (2**20,)


def test_a_text_that_doubles_is_refused() -> None:
    doubling = " ".join(f"s{i + 1} = StringConcat(s{i}, s{i})" for i in range(60))
    module = load(f"g (string[1] s0) => (string[1] s60) {{ {doubling} }}")
    with pytest.raises(tangrad.onnx.OnnxError, match="StringConcat"):
        module(np.array(["ab"], object))


def test_a_tensor_that_doubles_is_refused() -> None:
    doubling = " ".join(f"x{i + 1} = Concat <axis=0> (x{i}, x{i})" for i in range(60))
    module = load(f"g (float[2] x0) => (float[N] x60) {{ {doubling} }}", memory_limit=2**24)
    with pytest.raises(tangrad.onnx.OnnxError, match="Concat"):
        module(tangrad.ones(2))


ENDLESS = """g (float[1] x) => (float[1] y) <bool c = {1}> {
    y = Loop(, c, x) <body = b (int64 i, bool c, float[1] z) => (bool d, float[1] w) {
        d = Identity(c) w = Identity(z)
    }>
}"""


def test_a_loop_without_an_end_is_ended() -> None:
    with pytest.raises(tangrad.onnx.OnnxError, match="taken 1000 steps"):
        load(ENDLESS, step_limit=1000)(tangrad.ones(1))


def test_windows_out_of_proportion_are_refused() -> None:
    module = load(
        "g (float[1,3,32,32] x) => (float[A,B,C,D] y) "
        '{ y = MaxPool <kernel_shape=[2, 1048576], auto_pad="SAME_LOWER"> (x) }'
    )
    with pytest.raises(tangrad.onnx.OnnxError, match="MaxPool"):
        module(tangrad.ones(1, 3, 32, 32))


def test_limits_are_those_of_a_run() -> None:
    text = ENDLESS.replace("Loop(, c, x)", "Loop(n, c, x)").replace("{1}>", "{1}, int64 n = {9}>")
    module = load(text, step_limit=10)
    for _ in range(3):
        assert module(tangrad.ones(1)).tolist() == [1.0]


def test_patterns_take_no_time_without_bound() -> None:
    module = load('g (string[1] s) => (bool[1] y) { y = RegexFullMatch <pattern="(a+)+b"> (s) }')
    start = time.perf_counter()
    assert module(np.array(["a" * 5000], object)).tolist() == [False]
    assert module(np.array(["a" * 5000 + "b"], object)).tolist() == [True]
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"[a-c]{2,3}\d*|x", ["ab", "abc12", "x"], ["a", "abcd", "xx", ""]),
        (r"^a.c$", ["abc", "a-c"], ["ac", "a\nc", "abcd"]),
        (r"(?i)Ab[^x-z]\b", ["aBc", "AB1"], ["abx", "ab"]),
        (r"(?:a|bc)+?d?", ["a", "bcad"], ["", "d", "b"]),
        ("(?s)a.b", ["a\nb"], ["ab"]),
    ],
)
def test_patterns_match_as_they_do_elsewhere(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [text for text in yes + no if compiled.matches(text)] == yes


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "a(?=b)", "a{5000}", "((a{999}){999})", "(", "(?:" * 9000]
)
def test_patterns_that_cannot_be_bounded_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="regular expression|repetition"):
        Pattern(pattern)


@pytest.mark.parametrize(
    ("node", "shapes", "result"),
    [
        ("Conv (a, b)", [(1, 256, 56, 56), (512, 256, 1, 1)], (1, 512, 56, 56)),
        ("Conv (a, b)", [(1, 1024, 1, 1), (1000, 1024, 1, 1)], (1, 1000, 1, 1)),
        ("ConvTranspose (a, b)", [(1, 512, 56, 56), (512, 64, 1, 1)], (1, 64, 56, 56)),
        ("BatchNormalization (a, b, b, b, b)", [(64, 2048, 1, 1), (2048,)], (64, 2048, 1, 1)),
        ("Gemm <transB=1> (a, b)", [(1, 8192), (8192, 8192)], (1, 8192)),
        ('Einsum <equation="ik,kj->ij"> (a, b)', [(1, 40000), (40000, 1)], (1, 1)),
        ("GatherElements <axis=1> (a, c)", [(40000, 1), (1, 40000)], (1, 40000)),
    ],
)
def test_operands_that_do_not_broadcast_are_not_taken_for_such(
    node: str, shapes: list[tuple[int, ...]], result: tuple[int, ...]
) -> None:
    a, b = shapes
    of_b = "int64" if "c)" in node else "float"
    name = "c" if "c)" in node else "b"
    kinds = [
        f"float[{','.join(map(str, a))}] a", f"{of_b}[{','.join(map(str, b))}] {name}",
    ]  # fmt: skip
    wanted = ",".join("ABCD"[: len(result)])
    module = load(f"g ({', '.join(kinds)}) => (float[{wanted}] y) {{ y = {node} }}")
    second = tangrad.zeros(b, dtype=tangrad.int64) if of_b == "int64" else tangrad.zeros(b)
    module.memory_limit = 2**30
    assert module(tangrad.zeros(a), second).shape == result
