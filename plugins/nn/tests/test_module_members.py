"""Finding, changing and printing the members of a module."""

import pytest

import tangrad
from tangrad import nn


def network(t):
    """Build a network with a shared module, a shared parameter and None in every registry."""
    net = t.nn.Module()
    net.first = t.nn.Linear(2, 2)
    net.body = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.BatchNorm1d(2))
    net.again = net.first
    net.tied = t.nn.Linear(2, 2, bias=False)
    net.tied.weight = net.first.weight
    net.nothing = None
    net.register_module("empty", None)
    net.register_parameter("none", None)
    net.register_buffer("absent", None)
    net.register_buffer("mean", t.zeros(2), persistent=False)
    return net


LISTINGS = {
    "parameters": lambda net: [tuple(p.shape) for p in net.parameters()],
    "own parameters": lambda net: [n for n, _ in net.named_parameters(recurse=False)],
    "named_parameters": lambda net: [n for n, _ in net.named_parameters(prefix="net")],
    "with duplicates": lambda net: [n for n, _ in net.named_parameters(remove_duplicate=False)],
    "named_buffers": lambda net: [n for n, _ in net.named_buffers()],
    "buffers with duplicates": lambda net: [n for n, _ in net.named_buffers("x", True, False)],
    "named_children": lambda net: [n for n, _ in net.named_children()],
    "children": lambda net: [type(m).__name__ for m in net.children()],
    "named_modules": lambda net: [n for n, _ in net.named_modules()],
    "modules with duplicates": lambda net: [n for n, _ in net.named_modules(None, "p", False)],
    "modules": lambda net: [type(m).__name__ for m in net.modules()],
    "state": lambda net: list(net.state_dict()),
    "get_submodule": lambda net: type(net.get_submodule("body.1")).__name__,
    "get_submodule of nothing": lambda net: type(net.get_submodule("")).__name__,
    "get_parameter": lambda net: tuple(net.get_parameter("body.0.bias").shape),
    "get_buffer": lambda net: tuple(net.get_buffer("body.1.running_var").shape),
    "repr": repr,
}


@pytest.mark.parametrize("listing", LISTINGS)
def test_members_are_listed_as_in_pytorch(agree, listing):
    agree(lambda t: LISTINGS[listing](network(t)))


BAD_PATHS = {
    "missing module": lambda t, net: net.get_submodule("body.7"),
    "no module": lambda t, net: net.get_submodule("body.0.weight"),
    "missing parameter": lambda t, net: net.get_parameter("body.0.scale"),
    "no parameter": lambda t, net: net.get_parameter("body.0"),
    "missing buffer": lambda t, net: net.get_buffer("body.0.scale"),
    "no buffer": lambda t, net: net.get_buffer("body.0.weight"),
    "set nothing": lambda t, net: net.set_submodule("", t.nn.Identity()),
    "set strictly": lambda t, net: net.set_submodule("body.7", t.nn.Identity(), strict=True),
    "set over a parameter": lambda t, net: net.set_submodule("first.weight", t.nn.Identity()),
    "set no module": lambda t, net: net.set_submodule("first", 3),
}


@pytest.mark.parametrize("case", BAD_PATHS)
def test_bad_paths_raise_as_in_pytorch(agree, case):
    agree(lambda t: BAD_PATHS[case](t, network(t)), message=case != "set no module")


def test_set_submodule_replaces_and_adds():
    net = network(tangrad)
    net.set_submodule("body.0", nn.Identity())
    net.set_submodule("body.extra", nn.ReLU())
    assert [type(m).__name__ for m in net.body] == ["Identity", "BatchNorm1d", "ReLU"]


def test_train_and_eval_reach_every_module():
    net = network(tangrad)
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    assert all(module.training for module in net.train().modules())


def test_apply_visits_children_first(agree):
    def program(t):
        seen = []
        network(t).apply(lambda module: seen.append(type(module).__name__))
        return seen

    agree(program)


