"""Plans, and what they keep between calls, serve whatever mode, thread or default device asks."""

from __future__ import annotations

import threading

import pytest

import tangrad


def compiled(function, **options):
    return tangrad.compile(function, options={"measure": False}, **options)


def of_inference_mode(make):
    with tangrad.inference_mode():
        return make()


def softened(x, k):
    """Return what an op in Python writes in place, within memory that the plan keeps."""
    y = x.tanh()
    with tangrad.no_grad():
        y.masked_fill_(y > 0.25, k)
    return (y * x).sum()


def in_a_thread(run):
    found = []

    def kept():
        with tangrad.inference_mode():
            found.append(run())

    thread = threading.Thread(target=kept)
    thread.start()
    thread.join()
    return found[0]


def here(run):
    with tangrad.inference_mode():
        return run()


@pytest.mark.parametrize("inside", [here, in_a_thread])
def test_memory_that_a_call_in_inference_mode_has_moved_serves_calls_outside(inside):
    fast = compiled(softened)
    small, large = tangrad.ones(4), tangrad.ones(400)
    for _ in range(3):
        assert fast(small, 0.5).tolist() == softened(small, 0.5).tolist()
    assert inside(lambda: fast(large, 0.5)).tolist() == softened(large, 0.5).tolist()
    for _ in range(3):
        assert fast(small, 0.5).tolist() == softened(small, 0.5).tolist()


def test_results_are_of_inference_mode_where_eager_s_are():
    def f(x):
        y = x.view(-1)
        return y, x * 2, x.sum(), x.tanh().topk(2).values, tangrad.tensor([1.0]) + x[0], x

    fast = compiled(f)
    for mode in (False, True, False, True, True, False):
        for make in (lambda: tangrad.ones(4), lambda: of_inference_mode(lambda: tangrad.ones(4))):
            x = make()
            with tangrad.inference_mode(mode):
                kinds = [t.is_inference() for t in fast(x)]
                assert kinds == [t.is_inference() for t in f(x)]


WRITES = {
    "in place": lambda a: a.mul_(2),
    "by an index": lambda a: a.__setitem__(0, 3.0),
    "through a view": lambda a: a.view(-1)[1:].add_(1),
    "by out=": lambda a: tangrad.add(a, 1, out=a),
}


@pytest.mark.parametrize("name", WRITES)
def test_an_argument_of_inference_mode_is_not_written_outside_of_it(name):
    fast = compiled(WRITES[name])
    for _ in range(4):
        fast(tangrad.ones(2, 2))
    given = of_inference_mode(lambda: tangrad.ones(2, 2))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            fast(given)
        assert given.tolist() == [[1.0, 1.0]] * 2
    with tangrad.inference_mode():
        fast(given)
    wanted = tangrad.ones(2, 2)
    WRITES[name](wanted)
    assert given.tolist() == wanted.tolist()


def test_an_argument_of_inference_mode_is_not_saved_outside_of_it():
    weight = tangrad.ones(4, requires_grad=True)
    fast = compiled(lambda a: (a * weight).sin())
    for _ in range(4):
        fast(tangrad.ones(4))
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        fast(of_inference_mode(lambda: tangrad.ones(4)))
    why = fast.compiled.executables[0].why_not((of_inference_mode(lambda: tangrad.ones(4)),), {})
    assert "inference mode" in why


def test_a_gradient_of_inference_mode_is_another_than_one_made_outside():
    weight = tangrad.ones(4, requires_grad=True)

    def step(k):
        with tangrad.no_grad():
            weight.grad.mul_(k)

    fast = compiled(step)
    for k in (0.5, 0.25, 2.0, 3.0):
        weight.grad = tangrad.ones(4)
        fast(k)
        assert weight.grad.tolist() == [k] * 4
    weight.grad = of_inference_mode(lambda: tangrad.ones(4))
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        fast(0.5)


