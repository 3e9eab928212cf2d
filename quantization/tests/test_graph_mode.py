"""Graph mode: the same graphs and the same numbers as PyTorch's, from the same data."""

import copy
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from graph_programs import (
    batches,
    calls,
    converted,
    dynamic,
    first,
    maker,
    prepared,
    static,
    trained,
)
from quantized_pairs import data, ours, quiet, theirs

import tangrad
import tangrad.ao.quantization.quantize_fx as our_fx
from tangrad.ao.quantization.fx.custom_config import ConvertCustomConfig, PrepareCustomConfig

IMAGE, ROWS = (2, 2, 7, 7), (5, 8)
CONV = {"c": lambda nn: nn.Conv2d(2, 6, 3)}
LINEAR = {"a": lambda nn: nn.Linear(8, 8), "b": lambda nn: nn.Linear(8, 4)}
NORMED = {
    **CONV,
    "n": lambda nn: nn.BatchNorm2d(6),
    "r": lambda nn: nn.ReLU(),
    "d": lambda nn: nn.Conv2d(6, 6, 1),
    "m": lambda nn: nn.BatchNorm2d(6),
    "f": lambda nn: nn.Linear(6, 3),
}


def residual(m, nn, t, x):
    y = m.r(m.n(m.c(x)))
    y = nn.functional.relu(y + m.m(m.d(y)))
    return m.f(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


def no_padding(m, nn, t, x):
    return nn.functional.relu(nn.functional.linear(x, m.a.weight, m.a.bias))


STATIC = {
    "layers and a function between": (
        LINEAR,
        lambda m, nn, t, x: m.b(nn.functional.relu(m.a(x))),
        [ROWS],
    ),
    "a residual block": (NORMED, residual, [IMAGE]),
    "cat of different ranges": (
        CONV,
        lambda m, nn, t, x, y: t.cat([m.c(x), y], 1),
        [IMAGE, (2, 3, 5, 5)],
    ),
    "ranges known beforehand": (CONV, lambda m, nn, t, x: t.tanh(t.sigmoid(m.c(x))), [IMAGE]),
    "hardsigmoid and a product": (
        CONV,
        lambda m, nn, t, x: nn.functional.hardsigmoid(m.c(x)) * x[:, :1, 2:, 2:],
        [IMAGE],
    ),
    "activations with a scale": (
        CONV,
        lambda m, nn, t, x: nn.functional.elu(
            nn.functional.leaky_relu(nn.functional.hardswish(m.c(x)))
        ),
        [IMAGE],
    ),
    "pooling by the largest, and a wider image": (
        CONV,
        lambda m, nn, t, x: nn.functional.interpolate(
            nn.functional.max_pool2d(m.c(x), 2, 1), scale_factor=2
        ),
        [IMAGE],
    ),
    "a mean": (CONV, lambda m, nn, t, x: m.c(x).mean([2, 3]), [IMAGE]),
    "a number added": (CONV, lambda m, nn, t, x: nn.functional.relu(m.c(x) + 0.5), [IMAGE]),
    "a number multiplied": (CONV, lambda m, nn, t, x: m.c(x) * 3, [IMAGE]),
    "sizes that are read": (
        CONV,
        lambda m, nn, t, x: m.c(x).reshape(x.shape[0], -1),
        [IMAGE],
    ),
    "a matrix product of a layer used twice": (
        LINEAR,
        lambda m, nn, t, x: t.matmul(m.a(x), m.a(x).transpose(0, 1)),
        [ROWS],
    ),
    "normalization and softmax": (
        {**LINEAR, "n": lambda nn: nn.LayerNorm(8), "s": lambda nn: nn.Softmax(-1)},
        lambda m, nn, t, x: m.s(m.n(m.a(x))),
        [ROWS],
    ),
    "batch norm alone": (
        {"n": lambda nn: nn.BatchNorm2d(2), "r": lambda nn: nn.ReLU()},
        lambda m, nn, t, x: m.r(m.n(x)),
        [IMAGE],
    ),
    "one dimension, and transposed": (
        {
            "c": lambda nn: nn.Conv1d(2, 6, 3),
            "n": lambda nn: nn.BatchNorm1d(6),
            "t": lambda nn: nn.ConvTranspose1d(6, 2, 3),
        },
        lambda m, nn, t, x: m.t(nn.functional.relu(m.n(m.c(x)))),
        [(4, 2, 9)],
    ),
    "what moves elements": (
        CONV,
        lambda m, nn, t, x: t.stack([m.c(x), m.c(x)]).unsqueeze(0).permute(0, 1, 3, 2, 4, 5),
        [IMAGE],
    ),
    "a mask": (
        LINEAR,
        lambda m, nn, t, x, y: m.a(x).masked_fill(y > 0, 1.0) + m.a(x),
        [ROWS, ROWS],
    ),
    "parts of a tensor": (CONV, lambda m, nn, t, x: m.c(x).chunk(2, 1)[0] + 1, [IMAGE]),
}


@pytest.mark.parametrize("name", STATIC)
def test_static_graphs_and_numbers_are_pytorchs(name):
    layers, forward, shapes = STATIC[name]
    pair = prepared(maker(layers, forward), static, batches(*shapes))
    assert calls(pair[1]) == calls(pair[0])
    their_model, our_model = converted(pair)
    assert calls(our_model) == calls(their_model)
    inputs = batches(*shapes, count=1)[0]
    a = first(their_model(*map(torch.from_numpy, inputs))).numpy()
    b = first(our_model(*map(tangrad.from_numpy, inputs))).numpy()
    np.testing.assert_allclose(b, a, rtol=0, atol=1e-6)


DYNAMIC = {
    "layers": STATIC["layers and a function between"],
    "lstm": ({"l": lambda nn: nn.LSTM(8, 6)}, lambda m, nn, t, x: m.l(x), [(4, 3, 8)]),
    "gru both ways": (
        {"l": lambda nn: nn.GRU(8, 6, bidirectional=True)},
        lambda m, nn, t, x: m.l(x),
        [(4, 3, 8)],
    ),
    "cells": (
        {
            "l": lambda nn: nn.LSTMCell(8, 6),
            "g": lambda nn: nn.GRUCell(6, 6),
            "r": lambda nn: nn.RNNCell(6, 5),
        },
        lambda m, nn, t, x: m.r(m.g(m.l(x)[0])),
        [(4, 8)],
    ),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_graphs_and_numbers_are_pytorchs(name):
    layers, forward, shapes = DYNAMIC[name]
    their_model, our_model = converted(prepared(maker(layers, forward), dynamic, []))
    assert calls(our_model) == calls(their_model)
    inputs = batches(*shapes, count=1)[0]
    a = first(their_model(*map(torch.from_numpy, inputs))).numpy()
    b = first(our_model(*map(tangrad.from_numpy, inputs))).numpy()
    np.testing.assert_allclose(b, a, rtol=0, atol=1e-6)


def test_half_precision_weights_are_pytorchs():
    layers, forward, _shapes = STATIC["layers and a function between"]
    pair = prepared(
        maker(layers, forward),
        lambda q: q.QConfigMapping().set_global(q.float16_dynamic_qconfig),
        [],
    )
    their_model, our_model = converted(pair)
    assert calls(our_model) == calls(their_model)
    x = data(5, 8)
    a, b = their_model(torch.from_numpy(x)), our_model(tangrad.from_numpy(x))
    np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["layers and a function between", "a residual block"])
def test_trained_graphs_and_numbers_are_pytorchs(name):
    layers, forward, shapes = STATIC[name]
    pair = prepared(maker(layers, forward), trained, batches(*shapes), qat=True)
    assert calls(pair[1]) == calls(pair[0])
    their_model, our_model = converted(pair)
    assert calls(our_model) == calls(their_model)
    inputs = batches(*shapes, count=1)[0]
    a = first(their_model(*map(torch.from_numpy, inputs))).numpy()
    b = first(our_model(*map(tangrad.from_numpy, inputs))).numpy()
    np.testing.assert_allclose(b, a, rtol=0, atol=1e-6)


def test_weights_that_functions_take_are_packed_into_modules():
    pair = prepared(maker(LINEAR, no_padding), static, batches(ROWS))
    their_model, our_model = converted(pair)
    assert calls(our_model) == ["quantize_per_tensor", "LinearReLU", "dequantize"]
    x = data(5, 8)
    a, b = their_model(torch.from_numpy(x)), our_model(tangrad.from_numpy(x))
    np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=0, atol=1e-6)


