"""Effects that had nothing to do while they were recorded have something to do later."""

from __future__ import annotations

import sys

import pytest

import tangrad
from tangrad import nn

OPTIONS = {"fullgraph": True, "options": {"measure": False}}


class Held:
    """What a program holds: a module, its optimizer, tensors, numbers."""

    def __init__(self):
        self.net = nn.Linear(3, 3)
        nn.init.constant_(self.net.weight, 0.5)
        nn.init.constant_(self.net.bias, 0.25)
        self.optimizer = tangrad.optim.SGD(self.net.parameters(), lr=0.5)
        self.plain = tangrad.ones(3)
        self.other = tangrad.full((3,), 2.0)
        self.rate = 0.3

    def shown(self):
        """Return all of it."""
        tensors = [*self.net.parameters(), self.plain, self.other]
        grads = [None if t.grad is None else t.grad.tolist() for t in tensors]
        flags = [(t.requires_grad, t.is_leaf) for t in tensors]
        return [t.tolist() for t in tensors], grads, flags, self.rate


def give_gradients(held):
    held.net(tangrad.ones(2, 3)).sum().backward()


def give_plain_a_gradient(held):
    held.plain.grad = tangrad.full((3,), 7.0)


def set_to_none(held):
    held.net.weight.grad = None


def delete(held):
    del held.net.weight.grad


def clip(held):
    nn.utils.clip_grad_norm_(held.net.parameters(), 0.1)


def add_gradient(held):
    if held.plain.grad is not None:
        held.other.add_(held.plain.grad)


def drop_plain_gradient(held):
    held.plain.grad = None


def shrink(held):
    for p in held.net.parameters():
        p.grad = None if p.grad is None else p.grad * 0.5


EFFECTS = {
    "Optimizer.zero_grad": (lambda held: held.optimizer.zero_grad(), give_gradients),
    "zero_grad of zeros": (
        lambda held: held.optimizer.zero_grad(set_to_none=False),
        give_gradients,
    ),
    "Module.zero_grad": (lambda held: held.net.zero_grad(), give_gradients),
    "grad = None": (set_to_none, give_gradients),
    "del grad": (delete, give_gradients),
    "a step of an optimizer": (lambda held: held.optimizer.step() and None, give_gradients),
    "clipping": (clip, give_gradients),
    "gradients made anew": (shrink, give_gradients),
    "of one that requires none, read": (add_gradient, give_plain_a_gradient),
    "of one that requires none, dropped": (drop_plain_gradient, give_plain_a_gradient),
}


def outcomes(effect, later, wrap):
    tangrad.manual_seed(0)
    held = Held()

    def step(x):
        effect(held)
        return x * 2

    step, found = wrap(step), []
    for turn in range(8):
        if turn in (3, 5, 6):
            later(held)
        found.append((step(tangrad.ones(2)).tolist(), held.shown()))
    return step, found


@pytest.mark.parametrize("name", EFFECTS)
def test_what_was_nothing_when_recorded_is_done_when_there_is_something(name):
    _, wanted = outcomes(*EFFECTS[name], lambda f: f)
    step, found = outcomes(*EFFECTS[name], lambda f: tangrad.compile(f, **OPTIONS))
    assert found == wanted
    assert step.compiled.executables


def test_a_program_that_asks_for_no_gradient_is_recorded_once_whether_there_is_one_or_not():
    net = nn.Linear(3, 3)
    compiled = tangrad.compile(lambda x: net(x), **OPTIONS)
    x = tangrad.ones(2, 3)
    for set_to_none in (True, False, True, False):
        compiled(x).sum().backward()
        net.zero_grad(set_to_none)
    assert len(compiled.compiled.executables) == 1


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_gradient_of_an_argument_is_seen_where_there_was_none(requires_grad):
    def total(x):
        return x.detach() * 1 if x.grad is None else x.detach() + x.grad

    compiled = tangrad.compile(total, **OPTIONS)
    for turn in range(6):
        x = tangrad.ones(3).requires_grad_(requires_grad)
        if turn in (2, 4):
            x.grad = tangrad.full((3,), 4.0)
        assert compiled(x).tolist() == [5.0 if turn in (2, 4) else 1.0] * 3


def test_a_gradient_that_is_set_for_a_tensor_that_requires_none_is_there_after_each_run():
    held = tangrad.ones(3)

    def f(x):
        held.grad = x * 2
        return x + 1

    compiled = tangrad.compile(f, **OPTIONS)
    for k in range(5):
        held.grad = None
        compiled(tangrad.full((3,), float(k)))
        assert held.grad.tolist() == [2.0 * k] * 3


