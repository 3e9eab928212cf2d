"""The compiled call and attribute access of a module, and everything that may bend them."""

import abc
import copy
import gc
import pickle
import weakref
from typing import Generic, TypeVar

import pytest

import tangrad
from tangrad import nn
from tangrad.nn import _module


class Double(nn.Module):
    def forward(self, x, *rest, scale=2, **options):
        return (x * scale, *rest, *options.values())


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 30])
def test_call_passes_positional_and_keyword_arguments(count):
    rest = tuple(range(count))
    assert Double()(3, *rest) == (6, *rest)
    assert Double()(3, *rest, scale=5, a=1) == (15, *rest, 1)
    assert Double()(x=3) == (6,)


def test_forward_of_the_instance_wins():
    module = Double()
    module.forward = lambda x: -x
    assert module(3) == -3


def test_forward_may_be_a_static_or_class_method_or_a_callable():
    class Static(nn.Module):
        @staticmethod
        def forward(x):
            return x + 1

    class Bound(nn.Module):
        @classmethod
        def forward(cls, x):
            return cls.__name__, x

    class Holding(nn.Module):
        forward = nn.Identity()

    assert Static()(1) == 2
    assert Bound()(1) == ("Bound", 1)
    assert Holding()(1) == 1


def test_forward_as_a_class_attribute_may_be_replaced_later():
    module = Double()
    original = Double.forward
    Double.forward = lambda self, x: "patched"
    try:
        assert module(1) == "patched"
    finally:
        Double.forward = original
    assert module(1) == (2,)


def test_a_module_without_forward_says_so(agree):
    agree(lambda t: t.nn.Module()(1))


def test_wrong_arguments_raise_type_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Double()()


def test_an_overridden_call_is_used_and_may_delegate():
    class Counting(Double):
        calls = 0

        def __call__(self, *args, **kwargs):
            self.calls += 1
            return super().__call__(*args, **kwargs)

    module = Counting()
    assert module(3) == (6,)
    assert module.calls == 1


def test_patching_call_of_the_base_class_affects_all_modules():
    module = Double()
    original = nn.Module.__call__
    nn.Module.__call__ = lambda self, *args: "patched"
    try:
        assert module(3) == "patched"
    finally:
        nn.Module.__call__ = original
    assert module(3) == (6,)


def test_an_overridden_getattr_is_asked_first_and_may_delegate():
    class Wrapping(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 3)

        def __getattr__(self, name):
            if name == "surprise":
                return 7
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

    module = Wrapping()
    assert module.surprise == 7
    assert module.in_features == 2
    assert module.weight is module.inner.weight


def test_an_overridden_getattribute_sees_every_access():
    seen = []

    class Spying(Double):
        def __getattribute__(self, name):
            seen.append(name)
            return super().__getattribute__(name)

    assert Spying()(3) == (6,)
    assert "forward" in seen


def test_an_error_in_a_property_keeps_its_message():
    class Broken(nn.Module):
        @property
        def size(self):
            raise AttributeError("no size yet")

    with pytest.raises(AttributeError, match="no size yet"):
        Broken().size


def test_class_attributes_hide_registered_ones_as_in_pytorch(agree):
    def program(t):
        class Net(t.nn.Module):
            bias = 5

            def __init__(self):
                super().__init__()
                self.register_parameter("weight", None)
                self._parameters["bias"] = None

        return [Net().bias, Net().weight]

    agree(program)


@pytest.mark.parametrize("base", [dict, list, Exception, abc.ABC, Generic[TypeVar("T")]])
def test_modules_mix_with_other_classes(base):
    class Mixed(nn.Module, base):
        def forward(self, x):
            return x + 1

    module = Mixed()
    module.weight = nn.Parameter(tangrad.ones(1))
    assert module(1) == 2
    assert module.weight.item() == 1


def test_a_mixin_may_come_first():
    class Mixin:
        def __init_subclass__(cls):
            pass  # Does not pass on: the class goes without the compiled slots.

    class Mixed(Mixin, Double):
        pass

    module = Mixed()
    module.child = nn.Identity()
    assert module(3) == (6,)
    assert isinstance(module.child, nn.Identity)


def test_abstract_modules_cannot_be_made():
    class Abstract(nn.Module, abc.ABC):
        @abc.abstractmethod
        def size(self): ...

    with pytest.raises(TypeError, match="abstract"):
        Abstract()


def test_a_cycle_of_modules_is_collected():
    module = Double()
    module.__dict__["self"] = module
    reference = weakref.ref(module)
    del module
    gc.collect()
    assert reference() is None


def test_modules_copy_and_pickle():
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    module[0].register_forward_hook(print)
    for copied in (copy.deepcopy(module),):
        assert copied[0].weight is not module[0].weight
        assert copied[0].weight.tolist() == module[0].weight.tolist()
        assert len(copied[0]._forward_hooks) == 1
    shallow = copy.copy(module[0])
    assert shallow.weight is module[0].weight
    restored = pickle.loads(pickle.dumps(module))
    assert restored[0].weight.tolist() == module[0].weight.tolist()
    assert isinstance(restored[0].weight, nn.Parameter)


def test_setstate_adds_registries_that_an_old_pickle_lacks():
    module = nn.Linear(1, 1)
    state = dict(module.__dict__)
    for name in ("_forward_hooks_with_kwargs", "_state_dict_pre_hooks", "_backward_pre_hooks"):
        del state[name]
    restored = nn.Linear.__new__(nn.Linear)
    restored.__setstate__(state)
    assert restored(tangrad.ones(1, 1)).shape == (1, 1)
    assert restored.state_dict().keys() == {"weight", "bias"}


def test_the_slots_refuse_nothing_that_is_not_a_module():
    assert callable(_module.call)
    with pytest.raises(AttributeError, match="'Double' object has no attribute 'weight'"):
        Double().weight
    assert not hasattr(Double(), "weight")
    assert getattr(Double(), "weight", 5) == 5
