"""Exchange of two tensors in place, and modules that convert and load by it."""

import gc
import sys
import weakref

import pytest

import tangrad
from tangrad import nn


def swap(t):
    return t.utils.swap_tensors


@pytest.fixture
def swapping():
    """Let modules swap, in both frameworks."""
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    for t in (tangrad, torch):
        t.__future__.set_swap_module_params_on_conversion(True)
    yield
    for t in (tangrad, torch):
        t.__future__.set_swap_module_params_on_conversion(False)


def test_everything_of_two_tensors_is_exchanged(agree):
    def program(t):
        a, b = (
            t.arange(6.0).reshape(2, 3).clone(),
            t.nn.Parameter(t.ones(1, 2, 1, 2, 1, 2).double()),
        )
        a.note, first = "a", a
        b.grad = t.zeros_like(b)
        swap(t)(a, b)
        kinds = [type(x).__name__ for x in (a, b)]
        shapes = [list(x.shape) for x in (a, b)]
        strides = [x.stride() for x in (a, b)]
        rest = [a is first, b.note, hasattr(a, "note"), a.requires_grad, b.requires_grad, b.grad]
        return kinds, shapes, strides, rest, [str(x.dtype) for x in (a, b)], a, b, a.grad

    agree(program)


def test_slots_and_classes_made_by_python_go_with_the_contents(agree):
    def program(t):
        class Slotted(t.Tensor):
            __slots__ = ("scale", "shift")

        class Other(t.Tensor):
            __slots__ = ("scale", "shift")

        a, b = t.ones(2).as_subclass(Slotted), t.zeros(3).as_subclass(Other)
        a.scale, b.shift = 2, 3
        swap(t)(a, b)
        names = [type(a).__name__, type(b).__name__]
        return names, hasattr(a, "scale"), a.shift, b.scale, hasattr(b, "shift")

    agree(program)


def test_classes_lose_and_gain_no_reference():
    class Mine(tangrad.Tensor):
        pass

    before = sys.getrefcount(Mine)
    a, b = tangrad.ones(2).as_subclass(Mine), tangrad.zeros(3)
    swap(tangrad)(a, b)
    assert type(b) is Mine
    del a, b
    gc.collect()
    assert sys.getrefcount(Mine) == before


USES = {
    "a view": lambda t, a: a[0],
    "a view without history": lambda t, a: t.no_grad()(lambda: a[:1])(),
    "a detached view": lambda t, a: a.detach(),
    "memory of another": lambda t, a: a.data,
    "a graph": lambda t, a: a * 2,
    "a graph that saved it": lambda t, a: a * t.ones(2, requires_grad=True),
    "a graph that saved a result of it": lambda t, a: a.exp(),
    "a weak reference": lambda t, a: weakref.ref(a),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("leaf", [True, False])
def test_other_uses_are_refused_as_by_pytorch(agree, use, leaf):
    def program(t):
        start = t.ones(2, requires_grad=True)
        a = start if leaf else start + 1
        b = t.zeros(3)
        held = USES[use](t, a)
        try:
            swap(t)(a, b)
        except RuntimeError as error:
            return str(error)[:60], list(a.shape), held is None
        return list(a.shape), list(b.shape)

    agree(program)


def test_classes_of_different_slots_are_refused(agree):
    def program(t):
        class Slotted(t.Tensor):
            __slots__ = ("scale",)

        swap(t)(t.ones(2).as_subclass(Slotted), t.ones(2))

    agree(program)


def test_a_graph_recorded_before_cannot_reach_its_leaf(agree):
    def program(t):
        a, b = t.ones(2, requires_grad=True), t.zeros(3, requires_grad=True)
        y = (a * 2).sum()
        swap(t)(a, b)
        try:
            y.backward()
        except RuntimeError as error:
            refused = "poisoned" in str(error)
        del y
        (a * 2).sum().backward()
        return refused, a.grad, b.grad

    agree(program)


def test_histories_go_with_the_contents(agree):
    def program(t):
        start = t.ones(2, requires_grad=True)
        a, b = start * 3, t.zeros(2)
        swap(t)(a, b)
        b.sum().backward()
        return a.requires_grad, a.grad_fn, start.grad

    agree(program)


def test_modules_convert_by_swapping_where_the_future_says_so(agree, swapping):
    def program(t):
        net = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.BatchNorm1d(2))
        net(t.ones(2, 2)).sum().backward()
        before, grads = list(net.parameters()), [p.grad for p in net.parameters()]
        net.double()
        after = list(net.parameters())
        same = [p is q for p, q in zip(before, after, strict=True)]
        same += [p.grad is g for p, g in zip(after, grads, strict=True)]
        dtypes = [str(x.dtype) for x in (*after, *grads, *net.buffers())]
        net.to("meta")
        moved = [p is q for p, q in zip(before, net.parameters(), strict=True)]
        asked = t.__future__.get_swap_module_params_on_conversion()
        return same, dtypes, moved, [str(p.device) for p in before], asked

    agree(program)


