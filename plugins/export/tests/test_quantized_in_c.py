"""Quantized models as C: the integers that eager computes, to the bit."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import array, exported, loaded, needs_compiler, pointer, self_tested

import tangrad
from tangrad import Tensor, nn
from tangrad.export import Dim
from tangrad.plugin import layout_tensor, metadata
from tangrad_export import ExportError

F = nn.functional
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(
        find_spec("tangrad_quantization") is None, reason="needs tangrad-quantization"
    ),
]
COUNT = 80 if os.environ.get("TANGRAD_TESTS") == "full" else 8


@pytest.fixture(autouse=True)
def _quiet_and_seeded() -> Iterator[None]:
    tangrad.manual_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def static(model: nn.Module, x: Tensor, fuse: Any = None, config: str = "onednn") -> nn.Module:
    """Return a model quantized with an example for its calibration."""
    from tangrad.ao import quantization

    model.eval()
    if fuse:
        quantization.fuse_modules(model, fuse, inplace=True)
    model.qconfig = quantization.get_default_qconfig(config)
    quantization.prepare(model, inplace=True)
    model(x)
    return quantization.convert(model, inplace=True)


class Net(nn.Module):
    """Convolutions, a table, a sum, pooling and a linear layer, between stubs."""

    def __init__(self) -> None:
        super().__init__()
        from tangrad.ao import quantization

        self.enter, self.leave = quantization.QuantStub(), quantization.DeQuantStub()
        self.first, self.relu = nn.Conv2d(1, 4, 3), nn.ReLU()
        self.second, self.act = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Hardswish()
        self.sums = tangrad.ao.nn.quantized.FloatFunctional()
        self.last = nn.Linear(4 * 9, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(self.enter(x)))
        x = F.max_pool2d(self.sums.add(x, self.act(self.second(x))), 2)
        return self.leave(self.last(x.flatten(1)))


def net(config: str = "onednn") -> nn.Module:
    return static(Net(), tangrad.randn(8, 1, 8, 8), [["first", "relu"]], config)


@pytest.mark.parametrize("config", ["onednn", "qnnpack"])  # by channels; one scale for all
def test_a_converted_model_gives_the_same_bits(config: str, tmp_path: Path) -> None:
    model, x = net(config), tangrad.randn(3, 1, 8, 8)
    before = model(x)
    source = exported(model, (x,), tmp_path)
    self_tested(source, most=0.0)
    self_tested(source, "-O3", "-march=native", most=0.0)
    text = source.read_text()
    assert "static const int8_t c_first_weight[36]" in text
    assert "op_quantized_convolution(" in text
    assert tangrad.equal(model(x), before)
    assert ".quantized." in type(model.last).__module__


def test_batches_vary(tmp_path: Path) -> None:
    model = net()
    batch = Dim("n", min=1, max=3)
    source = exported(model, (tangrad.randn(2, 1, 8, 8),), tmp_path, dynamic_shapes=({0: batch},))
    library = loaded(source)
    for n in (1, 2, 3):
        x = tangrad.randn(n, 1, 8, 8)
        out = np.zeros((n, 5), np.float32)
        assert library.model_run(n, pointer(array(x)), pointer(out)) == 0
        assert tangrad.equal(tangrad.tensor(out), model(x))


def test_quantized_inputs_and_results_are_their_integers(tmp_path: Path) -> None:
    layer = linear(6, 5, tangrad.quint8)
    x = tangrad.quantize_per_tensor(tangrad.randn(3, 6), 0.03, 120, tangrad.quint8)
    source = exported(layer, (x,), tmp_path)
    header = source.with_suffix(".h").read_text()
    assert "input: in, uint8[3, 6] quantized: scale 0.03, zero point 120" in header.replace(
        "x: in", "input: in"
    )
    assert "out: out, uint8[3, 5] quantized: scale 0.05, zero point 100" in header
    out = np.zeros((3, 5), np.uint8)
    assert loaded(source).model_run(pointer(array(x.int_repr())), pointer(out)) == 0
    assert np.array_equal(out, layer(x).int_repr().numpy())


def test_a_model_quantized_by_its_graph(tmp_path: Path) -> None:
    from tangrad.ao import quantization

    fx = pytest.importorskip("tangrad.ao.quantization.quantize_fx")

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.fc = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = F.relu(self.bn(self.conv(x)) + x)
            return self.fc(F.adaptive_avg_pool2d(y, 1).flatten(1))

    x = tangrad.randn(2, 4, 6, 6)
    mapping = quantization.get_default_qconfig_mapping("onednn")
    prepared = fx.prepare_fx(Residual().eval(), mapping, (x,))
    prepared(x)
    self_tested(exported(fx.convert_fx(prepared), (x,), tmp_path), most=0.0)


def test_dynamic_layers_choose_the_scales_that_eager_chooses(tmp_path: Path) -> None:
    from tangrad.ao import quantization

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False))
    small = quantization.quantize_dynamic(model)
    source = exported(small, (tangrad.randn(3, 8),), tmp_path)
    self_tested(source, most=0.0)
    library = loaded(source)
    for x in (*(tangrad.randn(3, 8) * s for s in (1e-6, 1.0, 1e4)), tangrad.zeros(3, 8)):
        for given in (x, x.abs(), -x.abs()):
            out = np.zeros((3, 4), np.float32)
            assert library.model_run(pointer(array(given)), pointer(out)) == 0
            assert np.array_equal(out, small(given).numpy())
    bad = np.full((3, 8), np.nan, np.float32)
    assert library.model_run(pointer(bad), pointer(out)) == 1


def test_a_layout_that_c_has_not_is_refused(tmp_path: Path) -> None:
    def rows(x: Tensor) -> Tensor:
        return x.dequantize()

    scales, zeros = tangrad.tensor([0.1, 0.2]), tangrad.tensor([0, 1])
    x = tangrad.quantize_per_channel(tangrad.randn(2, 3), scales, zeros, 0, tangrad.qint8)
    with pytest.raises(ExportError, match="quantized_per_channel"):
        exported(rows, (x,), tmp_path)
    assert not list(tmp_path.iterdir())


def with_values(x: Tensor, values: Tensor) -> Tensor:
    """Return a quantized tensor of other integers."""
    return layout_tensor(
        x.layout.name, {"values": values}, x.shape, metadata=metadata(x), dtype=x.dtype
    )


def weight_of(*shape: int, draw: Any) -> Tensor:
    """Return a quantized weight, with one scale or by channels, with and without zero points."""
    values = tangrad.randn(*shape)
    if draw.random() < 0.4:
        zero = int(draw.integers(-20, 20)) * int(draw.random() < 0.5)
        return tangrad.quantize_per_tensor(values, 0.02, zero, tangrad.qint8)
    scales = tangrad.rand(shape[0]) * 0.05 + 0.005
    zeros = tangrad.tensor(draw.integers(-9, 9, shape[0]) * int(draw.random() < 0.5))
    return tangrad.quantize_per_channel(values, scales, zeros, 0, tangrad.qint8)


def linear(ins: int, outs: int, dtype: Any, draw: Any = None) -> Any:
    draw = draw or np.random.default_rng(0)
    layer = tangrad.ao.nn.quantized.Linear(ins, outs)
    bias = tangrad.randn(outs) if draw.random() < 0.7 else None
    layer.set_weight_bias(weight_of(outs, ins, draw=draw), bias)
    layer.scale, layer.zero_point = 0.05, 100 if dtype is tangrad.quint8 else -3
    return layer


def random_model(draw: Any) -> tuple[nn.Module, Any]:
    """Return a model of random layers on images, and its scales."""
    quantized = tangrad.ao.nn.quantized
    dtype = tangrad.quint8 if draw.random() < 0.7 else tangrad.qint8
    channels = groups = int(draw.integers(1, 5))
    layers: list[Any] = []
    for _ in range(int(draw.integers(1, 4))):
        groups = channels if draw.random() < 0.3 else 1
        outs = groups * int(draw.integers(1, 4))
        kernel, dilation = int(draw.integers(1, 4)), int(draw.integers(1, 3))
        padding, stride = int(draw.integers(0, 3)), int(draw.integers(1, 3))
        conv = quantized.Conv2d(channels, outs, kernel, stride, padding, dilation, groups)
        weight = weight_of(outs, channels // groups, kernel, kernel, draw=draw)
        conv.set_weight_bias(weight, tangrad.randn(outs) if draw.random() < 0.7 else None)
        conv.scale = float(draw.uniform(0.01, 0.3))
        conv.zero_point = int(draw.integers(0, 100))
        layers.append(conv)
        channels = outs
        kinds = [
            nn.ReLU(),
            nn.MaxPool2d(2, 1, ceil_mode=draw.random() < 0.5),
            nn.AvgPool2d(2, 1),
            quantized.Hardswish(0.05, 7),
            quantized.Sigmoid(1 / 256, 0),
            quantized.ReLU6(),
            quantized.LeakyReLU(0.1, 3, 0.2),
        ]
        layers += [kinds[k] for k in draw.choice(len(kinds), 1 + draw.integers(0, 2))]

    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.sums = nn.Sequential(*layers), quantized.QFunctional()
            self.sums.scale, self.sums.zero_point = 0.1, 5

        def forward(self, x: Any) -> Any:
            y = self.layers(x)
            return y, self.sums.add(y, y.flip(-1)), self.sums.mul(y, y), y.mean((2, 3)), y + 0.25

    if dtype is tangrad.qint8:
        Branching.forward = lambda self, x: self.layers(x)  # type: ignore[method-assign]
    return Branching(), (dtype, layers[0].in_channels)


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_models_give_the_same_integers(seed: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    tangrad.manual_seed(seed)
    while True:
        model, (dtype, channels) = random_model(draw)
        size = (2, channels, int(draw.integers(7, 11)), int(draw.integers(7, 11)))
        scale, zero = float(draw.uniform(0.01, 0.1)), int(draw.integers(0, 100))
        x = tangrad.quantize_per_tensor(tangrad.randn(*size), scale, zero, dtype)
        try:
            model(x)
        except RuntimeError:  # nothing is left of the image
            continue
        except NotImplementedError:
            model.forward = model.layers  # type: ignore[method-assign]
        break
    library = loaded(exported(model, (x,), tmp_path))
    low, high, kind = (0, 256, np.uint8) if dtype is tangrad.quint8 else (-128, 128, np.int8)
    for _ in range(3):
        values = draw.integers(low, high, size).astype(kind)
        given = with_values(x, tangrad.tensor(values))
        wanted = model(given)
        wanted = [w.int_repr().numpy() for w in (wanted if isinstance(wanted, tuple) else [wanted])]
        outs = [np.full(w.shape, 99, w.dtype) for w in wanted]
        assert library.model_run(pointer(values), *map(pointer, outs)) == 0
        for out, want in zip(outs, wanted, strict=True):
            assert np.array_equal(out, want)
