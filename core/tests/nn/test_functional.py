"""What nn.functional adds to the ops."""

import pytest

import tangrad
from tangrad.nn import functional as F

CALLS = {
    "relu": lambda t, f, x: f.relu(x),
    "threshold": lambda t, f, x: f.threshold(x, 0.5, 9.0),
    "hardtanh": lambda t, f, x: f.hardtanh(x, -0.5, 0.25),
    "relu6": lambda t, f, x: f.relu6(x * 9),
    "leaky_relu": lambda t, f, x: f.leaky_relu(x, 0.3),
    "elu": lambda t, f, x: f.elu(x, 2.0),
    "selu": lambda t, f, x: f.selu(x),
    "celu": lambda t, f, x: f.celu(x, 0.5),
    "silu": lambda t, f, x: f.silu(x),
    "mish": lambda t, f, x: f.mish(x),
    "hardsigmoid": lambda t, f, x: f.hardsigmoid(x * 4),
    "hardswish": lambda t, f, x: f.hardswish(x * 4),
    "gelu": lambda t, f, x: f.gelu(x, approximate="tanh"),
    "softmax": lambda t, f, x: f.softmax(x, 1),
    "softmax in float64": lambda t, f, x: f.softmax(x, dim=0, dtype=t.float64),
    "softmin": lambda t, f, x: f.softmin(x, 1),
    "log_softmax": lambda t, f, x: f.log_softmax(x, dim=-1),
    "normalize": lambda t, f, x: f.normalize(x),
    "normalize by another norm": lambda t, f, x: f.normalize(x, p=1.0, dim=0),
    "normalize zeros": lambda t, f, x: f.normalize(x * 0),
    "one_hot": lambda t, f, x: f.one_hot(t.tensor([0, 2, 1])),
    "pad": lambda t, f, x: f.pad(x, (1, -1, 0, 2), value=3.0),
    "linear": lambda t, f, x: f.linear(x, x),
    "unknown": lambda t, f, x: f.no_such_function(x),
    "bad bounds": lambda t, f, x: f.hardtanh(x, 1.0, -1.0),
    "bad probability": lambda t, f, x: f.dropout(x, 2.0),
}

IN_PLACE = ("relu relu6 hardtanh leaky_relu elu selu celu silu mish hardsigmoid hardswish").split()


def values(t):
    return t.tensor([[-1.5, -0.2, 0.0], [0.3, 1.0, 2.5]])


@pytest.mark.parametrize("name", CALLS)
def test_functions_compute_as_in_pytorch(agree, name):
    agree(lambda t: CALLS[name](t, t.nn.functional, values(t)), message="bad" not in name)


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_forms_write_into_the_input(agree, name):
    def program(t):
        x = values(t)
        assert getattr(t.nn.functional, name)(x, inplace=True) is x
        return x

    agree(program)


def test_softmax_without_a_dimension_warns():
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        assert F.softmax(tangrad.zeros(1, 4)).tolist() == [[0.25] * 4]


def test_a_missing_function_is_an_attribute_error():
    assert not hasattr(F, "no_such_function")


def test_dropout_scales_what_it_keeps():
    x = F.dropout(tangrad.ones(10_000), 0.25)
    kept = (x != 0).sum().item()
    assert 7_200 < kept < 7_800
    assert float(x.max()) == pytest.approx(1 / 0.75)
    assert F.dropout(tangrad.ones(3), training=False).tolist() == [1.0, 1.0, 1.0]
