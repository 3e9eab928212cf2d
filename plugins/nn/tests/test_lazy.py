"""Lazy modules: parameters without a shape, and how they get one."""

import copy
import pickle
import sys

import pytest

import tangrad
from tangrad import nn
from tangrad.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy


def test_a_parameter_becomes_an_ordinary_one_and_stays_the_same_object():
    layer = nn.LazyLinear(3)
    weight = layer.weight
    optimizer = tangrad.optim.SGD([weight], lr=0.5)
    assert is_lazy(weight)
    assert isinstance(weight, nn.Parameter)
    layer(tangrad.ones(2, 4)).sum().backward()
    assert layer.weight is weight
    assert type(weight) is nn.Parameter
    assert type(layer) is nn.Linear
    before = weight.detach().clone()
    optimizer.step()
    assert weight.equal(before - 1.0)


def test_buffers_become_plain_tensors():
    layer = nn.LazyBatchNorm1d(dtype=tangrad.float64)
    mean = layer.running_mean
    assert isinstance(mean, UninitializedBuffer)
    layer(tangrad.ones(2, 3, dtype=tangrad.float64))
    assert layer.running_mean is mean
    assert type(mean) is tangrad.Tensor
    assert mean.dtype is tangrad.float64
    assert mean.shape == (3,)


def test_many_parameters_come_and_go():
    # An object that changes its type must neither keep its class nor give it back twice.
    held = sys.getrefcount(UninitializedParameter)
    for _ in range(2000):
        parameter = UninitializedParameter()
        parameter.materialize((2, 2))
        assert parameter.shape == (2, 2)
        del parameter
    assert abs(sys.getrefcount(UninitializedParameter) - held) < 10


def test_an_object_with_fields_of_its_own_cannot_change_its_type():
    class Named(UninitializedParameter):
        __slots__ = ("name",)

    with pytest.raises(TypeError, match="__slots__"):
        Named().materialize((2,))


def test_conversion_before_the_first_input():
    layer = nn.LazyLinear(3).double()
    assert is_lazy(layer.weight)
    assert layer.weight.dtype is tangrad.float64
    assert layer(tangrad.ones(1, 2, dtype=tangrad.float64)).dtype is tangrad.float64
    assert is_lazy(nn.LazyLinear(3).to("meta").weight)
    norm = nn.LazyBatchNorm1d().half()
    assert is_lazy(norm.running_mean)
    assert norm.running_mean.dtype is tangrad.float16


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_lazy_on_their_own(copied):
    layer = nn.LazyLinear(3, dtype=tangrad.float64)
    other = copied(layer)
    other(tangrad.ones(1, 2, dtype=tangrad.float64))
    assert is_lazy(layer.weight)
    assert other.weight.dtype is tangrad.float64
    assert type(other) is nn.Linear
    assert type(layer) is nn.LazyLinear


def test_state_is_loaded_made_or_not():
    made = nn.Linear(2, 3)
    lazy = nn.LazyLinear(3)
    lazy.load_state_dict(made.state_dict())
    assert lazy.weight.equal(made.weight)
    x = tangrad.ones(1, 2)
    assert lazy(x).equal(made(x))
    assert type(lazy) is nn.Linear
    assert lazy.in_features == 2
    other = nn.LazyLinear(3)
    other.load_state_dict(nn.LazyLinear(3).state_dict())
    assert is_lazy(other.weight)


def test_a_sequence_of_lazy_layers_takes_sizes_through():
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    assert net(tangrad.ones(2, 1, 5, 5)).shape == (2, 2)
    assert [type(m) for m in net] == [nn.Conv2d, nn.BatchNorm2d, nn.Flatten, nn.Linear]


def test_a_module_that_makes_too_little_is_an_error():
    class Forgetful(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = UninitializedParameter()

        def initialize_parameters(self, input):
            pass

    with pytest.raises(RuntimeError, match="has not been fully initialized"):
        Forgetful()(tangrad.ones(1))

    class Undefined(nn.modules.lazy.LazyModuleMixin, nn.Module):
        pass

    with pytest.raises(NotImplementedError, match="Undefined"):
        Undefined()(tangrad.ones(1))


# What PyTorch refuses as well but needs no shape: `LazyLinear(3).bfloat16()`, `requires_grad_()`.
ALLOWED_HERE = {"bfloat16", "requires_grad_"}
# Reading of other kinds of attributes, of other devices, and what ends the object.
OTHERS = {
    "materialize",
    "__class__",
    "__dir__",
    "__dlpack_c_exchange_api__",
    "__del__",
    "__cuda_array_interface__",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["UninitializedParameter", "UninitializedBuffer"])
def test_what_needs_a_shape_is_refused_as_in_pytorch(kind):
    torch = pytest.importorskip("torch", reason="torch is the oracle")

    def answer(t, name):
        lazy = getattr(t.nn.parameter, kind)()
        try:
            found = getattr(lazy, name)
            return type(found() if callable(found) else found).__name__
        except Exception as error:
            return type(error).__name__

    names = (set(dir(torch.Tensor)) & set(dir(tangrad.Tensor))) - ALLOWED_HERE - OTHERS
    refused = [n for n in sorted(names) if answer(torch, n) == "ValueError"]
    assert {"numel", "dim", "tolist", "detach", "__len__"} <= set(refused)
    assert [n for n in refused if answer(tangrad, n) not in ("ValueError", "TypeError")] == []
    plain = [n for n in names if answer(torch, n) == "Tensor"]
    assert [n for n in plain if answer(tangrad, n) != "Tensor"] == []
