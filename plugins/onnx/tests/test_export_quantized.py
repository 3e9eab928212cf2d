"""Quantized models, and models that are trained to be, as QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import tangrad
from tangrad import Tensor, nn
from tangrad.ao import quantization
from tangrad.export import Dim

pytestmark = pytest.mark.skipif(
    find_spec("tangrad_quantization") is None, reason="needs tangrad-quantization"
)


@pytest.fixture(autouse=True)
def _quiet_and_seeded() -> Iterator[None]:
    tangrad.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def quantized(model: nn.Module, *examples: Any, fuse: Any = None) -> nn.Module:
    model.eval()
    if fuse:
        quantization.fuse_modules(model, fuse, inplace=True)
    model.qconfig = quantization.get_default_qconfig("x86")
    quantization.prepare(model, inplace=True)
    model(*examples)
    return quantization.convert(model, inplace=True)


class Net(nn.Module):
    """Convolutions, an activation, a sum and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = quantization.QuantStub(), quantization.DeQuantStub()
        self.first, self.relu = nn.Conv2d(1, 4, 3), nn.ReLU()
        self.second, self.act = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Hardswish()
        self.sums = tangrad.ao.nn.quantized.FloatFunctional()
        self.last = nn.Linear(4 * 36, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(self.enter(x)))
        x = self.sums.add(x, self.act(self.second(x)))
        return self.leave(self.last(x.flatten(1)))


def exported(model: nn.Module, x: Tensor, **kwargs: Any) -> Any:
    # The reference evaluator has no quantization of older opsets.
    proto = tangrad.onnx.export(model, (x,), opset_version=21, **kwargs).model_proto
    onnx.checker.check_model(proto, full_check=True)
    return proto


def operators(proto: Any) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def run(proto: Any, *inputs: Tensor) -> Tensor:
    evaluator = ReferenceEvaluator(proto)
    given = dict(zip(evaluator.input_names, (x.numpy() for x in inputs), strict=True))
    return tangrad.tensor(evaluator.run(None, given)[0])


def test_a_converted_model_differs_by_one_value_at_most() -> None:
    model = quantized(Net(), tangrad.randn(8, 1, 8, 8), fuse=[["first", "relu"]])
    x = tangrad.randn(6, 1, 8, 8)
    proto = exported(model, x, dynamic_shapes=({0: Dim("n")},))
    for given in (x, x[:1], -x):
        steps = (run(proto, given) - model(given)).abs() / model.last.scale
        assert steps.max() < 1.01
        assert (steps > 0.5).float().mean() < 0.1
        tangrad.testing.assert_close(tangrad.onnx.load(proto)(given), run(proto, given))
    weights = [i for i in proto.graph.initializer if i.name.endswith("weight_quantized")]
    assert len(weights) == 3
    assert {i.data_type for i in weights} == {onnx.TensorProto.INT8}
    assert operators(proto).count("Conv") == 2
    assert operators(proto).count("QuantizeLinear") == 6  # input, layers, activation, sum
    assert not any(len(i.dims) > 1 and i.data_type == 1 for i in proto.graph.initializer)


def test_the_model_is_left_as_it_is() -> None:
    model = quantized(Net(), tangrad.randn(8, 1, 8, 8))
    x = tangrad.randn(2, 1, 8, 8)
    before = model(x)
    tangrad.onnx.export(model, (x,))
    assert type(model.last).__name__ == "Linear"
    assert ".quantized." in type(model.last).__module__
    assert tangrad.equal(model(x), before)


@pytest.mark.parametrize(
    ("low", "high", "kind"), [(-128, 127, "int8"), (0, 255, "uint8"), (0, 127, "int8")]
)
def test_levels_of_fake_quantization(low: int, high: int, kind: str) -> None:
    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return tangrad.fake_quantize_per_tensor_affine(x, 0.1, 3, low, high)

    x = tangrad.linspace(-20, 40, 301) + 0.013
    proto = exported(Rounded(), x)
    assert operators(proto)[0] == "QuantizeLinear"
    tangrad.testing.assert_close(run(proto, x), Rounded()(x))


