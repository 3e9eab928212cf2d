"""What is refused: each error names the module or tensor, and what to do."""

import math

import pytest
from quantized_pairs import ours, quiet

import tangrad
from tangrad import nn
from tangrad_quantization.weights_only import (
    Float8WeightOnlyConfig,
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    quantize_,
)


def quantized():
    """Return a float model and its static form."""
    model = nn.Sequential(ours.QuantStub(), nn.Conv2d(1, 2, 3), ours.DeQuantStub()).eval()
    model.qconfig = ours.get_default_qconfig("onednn")
    prepared = quiet(ours.prepare, model)
    prepared(tangrad.ones(1, 1, 5, 5))
    return nn.Sequential(nn.Identity(), nn.Conv2d(1, 2, 3)), ours.convert(prepared)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_impossible_scales_are_refused(scale):
    x = tangrad.ones(2, 2)
    with pytest.raises(ValueError, match="scale must be positive and finite"):
        tangrad.quantize_per_tensor(x, scale, 0, tangrad.qint8)
    scales = tangrad.tensor([1.0, scale])
    with pytest.raises(ValueError, match="positive and finite"):
        tangrad.quantize_per_channel(x, scales, tangrad.zeros(2).long(), 0, tangrad.qint8)


@pytest.mark.parametrize("zero_point", [256, -1, 2.5, math.nan])
def test_zero_points_that_are_no_integers_of_the_dtype_are_refused(zero_point):
    with pytest.raises(RuntimeError, match="zero_point must be one of the integers of .*quint8"):
        tangrad.quantize_per_tensor(tangrad.ones(2), 0.1, zero_point, tangrad.quint8)


def test_a_dimension_that_is_none_is_refused():
    scales, zeros = tangrad.ones(2), tangrad.zeros(2).long()
    with pytest.raises(IndexError, match="axis"):
        tangrad.quantize_per_channel(tangrad.ones(2, 2), scales, zeros, 2, tangrad.qint8)


def test_a_quantized_state_in_a_float_model_is_told_so():
    model, done = quantized()
    with pytest.raises(RuntimeError, match=r'"1.weight" has layout .*quantize it in the same'):
        model.load_state_dict(done.state_dict(), strict=False)
    dynamic = ours.quantize_dynamic(nn.Sequential(nn.Linear(4, 3)))
    with pytest.raises(RuntimeError, match=r'"0._packed_params.* quantize it in the same'):
        nn.Sequential(nn.Linear(4, 3)).load_state_dict(dynamic.state_dict())


def test_a_float_state_in_a_quantized_model_is_told_so():
    model, done = quantized()
    with pytest.raises(RuntimeError, match=r"'1.weight' of the quantized Conv2d .* float model"):
        done.load_state_dict(model.state_dict(), strict=False)
    weights_only = nn.Sequential(nn.Linear(8, 4))
    state = weights_only.state_dict()
    quantize_(weights_only, Int8WeightOnlyConfig())
    with pytest.raises(RuntimeError, match=r"'0.weight' of GroupedLinear must be tangrad.qint8"):
        weights_only.load_state_dict(state, strict=False)


WEIGHTS_ALONE = [
    Int8WeightOnlyConfig(),
    Int4WeightOnlyConfig(32),
    Float8WeightOnlyConfig(),
    Int8DynamicActivationInt8WeightConfig(),
]


def layers():
    return nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(32, 4)))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("config", WEIGHTS_ALONE, ids=lambda c: type(c).__name__)
def test_a_state_of_quantized_weights_in_a_float_model_is_told_so(config, strict):
    model = layers()
    quantize_(model, config)
    fresh = layers()
    before = fresh[1][0].weight.detach().clone()
    with pytest.raises(RuntimeError, match=r'"1.0.weight" has layout .*quantize') as told:
        fresh.load_state_dict(model.state_dict(), strict=strict)
    assert "before it takes the state" in str(told.value)
    assert tangrad.equal(fresh[1][0].weight, before)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("config", WEIGHTS_ALONE, ids=lambda c: type(c).__name__)
def test_a_float_state_in_a_model_of_quantized_weights_is_told_so(config, strict):
    model = layers()
    quantize_(model, config)
    before = model(tangrad.ones(1, 32))
    with pytest.raises(
        RuntimeError, match=r"'1.0.weight' of .*got tangrad.float32\[4, 32\]"
    ) as told:
        model.load_state_dict(layers().state_dict(), strict=strict)
    assert "load the state of a float model before quantize_" in str(told.value)
    assert tangrad.equal(model(tangrad.ones(1, 32)), before)


