"""States of quantized modules and observers stay as they were given to load."""

from __future__ import annotations

import warnings

import pytest

import tangrad
from tangrad import nn
from tangrad.ao import quantization as q
from tangrad.ao.nn import quantized as nnq
from tangrad.ao.nn.quantized import dynamic as nnqd

pytestmark = pytest.mark.filterwarnings("ignore:.*reduce_range.*:UserWarning")

X = tangrad.arange(12.0).reshape(4, 3).cos()


def quantized(x):
    return tangrad.quantize_per_tensor(x, 0.1, 3, tangrad.quint8)


def weight_of(*shape):
    values = tangrad.arange(float(tangrad.Size(shape).numel())).reshape(shape).sin()
    return tangrad.quantize_per_tensor(values, 0.05, 0, tangrad.qint8)


def filled(module, *shape):
    module.set_weight_bias(weight_of(*shape), tangrad.ones(shape[0]))
    return module


# name -> (makes the module, an argument)
MODULES = {
    "Linear": (lambda: filled(nnq.Linear(3, 2), 2, 3), quantized(X)),
    "Conv1d": (
        lambda: filled(nnq.Conv1d(3, 2, 1), 2, 3, 1),
        quantized(X.reshape(1, 3, 4)),
    ),
    "Embedding": (lambda: nnq.Embedding(3, 4), tangrad.tensor([0, 2])),
    "EmbeddingBag": (lambda: nnq.EmbeddingBag(3, 4), tangrad.tensor([[0, 2]])),
    "QFunctional": (nnq.QFunctional, None),
    "dynamic Linear": (lambda: filled(nnqd.Linear(3, 2), 2, 3), X),
    "dynamic LSTM": (lambda: dynamic(nn.LSTM(3, 2)), X.reshape(2, 2, 3)),
    "MinMaxObserver": (q.MinMaxObserver, X),
    "MovingAverageMinMaxObserver": (q.MovingAverageMinMaxObserver, X),
    "PerChannelMinMaxObserver": (q.PerChannelMinMaxObserver, X),
    "MovingAveragePerChannelMinMaxObserver": (q.MovingAveragePerChannelMinMaxObserver, X),
    "HistogramObserver": (q.HistogramObserver, X),
    "FakeQuantize": (q.FakeQuantize, X),
    "FusedMovingAvgObsFakeQuantize": (q.FusedMovingAvgObsFakeQuantize, X),
    "trained for it": (lambda: prepared(q.prepare_qat), X),
    "observed": (lambda: prepared(q.prepare), X),
}


def dynamic(model):
    return q.quantize_dynamic(nn.Sequential(model), {nn.LSTM}, dtype=tangrad.qint8)[0]


def prepared(prepare):
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    model.qconfig = q.get_default_qat_qconfig("fbgemm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepare(model.train())


def frozen(value):
    """Return a state as plain data."""
    if isinstance(value, tangrad.Tensor):
        if value.is_quantized:
            return frozen([value.int_repr(), value.dequantize()])
        return str(value.dtype), tuple(value.shape), value.tolist()
    if isinstance(value, dict):
        items = [(key, frozen(item)) for key, item in value.items()]
        return items, frozen(getattr(value, "_metadata", None))
    if isinstance(value, (list, tuple)):
        return [frozen(item) for item in value]
    return value


def go_on(module, x):
    if x is not None:
        module(x)
        module(x * 3 if x.is_floating_point() else x)


@pytest.mark.parametrize("name", MODULES)
def test_what_is_loaded_leaves_what_was_given(name):
    make, x = MODULES[name]
    source = make()
    go_on(source, x)
    given = source.state_dict()
    before = frozen(given)
    target = make()
    target.load_state_dict(given)
    assert frozen(given) == before, "loading changed it"
    go_on(target, x)
    assert frozen(given) == before, "going on changed it"


@pytest.mark.parametrize("name", ["Linear", "Conv1d", "dynamic Linear"])
def test_a_loaded_weight_is_a_copy(name):
    make, _ = MODULES[name]
    given = make().state_dict()
    before = frozen(given)
    target = make()
    target.load_state_dict(given)
    target.bias().add_(1)
    other = target.weight()
    other.copy_(tangrad.quantize_per_tensor(tangrad.ones(other.shape), 0.1, 0, tangrad.qint8))
    assert frozen(given) == before


def test_states_of_observers_alone_stay_and_keep_what_they_hold():
    source, target = prepared(q.prepare), prepared(q.prepare)
    go_on(source, X)
    given = q.get_observer_state_dict(source)
    for key in given:
        if key.endswith("eps"):
            given[key] = tangrad.tensor([0.125])
    before = frozen(given)
    q.load_observer_state_dict(target, given)
    assert frozen(given) == before
    assert frozen(q.get_observer_state_dict(target)) == before
    incomplete = type(given)((key, value) for key, value in given.items() if "eps" not in key)
    q.load_observer_state_dict(target, incomplete)
    assert not any(key.endswith("eps") for key in incomplete)
