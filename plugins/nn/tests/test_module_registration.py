"""What becomes of an object assigned to a module's attribute."""

import pytest

import tangrad
from tangrad import nn


def param(t, *shape):
    return t.nn.Parameter(t.ones(*shape or (2,)))


def test_parameters_buffers_and_modules_are_found_by_attribute():
    module = nn.Module()
    module.weight = weight = nn.Parameter(tangrad.ones(2))
    module.register_buffer("mean", mean := tangrad.zeros(2))
    module.child = child = nn.Identity()
    assert module.weight is weight
    assert module.mean is mean
    assert module.child is child
    assert "weight" not in module.__dict__


def test_assignment_moves_a_name_between_the_registries():
    module = nn.Module()
    module.x = nn.Identity()
    module.x = nn.Parameter(tangrad.ones(1))
    assert list(module._parameters) == ["x"]
    assert not module._modules
    module.x = None
    assert module.x is None
    del module.x
    module.x = nn.Identity()
    assert list(module._modules) == ["x"]


def test_a_plain_tensor_is_an_ordinary_attribute():
    module = nn.Module()
    module.x = tangrad.ones(1)
    assert "x" in module.__dict__
    assert not list(module.buffers())


@pytest.mark.parametrize("persistent", [True, False])
def test_an_assigned_buffer_is_registered(persistent):
    module = nn.Module()
    module.mean = nn.Buffer(tangrad.ones(2), persistent=persistent)
    assert [name for name, _ in module.named_buffers()] == ["mean"]
    assert ("mean" in module.state_dict()) == persistent
    assert isinstance(module.mean, nn.Buffer)
    assert not isinstance(tangrad.ones(2), nn.Buffer)


def test_a_buffer_may_be_replaced_by_a_tensor_and_stays_what_it_was():
    module = nn.Module()
    module.register_buffer("mean", tangrad.zeros(2), persistent=False)
    module.mean = tangrad.ones(2)
    assert module._buffers["mean"].tolist() == [1.0, 1.0]
    assert not module.state_dict()


BAD_ASSIGNMENTS = {
    "tensor as parameter": lambda t, m: setattr(m, "weight", t.ones(2)),
    "number as module": lambda t, m: setattr(m, "child", 3),
    "number as buffer": lambda t, m: setattr(m, "mean", 3),
    "tensor as module": lambda t, m: m.add_module("a", t.ones(2)),
    "module name with dot": lambda t, m: m.add_module("a.b", t.nn.Identity()),
    "empty module name": lambda t, m: m.add_module("", t.nn.Identity()),
    "module name no string": lambda t, m: m.add_module(3, t.nn.Identity()),
    "taken name": lambda t, m: m.add_module("forward", t.nn.Identity()),
    "parameter name with dot": lambda t, m: m.register_parameter("a.b", None),
    "empty parameter name": lambda t, m: m.register_parameter("", None),
    "taken parameter name": lambda t, m: m.register_parameter("child", param(t)),
    "tensor registered as parameter": lambda t, m: m.register_parameter("a", t.ones(2)),
    "buffer name with dot": lambda t, m: m.register_buffer("a.b", None),
    "empty buffer name": lambda t, m: m.register_buffer("", None),
    "taken buffer name": lambda t, m: m.register_buffer("weight", t.ones(2)),
    "missing attribute": lambda t, m: m.nothing,
    "missing attribute deleted": lambda t, m: delattr(m, "nothing"),
    "training mode": lambda t, m: m.train(1),
}


@pytest.mark.parametrize("case", BAD_ASSIGNMENTS)
def test_bad_registrations_raise_as_in_pytorch(agree, case):
    def program(t):
        module = t.nn.Module()
        module.weight = param(t)
        module.child = t.nn.Identity()
        module.register_buffer("mean", t.zeros(2))
        BAD_ASSIGNMENTS[case](t, module)

    agree(program, message=not any(word in case for word in ("tensor", "dot")))


@pytest.mark.parametrize("kind", ["module", "parameters"])
def test_assignment_before_init_raises(agree, kind):
    def program(t):
        class Net(t.nn.Module):
            def __init__(self):
                self.x = t.nn.Identity() if kind == "module" else param(t)

        Net()

    agree(program)


def test_registration_before_init_raises(agree):
    def program(t):
        class Net(t.nn.Module):
            def __init__(self):
                self.register_buffer("x", None)

        Net()

    agree(program)


@pytest.mark.parametrize("args", [(), (1,)])
def test_the_base_class_takes_no_arguments(agree, args):
    agree(lambda t: t.nn.Module(*args, **({} if args else {"size": 3})))


def test_a_result_of_an_operation_is_no_parameter():
    module = nn.Module()
    with pytest.raises(TypeError, match="Parameter or None"):
        module.register_parameter("x", nn.Parameter(tangrad.ones(2)) * 2)


def test_call_super_init_passes_arguments_on():
    class Other:
        def __init__(self, size):
            self.size = size

    class Net(nn.Module, Other):
        call_super_init = True

        def __init__(self):
            super().__init__(3)

    assert Net().size == 3


def test_dir_lists_the_registered_names():
    module = nn.Module()
    module.weight = nn.Parameter(tangrad.ones(2))
    module.add_module("0", nn.Identity())
    assert "weight" in dir(module)
    assert "0" not in dir(module)


def test_registration_hooks_see_and_replace_what_is_registered():
    from tangrad.nn.modules import module as registry

    seen = []
    handles = [
        registry.register_module_parameter_registration_hook(lambda m, n, p: seen.append(n)),
        registry.register_module_buffer_registration_hook(lambda m, n, b: seen.append(n)),
        registry.register_module_module_registration_hook(lambda m, n, s: nn.ReLU()),
    ]
    try:
        module = nn.Module()
        module.weight = nn.Parameter(tangrad.ones(2))
        module.register_buffer("mean", None)
        module.child = nn.Identity()
    finally:
        for handle in handles:
            handle.remove()
    assert seen == ["weight", "mean"]
    assert isinstance(module.child, nn.ReLU)
    module.other = nn.Identity()
    assert isinstance(module.other, nn.Identity)


def test_a_class_behind_module_has_its_say_when_attributes_are_written(agree):
    def program(t):
        written = []

        class Watching:
            def __setattr__(self, name, value):
                written.append(name)
                super().__setattr__(name, value)

        class Watched(t.nn.Module, Watching):
            def __init__(self):
                super().__init__()
                self.size = 2
                self.layer = t.nn.Linear(1, 1)

        made = Watched()
        object.__setattr__(made, "hidden", t.nn.Linear(1, 1))
        return [name for name in written if name == "size"], made.size, list(made._modules)

    agree(program)


def test_a_property_takes_what_is_no_module_and_hides_what_is_one(agree):
    def program(t):
        class Scaled(t.nn.Module):
            @property
            def scale(self):
                return self._scale

            @scale.setter
            def scale(self, value):
                self._scale = 2 * value

        made = Scaled()
        made.scale = 3
        made.inner = made.late = t.nn.Linear(1, 1)
        made.late = None
        made.plain = t.zeros(1)
        made.plain = t.nn.Parameter(t.zeros(1))
        return made.scale, list(made._modules), list(made._parameters), "plain" in made.__dict__

    agree(program)
