# ruff: noqa: E501 - the texts of programs' lines break badly
"""What random programs change around a call: modes, defaults of the process, and who calls."""

from __future__ import annotations

__all__ = ["AROUND", "CLASSES", "DEFAULTS", "HOOKS", "MODES", "QUESTIONS", "SURROUNDINGS"]

# Contexts that a call is made in.
MODES = (
    *("T.no_grad()", "T.no_grad()", "T.inference_mode()", "T.inference_mode()", "T.enable_grad()"),
    *("T.device('meta')", "default_dtype(T.float64)", "T.autocast('cpu', dtype=T.bfloat16)"),
    *("T.random.fork_rng()", "T.autograd.detect_anomaly()", "T.autocast('cpu', dtype=T.float16)"),
    "T.autograd.graph.saved_tensors_hooks(lambda x: x * 1, lambda x: x)",
    "T.autograd.graph.save_on_cpu()",
    "T.autograd.graph.disable_saved_tensors_hooks('not here')",
    "T.autograd.forward_ad.dual_level()",
    *("Doubling()", "Doubling()", "Watching()"),
    *("patched(T, 'where', lambda c, x, y: x * 2)", "patched(T, 'full_like', lambda x, n: x + n)"),
    "patched(T.nn.functional, 'layer_norm', lambda x, n: x * 3)",
    "patched(T.nn.Module, '__call__', lambda self, x: x * 2)",
    "patched(Net, 'forward', lambda self, x: x - self.bias)",
    "patched(type(S), 'rate_of', lambda self, k: k * 2)",
    "every_module(lambda module, given, made: made * 0.5)",
)
# Statements that change a default of the whole process, until the program ends.
DEFAULTS = (
    *("T.set_default_dtype(T.float64)", "T.set_default_dtype(T.float16)"),
    *("T.set_grad_enabled(False)", "T.set_grad_enabled(True)"),
    *("T.set_num_threads(1)", "T.set_num_threads(3)", "T.set_default_device('meta')"),
    *("T.set_default_device('cpu')", "T.set_default_device(None)"),
    *("T.use_deterministic_algorithms(True)", "T.use_deterministic_algorithms(False)"),
    *("T.set_autocast_enabled('cpu', True)", "T.set_autocast_enabled('cpu', False)"),
    *("T.set_autocast_dtype('cpu', T.float16)", "T.set_autocast_dtype('cpu', T.bfloat16)"),
    *("T.autograd.set_detect_anomaly(True)", "T.autograd.set_detect_anomaly(False)"),
    *("T.set_float32_matmul_precision('medium')", "T.autograd.set_multithreading_enabled(False)"),
    *("chance.seed(3)", "numpy.random.seed(3)"),
)
# Who calls the function, as what a caller makes of it.
AROUND = (
    "lambda f: lambda a, b, k, m, box: T.vmap(lambda q: f(q, b, k, m, box))(a.unsqueeze(0))",
    "lambda f: lambda a, b, k, m, box: T.vmap(lambda q, r: f(q, r, k, m, box))(T.stack([a, a]), T.stack([b, b]))",
    "lambda f: lambda a, b, k, m, box: T.func.grad(lambda q: total(f(q, b, k, m, box)))(a)",
    "lambda f: lambda a, b, k, m, box: T.func.grad_and_value(lambda q: total(f(a, q, k, m, box)))(b)",
    "lambda f: lambda a, b, k, m, box: T.func.jvp(lambda q: total(f(q, b, k, m, box)), (a,), (b,))",
    "lambda f: lambda a, b, k, m, box: T.func.vjp(lambda q: total(f(q, b, k, m, box)), a)[1](T.ones(()))",
    "lambda f: lambda a, b, k, m, box: T.func.functionalize(lambda q: f(q, b, k, m, box))(a)",
    "lambda f: lambda *given: T.utils.checkpoint.checkpoint(f, *given, use_reentrant=False)",
    "lambda f: lambda *given: T.utils.checkpoint.checkpoint(f, *given, use_reentrant=True)",
    "lambda f: lambda a, b, k, m, box: C(lambda q, r: f(q, r, k, m, box) if k != m else q + r)(a, b)",
    "lambda f: lambda a, b, k, m, box: C(lambda q, r: (f(q, r, k, m, box), q * 2))(a, b)",
    "lambda f: functools.partial(f)",
    "lambda f: lambda a, b, k, m, box: f(a, b, k, m=m, box=box)",
    "lambda f: lambda a, b, k, m, box: f(*(a, b), **{'m': m, 'box': box, 'k': k})",
    "in_backward",
    "in_hook",
    "in_generator",
    "twice",
    "dual",
)
# Statements that register or remove what is called in passing.
HOOKS = (
    "S.net.weight.register_post_accumulate_grad_hook(doubled_grad) if S.net.weight.requires_grad else 0",
    "S.net.register_full_backward_hook(lambda module, given, made: None)",
    "S.net.register_full_backward_pre_hook(lambda module, given: None)",
    "S.net.register_forward_hook(lambda module, given, kwargs, made: made + 1, with_kwargs=True)",
    "S.net.register_forward_hook(raising)",
    "S.net._forward_hooks.clear()",
    "S.net._forward_pre_hooks.clear()",
    "S.held.register_hook(lambda grad: grad * 2) if S.held.requires_grad else 0",
    "T.nn.utils.parametrize.register_parametrization(S.net, 'weight', Twice())",
    "T.nn.utils.parametrize.remove_parametrizations(S.net, 'weight')",
    "T.nn.utils.prune.l1_unstructured(S.net, 'weight', amount=0.3)",
)
# Statements that change classes, and what names mean.
CLASSES = (
    *("Net.rate = 0.25", "S.net.__class__ = Other", "S.__class__ = Richer", "del S.net.rate"),
    *("State.rate_of = lambda self, k: k + 1", "State.rate_of = lambda self, k: 0.5"),
    *("S.rate_of = lambda k: k - 1", "del S.net.running", "S.net.running = None"),
    *("S.net.register_buffer('running', S.held.clone())", "S.net.extra = T.nn.Linear(2, 2)"),
    *("S.net.register_parameter('weight', None)", "S.net.weight = S.net.bias"),
    *("S.record.k = T.tensor(0.5)", "S.record.__class__ = Wider", "S.stored = tuple(S.stored)"),
    *("S.moment = collections.OrderedDict(S.moment)", "S.moment['x'] = S.held"),
    *("S.moment = dict(reversed(S.moment.items()))", "S.names = frozenset(S.names)"),
    *("STEPS = iter([0.5, 0.25])", "STEPS = itertools.count(2)", "next(STEPS, 0)"),
    *("Own.__torch_function__ = classmethod(halved)", "del Own.__torch_function__"),
    *("make_function.__globals__['FACTOR'] = 0.125", "TABLE.clear()", "TABLE.update(k=2, t=None)"),
    *("PLACES['FLOOR'] = '3'", "PLACES.pop('FLOOR', None)", "S.held.tag = 3", "del S.held.tag"),
    *("WEAK = weakref.ref(S.held)", "S.held = S.held.clone()", "gc.collect()"),
    *("abs = lambda x: 2", "del abs", "len = lambda x: 1", "del len"),
)
# What a function asks of what is around it, true or false.
QUESTIONS = (
    *("T.get_default_dtype() == T.float64", "T.is_autocast_enabled('cpu')"),
    *("T.is_inference_mode_enabled()", "T.are_deterministic_algorithms_enabled()"),
    *(
        "T.get_num_threads() > 2",
        "list(box)[0] == 'x'",
        "k is None",
        "k == m",
        "type(k) is type(m)",
    ),
    *("{one}.is_leaf", "{one}.grad_fn is None", "{one}._version > 2", "{one}._base is not None"),
    *("{one}.storage_offset() > 0", "{one}.stride(-1) == 1", "{one}.is_inference()"),
    *("{one}.retains_grad", "{one}._backward_hooks is None", "{one}.layout == T.strided"),
    *("{one}.untyped_storage().nbytes() > 32", "{one}.data_ptr() == {other}.data_ptr()"),
    *("{one}._is_view()", "{one}.element_size() > 4", "{one}.numel() > 4", "{one}.dim() == 1"),
    *("hasattr({one}, 'tag')", "type({one}) is T.Tensor", "{one}.device.type == 'meta'"),
    *("T.equal({one}, {other})", "bool(({one} == {other}).all())", "{one}.is_conj()"),
    *("hasattr(S.net, 'extra')", "isinstance(S.net, Other)", "S.net._forward_hooks"),
    *("'x' in S.moment", "list(S.moment)[0] == 'v'", "PLACES.get('FLOOR') == '3'"),
    *("WEAK() is S.held", "len(S.stored) > 1", "next(STEPS, 0) > 2", "chance.random() > 0.5"),
    *("numpy.random.rand() > 0.5", "callable(S.inner)", "T.initial_seed() == 3"),
    *("S.net.weight is None", "isinstance(box, collections.OrderedDict)", "len(box) > 4"),
    *("next(S.net.parameters()) is S.net.weight", "len(list(S.net.children())) > 0"),
    *("isinstance(box['many'], tuple)", "box['pair'][0] == 1", "isinstance(k, bool)"),
    *("S.optimizer.state", "S.optimizer.param_groups[0]['params'][0] is S.net.weight"),
)

