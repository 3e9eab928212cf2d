"""What is said of a layer that is made with wrong arguments: its name, and the likely argument."""

from __future__ import annotations

import pytest

import tangrad
from tangrad import nn


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Conv2d(1, 2, 3, paddin=1), "Conv2d.* 'paddin'. Did you mean 'padding'?"),
        (lambda: nn.ConvTranspose1d(1, 2, 3, strid=1), "ConvTranspose1d.* Did you mean 'stride'?"),
        (lambda: nn.BatchNorm2d(3, momentm=1), "BatchNorm2d.* Did you mean 'momentum'?"),
        (lambda: nn.InstanceNorm1d(3, afine=True), "InstanceNorm1d.* Did you mean 'affine'?"),
        (lambda: nn.MaxPool2d(3, strid=1), "MaxPool2d.* Did you mean 'stride'?"),
        (lambda: nn.LSTM(3, 4, num_layer=2), "LSTM.* Did you mean 'num_layers'?"),
        (lambda: nn.LazyConv2d(3, 3, paddin=1), "LazyConv2d.* Did you mean 'padding'?"),
        (
            lambda: nn.Dropout(quux=1),
            "Dropout.__init__() got an unexpected keyword argument 'quux'",
        ),
        (lambda: nn.Conv3d(1), "Conv3d.* missing 2 required positional arguments: 'out_channels'"),
        (lambda: nn.GRU(), "GRU.__init__() missing 2 required positional arguments"),
    ],
)
def test_a_wrong_argument_names_the_layer(make, message):
    start, _, end = message.partition(".* ")
    with pytest.raises(TypeError) as raised:
        make()
    text = str(raised.value)
    assert text.startswith(start + "." if end else start)
    assert end in text


def test_a_model_s_own_constructor_is_named_with_its_argument():
    class Net(nn.Module):
        def __init__(self, width=3):
            super().__init__()

    class Wider(Net):
        pass

    with pytest.raises(TypeError, match=r"Wider.__init__\(\) .*'widht'. Did you mean 'width'?"):
        Wider(widht=4)


def test_errors_from_inside_a_constructor_stay_as_they_are():
    def wrong(width):
        return width

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.width = wrong(widht=3)

    class Other(nn.Conv2d):
        def __init__(self):
            super().__init__(1, 2, 3, paddin=1)

    with pytest.raises(TypeError, match=r"wrong\(\) got an unexpected keyword argument 'widht'$"):
        Net()
    with pytest.raises(TypeError, match=r"_ConvNd.__init__\(\) .*'paddin'"):
        Other()


def test_a_constructor_that_is_replaced_is_called():
    class Net(nn.Module):
        pass

    Net.__init__ = lambda self, depth: nn.Module.__init__(self)
    assert isinstance(Net(3), Net)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'depth'"):
        Net()


def test_fragments_that_programs_look_for_are_in_the_messages():
    F, x = tangrad.nn.functional, tangrad.ones(25)
    with pytest.raises(ValueError, match=r"Using a target size \("):
        F.binary_cross_entropy(x, x[:, None])
    with pytest.raises(RuntimeError, match="both arguments need to be at least 1D"):
        F.linear(tangrad.tensor(1.0), tangrad.ones(1, 1))
    with pytest.raises(RuntimeError, match="calculated shape of the array of sliding blocks as"):
        F.fold(tangrad.ones(1, 12, 12), (4, 5), (2, 2), dilation=8)
    leaf = tangrad.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="we interpret the first dimension"):
        tangrad.autograd.grad(leaf * 1, leaf, tangrad.ones(2, 2), is_grads_batched=True)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_class_that_is_not_there_is_told_with_those_that_are(device):
    scores, target = tangrad.ones(2, 3, device=device), tangrad.tensor([1, 5], device=device)
    with pytest.raises(IndexError, match=r"Target 5 is out of bounds\. .*3 classes: .* 0 to 2"):
        nn.functional.cross_entropy(scores, target)
