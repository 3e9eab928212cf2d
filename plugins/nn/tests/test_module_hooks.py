"""Hooks around forward and backward, of one module and of all."""

import copy
import pickle
from collections import OrderedDict

import pytest

import tangrad
from tangrad import nn


def linear(t):
    layer = t.nn.Linear(2, 1)
    with t.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(1.0)
    return layer


def test_forward_hooks_run_in_order_and_may_replace(agree):
    def program(t):
        layer, log = linear(t), []
        layer.register_forward_pre_hook(lambda m, args: log.append(("pre", args)))
        layer.register_forward_pre_hook(lambda m, args: args[0] + 1)
        layer.register_forward_pre_hook(lambda m, args: log.append(("first", args)), prepend=True)
        layer.register_forward_hook(lambda m, args, out: out * 10)
        layer.register_forward_hook(lambda m, args, out: log.append(("post", args, out)))
        layer.register_forward_hook(
            lambda m, args, kwargs, out: log.append((kwargs, out)), prepend=True, with_kwargs=True
        )
        return [layer(t.ones(1, 2)), log]

    agree(program)


def test_pre_hooks_with_kwargs_replace_both(agree):
    def program(t):
        class Net(t.nn.Module):
            def forward(self, x, scale=1):
                return x * scale

        net = Net()
        net.register_forward_pre_hook(
            lambda m, args, kwargs: ((args[0] + 1,), {"scale": kwargs["scale"] * 5}),
            with_kwargs=True,
        )
        return net(t.ones(1), scale=2)

    agree(program)


def test_a_pre_hook_with_kwargs_must_return_both(agree):
    def program(t):
        layer = linear(t)
        layer.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
        layer(t.ones(1, 2))

    agree(program)


def test_a_removed_hook_is_not_called_and_leaves_nothing():
    layer = linear(tangrad)
    handle = layer.register_forward_hook(
        lambda *args: pytest.fail("called"), with_kwargs=True, always_call=True
    )
    handle.remove()
    handle.remove()
    layer(tangrad.ones(1, 2))
    assert not layer._forward_hooks_with_kwargs
    assert not layer._forward_hooks_always_called
    with layer.register_forward_hook(lambda m, args, out: out * 0):
        assert layer(tangrad.ones(1, 2)).item() == 0
    assert layer(tangrad.ones(1, 2)).item() == 5


def test_a_hook_may_remove_itself():
    layer = linear(tangrad)
    handles = []
    handles.append(layer.register_forward_hook(lambda *args: handles[0].remove()))
    layer(tangrad.ones(1, 2))
    assert not layer._forward_hooks


def test_always_called_hooks_run_once_after_an_exception(agree):
    def program(t):
        class Broken(t.nn.Module):
            def forward(self, x):
                raise ValueError("broken")

        net, log = Broken(), []
        net.register_forward_hook(lambda *args: log.append("usual"))
        net.register_forward_hook(lambda m, a, out: log.append(("always", out)), always_call=True)
        try:
            net(1)
        except ValueError as error:
            log.append(str(error))
        return log

    agree(program)


def test_always_called_hooks_are_not_called_twice(agree):
    def program(t):
        net, log = t.nn.Identity(), []

        def failing(module, args, out):
            raise ValueError("hook")

        net.register_forward_hook(lambda m, a, out: log.append("always"), always_call=True)
        net.register_forward_hook(failing)
        try:
            net(1)
        except ValueError as error:
            log.append(str(error))
        return log

    agree(program)


def test_an_error_in_an_always_called_hook_is_a_warning_behind_an_error():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    def failing(module, args, out):
        raise KeyError("hook")

    net = Broken()
    net.register_forward_hook(failing, always_call=True)
    with pytest.warns(UserWarning, match="silenced"), pytest.raises(ValueError, match="broken"):
        net(1)


def test_global_hooks_run_before_those_of_the_module(agree):
    def program(t):
        registry = t.nn.modules.module
        layer, log = linear(t), []
        handles = [
            registry.register_module_forward_pre_hook(lambda m, a: log.append("all pre")),
            registry.register_module_forward_hook(lambda m, a, o: log.append("all post")),
            registry.register_module_full_backward_pre_hook(lambda m, g: log.append("all bpre")),
            registry.register_module_full_backward_hook(lambda m, i, g: log.append("all back")),
        ]
        layer.register_forward_pre_hook(lambda m, a: log.append("pre"))
        layer.register_forward_hook(lambda m, a, o: log.append("post"))
        layer.register_full_backward_hook(lambda m, i, g: log.append("back"))
        layer.register_full_backward_pre_hook(lambda m, g: log.append("bpre"))
        try:
            layer(t.ones(1, 2, requires_grad=True)).sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        count = len(log)
        t.nn.Identity()(1)
        return [log, len(log) - count]

    agree(program)


REGISTRIES = [
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
]