def test_embeddings_have_rows_of_bytes():
    layers = {"e": lambda nn: nn.Embedding(10, 8), "l": lambda nn: nn.Linear(8, 3)}

    def mapping(q):
        nn = torch.nn if q is theirs else tangrad.nn
        rows = q.float_qparams_weight_only_qconfig
        return q.QConfigMapping().set_object_type(nn.Embedding, rows)

    indices = np.arange(4)
    pair = prepared(maker(layers, lambda m, nn, t, x: m.l(m.e(x))), mapping, [[indices]])
    their_model, our_model = converted(pair)
    assert calls(our_model) == calls(their_model)
    a, b = their_model(torch.from_numpy(indices)), our_model(tangrad.from_numpy(indices))
    np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=0, atol=1e-6)


def test_the_reference_form_computes_what_the_kernels_do():
    layers, forward, shapes = STATIC["a residual block"]
    pair = prepared(maker(layers, forward), static, batches(*shapes))
    twin = copy.deepcopy(pair[1])
    their_model, our_model = converted(pair, "convert_to_reference_fx")
    assert calls(our_model) == calls(their_model)
    x = batches(*shapes, count=1)[0][0]
    a, b = their_model(torch.from_numpy(x)), our_model(tangrad.from_numpy(x))
    lowered = our_fx.convert_fx(twin)(tangrad.from_numpy(x))
    step = (b - lowered).abs().max().item()
    assert np.abs(a.detach().numpy() - b.detach().numpy()).max() < 0.01
    assert step < 0.02


