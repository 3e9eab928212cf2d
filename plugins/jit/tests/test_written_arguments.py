"""Writes into what the caller gives, with numbers that the caller changes, are eager's."""

from __future__ import annotations

import pytest

import tangrad

WRITES = {
    "mul_": lambda a, b, k: a.mul_(k),
    "fill_": lambda a, b, k: a.fill_(k),
    "sub_ of a product": lambda a, b, k: a.sub_(a * k),
    "add_ with alpha": lambda a, b, k: a.add_(b, alpha=k),
    "an index": lambda a, b, k: a.__setitem__(0, k),
    "a view": lambda a, b, k: a[1:].mul_(k),
    "out": lambda a, b, k: tangrad.add(b, k, out=a),
    "two": lambda a, b, k: (a.mul_(k), b.add_(k)),
    "addcmul_": lambda a, b, k: a.addcmul_(b, b, value=k),
    "copy_": lambda a, b, k: a.copy_(b * k),
}
NUMBERS = {"float": (0.1, 0.2, 0.3, 0.4, 1e30), "int": (2, 3, 4, 5, 2**40)}
# Calls are recorded, made to hold for other numbers, compared with a second one, and replayed.
USUAL = (0.125, 0.25, 0.375, 0.625, 0.75)


def compiled(function, **options):
    return tangrad.compile(function, options={"measure": False}, **options)


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_into_an_argument_takes_each_call_s_number(name, kind, fullgraph):
    fast = compiled(WRITES[name], fullgraph=fullgraph)
    for number in NUMBERS[kind]:
        a, b = tangrad.arange(6.0) + 1, tangrad.arange(6.0) - 2
        c, d = a.clone(), b.clone()
        fast(a, b, number)
        WRITES[name](c, d, number)
        assert (a.tolist(), b.tolist()) == (c.tolist(), d.tolist())
    assert fast.compiled.executables


@pytest.mark.parametrize("share", [lambda p: p.grad, lambda p: p.grad[:2], lambda p: p.grad[1:]])
def test_an_argument_that_shares_memory_with_a_gradient_that_is_written_sees_the_writes(share):
    p = tangrad.ones(4, requires_grad=True)
    p.grad = tangrad.ones(4)

    def step(a, k):
        p.grad.mul_(k)
        return a + 1

    fast = compiled(step)
    for k in USUAL:
        fast(tangrad.ones(4), k)
    p.grad = tangrad.ones(4)
    given = share(p)
    assert fast(given, 5.0).tolist() == [6.0] * len(given)


def test_a_gradient_that_was_an_argument_is_another_value_when_it_is_not():
    p = tangrad.ones(3, requires_grad=True)

    def step(g, k):
        return g * k + p.grad

    fast = compiled(step)
    for k in USUAL:
        p.grad = tangrad.full((3,), k)
        assert fast(p.grad, k).tolist() == step(p.grad, k).tolist()
    assert fast(tangrad.zeros(3), 5.0).tolist() == [0.75] * 3


def test_held_tensors_that_come_to_share_memory_see_each_other_s_writes():
    held, other = tangrad.ones(4), tangrad.ones(4)

    def step(k):
        held.mul_(k)
        made = other + 1
        held.add_(1)
        return made

    fast = compiled(step)
    for k in USUAL:
        fast(k)
    held.data = other
    assert fast(5.0).tolist() == [6.0] * 4
    held.data = tangrad.ones(4)
    assert fast(5.0).tolist() == (other + 1).tolist()


@pytest.mark.parametrize("fullgraph", [True, False])
def test_held_tensors_that_move_apart_keep_their_recording(fullgraph):
    held, other = tangrad.ones(4), tangrad.ones(4)
    fast = compiled(lambda k: held.mul_(k) + other, fullgraph=fullgraph)
    for k in USUAL:
        fast(k)
    count = len(fast.compiled.executables)
    held.data = tangrad.ones(4)
    assert fast(7.0).tolist() == [8.0] * 4
    assert len(fast.compiled.executables) == count


def test_writes_through_data_are_no_versions_of_an_argument():
    def write(a, k):
        a.data[0] *= k
        a.data.add_(k)

    fast = compiled(write)
    for k in USUAL:
        a = tangrad.ones(3, 2)
        before = a._version
        fast(a, k)
        assert a._version == before
        assert a[0].tolist() == [2 * k] * 2


def test_a_value_that_is_copied_to_two_arguments_reaches_both():
    def write(a, b, k):
        b.mul_(k).add_(1)
        a.copy_(b)

    fast = compiled(write)
    for k in USUAL:
        a, b = tangrad.zeros(4), tangrad.ones(4)
        fast(a, b, k)
        assert a.tolist() == b.tolist() == [k + 1] * 4


def test_writes_through_data_are_no_versions_of_a_held_tensor():
    held = tangrad.ones(3)
    fast = compiled(lambda k: held.data.mul_(k).add_(1))
    before = held._version
    for k in USUAL:
        fast(k)
    assert held._version == before


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_out_of_another_shape_is_no_graph():
    def write(a, k):
        return tangrad.add(a, k, out=a.new_empty(1))

    with pytest.raises(RuntimeError, match="its out"):
        compiled(write, fullgraph=True)(tangrad.ones(3), 2.0)
    assert compiled(write)(tangrad.ones(3), 2.0).tolist() == [3.0] * 3


def test_a_back_end_is_given_graphs_with_arithmetic_of_numbers():
    pytest.importorskip("tangrad_fx", reason="the back end is given graphs of that package")
    fast = compiled(lambda a, k: a.mul_(1 - k), backend="aot_eager", fullgraph=True)
    for k in USUAL:
        assert fast(tangrad.ones(2), k).tolist() == [1 - k] * 2


def test_writes_through_data_are_not_counted_while_another_call_runs():
    @compiled
    def f(a):
        a.data[...] = 0.5
        return a * 2

    f(tangrad.ones(5))
    (executable,) = f.compiled.executables
    for plan in executable.plans:  # as a thread that runs it would
        assert plan._acquire(False)
    a = tangrad.ones(5)
    assert f(a).tolist() == [1.0] * 5
    assert a.tolist() == [0.5] * 5
    assert a._version == 0
    for plan in executable.plans:
        plan._release()