@pytest.mark.parametrize("config", WEIGHTS_ALONE, ids=lambda c: type(c).__name__)
def test_a_state_of_weights_quantized_otherwise_is_told_so(config):
    """Of another configuration, or of a model that is quantized by another workflow."""
    model, other = layers(), layers()
    quantize_(model, config)
    quantize_(other, WEIGHTS_ALONE[WEIGHTS_ALONE.index(config) - 1])
    with pytest.raises(RuntimeError, match=r"'1.0.weight' of .* by the same configuration"):
        model.load_state_dict(other.state_dict())
    dynamic = ours.quantize_dynamic(layers())
    with pytest.raises(RuntimeError, match=r'"1.0._packed_params.* quantize it in the same'):
        model.load_state_dict(dynamic.state_dict())
    with pytest.raises(RuntimeError, match="'1.0.scale' of the quantized Linear is missing"):
        dynamic.load_state_dict(model.state_dict())


@pytest.mark.parametrize("key", ["0.scale", "1.scale"])
def test_impossible_scales_in_a_state_are_refused_by_their_path(key):
    _, done = quantized()
    state = done.state_dict()
    state[key] = tangrad.full_like(state[key], math.nan)
    with pytest.raises(ValueError, match=f"'{key}': scale must be positive and finite"):
        done.load_state_dict(state)


def test_a_state_without_a_scale_names_it():
    _, done = quantized()
    state = done.state_dict()
    del state["1.zero_point"]
    with pytest.raises(RuntimeError, match="'1.zero_point' of the quantized Conv2d is missing"):
        done.load_state_dict(state)


def test_quantized_tensors_are_not_copied_to_numbers():
    q = tangrad.quantize_per_tensor(tangrad.ones(2), 0.1, 0, tangrad.qint8)
    with pytest.raises(RuntimeError, match=r"copy_: .*qint8\[2\].* call dequantize\(\) first"):
        tangrad.zeros(2).copy_(q)


def test_a_model_that_saw_no_data_is_converted_with_a_warning():
    model = nn.Sequential(ours.QuantStub(), nn.Linear(4, 2)).eval()
    model.qconfig = ours.get_default_qconfig("onednn")
    prepared = quiet(ours.prepare, model)
    with pytest.warns(UserWarning, match="observer at .[01]. saw nothing"):
        made = ours.convert(prepared)
    assert (made[1].scale, made[1].zero_point) == (1.0, 0)


def watched(observer, value):
    """Let a prepared model see one value that is not finite."""
    model = nn.Sequential(ours.QuantStub(), nn.Linear(2, 2)).eval()
    model.qconfig = ours.QConfig(observer, ours.default_weight_observer)
    return quiet(ours.prepare, model)(tangrad.tensor([[1.0, value]]))


def test_calibration_data_that_are_not_finite_name_the_module():
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="at '0': the observed tensor holds NaN or infinity"):
            watched(ours.MinMaxObserver, value)
    with pytest.raises(ValueError, match="at '0'"):
        watched(ours.HistogramObserver, math.nan)


def test_histograms_leave_infinity_out_and_name_the_module():
    observer = ours.HistogramObserver()
    observer.path = "layer.0"
    with pytest.warns(UserWarning, match="inf detected .* of 'layer.0'"):
        observer(tangrad.tensor([1.0, math.inf]))
    assert float(observer.max_val) == 1.0


def test_converting_twice_is_refused():
    _, done = quantized()
    with pytest.raises(RuntimeError, match="quantized already"):
        ours.convert(done)


def test_preparing_twice_is_refused():
    model = nn.Sequential(ours.QuantStub(), nn.Linear(4, 2)).eval()
    model.qconfig = ours.get_default_qconfig("onednn")
    prepared = quiet(ours.prepare, model)
    prepared(tangrad.ones(1, 4))
    with pytest.raises(RuntimeError, match=r"'0' \(QuantStub\) is observed already.* convert it"):
        quiet(ours.prepare, prepared)
    assert type(ours.convert(prepared)[1]).__name__ == "Linear"


def test_names_that_nothing_is_quantized_by_are_refused():
    model = nn.Sequential(nn.Linear(4, 2), nn.Sequential(nn.ReLU()))
    with pytest.raises(RuntimeError, match=r"'1.0' \(ReLU\) has no quantized form; leave it out"):
        ours.quantize_dynamic(model, {"1.0"})
    with pytest.raises(ValueError, match="the model has no module '2'"):
        ours.quantize_dynamic(model, {"2": ours.default_dynamic_qconfig})
    assert type(ours.quantize_dynamic(model, {"0"})[0]).__name__ == "Linear"
    assert type(ours.quantize_dynamic(model, {"0": None})[0]) is nn.Linear
