"""Graphs of launches: captured, replayed, and what cannot be captured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., str]

HEAD = """
import tangrad as T
from tangrad import nn
C = T.cuda


def refused(call, *words, kind=RuntimeError):
    try:
        call()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, (missing, str(error))
        return
    raise AssertionError("nothing was raised")


x = T.arange(4.0).cuda()
warm = ((x * 2).exp() + 1).sum(), x.clone(), T.zeros(4, device="cuda"), x + x  # compiled before
C.synchronize()
"""


def test_a_replay_computes_anew_from_what_its_inputs_hold(run: Run) -> None:
    run(
        HEAD
        + """
g = C.CUDAGraph()
assert not C.is_current_stream_capturing()
with C.graph(g):
    assert C.is_current_stream_capturing()
    y = (x * 2).exp()
    z = y.sum()
assert not C.is_current_stream_capturing()
for values in ([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 0.0, -1.0]):
    x.copy_(T.tensor(values))
    g.replay()
    T.testing.assert_close(y.cpu(), (T.tensor(values) * 2).exp())
    T.testing.assert_close(z.cpu(), (T.tensor(values) * 2).exp().sum())
with C.stream(C.Stream()):
    g.replay()
C.synchronize()
"""
    )


def test_memory_of_a_graph_is_given_to_nobody_else(run: Run) -> None:
    run(
        HEAD
        + """
before = C.memory_allocated()
g = C.CUDAGraph()
with C.graph(g):
    t = x * 2
    u = t.exp()
    del t
    y = u + 1
    del u
assert C.memory_allocated() == before  # it is the pool's
place = y.data_ptr()
del y
C.empty_cache()
held = [T.full((n,), 7.0, device="cuda") for n in (4, 4, 4, 64, 1000)]
assert place not in {h.data_ptr() for h in held}
g.replay()
C.synchronize()
assert all(bool((h == 7).all()) for h in held)

first, second = C.CUDAGraph(), C.CUDAGraph()
pool = C.graph_pool_handle()
assert pool != C.graph_pool_handle()
with C.graph(first, pool=pool):
    a = x * 2
with C.graph(second, pool=first.pool()):
    b = a + x
assert first.pool() == second.pool() == pool
x.fill_(3.0)
first.replay(); second.replay()
assert b.tolist() == [9.0] * 4
first.reset()
second.replay()
assert b.tolist() == [9.0] * 4
"""
    )


def test_a_step_of_training_is_captured_whole(run: Run) -> None:
    run(
        HEAD
        + """
import copy
T.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).cuda()
twin = copy.deepcopy(model)
rate = 0.1
static, target = T.randn(3, 4).cuda(), T.randn(3, 2).cuda()


def step(net, a, b):
    loss = ((net(a) - b) ** 2).mean()
    grads = T.autograd.grad(loss, list(net.parameters()))
    with T.no_grad():
        for p, g in zip(net.parameters(), grads):
            p.sub_(g * rate)
    return loss


other = copy.deepcopy(model)
with C.stream(C.Stream()):
    for _ in range(2):
        step(other, static, target)
C.synchronize()
g = C.CUDAGraph()
with C.graph(g):
    loss = step(model, static, target)
for _ in range(5):
    a, b = T.randn(3, 4).cuda(), T.randn(3, 2).cuda()
    static.copy_(a); target.copy_(b)
    g.replay()
    T.testing.assert_close(loss.cpu(), step(twin, a, b).detach().cpu())
for p, q in zip(model.parameters(), twin.parameters()):
    T.testing.assert_close(p.cpu(), q.cpu())
"""
    )


def test_graphed_callables_have_gradients(run: Run) -> None:
    run(
        HEAD
        + """
import copy
T.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).cuda()
twin = copy.deepcopy(model)
graphed = C.make_graphed_callables(model, (T.randn(3, 4, device="cuda", requires_grad=True),))
assert graphed is model
kept = []
for _ in range(3):
    a = T.randn(3, 4).cuda().requires_grad_()
    b = a.detach().clone().requires_grad_()
    found, expected = graphed(a), twin(b)
    kept.append((found, expected))
    found.square().sum().backward(); expected.square().sum().backward()
    T.testing.assert_close(a.grad.cpu(), b.grad.cpu())
for found, expected in kept:  # a later call leaves them alone
    T.testing.assert_close(found.cpu(), expected.cpu())
for p, q in zip(model.parameters(), twin.parameters()):
    T.testing.assert_close(p.grad.cpu(), q.grad.cpu())
model.eval()
assert model(T.ones(7, 4).cuda()).shape == (7, 2)  # another mode: the module itself
model.train()
refused(lambda: model(T.ones(7, 4).cuda()), "captured with [3, 4]", "got [7, 4]")

f, g = C.make_graphed_callables(
    (lambda p, q: {"sum": p + q}, lambda p: (p * 2, p.exp())), ((x, x + 1), (x,))
)
one = T.ones(4).cuda()
assert f(one, one)["sum"].tolist() == [2.0] * 4
assert g(one)[0].tolist() == [2.0] * 4
refused(lambda: f(one), "takes 2 tensors")
refused(lambda: C.make_graphed_callables(lambda p: p, (3,)), "are tensors", kind=TypeError)
hooked = nn.Linear(4, 4).cuda()
hooked.register_forward_hook(lambda *a: None)
refused(lambda: C.make_graphed_callables(hooked, (x,)), "hooks")
"""
    )


def test_streams_of_a_capture_fork_and_join(run: Run) -> None:
    run(
        HEAD
        + """