def test_state_dicts_have_pytorchs_names_and_load_back():
    layers, forward, shapes = STATIC["a residual block"]
    their_model, our_model = converted(prepared(maker(layers, forward), static, batches(*shapes)))
    state = our_model.state_dict()
    assert set(state) == set(their_model.state_dict())
    x = tangrad.from_numpy(batches(*shapes, count=1)[0][0])
    expected = our_model(x)
    twin = copy.deepcopy(our_model)
    twin.c.scale = 1.0
    twin.load_state_dict(state)
    assert tangrad.equal(twin(x), expected)


def test_modules_without_a_configuration_stay_float():
    layers, forward, shapes = STATIC["layers and a function between"]
    pair = prepared(
        maker(layers, forward),
        lambda q: static(q).set_module_name("b", None),
        batches(*shapes),
    )
    their_model, our_model = converted(pair)
    assert calls(our_model) == calls(their_model)
    assert type(our_model.b) is tangrad.nn.Linear


def test_the_nth_use_of_a_type_can_be_configured():
    layers, forward, shapes = STATIC["layers and a function between"]

    def mapping(q):
        nn = torch.nn if q is theirs else tangrad.nn
        return static(q).set_module_name_object_type_order("", nn.Linear, 1, None)

    their_model, our_model = converted(prepared(maker(layers, forward), mapping, batches(*shapes)))
    assert calls(our_model) == calls(their_model)


def test_conversion_takes_no_other_configurations_than_preparation():
    layers, forward, shapes = STATIC["layers and a function between"]
    made = prepared(maker(layers, forward), static, batches(*shapes))[1]
    less = ours.QConfigMapping().set_global(static(ours).global_qconfig)
    with pytest.raises(AssertionError, match="Missing key"):
        our_fx.convert_fx(made, qconfig_mapping=less)


def test_a_module_can_be_left_float_when_it_is_converted():
    layers, forward, shapes = STATIC["layers and a function between"]

    def mapping(q):
        same = q.default_per_channel_qconfig
        return q.QConfigMapping().set_global(same).set_module_name("b", same)

    made = prepared(maker(layers, forward), mapping, batches(*shapes))[1]
    later = mapping(ours).set_module_name("b", None)
    done = our_fx.convert_fx(made, qconfig_mapping=later)
    assert calls(done) == ["quantize_per_tensor", "LinearReLU", "dequantize", "Linear"]
    assert type(done.b) is tangrad.nn.Linear


def test_inputs_and_outputs_can_be_quantized_outside():
    layers, forward, _shapes = STATIC["layers and a function between"]
    model = maker(layers, forward)(tangrad.nn, None).eval()
    custom = PrepareCustomConfig()
    custom.set_input_quantized_indexes([0]).set_output_quantized_indexes([0])
    made = quiet(our_fx.prepare_fx, model, static(ours), (None,), custom)
    made(tangrad.from_numpy(data(5, 8)))
    done = our_fx.convert_fx(made)
    x = tangrad.quantize_per_tensor(tangrad.from_numpy(data(5, 8)), 0.05, 60, tangrad.quint8)
    assert done(x).dtype is tangrad.quint8
    assert calls(done) == ["LinearReLU", "Linear"]


class Island(tangrad.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = tangrad.nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(x)


class Around(tangrad.nn.Module):
    def __init__(self):
        super().__init__()
        self.island, self.last = Island(), tangrad.nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.island(x))


def test_a_module_can_be_prepared_by_itself():
    custom = PrepareCustomConfig().set_standalone_module_class(Island, None, (), None, None)
    made = quiet(our_fx.prepare_fx, Around().eval(), static(ours), (None,), custom)
    x = tangrad.from_numpy(data(5, 8))
    made(x)
    done = our_fx.convert_fx(made)
    assert type(done.island).__name__ == "GraphModule"
    assert calls(done.island) == ["quantize_per_tensor", "Linear", "dequantize"]
    assert done(x).shape == (5, 2)


