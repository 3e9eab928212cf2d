"""Observers and fake quantization say the scales and zero points that PyTorch's say."""

import numpy as np
import pytest
import torch
from quantized_pairs import both, data, ours, quiet, same, theirs, translated

import tangrad

CHANNELS = {"ch_axis": 1}
SIGNED = {"dtype": "qint8", "qscheme": "per_tensor_symmetric"}
OBSERVERS = [
    ("MinMaxObserver", {}),
    ("MinMaxObserver", SIGNED),
    ("MinMaxObserver", {"quant_min": 0, "quant_max": 127}),
    ("MinMaxObserver", {"dtype": "quint8", "qscheme": "per_tensor_symmetric"}),
    ("MovingAverageMinMaxObserver", {}),
    ("PerChannelMinMaxObserver", CHANNELS),
    (
        "PerChannelMinMaxObserver",
        {**CHANNELS, "dtype": "qint8", "qscheme": "per_channel_symmetric"},
    ),
    (
        "PerChannelMinMaxObserver",
        {"ch_axis": 0, "dtype": "quint4x2", "qscheme": "per_channel_affine_float_qparams"},
    ),
    ("MovingAveragePerChannelMinMaxObserver", {"ch_axis": 0}),
    ("HistogramObserver", {}),
    ("HistogramObserver", {"reduce_range": True}),
    ("HistogramObserver", SIGNED),
]
BATCHES = [data(4, 8, 5, seed=n, scale=0.1 + 5 * n, offset=n - 1) for n in range(3)]


@pytest.mark.parametrize(("name", "arguments"), OBSERVERS)
def test_scales_and_zero_points_equal(name, arguments):
    theirs_, ours_ = (
        quiet(getattr(side, name), **given)
        for side, given in zip((theirs, ours), translated(arguments), strict=True)
    )
    for batch in BATCHES:
        a, b = both(batch)
        quiet(theirs_, a)
        ours_(b)
    for a, b in zip(theirs_.calculate_qparams(), ours_.calculate_qparams(), strict=True):
        assert a.numpy().dtype == b.numpy().dtype
        assert same(a, b)


FAKES = [
    "default_fake_quant",
    "default_weight_fake_quant",
    "default_per_channel_weight_fake_quant",
    "default_fused_act_fake_quant",
    "default_fused_wt_fake_quant",
    "default_fused_per_channel_wt_fake_quant",
    "fused_wt_fake_quant_range_neg_127_to_127",
    "default_fixed_qparams_range_0to1_fake_quant",
]


@pytest.mark.parametrize("name", FAKES)
def test_fake_quantization_equals(name):
    a_fake, b_fake = quiet(getattr(theirs, name)), quiet(getattr(ours, name))
    for batch in BATCHES:
        a, b = both(batch)
        assert same(a_fake(a), b_fake(b))
    assert same(a_fake.scale, b_fake.scale)
    assert same(a_fake.zero_point, b_fake.zero_point)


def test_gradient_passes_between_the_outer_values():
    fake = quiet(ours.default_fake_quant)
    fake(tangrad.tensor([-1.0, 1.0]))
    ours.disable_observer(fake)
    x = tangrad.tensor([-5.0, 0.5, 5.0], requires_grad=True)
    fake(x).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(("name", "arguments"), OBSERVERS[:1] + OBSERVERS[5:6] + OBSERVERS[9:10])
def test_statistics_exchange_with_pytorch_both_ways(name, arguments):
    given, mine = translated(arguments)
    a, b = quiet(getattr(theirs, name), **given), getattr(ours, name)(**mine)
    quiet(a, torch.from_numpy(BATCHES[1]))
    b.load_state_dict({k: tangrad.from_numpy(v.numpy()) for k, v in a.state_dict().items()})
    assert same(a.calculate_qparams()[0], b.calculate_qparams()[0])
    back = quiet(getattr(theirs, name), **given)
    back.load_state_dict({k: torch.from_numpy(v.numpy()) for k, v in b.state_dict().items()})
    assert same(back.calculate_qparams()[0], b.calculate_qparams()[0])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["MinMaxObserver", "PerChannelMinMaxObserver"])
def test_what_is_not_finite_is_refused(name, wrong):
    x = tangrad.tensor([[1.0, wrong], [2.0, 3.0]])
    with pytest.raises(ValueError, match="NaN or infinity"):
        getattr(ours, name)()(x)


def test_a_histogram_leaves_infinity_out_and_warns_and_refuses_nan():
    observer = ours.HistogramObserver()
    with pytest.warns(UserWarning, match="ignoring input"):
        observer(tangrad.tensor([1.0, 2.0, float("inf")]))
    assert observer.max_val.item() == 2.0
    with pytest.raises(ValueError, match="NaN"):
        observer(tangrad.tensor([1.0, float("nan")]))


def test_an_observer_that_saw_nothing_warns_and_says_one():
    with pytest.warns(UserWarning, match="must run observer"):
        scale, zero_point = ours.MinMaxObserver().calculate_qparams()
    assert (scale.item(), zero_point.item()) == (1.0, 0)


def test_channels_that_change_in_number_are_refused():
    observer = ours.PerChannelMinMaxObserver()
    observer(tangrad.ones(3, 2))
    with pytest.raises(RuntimeError, match="3 channels before and 4 now"):
        observer(tangrad.ones(4, 2))


def test_configurations_compare_by_what_they_make():
    one, two = ours.get_default_qconfig("x86"), ours.get_default_qconfig("fbgemm")
    assert ours.qconfig_equals(one, two)
    assert not ours.qconfig_equals(one, ours.get_default_qconfig("qnnpack"))
    with pytest.raises(ValueError, match="pass its class"):
        ours.QConfig(ours.MinMaxObserver(), ours.MinMaxObserver)


@pytest.mark.parametrize("kind", ["get_default_qconfig_mapping", "get_default_qat_qconfig_mapping"])
def test_mappings_survive_being_a_dict(kind):
    mapping = getattr(ours, kind)()
    again = ours.QConfigMapping.from_dict(mapping.to_dict())
    assert again.to_dict() == mapping.to_dict()
    assert len(mapping.object_type_qconfigs) == len(getattr(theirs, kind)().object_type_qconfigs)


@pytest.mark.parametrize("backend", ["x86", "qnnpack"])
@pytest.mark.parametrize("kind", ["get_default_qconfig", "get_default_qat_qconfig"])
def test_the_older_dicts_say_what_the_mappings_say(kind, backend):
    older, mapping = (
        quiet(getattr(ours, f"{kind}_{form}"), backend) for form in ("dict", "mapping")
    )
    assert ours.qconfig_equals(older[""], mapping.global_qconfig)
    assert [name for name, _ in older["object_type"]] == list(mapping.object_type_qconfigs)
    pairs = zip(older["object_type"], mapping.object_type_qconfigs.values(), strict=True)
    assert all(ours.qconfig_equals(qconfig, same) for (_, qconfig), same in pairs)
    theirs_ = quiet(getattr(theirs.qconfig, f"{kind}_dict"), backend)
    assert {key: len(found) for key, found in older.items()} == {
        key: len(found) for key, found in theirs_.items()
    }