def test_a_module_that_cannot_swap_names_the_parameter(agree, swapping):
    def program(t):
        net = t.nn.Linear(2, 2)
        reference = weakref.ref(net.bias)
        try:
            net.double()
        except RuntimeError as error:
            return str(error), str(error.__cause__), reference() is net.bias

    agree(program)


@pytest.mark.parametrize("assign", [False, True])
def test_states_load_by_swapping_where_the_future_says_so(agree, swapping, assign):
    def program(t):
        source, target = t.nn.BatchNorm1d(2).double(), t.nn.BatchNorm1d(2)
        source.weight.data.fill_(3)
        objects = [*target.parameters(), *target.buffers()]
        target.load_state_dict(source.state_dict(), assign=assign)
        found = [*target.parameters(), *target.buffers()]
        same = [a is b for a, b in zip(objects, found, strict=True)]
        return same, [str(x.dtype) for x in found], [x.requires_grad for x in found], found

    agree(program)


def test_a_subclass_says_how_it_is_loaded(agree, swapping):
    def program(t):
        class Doubled(t.Tensor):
            def module_load(self, other, assign=False):
                return (other * 2).as_subclass(Doubled)

        net = t.nn.Module()
        net.register_buffer("x", t.zeros(2).as_subclass(Doubled))
        net.load_state_dict({"x": t.ones(2)})
        return type(net.x).__name__, net.x.as_subclass(t.Tensor)

    agree(program)


def test_a_class_takes_loading_over_by_torch_function(agree, swapping):
    def program(t):
        class Taking(t.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                if func is t.Tensor.module_load:
                    return args[1].as_subclass(t.Tensor) * 5
                return super().__torch_function__(func, types, args, kwargs or {})

        net = t.nn.Module()
        net.register_buffer("x", t.zeros(2).as_subclass(Taking))
        net.load_state_dict({"x": t.ones(2)})
        return type(net.x).__name__, net.x

    agree(program)


def test_module_load_must_return_a_new_tensor(agree, swapping):
    def program(t):
        class Same(t.Tensor):
            def module_load(self, other, assign=False):
                return other

        net = t.nn.Module()
        net.register_buffer("x", t.zeros(2).as_subclass(Same))
        try:
            net.load_state_dict({"x": t.ones(2)})
        except RuntimeError as error:
            return "module_load returned one of self or other" in str(error)

    agree(program)


def test_lazy_parameters_convert_as_before(swapping):
    net = nn.LazyLinear(3).double()
    assert net(tangrad.ones(2, 4).double()).shape == (2, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.load_state_dict(model.state_dict()),
        lambda model: model.load_state_dict(model.state_dict(), assign=True),
        lambda model: model.cpu(),
        lambda model: model.double(),
    ],
)
def test_a_whole_model_is_swapped_with_one_look_at_all_objects(swapping, monkeypatch, change):
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(10)))
    parameters, looks, look = list(model.parameters()), [], gc.get_objects
    monkeypatch.setattr(gc, "get_objects", lambda: looks.append(1) or look())
    change(model)
    assert len(looks) <= 1
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))


def test_a_look_finds_what_was_saved_since_the_last_load(swapping):
    model = nn.Linear(2, 2)
    model.load_state_dict(nn.Linear(2, 2).state_dict())
    loss = (model.weight * model.weight).sum()
    with pytest.raises(RuntimeError, match="use_count"):
        model.load_state_dict(nn.Linear(2, 2).state_dict())
    assert loss.grad_fn is not None