@pytest.mark.parametrize("inside", [here, in_a_thread])
def test_a_backward_in_inference_mode_leaves_later_ones_as_they_are(inside):
    def f(a, b):
        return ((a.sin() * b).cumsum(0) * softened(a, 0.5)).tanh()

    fast = compiled(f)
    for k in range(6):
        grads = []
        for function in (fast, f):
            a = tangrad.arange(4.0).requires_grad_()
            loss = function(a, tangrad.ones(4)).sum()
            inside(loss.backward) if k % 2 else loss.backward()
            grads.append((a.grad.is_inference(), a.grad.tolist()))
        assert grads[0] == grads[1]


@pytest.mark.parametrize("name", ["meta", "reference"])
def test_a_default_device_is_none_of_the_plan_s_memory(name):
    fast = compiled(softened)
    for size in (4, 400, 4):
        x = tangrad.arange(size, dtype=tangrad.float32) / size
        wanted = softened(x, 0.5).tolist()
        for _ in range(3):
            with tangrad.device(name):
                assert fast(x, 0.5).tolist() == wanted
        assert fast(x, 0.5).tolist() == wanted


def test_calls_are_checked_under_a_default_device():
    fast = tangrad.compile(lambda x: x.sin() + 1, options={"measure": False, "check": 1.0})
    for _ in range(4):
        with tangrad.device("meta"):
            assert fast(tangrad.zeros(3, device="cpu")).tolist() == [1.0] * 3
    assert fast.compiled.executables


def differentiated(x):
    """Return a derivative that the function takes itself."""
    v = x.detach().requires_grad_()
    (v * v).sin().sum().backward()
    return v.grad * 1


@pytest.mark.parametrize("first", ["hooks", "calls"])
def test_hooks_of_saved_tensors_see_those_of_each_op(first):
    seen = []

    def packed(call):
        seen.clear()
        hooks = tangrad.autograd.graph.saved_tensors_hooks(
            lambda t: seen.append(t) or t * 2, lambda t: t
        )
        with hooks:
            made = call(tangrad.ones(3))
        return made.tolist(), len(seen)

    fast = compiled(differentiated)
    wanted = packed(differentiated)
    if first == "hooks":
        assert packed(fast) == wanted
    for _ in range(3):
        assert fast(tangrad.ones(3)).equal(differentiated(tangrad.ones(3)))
    assert packed(fast) == wanted
    assert fast(tangrad.ones(3)).equal(differentiated(tangrad.ones(3)))
    assert fast.compiled.executables


def test_anomaly_mode_finds_nan_in_a_backward_that_the_function_runs():
    def of_zero(x):
        v = x.detach().requires_grad_()
        (v.sqrt() * 0).sum().backward()
        return v.grad

    fast = compiled(of_zero)
    for _ in range(3):
        assert fast(tangrad.zeros(2)).isnan().all()
    assert fast.compiled.executables
    with tangrad.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan"):
        fast(tangrad.zeros(2))


def test_a_function_that_enters_inference_mode_is_a_graph():
    layer = tangrad.nn.Linear(4, 4)

    @tangrad.inference_mode()
    def decorated(x, y):
        return layer(x) * y, x.view(-1)

    def within(x, y):
        with tangrad.inference_mode():
            return layer(x) + tangrad.ones(4), y.view(2, -1)

    for function in (decorated, within):
        fast = compiled(function, fullgraph=True)
        for k in range(6):
            x, y = tangrad.full((2, 4), float(k)), tangrad.full((2, 4), 0.5)
            if k % 2:
                y = of_inference_mode(lambda: tangrad.full((2, 4), 0.5))
            for one, other in zip(fast(x, y), function(x, y), strict=True):
                assert one.tolist() == other.tolist()
                assert one.is_inference() == other.is_inference()
                assert not one.requires_grad


@pytest.mark.parametrize("first", [True, False])
def test_ops_on_both_sides_of_inference_mode_are_no_graph(first):
    def function(x):
        with tangrad.inference_mode(first):
            y = x * 2
        with tangrad.inference_mode(not first):
            return y + 1

    with pytest.raises(RuntimeError, match="in inference mode and ops outside"):
        compiled(function, fullgraph=True)(tangrad.ones(3))
    given = of_inference_mode(lambda: tangrad.ones(3))
    assert compiled(function)(given).tolist() == [3.0, 3.0, 3.0]
    assert compiled(lambda x: x)(given) is given