def test_levels_that_no_integers_have_are_written_by_their_arithmetic() -> None:
    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return tangrad.fake_quantize_per_tensor_affine(x, 0.1, 3, -300, 300)

    x = tangrad.linspace(-40, 40, 301) + 0.013
    proto = exported(Rounded(), x)
    assert "QuantizeLinear" not in operators(proto)
    tangrad.testing.assert_close(run(proto, x), Rounded()(x))


@pytest.mark.parametrize("axis", [0, 1])
def test_channels_of_a_weight_and_of_what_is_computed(axis: int) -> None:
    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(tangrad.randn(3, 3))
            self.register_buffer("scale", tangrad.tensor([0.1, 0.02, 0.3]))
            self.register_buffer("zero", tangrad.tensor([0, 4, -7], dtype=tangrad.int32))

        def forward(self, x: Tensor) -> Any:
            given = self.scale, self.zero, axis, -128, 127
            weight = tangrad.fake_quantize_per_channel_affine(self.weight, *given)
            return tangrad.fake_quantize_per_channel_affine(x, *given) + weight

    x, model = tangrad.randn(3, 3), Rounded()
    proto = exported(model, x)
    assert operators(proto).count("QuantizeLinear") == 1
    assert operators(proto).count("DequantizeLinear") == 2
    tangrad.testing.assert_close(run(proto, x), model(x).detach())
    back = tangrad.onnx.load(proto)
    tangrad.testing.assert_close(back(x), model(x).detach())


def test_a_model_that_is_trained_to_be_quantized() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model.qconfig = quantization.QConfig(
        activation=quantization.FakeQuantize.with_args(
            observer=quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255
        ),
        weight=quantization.FakeQuantize.with_args(
            observer=quantization.MovingAveragePerChannelMinMaxObserver,
            quant_min=-128,
            quant_max=127,
            dtype=tangrad.qint8,
            qscheme=tangrad.per_channel_symmetric,
        ),
    )
    prepared = quantization.prepare_qat(model.train())
    prepared(tangrad.randn(32, 4))
    x = tangrad.randn(7, 4)
    with pytest.raises(tangrad.onnx.OnnxExporterError, match="that observes; call"):
        exported(prepared, x)
    prepared.eval().apply(quantization.disable_observer)
    proto = exported(prepared, x)
    assert "QuantizeLinear" in operators(proto)
    kinds = [i.data_type for i in proto.graph.initializer if len(i.dims) == 2]
    assert kinds == [onnx.TensorProto.INT8] * 2
    np.testing.assert_allclose(run(proto, x).numpy(), prepared(x).detach().numpy(), atol=0.03)


def test_a_quantized_module_without_a_form_is_named() -> None:
    model = quantization.quantize_dynamic(nn.Sequential(nn.LSTM(3, 2)), {nn.LSTM})
    with pytest.raises(tangrad.onnx.OnnxExporterError, match="0 is a quantized LSTM, which has"):
        tangrad.onnx.export(model, (tangrad.randn(1, 1, 3),))


@pytest.mark.parametrize("reduced", [True, False])
def test_dynamic_layers_choose_their_range_in_the_file(reduced: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False)).eval()
    small = quantization.quantize_dynamic(model)
    for layer in (small[0], small[2]):
        layer.version = 4 if reduced else 3  # of files, before which all levels were used
    x = tangrad.randn(3, 8)
    proto = exported(small, x, dynamic_shapes=({0: Dim("n")},))
    assert operators(proto).count("MatMulInteger") == 2
    kind = "QuantizeLinear" if reduced else "DynamicQuantizeLinear"
    assert operators(proto).count(kind) == 2
    for given in (x, tangrad.randn(5, 8) * 10, x.abs()):
        found, wanted = run(proto, given), small(given)
        assert (found - wanted).abs().max() < 0.03 * wanted.abs().max()
        tangrad.testing.assert_close(found, tangrad.onnx.load(proto)(given))
    weights = [i for i in proto.graph.initializer if i.name.endswith("weight_quantized")]
    assert {i.data_type for i in weights} == {onnx.TensorProto.INT8}
