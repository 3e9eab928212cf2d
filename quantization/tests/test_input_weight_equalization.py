"""Input-weight equalization in graph mode, beside PyTorch's."""

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._equalize as their_equalize
import torch.ao.quantization.quantize_fx as their_fx
from quantized_pairs import both, data, models, ours, quiet, theirs

import tangrad
import tangrad.ao.quantization.fx._equalize as our_equalize
import tangrad.ao.quantization.quantize_fx as our_fx

WIDE = np.array([1.0, 40.0, 0.05, 5.0], dtype="float32")


def linear(nn, q):
    return nn.Sequential(nn.Linear(4, 8))


def conv(nn, q):
    return nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU())


def chain(nn, q):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def functional(nn, q):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = nn.Parameter(nn.Linear(4, 8).weight.detach()), None

        def forward(self, x):
            return nn.functional.linear(x, self.w, self.b)

    return Net()


def branches(nn, q):
    """The first layer's output is used twice: it must not be scaled for the second layer alone."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            x = self.first(x)
            return self.second(x) + x

    return Net()


def batch(make):
    shape = (6, 4, 5, 5) if make is conv else (6, 4)
    return data(*shape) * WIDE.reshape((4, 1, 1) if make is conv else (4,))


def prepared(make, side, equalize, graphs, model, x):
    mapping = side.QConfigMapping().set_global(side.default_qconfig)
    wanted = side.QConfigMapping().set_global(equalize.default_equalization_qconfig)
    made = quiet(graphs.prepare_fx, model.eval(), mapping, (x,), _equalization_config=wanted)
    made(x)
    return made


def pairs(make):
    """Return (model, prepared model, batch) of each side."""
    sides = ((theirs, their_equalize, their_fx), (ours, our_equalize, our_fx))
    return [
        (model, prepared(make, *side, model, x), x)
        for side, model, x in zip(sides, models(make), both(batch(make)), strict=True)
    ]


# Not `functional`: PyTorch fails to assign the scaled parameter.
@pytest.mark.parametrize("make", [linear, conv])
def test_integers_are_pytorchs_where_the_graph_multiplies(make):
    (_, a, x), (_, b, y) = pairs(make)
    expected = quiet(their_fx.convert_fx, a)(x).numpy()
    done = our_fx.convert_fx(b)
    assert "_equalization_scale0" in done.code
    assert np.allclose(done(y).numpy(), expected, atol=1e-5)


def noise(model, done, x):
    expected = model(x)
    return ((done(x) - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("make", [linear, conv, chain, functional])
def test_less_is_lost_than_without(make):
    (_, model), (_, x) = models(make), both(batch(make))
    mapping = ours.QConfigMapping().set_global(ours.default_qconfig)
    plain = our_fx.prepare_fx(model.eval(), mapping, (x,))
    plain(x)
    before = noise(model, our_fx.convert_fx(plain), x)
    assert equalized_noise(make, x) < before


def equalized_noise(make, x):
    (_, model), (_, twin) = models(make), models(make)
    made = prepared(make, ours, our_equalize, our_fx, model, x)
    return noise(twin.eval(), our_fx.convert_fx(made), x)


def test_a_layer_whose_output_goes_elsewhere_too_is_not_scaled():
    assert equalized_noise(branches, both(batch(branches))[1]) < 0.03


def test_a_chain_hands_its_scale_to_the_layer_before():
    (_, a, x), (_, b, y) = pairs(chain)
    reference = our_equalize._convert_equalization_ref(b)
    expected = quiet(their_equalize._convert_equalization_ref, a)
    for name, parameter in dict(expected.named_parameters()).items():
        found = dict(reference.named_parameters())[name]
        assert np.allclose(found.detach().numpy(), parameter.detach().numpy(), rtol=1e-5)
    assert np.allclose(reference(y).detach().numpy(), expected(x).detach().numpy(), atol=1e-4)
    assert reference.code.count("mul") == expected.code.count("mul")


def test_scales_are_pytorchs_and_constant_channels_stay():
    weight, x = data(5, 4), batch(linear)
    x[:, 2] = 3.0
    found = []
    for side, equalize in ((torch, their_equalize), (tangrad, our_equalize)):
        watching, look = (
            equalize.input_equalization_observer(), equalize.weight_equalization_observer()
        )  # fmt: skip
        watching(side.from_numpy(x)), look(side.from_numpy(weight))
        found.append(equalize.calculate_equalization_scale(watching, look).numpy())
    assert np.allclose(*found, rtol=1e-6)
    assert found[1][2] == 1.0


def test_wrong_configurations_are_refused():
    with pytest.raises(ValueError, match="pass observer class instead"):
        our_equalize.EqualizationQConfig(our_equalize._InputEqualizationObserver())
    with pytest.raises(TypeError, match="must be per-tensor"):
        our_equalize._InputEqualizationObserver(qscheme=tangrad.per_channel_affine)
    with pytest.raises(ValueError, match=r"2\s+to 5 dimensions; got shape \[3\]"):
        our_equalize.input_equalization_observer()(tangrad.ones(3))
    one, other = (
        our_equalize.input_equalization_observer(), our_equalize.weight_equalization_observer()
    )  # fmt: skip
    with pytest.warns(UserWarning, match="Must run observer"):
        assert our_equalize.calculate_equalization_scale(one, other).item() == 1
    one(tangrad.ones(2, 3)), other(tangrad.ones(2, 4))
    with pytest.raises(ValueError, match=r"Found \[3\] and \[4\]"):
        our_equalize.calculate_equalization_scale(one, other)


def test_the_noisiest_layers_are_chosen():
    chosen = our_equalize.get_equalization_qconfig_dict({"a": 30.0, "b": 10.0, "c": 20.0}, 2)
    assert [name for name, _ in chosen["module_name"]] == ["b", "c"]