def test_a_look_at_the_gradient_of_what_keeps_none_is_refused():
    w = tangrad.ones(3, requires_grad=True)

    def f(x):
        return x.detach() * (1 if x.grad is None else 2)

    refused = pytest.raises(RuntimeError, match="no leaf")
    with pytest.warns(UserWarning, match="not a leaf"), refused:
        tangrad.compile(f, **OPTIONS)(w * 2)


def test_retain_grad_of_what_keeps_its_gradient_already_is_no_graph_of_it_for_others():
    w = tangrad.ones(3, requires_grad=True)

    def f(x):
        x.retain_grad()
        return x * 2

    compiled = tangrad.compile(f, options={"measure": False})
    for turn in range(6):
        x = w * 1
        if turn < 3:
            x.retain_grad()
        compiled(x).sum().backward()
        assert x.grad.tolist() == [2.0] * 3


def test_a_number_that_the_run_sets_to_what_it_is_is_set_from_others_too():
    held = Held()

    def f(x):
        made = x * held.rate
        held.rate = 0.3
        return made

    compiled = tangrad.compile(f, options={"measure": False})
    for rate in (0.3, 0.3, 0.4, 0.3, 0.6, 0.7, 0.3, 0.8):
        held.rate = rate
        assert compiled(tangrad.ones(1)).item() == pytest.approx(rate)
        assert held.rate == 0.3


def test_a_number_that_the_run_makes_the_same_of_is_not_at_others():
    held = Held()

    def f(x):
        made = x * held.rate
        held.rate = abs(held.rate)
        return made

    compiled = tangrad.compile(f, options={"measure": False})
    for rate in (0.3, 0.4, 0.6, 0.7, -0.8, -0.9, 0.25, -0.4):
        held.rate = rate
        assert compiled(tangrad.ones(1)).item() == pytest.approx(rate)
        assert held.rate == abs(rate)


def test_a_tensor_that_was_a_leaf_is_no_leaf_in_another_call():
    w = tangrad.full((3,), 2.0, requires_grad=True)
    held = tangrad.ones(3, requires_grad=True)

    def f(x):
        loss = (held * x).sum()
        loss.backward()
        return loss.detach()

    compiled = tangrad.compile(f, options={"measure": False})
    for _ in range(3):
        held.grad = None
        compiled(tangrad.ones(3))
        assert held.grad.tolist() == [1.0] * 3
    held.grad = None
    held.detach_().requires_grad_(False).mul_(w)
    compiled(tangrad.ones(3))
    assert w.grad.tolist() == [1.0] * 3


SETTINGS = {
    "set_num_threads": (tangrad.set_num_threads, tangrad.get_num_threads, 1, 2),
    "set_float32_matmul_precision": (
        tangrad.set_float32_matmul_precision,
        tangrad.get_float32_matmul_precision,
        *("highest", "high"),
    ),
    "set_warn_always": (tangrad.set_warn_always, tangrad.is_warn_always_enabled, False, True),
    "set_autocast_dtype": (
        lambda dtype: tangrad.set_autocast_dtype("cpu", dtype),
        lambda: tangrad.get_autocast_dtype("cpu"),
        *(tangrad.bfloat16, tangrad.float16),
    ),
    "set_deterministic_debug_mode": (
        tangrad.set_deterministic_debug_mode,
        tangrad.get_deterministic_debug_mode,
        *(0, 1),
    ),
    "set_grad_enabled": (tangrad.set_grad_enabled, tangrad.is_grad_enabled, True, False),
    "set_default_dtype": (
        tangrad.set_default_dtype,
        tangrad.get_default_dtype,
        *(tangrad.float32, tangrad.float64),
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_what_all_calls_share_is_set_by_each_call(name):
    put, get, usual, other = SETTINGS[name]
    before = get()

    def f(x):
        put(usual)
        return x * 2

    try:
        compiled = tangrad.compile(f, options={"measure": False})
        for value in (usual, usual, usual, other, other, usual, other):
            put(value)
            compiled(tangrad.ones(2))
            assert get() == usual
    finally:
        put(before)


def test_what_a_module_does_as_it_is_imported_in_a_run_is_done_once(tmp_path, monkeypatch):
    text = "import struct\n_FLOAT = struct.Struct('f')\nSIZE = _FLOAT.size\n"
    (tmp_path / "imported_within.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))

    def f(x):
        import imported_within

        return x * imported_within.SIZE

    compiled = tangrad.compile(f, **OPTIONS)
    for k in range(4):
        assert compiled(tangrad.full((2,), float(k))).tolist() == [4.0 * k] * 2
    assert compiled.compiled.executables
    sys.modules["imported_within"].SIZE = 5
    assert compiled(tangrad.ones(2)).tolist() == [5.0, 5.0]
    del sys.modules["imported_within"]