side = C.Stream()
g = C.CUDAGraph()
with C.graph(g):
    here = C.current_stream()
    a = x * 2
    side.wait_stream(here)
    with C.stream(side):
        b = a + 1
    here.wait_stream(side)
    c = a + b
x.fill_(5.0)
g.replay()
assert c.tolist() == [21.0] * 4

h = C.CUDAGraph()


def unjoined():
    with C.graph(h):
        d = x * 2
        side.wait_stream(C.current_stream())
        with C.stream(side):
            d.add_(1)


refused(unjoined, "wait_stream")
g.replay()
"""
    )


@pytest.mark.parametrize(
    "call",
    [
        "y.sum().item()",
        "print(y)",
        "y.cpu()",
        "C.synchronize()",
        "C.current_stream().synchronize()",
        "T.ones(4).cuda()",
        "y[0].tolist()",
    ],
)
def test_what_waits_is_refused_and_the_device_goes_on(call: str, run: Run) -> None:
    run(
        HEAD
        + f"""
g = C.CUDAGraph()


def capture():
    with C.graph(g):
        y = x * 2
        {call}


refused(capture, "a graph is being captured")
assert not C.is_current_stream_capturing()
assert (x + x).tolist() == [0.0, 2.0, 4.0, 6.0]
refused(g.replay, "nothing was captured")
with C.graph(g):
    y = x + x
g.replay()
assert y.tolist() == [0.0, 2.0, 4.0, 6.0]
"""
    )


def test_calls_out_of_order_are_refused(run: Run) -> None:
    run(
        HEAD
        + """
import os
g = C.CUDAGraph()
refused(g.replay, "nothing was captured")
refused(g.capture_end, "no capture has begun")
refused(g.pool, "nothing was captured")
refused(g.instantiate, "nothing was captured")
refused(g.capture_begin, "default stream")
refused(lambda: g.capture_begin(capture_error_mode="none"), "capture_error_mode", kind=ValueError)
refused(lambda: g.debug_dump("g.dot"), "enable_debug_mode")
g.reset()

with C.stream(C.Stream()):
    g.capture_begin()
    refused(g.reset, "end it first")
    refused(C.CUDAGraph().capture_begin, "ILLEGAL_STATE")
    y = x * 2
    g.capture_end()
with C.stream(C.Stream()):
    refused(g.capture_begin, "reset() it first")

kept = C.CUDAGraph(keep_graph=True)
kept.enable_debug_mode()
with C.graph(kept):
    z = x * 3
assert kept.raw_cuda_graph()
refused(kept.raw_cuda_graph_exec, "made ready")
kept.debug_dump("g.dot")
assert open("g.dot").read().startswith("digraph")
os.remove("g.dot")
kept.replay()
assert kept.raw_cuda_graph_exec()
assert z.tolist() == [0.0, 3.0, 6.0, 9.0]

import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    with C.graph(C.CUDAGraph()):
        pass
assert "empty" in str(told[0].message)

def body():
    with C.graph(C.CUDAGraph()):
        raise KeyError("mine")

refused(body, "mine", kind=KeyError)
assert not C.is_current_stream_capturing()
"""
    )


def test_random_numbers_in_a_capture_are_refused(run: Run) -> None:
    run(
        HEAD
        + """
T.rand(4, device="cuda")
g = C.CUDAGraph()


def capture():
    with C.graph(g):
        T.rand(4, device="cuda")


refused(capture, "random numbers")
with C.graph(g):
    y = x * 2
g.replay()
"""
    )


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD"])
def test_steps_that_are_counted_on_the_host_are_refused_in_a_capture(name: str, run: Run) -> None:
    run(
        HEAD
        + f"""
weight = T.ones(3, device="cuda", requires_grad=True)
optimizer = T.optim.{name}([weight], capturable=True)


def step():
    weight.grad = weight.detach() * 2
    optimizer.step()


def capture():
    with C.graph(C.CUDAGraph()):
        step()


step()
refused(capture, "{name}", "counts its steps")
step()  # outside, and after it, as ever
plain = T.optim.SGD([weight], lr=0.5, momentum=0.5)
plain.step()
before, g = weight.detach().clone(), C.CUDAGraph()
with C.graph(g):
    plain.step()
g.replay()
assert not T.equal(weight, before)
"""
    )


def test_copies_from_locked_memory_are_captured(run: Run) -> None:
    run(
        HEAD
        + """
source, target = T.ones(4).pin_memory(), T.zeros(4).pin_memory()
device = T.zeros(4, device="cuda")
g = C.CUDAGraph()
with C.graph(g):
    device.copy_(source, non_blocking=True)
    y = device * 2
    target.copy_(y, non_blocking=True)
source.fill_(4.0)
g.replay()
C.synchronize()
assert target.tolist() == [8.0] * 4
"""
    )
