"""Observers are walked at an op's entrance: what runs below is what runs without them."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

import tangrad
from tangrad.dispatch.stack import current
from tangrad.plugin import pop_observer, push_observer


class Names:
    """Note the names of ops, and how deep each is."""

    def __init__(self):
        self.entered, self.left, self.depth = [], [], 0

    def enter(self, op):
        self.entered.append((self.depth, op.title))
        self.depth += 1
        return op.title

    def leave(self, op, token):
        assert token == op.title
        self.depth -= 1
        self.left.append(token)


class Calls:
    """Note arguments, results and the steps of backward."""

    def __init__(self):
        self.told = []

    def enter_call(self, op, args):
        self.told.append(
            (op.title, [tuple(a.shape) for a in args if isinstance(a, tangrad.Tensor)])
        )
        return len(self.told) - 1

    def leave_call(self, op, token, result):
        self.told[token] += (None if result is None else tuple(result.shape),)

    def enter_node(self, node):
        self.told.append((node.name(), "node"))

    def leave_node(self, node, token):
        self.told.append((node.name(), "left"))


@pytest.fixture
def watch():
    pushed = []

    def push(observer):
        push_observer(observer)
        pushed.append(observer)
        return observer

    yield push
    for observer in reversed(pushed):
        pop_observer(observer)


# Kernels are asked for once in a process, so the program that counts them has its own.
LAUNCHES = """
import tangrad
from tangrad import nn
from tangrad.devices import registry
from tangrad.plugin import pop_observer, push_observer

launched = []
driver = registry.get_driver("reference")
plain = driver.kernel_for


def noting(op, dtype):
    kernel = plain(op, dtype)
    if kernel is None:
        return None

    def launch(*args):
        launched.append((op.definition.key, dtype.name))
        return kernel(*args)

    return launch


driver.kernel_for = noting
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).to("reference")
optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x = tangrad.ones(6, 4, device="reference")
target = tangrad.tensor([0, 1, 2, 0, 1, 2], device="reference")


def step():
    optimizer.zero_grad()
    y = model(x)
    loss = nn.functional.cross_entropy(y, target) + (y[1:] @ y[0]).softmax(0).sum() * 2.0
    (loss + y.pow(2).mean() + y[target[:2]].flatten(0).sum()).backward()
    optimizer.step()
    done = list(launched)
    launched.clear()
    return done


class Watch:
    def enter(self, op): pass
    def leave(self, op, token): pass
    def enter_node(self, node): pass
    def leave_node(self, node, token): pass


