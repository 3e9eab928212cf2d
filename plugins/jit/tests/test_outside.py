"""What a program reads of the outside: a change of it is seen, or the program is refused."""

from __future__ import annotations

import collections
import contextvars
import datetime
import functools
import os
import random
import sys
import threading
import types
import uuid
import weakref

import pytest

import tangrad
from tangrad import nn
from tangrad_jit.capture import guarded_state
from tangrad_jit.capture.errors import CaptureError

CONFIG = types.ModuleType("outside_config")
sys.modules["outside_config"] = CONFIG
LOCAL = threading.local()


class Settings:
    scale = 2.0


class Special(Settings):
    pass


class Names(dict):
    pass


class Hidden:
    __slots__ = ("__scale",)

    def __init__(self):
        self.__scale = 2.0

    def get(self):
        return self.__scale

    def put(self, scale):
        self.__scale = scale


def attribute_of(held, name="scale"):
    """Return what sets an attribute, having set it to 2."""
    setattr(held, name, 2.0)
    return lambda: setattr(held, name, 3.0)


def class_attribute():
    return (lambda x: x * Settings.scale), attribute_of(Settings)


def attribute_of_a_base():
    return (lambda x: x * Special.scale), attribute_of(Settings)


def attribute_of_a_function():
    def f(x):
        return x * f.scale

    return f, attribute_of(f)


def attribute_of_a_helper():
    def helper(x):
        return x * helper.scale

    return (lambda x: helper(x)), attribute_of(helper)


def default():
    def f(x, scale=2.0):
        return x * scale

    return f, lambda: setattr(f, "__defaults__", (3.0,))


def keyword_default():
    def helper(x, *, scale=2.0):
        return x * scale

    return (lambda x: helper(x)), lambda: setattr(helper, "__kwdefaults__", {"scale": 3.0})


def order_of_an_ordered_dict():
    held = collections.OrderedDict(a=2.0, b=3.0)

    def f(x):
        for value in held.values():
            x = x * value + 1
        return x

    return f, lambda: held.move_to_end("a")


def attribute_of_a_dict():
    held = Names()
    return (lambda x: x * held.scale), attribute_of(held)


def member_of_a_set():
    held = Settings()
    change = attribute_of(held)
    members = {held}

    def f(x):
        for member in members:
            x = x * member.scale
        return x

    return f, change


def equal_member_of_a_set():
    members = {1.0}

    def change():
        members.clear()
        members.add(1)

    return (lambda x: x * (2 if all(type(m) is float for m in members) else 3)), change


def attribute_of_a_tensor():
    held = tangrad.ones(3)
    return (lambda x: x * held.scale * held), attribute_of(held)


def private_slot():
    held = Hidden()
    return (lambda x: x * held.get()), lambda: held.put(3.0)


def module_held_by_a_closure():
    config = CONFIG
    return (lambda x: x * config.scale), attribute_of(CONFIG)


def module_in_a_dict():
    held = {"config": CONFIG}
    return (lambda x: x * held["config"].scale), attribute_of(CONFIG)


def module_imported_inside():
    def f(x):
        import outside_config

        return x * outside_config.scale

    return f, attribute_of(CONFIG)


def name_imported_inside():
    def f(x):
        from outside_config import scale

        return x * scale

    return f, attribute_of(CONFIG)


def name_of_a_module_by_getattr():
    vars(CONFIG).pop("added", None)
    return (lambda x: x * getattr(CONFIG, "added", 2.0)), lambda: setattr(CONFIG, "added", 3.0)


def global_that_was_not_there():
    globals().pop("ADDED", None)

    def f(x):
        try:
            return x * ADDED
        except NameError:
            return x

    return f, lambda: globals().__setitem__("ADDED", 3.0)


def variable_of_the_thread():
    return (lambda x: x * LOCAL.scale), attribute_of(LOCAL)


def variable_of_the_environment():
    os.environ["OUTSIDE"] = "2"
    return (lambda x: x * float(os.getenv("OUTSIDE"))), lambda: os.environ.update(OUTSIDE="3")


def target_of_a_weak_reference():
    held = Settings()
    change = attribute_of(held)
    reference = weakref.ref(held)
    return (lambda x: x * reference().scale), lambda: (held, change())


def emptied_cache():
    factor = [2.0]

    @functools.lru_cache
    def helper():
        return factor[0]

    def change():
        factor[0] = 3.0
        helper.cache_clear()

    return (lambda x: x * helper()), change


def function_for_a_type():
    @functools.singledispatch
    def helper(x):
        return x * 2

    return (lambda x: helper(x)), lambda: helper.register(tangrad.Tensor)(lambda x: x * 3)


def patched_function_of_the_library():
    tangrad.twice_outside = lambda x: x * 2
    return (lambda x: tangrad.twice_outside(x)), lambda: setattr(
        tangrad, "twice_outside", lambda x: x * 3
    )


def variable_of_the_context():
    held = contextvars.ContextVar("scale")
    held.set(2.0)
    return (lambda x: x * held.get()), lambda: held.set(3.0)


def method_in_c_of_a_base():
    class Named(dict):
        def get(self, name):
            return super().get(name)

    held = Named(scale=2.0)
    return (lambda x: x * held.get("scale")), lambda: held.update(scale=3.0)


def class_that_nobody_asked():
    kind = type("Untouched", (), {})
    return (lambda x: x * (3 if "scale" in vars(kind) else 2)), lambda: setattr(kind, "scale", 0)