@pytest.mark.parametrize("rebound", [False, True])
@pytest.mark.parametrize("name", REGISTRIES)
def test_registries_of_global_hooks_are_written_directly(agree, name, rebound):
    def program(t):
        place, log = t.nn.modules.module, []
        before = getattr(place, name)
        if rebound:
            setattr(place, name, OrderedDict())
        place._global_is_full_backward_hook = True
        layer = linear(t)
        registry = getattr(place, name)
        try:
            layer(t.ones(1, 2))
            registry[12345] = lambda *given: log.append(len(given))
            layer(t.ones(1, 2, requires_grad=True)).sum().backward()
            told = len(registry)
            registry.clear()
            layer(t.ones(1, 2, requires_grad=True)).sum().backward()
        finally:
            setattr(place, name, before)
            place._global_is_full_backward_hook = None
        return log, told, getattr(place, name) is before, len(before)

    agree(program)


@pytest.mark.parametrize("what", ["buffer", "module", "parameter"])
def test_registries_of_registration_hooks_may_be_rebound(agree, what):
    def program(t):
        place, log = t.nn.modules.module, []
        name = f"_global_{what}_registration_hooks"
        before = getattr(place, name)
        setattr(place, name, OrderedDict({1: lambda m, key, value: log.append(key)}))
        try:
            t.nn.Sequential(t.nn.BatchNorm1d(2))
        finally:
            setattr(place, name, before)
        t.nn.BatchNorm1d(2)
        return log

    agree(program)


def test_other_names_of_the_module_file_are_its_own():
    place = nn.modules.module
    place.something = 3
    assert place.something == 3
    del place.something
    with pytest.raises(AttributeError, match="something"):
        place.something


def test_backward_hooks_see_and_replace_gradients(agree):
    def program(t):
        layer, log = linear(t), []
        x = t.ones(1, 2, requires_grad=True)
        layer.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 3,))
        layer.register_full_backward_pre_hook(lambda m, grads: log.append(grads))
        layer.register_full_backward_hook(lambda m, inputs, grads: log.append((inputs, grads)))
        layer.register_full_backward_hook(lambda m, inputs, grads: (inputs[0] + 1,))
        layer(x).sum().backward()
        return [log, x.grad, layer.weight.grad]

    agree(program)


def test_backward_hooks_of_several_inputs_and_outputs(agree):
    def program(t):
        class Net(t.nn.Module):
            def forward(self, x, name, y, z):
                return x * y, name, z * 2

        net, log = Net(), []
        net.register_full_backward_hook(lambda m, inputs, grads: log.append((inputs, grads)))
        x, y = t.ones(2, requires_grad=True), t.full((2,), 3.0, requires_grad=True)
        out, name, _ = net(x, "name", y, t.ones(2))
        out.sum().backward()
        return [log, x.grad, y.grad, name]

    agree(program)


def test_backward_hooks_without_input_gradients_get_none_and_a_warning(agree):
    def program(t):
        layer, log = linear(t), []
        layer.register_full_backward_hook(lambda m, inputs, grads: log.append((inputs, grads)))
        with pytest.warns(UserWarning, match="backward hook"):
            layer(t.ones(1, 2)).sum().backward()
        return log

    agree(program)


def test_backward_hooks_do_nothing_without_gradients():
    layer = linear(tangrad)
    layer.register_full_backward_hook(lambda *args: pytest.fail("called"))
    with tangrad.no_grad():
        assert layer(tangrad.ones(1, 2)).grad_fn is None


def test_a_backward_hook_must_return_as_many_gradients(agree):
    def program(t):
        layer = linear(t)
        layer.register_full_backward_hook(lambda m, inputs, grads: (None, None, None))
        layer(t.ones(1, 2, requires_grad=True)).sum().backward()

    agree(program)


def test_backward_hooks_of_both_kinds_exclude_each_other(agree):
    def program(t):
        layer = linear(t)
        layer.register_full_backward_hook(print)
        layer.register_backward_hook(print)

    agree(program)


def test_an_output_without_tensors_warns():
    class Net(nn.Module):
        def forward(self, x):
            return {"x": x}

    net = Net()
    net.register_full_backward_hook(lambda *args: None)
    with pytest.warns(UserWarning, match="should be a Tensor or a tuple of Tensors"):
        net(tangrad.ones(1, requires_grad=True))


def test_hooks_differentiate_twice():
    layer = linear(tangrad)
    layer.register_full_backward_hook(lambda m, inputs, grads: (inputs[0] * 3,))
    x = tangrad.ones(1, 2, requires_grad=True)
    (grad,) = tangrad.autograd.grad((layer(x) ** 2).sum(), x, create_graph=True)
    (second,) = tangrad.autograd.grad(grad.sum(), x)
    assert second.tolist() == [[144.0, 144.0]]


def hook_for_pickling(module, args, out):
    return out * 2


def test_hooks_survive_pickling_and_their_handles_too():
    layer = linear(tangrad)
    handle = layer.register_forward_hook(hook_for_pickling)
    layer, handle = pickle.loads(pickle.dumps((layer, handle)))
    assert layer(tangrad.ones(1, 2)).item() == 10
    handle.remove()
    assert layer(tangrad.ones(1, 2)).item() == 5


def test_a_copied_module_has_hooks_of_its_own():
    layer = linear(tangrad)
    handle = layer.register_forward_hook(hook_for_pickling)
    copied = copy.deepcopy(layer)
    handle.remove()
    assert copied(tangrad.ones(1, 2)).item() == 10
    assert layer(tangrad.ones(1, 2)).item() == 5