class Watching(tangrad.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)

    @classmethod
    def from_float(cls, mod):
        return cls(mod.inner)


class Done(tangrad.nn.Module):
    def __init__(self, inner, scale, zero_point):
        super().__init__()
        self.inner, self.ends = inner, (scale, zero_point)

    def forward(self, x):
        made = self.inner(x.dequantize())
        return tangrad.quantize_per_tensor(made, *self.ends, tangrad.quint8)

    @classmethod
    def from_observed(cls, mod):
        scale, zero_point = mod.activation_post_process.calculate_qparams()
        return cls(mod.inner, float(scale), int(zero_point))


def test_modules_may_observe_and_quantize_themselves():
    prepare = PrepareCustomConfig().set_float_to_observed_mapping(Island, Watching)
    convert = ConvertCustomConfig().set_observed_to_quantized_mapping(Watching, Done)
    made = quiet(our_fx.prepare_fx, Around().eval(), static(ours), (None,), prepare)
    x = tangrad.from_numpy(data(5, 8))
    made(x)
    done = our_fx.convert_fx(made, convert)
    assert calls(done) == ["quantize_per_tensor", "Done", "Linear", "dequantize"]
    assert done(x).shape == (5, 2)


def test_fusing_alone_keeps_what_the_model_computes():
    layers, forward, shapes = STATIC["a residual block"]
    model = maker(layers, forward)(tangrad.nn, None).eval()
    x = tangrad.from_numpy(batches(*shapes, count=1)[0][0])
    expected = model(x)
    made = our_fx.fuse_fx(model)
    assert [type(made.c).__name__, type(made.d).__name__] == ["ConvReLU2d", "Conv2d"]
    assert made(x).allclose(expected, atol=1e-5)


def test_sums_after_convolutions_are_fused_for_onednn():
    layers = {"c": lambda nn: nn.Conv2d(2, 2, 3, padding=1), "r": lambda nn: nn.ReLU()}
    model = maker(layers, lambda m, nn, t, x: m.r(m.c(x) + x))(tangrad.nn, None).eval()
    backend = ours.backend_config.get_onednn_backend_config()
    mapping = ours.get_default_qconfig_mapping("onednn")
    made = quiet(our_fx.prepare_fx, model, mapping, (None,), backend_config=backend)
    x = tangrad.from_numpy(data(*IMAGE))
    expected = made(x)
    done = our_fx.convert_fx(made, backend_config=backend)
    assert "ConvAddReLU2d" in calls(done)
    assert done(x).allclose(expected, atol=0.05)


def test_what_cannot_be_prepared_or_converted_is_refused():
    model = tangrad.nn.Sequential(tangrad.nn.Linear(8, 4)).eval()
    made = quiet(our_fx.prepare_fx, model, static(ours), (None,))
    with pytest.warns(UserWarning, match="activation_post_process_0.* saw nothing|saw nothing"):
        our_fx.convert_fx(copy.deepcopy(made))
    with pytest.raises(RuntimeError, match="prepared already"):
        our_fx.prepare_fx(made, static(ours), (None,))
    made(tangrad.ones(2, 8))
    done = our_fx.convert_fx(made)
    with pytest.raises(AssertionError, match="must be produced by prepare_fx"):
        our_fx.convert_fx(done)
    with pytest.raises(RuntimeError, match="quantized already"):
        our_fx.prepare_fx(done, static(ours), (None,))
    with pytest.raises(ValueError, match="must be a GraphModule"):
        our_fx.convert_fx(tangrad.nn.Linear(2, 2))
    with pytest.raises(AssertionError, match="must be a QConfigMapping"):
        our_fx.prepare_fx(tangrad.nn.Linear(2, 2), [], (None,))


def test_without_the_tracer_the_error_says_what_to_install():
    program = (
        "import tangrad, tangrad.ao.quantization as q\n"
        "from tangrad.ao.quantization import quantize_fx\n"
        "q.quantize_dynamic(tangrad.nn.Sequential(tangrad.nn.Linear(2, 2)))\n"
        "mapping = q.get_default_qconfig_mapping()\n"
        "quantize_fx.prepare_fx(tangrad.nn.Linear(2, 2).eval(), mapping, (None,))\n"
    )
    environment = {**os.environ, "TANGRAD_DISABLE_PLUGINS": "tangrad-fx"}
    outcome = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert outcome.returncode == 1
    assert "fx" in outcome.stderr.splitlines()[-1]
