"""What all optimizers share: groups, state, hooks, errors."""

import importlib
import pickle

import pytest

import tangrad
from tangrad import nn, optim
from tangrad.optim import optimizer as base


def parameter(t=tangrad):
    return t.nn.Parameter(t.ones(2))


def stepped(t):
    made = parameter(t)
    return (made * 2).sum(), made


WRONG = {
    "a tensor": lambda t: t.optim.SGD(parameter(t)),
    "nothing": lambda t: t.optim.SGD([]),
    "no tensors": lambda t: t.optim.SGD([3]),
    "no leaf": lambda t: t.optim.SGD([parameter(t) * 2]),
    "a set": lambda t: t.optim.SGD([{"params": {parameter(t)}}]),
    "a parameter twice": lambda t: (lambda p: t.optim.SGD([{"params": [p]}, {"params": [p]}]))(
        parameter(t)
    ),
    "no group": lambda t: t.optim.SGD([parameter(t)]).add_param_group([parameter(t)]),
    "names for some": lambda t: t.optim.SGD([("a", parameter(t)), parameter(t)]),
    "negative rate": lambda t: t.optim.SGD([parameter(t)], lr=-1.0),
    "negative momentum": lambda t: t.optim.SGD([parameter(t)], momentum=-1.0),
    "negative decay": lambda t: t.optim.SGD([parameter(t)], weight_decay=-1.0),
    "Nesterov alone": lambda t: t.optim.SGD([parameter(t)], nesterov=True),
    "wrong beta": lambda t: t.optim.Adam([parameter(t)], betas=(0.9, 1.0)),
    "betas of two kinds": lambda t: t.optim.Adam([parameter(t)], betas=(0.9, t.tensor(0.99))),
    "betas in lists": lambda t: t.optim.Adam(
        [parameter(t)], betas=(t.tensor(0.9), t.tensor(0.99)), foreach=True
    ),
    "an integer beta": lambda t: t.optim.AdamW([parameter(t)], betas=(0, 0.99)),
    "complex": lambda t: t.optim.SparseAdam([t.ones(2, dtype=t.complex64)]),
    "other wrong beta": lambda t: t.optim.AdamW([parameter(t)], betas=(-0.1, 0.9)),
    "negative epsilon": lambda t: t.optim.Adam([parameter(t)], eps=-1.0),
    "no rate": lambda t: t.optim.Adam([parameter(t)], lr=float("nan")),
    "negative Adam decay": lambda t: t.optim.AdamW([parameter(t)], weight_decay=-1.0),
    "fused and foreach": lambda t: t.optim.SGD([parameter(t)], fused=True, foreach=True),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_raise_as_in_pytorch(agree, case):
    exact = case not in ("a tensor", "names for some")
    agree(lambda t: (WRONG[case](t), None)[1], message=exact)


def test_a_duplicate_in_a_group_warns():
    made = parameter()
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD([made, made])


def test_state_dicts_of_another_shape_are_refused(agree):
    def program(t, groups):
        optimizer = t.optim.SGD([parameter(t)])
        optimizer.load_state_dict({"state": {}, "param_groups": groups})

    agree(lambda t: program(t, []))
    agree(lambda t: program(t, [{"params": [0, 1]}]))


def test_state_is_converted_to_the_parameters_dtype():
    source = optim.AdamW([parameter()])
    source.param_groups[0]["params"][0].grad = tangrad.ones(2)
    source.step()
    target = optim.AdamW([nn.Parameter(tangrad.ones(2, dtype=tangrad.float64))])
    target.load_state_dict(source.state_dict())
    (state,) = target.state.values()
    assert state["exp_avg"].dtype == tangrad.float64
    assert state["step"].dtype == tangrad.float32


def test_zero_grad_drops_or_zeroes():
    loss, made = stepped(tangrad)
    loss.backward()
    optimizer = optim.SGD([made])
    optimizer.zero_grad(set_to_none=False)
    assert made.grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert made.grad is None


def test_step_hooks_run_in_order_and_may_replace_arguments(agree):
    def program(t):
        log = []
        optimizer = t.optim.SGD([parameter(t)])
        registry = importlib.import_module(f"{t.__name__}.optim.optimizer")
        handles = [
            registry.register_optimizer_step_pre_hook(lambda *args: log.append("all before")),
            registry.register_optimizer_step_post_hook(lambda *args: log.append("all after")),
            optimizer.register_step_pre_hook(lambda o, args, kwargs: log.append(len(args))),
            optimizer.register_step_pre_hook(
                lambda o, args, kwargs: (args, {"closure": lambda: log.append("closure")})
            ),
            optimizer.register_step_post_hook(lambda *args: log.append("after")),
        ]
        optimizer.step()
        for handle in handles:
            handle.remove()
        optimizer.step()
        return log

    agree(program)


def test_a_step_pre_hook_returns_none_or_both():
    optimizer = optim.SGD([parameter()])
    optimizer.register_step_pre_hook(lambda *args: 3)
    with pytest.raises(RuntimeError, match=r"None or a tuple of \(new_args, new_kwargs\)"):
        optimizer.step()


def test_state_dict_hooks_run_in_order_and_may_replace():
    log = []
    optimizer = optim.SGD([parameter()])
    optimizer.register_state_dict_pre_hook(lambda o: log.append("before"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "extra": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, state: log.append(state["extra"]))
    optimizer.register_load_state_dict_post_hook(lambda o: log.append("last"))
    optimizer.register_load_state_dict_post_hook(lambda o: log.append("first"), prepend=True)
    optimizer.load_state_dict(optimizer.state_dict())
    assert log == ["before", 1, "first", "last"]


def test_a_subclass_defines_step_and_required_options():
    class Signed(optim.Optimizer):
        def __init__(self, params, lr=base.required):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            for group in self.param_groups:
                for made in group["params"]:
                    made.data.sub_(made.grad.sign() * group["lr"])

    with pytest.raises(ValueError, match="required optimization parameter lr"):
        Signed([parameter()])
    loss, made = stepped(tangrad)
    loss.backward()
    Signed([made], lr=0.25).step()
    assert made.tolist() == [0.75, 0.75]


def test_the_base_class_does_not_step():
    with pytest.raises(NotImplementedError):
        optim.Optimizer([parameter()], {}).step()


def test_optimizers_pickle_and_keep_stepping():
    made = parameter()
    optimizer = optim.AdamW([made], lr=0.1)
    made.grad = tangrad.ones(2)
    optimizer.step()
    restored = pickle.loads(pickle.dumps(optimizer))
    (copied,) = restored.param_groups[0]["params"]
    copied.grad = tangrad.ones(2)
    restored.step()
    optimizer.step()
    assert copied.tolist() == made.tolist()
    assert repr(restored) == repr(optimizer)


def test_an_optimizer_may_wrap_another_without_its_own_init():
    class Wrapper(optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            self._patch_step_function()

        def step(self, closure=None):
            return self.inner.step(closure)

    p = tangrad.nn.Parameter(tangrad.ones(2))
    p.grad = tangrad.ones(2)
    Wrapper(optim.SGD([p], lr=0.5)).step()
    assert p.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("name", ["Adafactor", "Adagrad", "RMSprop", "SGD"])
def test_a_loaded_group_has_the_options_of_a_new_one(name):
    optimizer = getattr(tangrad.optim, name)([tangrad.nn.Parameter(tangrad.ones(2, 2))])
    before = list(optimizer.param_groups[0])
    optimizer.load_state_dict(optimizer.state_dict())
    assert sorted(optimizer.param_groups[0]) == sorted(before)


def test_optimizers_of_others_find_what_they_import(agree):
    def program(t):
        of = importlib.import_module(f"{t.__name__}.optim.optimizer")

        class Step(t.optim.Optimizer):
            def __init__(self, params: of.ParamsT, differentiable):
                super().__init__(params, {"differentiable": differentiable})

            @of._use_grad_for_differentiable
            def step(self):
                return t.is_grad_enabled()

        found = [Step([t.ones(1)], differentiable).step() for differentiable in (False, True)]
        return found, of._default_to_fused_or_foreach([t.ones(1)], True)

    agree(program)


def test_tensors_are_grouped_by_device_and_dtype(agree):
    def program(t):
        path = f"{t.__name__}.utils._foreach_utils"
        module = importlib.import_module(path)
        ones = [t.ones(1), t.ones(1).double(), t.zeros(2)]

        def grouped(*args):
            found = module._group_tensors_by_device_and_dtype(*args)
            return sorted((str(k[1]).split(".")[1], repr(v[0]), v[1]) for k, v in found.items())

        def refused(*args):
            try:
                grouped(*args)
            except RuntimeError:
                return True

        return (
            grouped([ones, [None] * 3], True),
            grouped([ones, []]),
            [refused(x) for x in ([], [[]], [[None]], [ones, ones[:1]])],
            [
                module._has_foreach_support(tensors, t.device(where))
                for tensors in (ones, [None], [parameter(t)])
                for where in ("cpu", "meta")
            ],
            module._get_fused_kernels_supported_devices(),
        )

    agree(program)


@pytest.mark.parametrize("given", [nn.Linear(2, 2), tangrad.ones(2), 3])
def test_what_is_no_list_of_parameters_is_refused(given):
    advice = "pass its parameters" if isinstance(given, nn.Module) else ""
    with pytest.raises(TypeError, match=f"should be an iterable of Tensors.*{advice}"):
        optim.SGD(given, lr=0.1)
