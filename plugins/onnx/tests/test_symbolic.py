"""Forms that users write: of functions, and of ops of their own."""

from __future__ import annotations

from typing import Any

import pytest

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402

import tangrad  # noqa: E402
from tangrad import Tensor, nn  # noqa: E402


class Clipped(tangrad.autograd.Function):
    """Its form is written as one for PyTorch would be."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float) -> Tensor:
        return tangrad.nn.functional.celu(x, alpha)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g, None

    @staticmethod
    def symbolic(g: Any, x: Any, alpha: float) -> Any:
        return g.op("Celu", x, alpha_f=alpha).setType(None)


class Halves(tangrad.autograd.Function):
    """Gives two tensors by an operator of a domain."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        return x / 2, x * 2

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("mine::Halves", x, 0.5, keep_i=True, outputs=2)


class Model(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.linear = function, nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Any:
        return self.function(self.linear(x))


def test_a_function_is_written_by_its_form() -> None:
    model, x = Model(lambda x: Clipped.apply(x, 0.5) + 1), tangrad.randn(2, 3)
    before = model(x)
    proto = tangrad.onnx.export(model, (x,)).model_proto
    (node,) = [n for n in proto.graph.node if n.op_type == "Celu"]
    assert node.attribute[0].f == 0.5
    evaluator = ReferenceEvaluator(proto)
    found = evaluator.run(None, {evaluator.input_names[0]: x.numpy()})[0]
    tangrad.testing.assert_close(tangrad.tensor(found), before)
    assert "apply" not in vars(Clipped)
    assert tangrad.equal(model(x), before)


def test_a_function_of_several_results_and_a_domain() -> None:
    def function(x: Tensor) -> Tensor:
        small, large = Halves.apply(x)
        return large - small

    proto = tangrad.onnx.export(Model(function), (tangrad.randn(2, 3),)).model_proto
    (node,) = [n for n in proto.graph.node if n.op_type == "Halves"]
    assert (node.domain, len(node.output), len(node.input)) == ("mine", 2, 2)
    assert {i.domain for i in proto.opset_import} == {"", "mine"}
    assert proto.graph.node[-1].op_type == "Sub"


def test_an_op_is_written_by_the_form_that_is_registered() -> None:
    def form(g: Any, x: Any) -> Any:
        return g.op("Neg", g.op("com.mine::Odd", x, way_s="up"))

    tangrad.onnx.register_custom_op_symbolic("aten::relu", form, 13)
    try:
        proto = tangrad.onnx.export(nn.ReLU(), (tangrad.randn(3),)).model_proto
    finally:
        tangrad.onnx.unregister_custom_op_symbolic("aten::relu", 13)
    assert [n.op_type for n in proto.graph.node] == ["Odd", "Neg"]
    after = tangrad.onnx.export(nn.ReLU(), (tangrad.randn(3),)).model_proto
    assert [n.op_type for n in after.graph.node] == ["Relu"]


def test_a_form_for_the_older_exporter_takes_all_arguments() -> None:
    asked = []

    def softplus(g: Any, x: Any, beta: Any, threshold: Any) -> Any:
        kind = x.type()
        asked.append((beta, threshold, kind.dim(), kind.sizes(), kind.scalarType()))
        scaled = g.op("Mul", x, beta)
        asked.append(scaled.type().dim())
        return g.op("Div", g.op("Softplus", scaled), beta)

    model, x = nn.Softplus(beta=2), tangrad.randn(2, 3)
    tangrad.onnx.register_custom_op_symbolic("aten::softplus", softplus, 13)
    try:
        proto = tangrad.onnx.export(model, (x,)).model_proto
    finally:
        tangrad.onnx.unregister_custom_op_symbolic("aten::softplus", 13)
    assert asked == [(2, 20.0, 2, [2, 3], "Float"), None]
    evaluator = ReferenceEvaluator(proto)
    found = evaluator.run(None, {evaluator.input_names[0]: x.numpy()})[0]
    assert tangrad.from_numpy(found).allclose(model(x), atol=1e-6)