def test_requires_grad_and_zero_grad():
    net = nn.Linear(2, 1)
    net(tangrad.ones(1, 2)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.weight.grad.tolist() == [[0.0, 0.0]]
    net.zero_grad()
    assert net.weight.grad is None
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())


CONVERSIONS = {
    "double": lambda net: net.double(),
    "half": lambda net: net.half(),
    "bfloat16": lambda net: net.bfloat16(),
    "float": lambda net: net.double().float(),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_casts_change_floating_members_and_keep_the_parameters_objects(agree, name):
    def program(t):
        net = t.nn.BatchNorm1d(2)
        weight = net.weight
        assert CONVERSIONS[name](net) is net
        assert net.weight is weight
        return [str(member.dtype) for member in (*net.parameters(), *net.buffers())]

    agree(program)


TO_ARGUMENTS = {
    "dtype": lambda t: ((t.float64,), {}),
    "dtype by name": lambda t: ((), {"dtype": t.float64}),
    "device": lambda t: (("cpu",), {}),
    "device and dtype": lambda t: (("cpu", t.float64), {}),
    "device object": lambda t: ((t.device("cpu"), t.float64, True), {}),
    "tensor": lambda t: ((t.zeros(1, dtype=t.float64),), {}),
    "nothing": lambda t: ((), {}),
    "integer dtype": lambda t: ((t.int64,), {}),
    "a copy": lambda t: (("cpu",), {"copy": True}),
    "dtype twice": lambda t: ((t.float64,), {"dtype": t.float32}),
    "unknown name": lambda t: ((), {"dtyp": t.float64}),
}


@pytest.mark.parametrize("case", TO_ARGUMENTS)
def test_to_takes_every_form(agree, case):
    def program(t):
        args, kwargs = TO_ARGUMENTS[case](t)
        net = t.nn.BatchNorm1d(2).to(*args, **kwargs)
        return [str(member.dtype) for member in (*net.parameters(), *net.buffers())]

    agree(program, message=case == "integer dtype")


def test_to_converts_gradients_too():
    net = nn.Linear(2, 1)
    net(tangrad.ones(1, 2)).sum().backward()
    net.to(tangrad.float64)
    assert net.weight.grad.dtype == tangrad.float64
    net(tangrad.ones(1, 2, dtype=tangrad.float64)).sum().backward()
    assert net.weight.grad.tolist() == [[2.0, 2.0]]


def test_to_empty_gives_memory_to_a_module_on_meta():
    net = nn.Linear(2, 3, device="meta").to_empty(device="cpu")
    assert net.weight.device.type == "cpu"
    assert net.weight.shape == (3, 2)


def test_conversions_replace_parameters_where_the_future_says_so(agree):
    def program(t):
        net = t.nn.Linear(2, 2)
        old = net.weight
        net(t.ones(1, 2)).sum().backward()
        t.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            net.double()
            asked = t.__future__.get_overwrite_module_params_on_conversion()
        finally:
            t.__future__.set_overwrite_module_params_on_conversion(False)
        new = net.weight
        kinds = [str(x.dtype).split(".")[1] for x in (old, old.grad, new, new.grad)]
        return new is old, asked, kinds, new.requires_grad

    agree(program)


def test_memory_format_changes_images_only():
    net = nn.Conv2d(2, 3, 2).to(memory_format=tangrad.channels_last)
    assert net.weight.is_contiguous(memory_format=tangrad.channels_last)


def test_repr_is_laid_out_as_in_pytorch(agree):
    def program(t):
        class Odd(t.nn.Module):
            def extra_repr(self):
                return "one=1\ntwo=2"

        net = network(t)
        net.odd = Odd()
        net.odd.child = Odd()
        net.lists = t.nn.ModuleList([t.nn.Linear(1, 1), t.nn.Linear(1, 1), t.nn.ReLU()])
        net.dicts = t.nn.ModuleDict({"a": t.nn.ModuleList(), "b": t.nn.Sequential()})
        net.values = t.nn.ParameterList([t.ones(2, 3), t.ones(()), 5])
        net.table = t.nn.ParameterDict({"a": t.ones(2), "b": "text"})
        return repr(net)

    agree(program)
