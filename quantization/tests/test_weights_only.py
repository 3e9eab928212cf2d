"""torchao's call: weights of 8 and 4 bits, how near they are and how small."""

import copy
import io
import pickle

import pytest

import tangrad
from tangrad import nn
from tangrad_quantization.weights_only import (
    Float8WeightOnlyConfig,
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    quantize_,
)

CONFIGURATIONS = [
    (Int8WeightOnlyConfig(), 0.01, 0.27),
    (Int8WeightOnlyConfig(group_size=128), 0.01, 0.27),
    (Int8WeightOnlyConfig(group_size=64, symmetric=False), 0.01, 0.29),
    (Int4WeightOnlyConfig(group_size=128), 0.15, 0.16),
    (Int4WeightOnlyConfig(group_size=64, symmetric=True), 0.15, 0.16),
    (Int8DynamicActivationInt8WeightConfig(), 0.03, 0.27),
    (Float8WeightOnlyConfig(), 0.06, 0.27),
    (Float8WeightOnlyConfig(tangrad.float8_e5m2, 128), 0.1, 0.28),
]


@pytest.mark.parametrize(("config", "error", "size"), CONFIGURATIONS)
def test_outputs_are_near_and_files_small(config, error, size):
    tangrad.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 384), nn.ReLU(), nn.Linear(384, 256))
    x = tangrad.randn(3, 512)
    expected, whole = model(x).detach(), written(model)
    quantize_(model, config)
    assert (model(x) - expected).norm() < error * expected.norm()
    assert model(x.bfloat16()).dtype is tangrad.bfloat16
    assert model(x[0]).shape == (256,)
    assert written(model) <= size * whole


def written(model):
    file = io.BytesIO()
    tangrad.save(model.state_dict(), file)
    return len(file.getvalue())


def test_a_layer_by_itself_is_quantized_too():
    layer = nn.Linear(64, 32)
    quantize_(layer, Int8WeightOnlyConfig())
    assert type(layer).__name__ == "GroupedLinear"
    assert layer.weight.dtype is tangrad.qint8


def test_filters_choose_layers():
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 32))
    quantize_(model, Int8WeightOnlyConfig(), lambda module, name: name == "1")
    assert [type(layer).__name__ for layer in model] == ["Linear", "GroupedLinear"]


def test_what_cannot_be_done_is_refused():
    model = nn.Sequential(nn.Linear(48, 32))
    with pytest.raises(ValueError, match="group_size 128 does not suit '0' with 48 inputs"):
        quantize_(model, Int4WeightOnlyConfig())
    with pytest.raises(TypeError, match="config must be one of"):
        quantize_(model, "int8")
    with pytest.raises(TypeError, match="dtype must be one of .* not tangrad.float32"):
        quantize_(model, Float8WeightOnlyConfig(tangrad.float32))
    with pytest.raises(RuntimeError, match="no linear layer"):
        quantize_(nn.Sequential(nn.ReLU()), Int8WeightOnlyConfig())
    model[0].weight.data[0, 0] = float("nan")
    with pytest.raises(RuntimeError, match="'0' holds NaN"):
        quantize_(model, Int8WeightOnlyConfig())


@pytest.mark.parametrize("config", [case[0] for case in CONFIGURATIONS])
def test_a_model_of_another_dtype_keeps_its_quantized_weights(config):
    """Scales and integers are the weight's own; numbers of a model are not."""
    model, x = nn.Sequential(nn.Linear(128, 32)), tangrad.randn(2, 128)
    quantize_(model, config)
    expected = model(x)
    model.bfloat16()
    assert model[0].weight.is_quantized
    assert model[0].bias.dtype is tangrad.bfloat16
    assert tangrad.allclose(model(x), expected, atol=1e-3)


@pytest.mark.parametrize("how", ["load_state_dict", "copy_", "set"])
@pytest.mark.parametrize("config", [Int4WeightOnlyConfig(32), Float8WeightOnlyConfig()])
def test_a_weight_that_is_written_to_is_the_one_that_counts(config, how):
    tangrad.manual_seed(0)
    model, other, x = nn.Linear(64, 8), nn.Linear(64, 8), tangrad.randn(2, 64)
    for layer in (model, other):
        quantize_(layer, config)
        layer(x)
    expected = other(x)
    if how == "load_state_dict":
        model.load_state_dict(other.state_dict())
    else:
        model.bias.copy_(other.bias)
        if how == "copy_":
            model.weight.copy_(other.weight)
        else:
            model.weight = other.weight
    assert tangrad.equal(model(x), expected)
    assert tangrad.equal(copy.deepcopy(model)(x), expected)
    assert tangrad.equal(pickle.loads(pickle.dumps(model))(x), expected)