step(), step()
unobserved = step()
watch = Watch()
push_observer(watch)
observed = step()
pop_observer(watch)
assert observed == unobserved, [pair for pair in zip(observed, unobserved) if pair[0] != pair[1]]
print(len(observed))
"""


def test_observed_step_launches_the_kernels_of_an_unobserved_one():
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHES], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30


def test_observed_step_gives_the_bits_and_the_graph_of_an_unobserved_one(watch):
    def run():
        tangrad.manual_seed(0)
        x = tangrad.randn(5, 4, requires_grad=True)
        y = tangrad.stack([(x @ x.t()).softmax(-1), x @ x.t() + x[:, 1:2] ** 2]).flatten(1)
        graph = [n.name() for n, _ in y.grad_fn.next_functions]
        y.square().mean().backward()
        return x.grad.tolist(), graph

    plain = run()
    watch(Names())
    watch(Calls())
    assert run() == plain


def test_composites_keep_their_short_form_and_the_ops_in_them_are_seen(watch):
    seen = watch(Names()).entered
    x = tangrad.ones(2, 3)
    x @ x.t()
    x.softmax(-1)
    assert [entry for entry in seen if entry[1] != "full"][-5:] == [
        (0, "t"),
        (0, "matmul"),
        (1, "mm"),
        (0, "softmax"),
        (1, "_softmax"),
    ]


def test_indices_are_seen_as_the_views_that_they_are(watch):
    x = tangrad.arange(24.0).reshape(2, 3, 4)
    seen = watch(Names()).entered
    assert x[1, :, 1:3].tolist() == [[13.0, 14.0], [17.0, 18.0], [21.0, 22.0]]
    assert [name for _, name in seen] == ["select", "slice"]
    assert x[:] is not x
    x[0, 0] = 5.0
    assert x[0, 0].tolist() == [5.0] * 4


def test_in_place_forms_and_out_are_told_by_their_names(watch):
    x, out = tangrad.ones(2), tangrad.empty(2)
    seen = watch(Names()).entered
    x.add_(1)
    x += 1
    tangrad.add(x, x, out=out)
    assert [name for depth, name in seen if depth == 0] == ["add_", "add_", "add"]
    assert out.tolist() == [6.0, 6.0]


def test_arguments_results_and_steps_of_backward_are_told_to_those_who_ask(watch):
    x = tangrad.ones(2, 3, requires_grad=True)
    told = watch(Calls()).told
    (x * 2).sum().backward()
    assert told[0] == ("mul", [(2, 3)], (2, 3))
    assert told[1] == ("sum", [(2, 3)], ())
    assert ("SumBackward0", "node") in told
    assert ("MulBackward0", "left") in told
    assert told.index(("MulBackward0", "node")) > told.index(("SumBackward0", "left"))


def test_an_op_that_raises_is_left_without_a_result(watch):
    told = watch(Calls()).told
    names = watch(Names())
    with pytest.raises(RuntimeError, match="must match the size"):
        tangrad.ones(2) + tangrad.ones(3)
    assert told[-1] == ("add", [(2,), (3,)], None)
    assert names.depth == 0


class Raising(Names):
    def leave(self, op, token):
        super().leave(op, token)
        raise LookupError(f"on leaving {op.title}")


def test_all_observers_are_left_even_if_one_raises(watch):
    x = tangrad.ones(2)
    outer = watch(Names())
    watch(Raising())
    with pytest.raises(LookupError, match="on leaving exp"):
        x.exp()
    assert outer.left == ["exp"]


def test_an_observer_that_refuses_is_not_left(watch):
    class Refusing(Names):
        def enter(self, op):
            raise PermissionError("not this op")

    x = tangrad.ones(2)
    outer, refusing = watch(Names()), watch(Refusing())
    with pytest.raises(PermissionError, match="not this op"):
        x.exp()
    assert (outer.left, refusing.left) == (["exp"], [])


def test_observers_stay_outside_of_autocast_and_of_levels(watch):
    seen = watch(Names()).entered
    with tangrad.autocast("cpu", dtype=tangrad.bfloat16):
        tangrad.ones(2, 2) @ tangrad.ones(2, 2)
    tangrad.func.vmap(tangrad.exp)(tangrad.ones(2))
    names = [name for _, name in seen]
    assert "matmul" in names
    assert "exp" in names


def test_an_observer_may_leave_within_an_op(watch):
    class Once(Names):
        def enter(self, op):
            pop_observer(self)
            return super().enter(op)

    once, before = Once(), current().observers
    push_observer(once)
    x = tangrad.ones(2).exp().exp()
    assert len(once.entered) == len(once.left) == 1
    assert x.shape == (2,)
    assert current().observers == before


def test_more_observers_than_there_is_room_for_are_refused(watch):
    for _ in range(16 - len(current().observers)):
        watch(Names())
    with pytest.raises(RuntimeError, match="at most 16 observers"):
        push_observer(Names())
    assert len(current().observers) == 16


# --- the garbage collector ----------------------------------------------------------------------


class Marked:
    """An object that is seen to go."""


def freed(make):
    """Tell whether what `make` leaves behind is found by a collection."""
    gc.collect()
    reference = make()
    gc.collect()
    return reference() is None


def test_recorded_steps_are_not_tracked_and_what_hangs_on_them_is(watch):
    x = tangrad.ones(2, requires_grad=True)
    y = (x * 2).exp()
    assert not gc.is_tracked(y.grad_fn)
    assert not gc.is_tracked((x * 2 + y).grad_fn)
    y.grad_fn.register_prehook(lambda g: None)
    assert gc.is_tracked(y.grad_fn)
    assert gc.is_tracked((y + x).grad_fn)


def test_a_full_collection_leaves_steps_as_it_found_them():
    x = tangrad.ones(2, requires_grad=True)
    y = x.exp().exp()
    gc.collect()
    assert not gc.is_tracked(y.grad_fn)
    y.sum().backward()
    assert x.grad is not None


def test_a_cycle_through_a_hook_is_found():
    def make():
        mark = Marked()
        x = tangrad.ones(2, requires_grad=True)
        y = x.exp()
        z = y.exp()
        y.register_hook(lambda g, mark=mark, z=z: None)
        return weakref.ref(mark)

    assert freed(make)


def test_a_cycle_through_a_hook_of_a_leaf_or_its_attributes_is_found():
    def by_hook():
        mark = Marked()
        x = tangrad.ones(2, requires_grad=True)
        z = x.exp().exp()
        x.register_hook(lambda g, mark=mark, z=z: None)
        return weakref.ref(mark)

    def by_attribute():
        mark = Marked()
        x = tangrad.ones(2, requires_grad=True)
        x.kept = (mark, x.exp().exp())
        return weakref.ref(mark)

    assert freed(by_hook)
    assert freed(by_attribute)


def test_a_cycle_through_a_function_is_found_by_a_young_collection():
    class Keep(tangrad.autograd.Function):
        @staticmethod
        def forward(ctx, x, box):
            ctx.box = box
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g, None

    def make():
        mark, box = Marked(), []
        y = Keep.apply(tangrad.ones(2, requires_grad=True), box).exp().exp()
        box += [y, mark]
        return weakref.ref(mark)

    gc.collect()
    reference = make()
    gc.collect(0)
    assert reference() is None


def test_a_cycle_through_hooks_of_saved_tensors_is_found():
    def make():
        mark, box = Marked(), []
        x = tangrad.ones(2, requires_grad=True)
        with tangrad.autograd.graph.saved_tensors_hooks(lambda t: (t, box), lambda p: p[0]):
            box += [x.exp().exp(), mark]
        return weakref.ref(mark)

    assert freed(make)


def test_a_long_chain_goes_without_recursion_and_without_collections():
    x = y = tangrad.ones(1, requires_grad=True)
    for _ in range(50_000):
        y = y + x
    del y


LONG_WALK = """
import gc
import tangrad

x = y = tangrad.ones(1, requires_grad=True)
for _ in range(200_000):
    y = y + x
full = []
gc.collect()
gc.callbacks.append(lambda phase, info: full.append(info) if info["generation"] == 2 else None)
y.backward()
print(len(full))
"""


def test_a_long_walk_sets_off_no_full_collection():
    """What a run knows of each node would make one, which then looks at the whole graph."""
    done = subprocess.run(
        [sys.executable, "-c", LONG_WALK], capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "0\n", done.stderr


def test_a_walk_that_fails_leaves_nothing_that_no_collection_finds():
    def fail(gradient):
        raise RuntimeError("no further")

    def make():
        mark = Marked()
        x = tangrad.ones(2, requires_grad=True)
        y = x.exp()
        y.register_hook(lambda g, mark=mark: None)
        z = y.exp() * y
        y.register_hook(fail)
        with pytest.raises(RuntimeError, match="no further"):
            z.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="no further"):
            tangrad.autograd.grad(z.sum(), [x, y], create_graph=True)
        return weakref.ref(mark)

    assert freed(make)
