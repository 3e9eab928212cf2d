"""A compiled module is the module, under another roof."""

from __future__ import annotations

import copy
import pickle

import pytest

import tangrad
from tangrad import nn
from tangrad_jit.capture.errors import CaptureError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.scale = 2.0

    def forward(self, x):
        return self.linear(x) * self.scale

    def __len__(self):
        return 7


@pytest.fixture
def pair():
    net = Net()
    return net, tangrad.compile(net, fullgraph=True, options={"measure": False})


@pytest.fixture
def x():
    return tangrad.ones(4, 3)


def test_names_are_the_module_s(pair, x):
    net, fast = pair
    assert fast._orig_mod is net
    assert list(fast.state_dict()) == ["_orig_mod.linear.weight", "_orig_mod.linear.bias"]
    assert (fast.scale, len(fast), bool(fast)) == (2.0, 7, True)
    assert {"linear", "scale"} <= set(dir(fast))
    with pytest.raises(AttributeError):
        _ = fast.nothing


def test_what_is_set_is_set_on_the_module(pair, x):
    net, fast = pair
    fast.scale = 3.0
    fast.linear = nn.Linear(3, 2)
    fast.extra = nn.Parameter(tangrad.ones(1))
    assert (net.scale, net.linear, net.extra) == (3.0, fast.linear, fast.extra)
    assert [n for n in fast.state_dict() if not n.startswith("_orig_mod.")] == []
    del fast.extra
    assert not hasattr(net, "extra")
    for _ in range(3):
        assert fast(x).equal(net(x))


def test_the_mode_is_the_module_s(pair):
    net, fast = pair
    net.eval()
    assert not fast.training
    fast.train()
    assert net.training
    assert net.linear.training
    fast.training = False
    assert not net.training


def test_hooks_of_the_compiled_module_run(pair, x):
    net, fast = pair
    handle = fast.register_forward_hook(lambda module, args, out: out * 2)
    for _ in range(3):
        assert fast(x).equal(net(x) * 2)
    handle.remove()
    assert fast(x).equal(net(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_compiled_and_have_parameters_of_their_own(pair, x, copied):
    net, fast = pair
    fast(x)
    other = copied(fast)
    assert type(other) is type(fast)
    with tangrad.no_grad():
        other.linear.weight.zero_()
    assert other(x).equal(other._orig_mod(x))
    assert not other(x).equal(net(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_a_module_compiled_in_place_runs_on_its_own_parameters(x, copied):
    net = Net()
    net.compile(fullgraph=True, options={"measure": False})
    net(x)
    other = copied(net)
    with tangrad.no_grad():
        other.linear.weight.zero_()
        other.linear.bias.zero_()
    assert other(x).tolist() == [[0.0, 0.0]] * 4
    assert net(x).equal(Net.forward(net, x))


def test_a_class_of_which_objects_are_compiled_is_a_class(x):
    kind = tangrad.compile(type("Kind", (Net,), {}), fullgraph=True, options={"measure": False})
    assert issubclass(kind, Net)
    one, other = kind(), kind()
    for _ in range(3):
        for net in (one, other):
            assert net(x).equal(net.forward(x))


def test_modules_and_classes_are_kept_out_of_graphs(x):
    net = tangrad.compiler.disable(Net(), reason="a test")
    assert net(x).equal(net._orig_mod(x))
    with pytest.raises(CaptureError, match="Net.* is kept out of graphs.*a test"):
        tangrad.compile(lambda x: net(x) + 1, fullgraph=True)(x)
    kind = tangrad.compiler.disable(type("Kind", (Net,), {}))
    assert isinstance(kind(), Net)
    with pytest.raises(CaptureError, match="kept out of graphs"):
        tangrad.compile(kind(), fullgraph=True)(x)
