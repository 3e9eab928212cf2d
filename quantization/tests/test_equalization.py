"""Cross-layer equalization: the same function, with channels of like ranges."""

import pytest
import torch
import torch.ao.quantization._equalize as their_equalize
from quantized_pairs import data, models, same

import tangrad
from tangrad import nn
from tangrad.ao import quantization as q
from tangrad_quantization.automatic.equalization import cross_layer_equalization, equalize_found
from tangrad_quantization.layers.islands import Island


def two(nn, _):
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


def test_factors_are_pytorchs():
    a, b = models(two)
    their_equalize.cross_layer_equalization(a[0], a[2])
    cross_layer_equalization(b[0], b[2])
    for expected, found in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(torch.from_numpy(found.detach().numpy()), expected.detach())


def spread(model, path):
    """Return how far apart the ranges of a layer's output channels are."""
    weight = model.get_submodule(path).weight.detach().flatten(1)
    ranges = weight.amax(1) - weight.amin(1)
    return (ranges.max() / ranges.min()).item()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.next = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3)
        self.first, self.last = nn.Linear(4 * 16, 8), nn.Linear(8, 3)
        with tangrad.no_grad():
            wide = tangrad.tensor([1.0, 30.0, 0.05, 200.0])
            self.conv.weight.mul_(wide[:, None, None, None])
            self.next.weight.div_(wide[:, None, None])

    def forward(self, x):
        x = self.next(self.conv(x).relu()).relu()
        return self.last(self.first(x.flatten(1)).tanh())


def test_pairs_are_found_by_what_the_model_computes():
    tangrad.manual_seed(0)
    model, x = Net().eval(), tangrad.from_numpy(data(5, 2, 8, 8))
    expected, before = model(x), spread(model, "conv")
    assert equalize_found(model, x) == [("conv", "next"), ("next", "first")]  # tanh is in the way
    assert model(x).allclose(expected, atol=1e-4)
    assert spread(model, "conv") < 0.1 * before


def test_auto_equalizes_where_it_helps_and_says_so():
    tangrad.manual_seed(0)
    model = Net().eval()
    batches = [tangrad.from_numpy(data(8, 2, 8, 8, seed=n)) for n in range(3)]
    half = lambda module, x: 0.5 if isinstance(module, Island) else 1.0  # noqa: E731
    _, report = q.auto(model, batches, max_drop=0.05, timer=half)
    assert ("conv", "next") in report.equalized
    assert "equalized channels: conv and next" in str(report)


def test_chains_are_equalized_on_a_copy_if_wanted():
    _, model = models(two)
    made = q.equalize(model, [["0", "2"]], inplace=False)
    x = tangrad.from_numpy(data(5, 6))
    assert made(x).allclose(model(x), atol=1e-5)
    assert not same(made[0].weight, model[0].weight)


def test_layers_that_do_not_follow_each_other_are_refused():
    with pytest.raises(ValueError, match="are not the input channels"):
        cross_layer_equalization(nn.Linear(4, 3), nn.Linear(4, 3))
    with pytest.raises(ValueError, match="neither a linear layer nor"):
        cross_layer_equalization(nn.Linear(4, 3), nn.ReLU())