CHANGES = [
    *(class_attribute, attribute_of_a_base, attribute_of_a_function, attribute_of_a_helper),
    *(default, keyword_default, order_of_an_ordered_dict, attribute_of_a_dict, member_of_a_set),
    *(equal_member_of_a_set, attribute_of_a_tensor, private_slot, module_held_by_a_closure),
    *(module_in_a_dict, module_imported_inside, name_imported_inside, function_for_a_type),
    *(name_of_a_module_by_getattr, global_that_was_not_there, variable_of_the_thread),
    *(variable_of_the_environment, target_of_a_weak_reference, emptied_cache),
    *(patched_function_of_the_library, variable_of_the_context, method_in_c_of_a_base),
    class_that_nobody_asked,
]


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.__name__)
def test_a_change_of_what_a_program_reads_is_seen(case):
    function, change = case()
    fast, x = tangrad.compile(function, fullgraph=True, options={"measure": False}), tangrad.ones(3)
    for _ in range(3):
        assert fast(x).equal(function(x))
    assert fast.compiled.executables
    before = function(x)
    change()
    assert not function(x).equal(before)
    for _ in range(2):
        assert fast(x).equal(function(x))


def test_a_run_that_tells_what_it_executes_may_be_no_graph(monkeypatch):
    monkeypatch.setattr(guarded_state, "_NAMES", 200)

    def program(x, far=False):
        return [*sys.modules.values()] if far else x[x.nonzero().flatten()] * 2

    fast, x = tangrad.compile(program), tangrad.tensor([1.0, 0.0, 3.0])
    for _ in range(4):
        assert fast(x).equal(program(x))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_names_that_lead_too_far_are_those_of_what_runs(monkeypatch, fullgraph):
    monkeypatch.setattr(guarded_state, "_NAMES", 200)
    CONFIG.scale = 2.0

    def never(x):
        return [sys.modules[name] for name in sorted(sys.modules)]

    def program(x, far=False):
        return never(x) if far else x * CONFIG.scale

    fast, x = (
        tangrad.compile(program, fullgraph=fullgraph, options={"measure": False}),
        tangrad.ones(3),
    )
    for _ in range(3):
        assert fast(x).equal(program(x))
    assert "what the function executes" in fast.compiled.events[0]
    assert fast.compiled.executables
    CONFIG.scale = 3.0
    for _ in range(2):
        assert fast(x).equal(program(x))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x * random.uniform(0, 1), r"Random.random\(\)"),
        (lambda x: x * random.choice([1, 2]), r"Random"),
        (lambda x: x * datetime.datetime.now().microsecond, r"datetime.now\(\)"),
        (lambda x: x * (uuid.uuid4().int % 7), r"urandom\(\)"),
        (lambda x: x * os.path.exists("/nonexistent"), r"stat\(\)"),
        (lambda x: x * (id(x) % 7), r"id\(\) tells where"),
        (lambda x: x * x.data_ptr(), r"data_ptr\(\)"),
        (lambda x: x * x.storage_offset(), r"storage_offset\(\)"),
        (lambda x: x * x._version, "reads ._version"),
        (lambda x: x if x._base is None else -x, "reads ._base"),
        (lambda x: x * tangrad.initial_seed(), r"initial_seed\(\)"),
        (lambda x: x * threading.get_ident(), r"get_ident\(\)"),
    ],
)
def test_what_no_guard_watches_is_refused(function, reason):
    fast = tangrad.compile(function, fullgraph=True)
    with pytest.raises(CaptureError, match=rf"{reason}.*test_outside.py"):
        fast(tangrad.ones(3))


def test_hooks_of_all_modules_are_seen():
    model, x = nn.Linear(3, 3), tangrad.ones(2, 3)
    fast = tangrad.compile(lambda x: model(x), fullgraph=True, options={"measure": False})
    for _ in range(3):
        fast(x)
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 2)
    try:
        assert fast(x).equal(model(x))
    finally:
        handle.remove()
    assert fast(x).equal(model(x))


def test_arguments_that_are_one_object_or_the_program_s_are_told_apart():
    held = tangrad.ones(3)
    calls = [(held, held), (held, tangrad.ones(3)), (tangrad.ones(3), held)]
    other = tangrad.ones(3)
    calls += [(other, other), (tangrad.ones(3), tangrad.ones(3))]

    def f(a, b):
        return a * (2 if a is b else 3) + (10 if a is held else 20) + (b is held)

    fast = tangrad.compile(f, fullgraph=True, options={"measure": False})
    for a, b in calls * 2:
        assert fast(a, b).equal(f(a, b))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_where_new_tensors_are_made_is_guarded(device):
    fast = tangrad.compile(lambda x: tangrad.zeros(3), fullgraph=True, options={"measure": False})
    x = tangrad.ones(3)
    for _ in range(3):
        fast(x)
    with tangrad.device(device):
        assert fast(x).device.type == device


def test_attributes_of_arguments_are_guarded():
    fast = tangrad.compile(lambda x: x * x.scale, fullgraph=True, options={"measure": False})
    for scale in (2.0, 2.0, 3.0, 3.0):
        x = tangrad.ones(2)
        x.scale = scale
        assert fast(x).tolist() == [scale, scale]


def test_a_leaf_and_what_has_a_gradient_are_told_apart():
    def f(x):
        graded = x.is_leaf and x.grad is not None
        return x.detach() * (2 if x.is_leaf else 3) * (5 if graded else 1)

    fast = tangrad.compile(f, fullgraph=True, options={"measure": False})
    leaf, graded = (tangrad.ones(2, requires_grad=True) for _ in range(2))
    graded.grad = tangrad.ones(2)
    for x in (leaf, leaf * 1, graded) * 2:
        for _ in range(2):
            assert fast(x).equal(f(x))