SURROUNDINGS = '''
import collections
import contextlib
import functools
import gc
import itertools
import random as chance
import types
import weakref

import numpy

PLACES, STEPS, WEAK = {}, itertools.count(1), lambda: S.held


class Doubling(T.overrides.TorchFunctionMode):
    """Products are twice what they are."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        return made * 2 if getattr(func, "__name__", "") in ("mul", "sum") else made


class Watching(T.utils._python_dispatch.TorchDispatchMode):
    """Sees all calls, and changes nothing."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def patched(place, name, value):
    """A name of a module or class means something else."""
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


@contextlib.contextmanager
def every_module(hook):
    handle = T.nn.modules.module.register_module_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class Twice(T.nn.Module):
    def forward(self, x):
        return x * 2


def halved(cls, func, types, args=(), kwargs=None):
    with T._C.DisableTorchFunctionSubclass():
        made = func(*args, **(kwargs or {}))
        return made * 0.5 if getattr(func, "__name__", "") in ("mul", "add") else made


def doubled_grad(parameter):
    parameter.grad = parameter.grad * 2


def raising(module, given, made):
    raise Stop("in a hook")


def total(made):
    """The sum of all tensors of numbers in a result."""
    if isinstance(made, dict):
        made = list(made.values())
    if isinstance(made, (list, tuple)):
        return sum((total(one) for one in made), T.zeros(()))
    return made.sum() if isinstance(made, T.Tensor) and made.is_floating_point() else T.zeros(())


def in_backward(f):
    """Calls within the backward pass of something else."""
    def call(*given):
        found = []

        class Calls(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                found.append(f(*given))
                return grad

        with T.enable_grad():
            Calls.apply(T.ones(2, requires_grad=True)).sum().backward()
        return found[0]
    return call


def in_hook(f):
    """Calls within a module's hook, and the call within a call."""
    def call(*given):
        found = []
        net = T.nn.Identity()
        net.register_forward_hook(lambda module, inputs, made: found.append(f(*given)))
        net(T.ones(2))
        return found[0]
    return call


def in_generator(f):
    def steps(*given):
        with T.set_grad_enabled(T.is_grad_enabled()):
            yield f(*given)
    return lambda *given: next(steps(*given))


def twice(f):
    def call(*given):
        first = f(*given)
        return first, f(*given)
    return call


def dual(f):
    """Calls with a tangent."""
    def call(a, b, k, m, box):
        from_ = T.autograd.forward_ad
        with from_.dual_level():
            made = f(from_.make_dual(a, b.detach().reshape(a.shape).to(a.dtype)), b, k, m, box)
            made = made[0] if isinstance(made, (tuple, list)) else made
            both = from_.unpack_dual(made)
            return both.primal.clone(), None if both.tangent is None else both.tangent.clone()
    return call


def reset():
    """Undo what programs change of the process."""
    T.set_default_dtype(T.float32)
    T.set_grad_enabled(True)
    T.set_default_device(None)
    T.use_deterministic_algorithms(False)
    T.set_autocast_enabled("cpu", False)
    T.set_autocast_dtype("cpu", T.bfloat16)
    T.autograd.set_detect_anomaly(False)
    T.set_float32_matmul_precision("highest")
    T.autograd.set_multithreading_enabled(True)
    chance.seed(1)
    numpy.random.seed(1)
'''
