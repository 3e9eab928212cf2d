"""Writes into held tensors as chains that fuse, and groups of one code as one call."""

from __future__ import annotations

import copy

import pytest

import tangrad
from tangrad import nn


def compiled(function):
    """Return a function compiled as one graph, without comparing times."""
    return tangrad.compile(function, fullgraph=True, options={"measure": False})


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()


OPTIMIZERS = {
    "Adadelta": {},
    "Adagrad": {"lr_decay": 0.1, "weight_decay": 0.01},
    "Adam": {"amsgrad": True, "foreach": True},
    "Adamax": {"weight_decay": 0.01},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "Rprop": {},
    "SGD": {"momentum": 0.9, "nesterov": True},
}


@pytest.mark.parametrize("width", [5, 150])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_each_optimizer_is_eager_s_to_the_bit(name, width):
    def trained(compile):
        tangrad.manual_seed(0)
        model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        optimizer = getattr(tangrad.optim, name)(model.parameters(), **OPTIMIZERS[name])

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = compiled(step) if compile else step
        losses = [run(tangrad.randn(3, width)) for _ in range(8)]
        state = [v for p in model.parameters() for v in optimizer.state[p].values()]
        state = [v for v in state if isinstance(v, tangrad.Tensor)]
        return [*losses, *model.parameters(), *state], getattr(run, "compiled", None)

    (wanted, _), (found, told) = trained(False), trained(True)
    assert len(wanted) == len(found)
    assert all(same(a, b) for a, b in zip(wanted, found, strict=True))
    assert told.executables


@pytest.mark.parametrize("name", ["Adadelta", "Adamax", "RMSprop"])
def test_the_steps_of_all_parameters_are_one_call(name):
    pytest.importorskip("tangrad_cpu", reason="its kernels are fused")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = getattr(tangrad.optim, name)(model.parameters())

    @compiled
    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    for _ in range(4):
        step(tangrad.randn(3, 4))
    executable = step.compiled.executables[0]
    assert executable.plans[0].steps.count("groups") == 1
    assert "copy" not in executable.plans[0].steps
    assert any(note.startswith("horizontal fusion") for note in executable.notes)
    assert "side by side" in str(tangrad.compile.explain(step, tangrad.randn(3, 4)))


@pytest.mark.parametrize("size", [7, 9000])
def test_the_same_ops_on_several_tensors_are_one_call(size):
    pytest.importorskip("tangrad_cpu", reason="its kernels are fused")

    def f(*xs):
        return [(x * 2 + 1).sqrt() for x in xs]

    xs = [tangrad.rand(k + 1, size) for k in range(4)]
    fast = compiled(f)
    for _ in range(3):
        assert all(same(a, b) for a, b in zip(fast(*xs), f(*xs), strict=True))
    assert fast.compiled.executables[0].plans[0].steps.count("groups") == 1


def test_numbers_of_each_are_its_own():
    held = [tangrad.ones(3), tangrad.ones(4)]

    def f(rates):
        for t, rate in zip(held, rates, strict=True):
            t.mul_(rate).add_(1, alpha=2)

    fast = compiled(f)
    wanted = copy.deepcopy(held)
    for k in range(6):
        rates = [1.0 + k, 2.0 - k]
        fast(rates)
        for t, rate in zip(wanted, rates, strict=True):
            t.mul_(rate).add_(1, alpha=2)
        assert all(same(a, b) for a, b in zip(held, wanted, strict=True))


def test_a_group_that_reads_what_another_makes_runs_after_it():
    def f(x, y):
        a = x * 2 + 1
        b = a.sum()
        return a, (y + b) * 2 + 1, (y * 2 + 1) * b

    x, y = tangrad.randn(5), tangrad.randn(6)
    fast = compiled(f)
    for _ in range(3):
        assert all(same(a, b) for a, b in zip(fast(x, y), f(x, y), strict=True))


def write_and_look_before(t, x):
    y = t.sin()
    t.mul_(2).add_(x)
    return y, t + 1


def write_and_show_a_part(t, x):
    t.mul_(2).add_(x)
    return t[1:] * 2


def write_a_part_between(t, x):
    t.mul_(2)
    t[1:].add_(1)
    return t.add_(x)


def write_with_itself(t, x):
    t.mul_(t).add_(t)
    return t.sum() + x


def write_what_another_shows(t, x):
    part = t[:2]
    t.mul_(2).add_(x)
    return part * 2


def copy_over(t, x):
    y = t * x + 1
    t.copy_(y)
    y.add_(1)
    return y * t


def copy_an_argument_over(t, x):
    t.mul_(3)
    t.copy_(x)
    return t * 2


WRITERS = [
    write_and_look_before,
    write_and_show_a_part,
    write_a_part_between,
    write_with_itself,
    write_what_another_shows,
    copy_over,
    copy_an_argument_over,
]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("as_argument", [False, True])
def test_what_is_written_and_read_is_what_eager_has(write, as_argument):
    held, x = tangrad.tensor([1.0, 2.0, 3.0]), tangrad.tensor([0.5, -1.0, 2.0])
    wanted = held.clone()
    fast = compiled(write) if as_argument else compiled(lambda x: write(held, x))
    for _ in range(4):
        found = fast(held, x) if as_argument else fast(x)
        made = write(wanted, x)
        found, made = (t if isinstance(t, tuple) else (t,) for t in (found, made))
        assert all(same(a, b) for a, b in zip(found, made, strict=True))
        assert same(held, wanted)


def test_a_held_tensor_and_a_held_view_of_it_are_written_in_order():
    held, wanted = tangrad.zeros(6), tangrad.zeros(6)
    part = held[:3]

    @compiled
    def fast(x):
        held.add_(1).mul_(2)
        y = part * 3
        held.add_(x).mul_(2)
        return y

    x = tangrad.ones(6)
    for _ in range(4):
        found = fast(x)
        wanted.add_(1).mul_(2)
        made = wanted[:3] * 3
        wanted.add_(x).mul_(2)
        assert same(found, made)
        assert same(held, wanted)


def test_a_written_tensor_is_known_to_have_changed():
    held = tangrad.ones(3, requires_grad=True)
    fast = compiled(lambda x: held.detach().mul_(2).add_(x) * 1)
    for _ in range(3):
        before = held._version
        kept = held * held
        fast(tangrad.ones(3))
        assert held._version > before
        with pytest.raises(RuntimeError, match="modified"):
            kept.sum().backward()
