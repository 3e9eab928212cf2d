"""Operators of ONNX as functions, at once and in files."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import tangrad
from tangrad import Tensor, nn
from tangrad.onnx import ops


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def exported(function: Any, *args: Tensor, opset: int = 23) -> Any:
    proto = tangrad.onnx.export(Called(function), args, opset_version=opset).model_proto
    onnx.checker.check_model(proto)
    return proto


def run(proto: Any, *args: Tensor) -> list[Tensor]:
    evaluator = ReferenceEvaluator(proto)
    given = dict(zip(evaluator.input_names, (x.numpy() for x in args), strict=True))
    return [tangrad.tensor(x) for x in evaluator.run(None, given)]


def test_a_symbolic_operator_gives_zeros_and_is_a_node() -> None:
    x = tangrad.ones(2, 3)

    def function(x: Tensor) -> Tensor:
        y = ops.symbolic(
            "mine::Twist",
            (x, None, x + 1),
            {"angle": 2, "way": "left", "steps": [1.0, 2.0], "keep": True},
            dtype=x.dtype,
            shape=(3, 2),
            version=4,
            metadata_props={"from": "here"},
        )
        return y.relu()

    assert tangrad.equal(function(x), tangrad.zeros(3, 2))
    proto = exported(function, x)
    node = next(node for node in proto.graph.node if node.op_type == "Twist")
    assert node.domain == "mine"
    assert [bool(name) for name in node.input] == [True, False, True]
    assert {a.name for a in node.attribute} == {"angle", "way", "steps", "keep"}
    assert [(p.key, p.value) for p in node.metadata_props] == [("from", "here")]
    assert {i.domain: i.version for i in proto.opset_import} == {"": 23, "mine": 4}
    assert proto.graph.node[-1].input[0] == node.output[0]


def test_a_symbolic_operator_of_several_results() -> None:
    def function(x: Tensor) -> Any:
        a, b = ops.symbolic_multi_out(
            "TopK",
            (x, tangrad.tensor([2])),
            {"axis": -1},
            dtypes=(x.dtype, 7),
            shapes=((2, 2), (2, 2)),
        )
        return a + 1, b

    x = tangrad.tensor([[1.0, 3.0, 2.0], [6.0, 5.0, 4.0]])
    values, places = run(exported(function, x), x)
    assert values.tolist() == [[4, 3], [7, 6]]
    assert places.tolist() == [[1, 2], [0, 1]]


@pytest.mark.parametrize(
    ("attributes", "dtype", "error"),
    [
        ({"a": object()}, tangrad.float32, ValueError),
        ({"a": [1, "s"]}, tangrad.float32, ValueError),
        ({"a": tangrad.ones(2)}, tangrad.float32, ValueError),
        ({}, 99, RuntimeError),
    ],
)
def test_what_a_symbolic_operator_refuses(attributes: Any, dtype: Any, error: Any) -> None:
    with pytest.raises(error):
        ops.symbolic("d::Op", (tangrad.ones(1),), attributes, dtype=dtype, shape=(2,))
    with pytest.raises(RuntimeError, match=r"Number of shapes \(2\)"):
        ops.symbolic_multi_out(
            "d::Op", (tangrad.ones(1),), dtypes=(tangrad.float32,), shapes=((1,), (2,))
        )


@pytest.mark.parametrize("opset", [18, 23])
def test_attention(opset: int) -> None:
    tangrad.manual_seed(0)
    q, k, v = (tangrad.randn(1, 2, 4, 8) for _ in range(3))

    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        y, *_, scores = ops.attention(q, k, v, is_causal=True, qk_matmul_output_mode=3)
        return y, scores

    proto = exported(function, q, k, v, opset=opset)
    assert ("Attention" in [n.op_type for n in proto.graph.node]) == (opset == 23)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    for found in (function(q, k, v), run(proto, q, k, v)):
        tangrad.testing.assert_close(found[0], expected)
        tangrad.testing.assert_close(found[1].sum(-1), tangrad.ones(1, 2, 4))


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(opset: int, interleaved: bool) -> None:
    tangrad.manual_seed(0)
    x = tangrad.randn(2, 3, 4, 8)
    angles = tangrad.arange(10).reshape(10, 1) * tangrad.rand(4)
    positions = tangrad.tensor([[0, 1, 2, 3], [5, 6, 7, 9]])

    def function(x: Tensor) -> Tensor:
        return ops.rotary_embedding(
            x, angles.cos(), angles.sin(), positions, interleaved=interleaved
        )

    proto = exported(function, x, opset=opset)
    assert ("RotaryEmbedding" in [n.op_type for n in proto.graph.node]) == (opset == 23)
    tangrad.testing.assert_close(run(proto, x)[0], function(x))
    tangrad.testing.assert_close(function(x).square().sum(-1), x.square().sum(-1))
    tangrad.testing.assert_close(function(x)[0, :, 0], x[0, :, 0])


def test_the_sign_of_a_nan_is_one_in_a_loaded_model() -> None:
    text = '<ir_version: 8, opset_import: ["": 13]> g (float[N] x) => (float[N] y) { y = Sign(x) }'
    module = tangrad.onnx.load(onnx.parser.parse_model(text))
    found = module(tangrad.tensor([float("nan"), -2.0, 0.0, 3.0]))
    assert found.isnan().tolist() == [True, False, False, False]
    assert found[1:].tolist() == [-1.0, 0.0, 1.0]
