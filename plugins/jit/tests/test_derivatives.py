"""Derivatives of compiled functions: of second order, and through hooks."""

from __future__ import annotations

import pytest

import tangrad
from tangrad import nn


def compiled(function):
    """Return a function compiled as one graph, without comparing times."""
    return tangrad.compile(function, fullgraph=True, options={"measure": False})


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and bool((a == b).all())


FUNCTIONS = [
    lambda x, w: (x * w).sin().sum(),
    lambda x, w: (x @ w).tanh().pow(2).mean(),
    lambda x, w: nn.functional.layer_norm(x, (3,), w[0]).exp().sum(),
    lambda x, w: (x.relu().log1p() * w).softmax(-1).square().sum(),
    lambda x, w: ((x + w)[1:] * x[:1]).sum(),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_second_derivatives_are_those_of_eager(function):
    x, w = tangrad.randn(3, 3), tangrad.randn(3, 3)
    fast = compiled(function)

    def derivatives(run):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        first = tangrad.autograd.grad(run(a, b), (a, b), create_graph=True)
        second = tangrad.autograd.grad(sum((g * g).sum() for g in first), (a, b), allow_unused=True)
        return [*first, *second]

    for _ in range(3):
        found, wanted = derivatives(fast), derivatives(function)
        for a, b in zip(found, wanted, strict=True):
            assert (a is None) == (b is None)
            assert a is None or same(a.detach(), b.detach())


def test_a_gradient_penalty_trains_as_in_eager():
    def trained(compile):
        tangrad.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
        run = compiled(model) if compile else model
        optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            x = tangrad.randn(5, 3, requires_grad=True)
            (slope,) = tangrad.autograd.grad(run(x).sum(), x, create_graph=True)
            optimizer.zero_grad()
            (slope.norm(2, dim=1) - 1).square().mean().backward()
            optimizer.step()
        return [p.tolist() for p in model.parameters()]

    assert trained(True) == trained(False)


def test_an_argument_computed_from_another_is_counted_once():
    def f(a, b):
        return (a * b * b).sum()

    fast = compiled(f)

    def second(run):
        a = tangrad.tensor([1.5, -2.0], requires_grad=True)
        (first,) = tangrad.autograd.grad(run(a, a.exp()), a, create_graph=True)
        return tangrad.autograd.grad(first.sum(), a)[0]

    for _ in range(3):
        assert tangrad.allclose(second(fast), second(f), rtol=1e-6)


RELATED = [
    ("w * 2", lambda w, a: w * 2),
    ("a part of w", lambda w, a: w[:1]),
    ("all of w", lambda w, a: w.view(2)),
    ("w without history", lambda w, a: w.detach()),
    ("a function's of w", lambda w, a: Doubled.apply(w)),
    ("another argument's", lambda w, a: a.exp()),
    ("both", lambda w, a: a * w),
]


class Doubled(tangrad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.mark.parametrize(("name", "make"), RELATED, ids=[name for name, _ in RELATED])
@pytest.mark.parametrize("held", [True, False], ids=["held", "given"])
@pytest.mark.parametrize("beside", [True, False], ids=["beside another", "alone"])
def test_gradients_stop_at_each_argument_whatever_it_was_computed_from(name, make, held, beside):
    w = tangrad.tensor([1.5, -2.0], requires_grad=True)
    bias = tangrad.tensor([0.25, 0.5], requires_grad=True)
    leaves = (w, bias)

    def with_held(a, b):
        return (a * b * w + bias).sum() if beside else (a * b * w).sum()

    def with_given(a, b, w):
        return (a * b * w + bias).sum() if beside else (a * b * w).sum()

    def gradients(run):
        a = tangrad.tensor([3.0, 0.5], requires_grad=True)
        related = make(w, a)
        loss = run(a, related) if held else run(a, related, w)
        return tangrad.autograd.grad(loss, (a, *leaves), allow_unused=True)

    function = with_held if held else with_given
    fast = tangrad.compile(function, options={"measure": False})
    for _ in range(4):
        for found, wanted in zip(gradients(fast), gradients(function), strict=True):
            assert (found is None) == (wanted is None)
            assert found is None or same(found, wanted)


def test_a_recurrent_step_is_one_graph_and_learns_as_in_eager():
    w = tangrad.tensor([[0.5, -0.25], [0.125, 0.75]], requires_grad=True)

    def step(x, h):
        return tangrad.tanh(x + h @ w)

    fast = compiled(step)

    def gradient(run):
        h = tangrad.zeros(3, 2)
        for k in range(5):
            h = run(tangrad.ones(3, 2) * k, h)
        return tangrad.autograd.grad(h.sum(), w)[0]

    for _ in range(3):
        assert tangrad.allclose(gradient(fast), gradient(step), rtol=1e-6)
    assert len(fast.compiled.executables) == 2  # of an h with a history, and of one without


def test_a_held_tensor_of_another_ones_memory_is_returned_as_itself():
    class State:
        first, second = tangrad.ones(3), tangrad.ones(3)

    def f(m):
        State.first.mul_(m)
        return State.second

    fast = tangrad.compile(f, options={"measure": False})
    for k in range(9):
        if k == 4:
            State.first.data = State.second
        assert fast(1.5) is State.second


@pytest.mark.parametrize("write", ["zero_", "relu_", "exp_"])
@pytest.mark.parametrize("show", ["data", "detach", "held"])
def test_what_shows_an_argument_that_was_written_is_another_tensor(write, show):
    def f(a):
        getattr(a, write)()
        return {"data": lambda: a.data, "detach": a.detach, "held": lambda: a}[show]()

    fast = compiled(f)
    for _ in range(4):
        a = tangrad.tensor([-1.0, 2.0])
        result = fast(a)
        assert (result is a) == (show == "held")
        assert result.data_ptr() == a.data_ptr()


@pytest.mark.parametrize("held", [tangrad.ones(3), nn.Parameter(tangrad.ones(3))])
@pytest.mark.parametrize("show", ["alone", "twice", "beside itself", "used"])
def test_data_of_a_held_tensor_is_another_tensor_without_history(held, show):
    def f(a):
        shown = held.data
        return {
            "alone": lambda: (shown,),
            "twice": lambda: (shown, shown),
            "beside itself": lambda: (held, shown, held.data),
            "used": lambda: (shown + a, shown),
        }[show]()

    fast = tangrad.compile(f, options={"measure": False})
    for _ in range(5):
        results, expected = fast(tangrad.ones(3)), f(tangrad.ones(3))
        for ours, theirs in zip(results, expected, strict=True):
            assert (ours is held) == (theirs is held)
            assert [ours is x for x in results] == [theirs is x for x in expected]
            assert ours.requires_grad == theirs.requires_grad
            assert (ours.data_ptr() == held.data_ptr()) == (theirs.data_ptr() == held.data_ptr())


def test_third_derivatives_follow():
    fast = compiled(lambda x: (x**4).sum())
    for _ in range(3):
        made = x = tangrad.tensor([1.0, 2.0], requires_grad=True)
        made = fast(x)
        for _ in range(3):
            (made,) = tangrad.autograd.grad(made.sum(), x, create_graph=True)
        assert made.tolist() == [24.0, 48.0]


def test_effects_that_must_not_happen_twice_are_refused_with_the_reason():
    norm = nn.BatchNorm1d(2)
    fast = compiled(norm)
    x = tangrad.randn(4, 2, requires_grad=True)
    for _ in range(3):
        fast(x)
    with pytest.raises(RuntimeError, match="writes into what it is given"):
        tangrad.autograd.grad(fast(x).sum(), x, create_graph=True)
    noisy = compiled(lambda x: nn.functional.dropout(x * x, 0.5).sum())
    for _ in range(3):
        noisy(x)
    with pytest.raises(RuntimeError, match="draws random numbers"):
        tangrad.autograd.grad(noisy(x), x, create_graph=True)


def test_an_argument_written_since_is_refused_where_it_is_needed_again():
    fast = compiled(lambda x, w: (x * w).sum())
    w = tangrad.ones(2, requires_grad=True)
    x = tangrad.ones(2)
    for _ in range(3):
        loss = fast(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match=r"args\[0\].*modified in place"):
        tangrad.autograd.grad(loss, w, create_graph=True)


def test_a_kept_loss_does_not_keep_its_arguments():
    import weakref

    fast = compiled(lambda x, w: (x + w).sum())
    w = tangrad.ones(2, requires_grad=True)
    for _ in range(4):
        x = tangrad.ones(2)
        loss = fast(x, w)
        loss.backward()
        gone = weakref.ref(x)
        del x
    assert gone() is None
    assert loss.item() == 4.0


def test_hooks_of_parameters_run_once():
    layer = nn.Linear(3, 1)
    seen = []
    layer.weight.register_hook(lambda grad: grad * 2)
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))
    fast = compiled(layer)
    x = tangrad.randn(2, 3)
    for _ in range(3):
        gradients = []
        for run in (fast, layer):
            layer.weight.grad = None
            run(x).sum().backward()
            gradients.append(layer.weight.grad.clone())
        assert same(*gradients)
    assert len(seen) == 6
    assert len(set(seen)) == 1


def test_a_hook_after_accumulation_added_or_removed_is_another_recording():
    weight = nn.Parameter(tangrad.ones(2))

    def step(x):
        weight.grad = None
        (weight * x).sum().backward()
        return weight.grad * 1

    fast = compiled(step)
    x = tangrad.tensor([3.0, 4.0])
    assert [fast(x).tolist() for _ in range(3)] == [[3.0, 4.0]] * 3

    def double(parameter):
        parameter.grad = parameter.grad * 2

    handle = weight.register_post_accumulate_grad_hook(double)
    assert [fast(x).tolist() for _ in range(3)] == [[6.0, 8.0]] * 3
    assert "other hooks" in str(tangrad.compile.explain(fast, x))
    handle.remove()
    assert [fast(x).tolist() for _ in range(2)] == [[3.0, 4.0]] * 2
    first = weight.register_hook(lambda grad: grad + 1)
    assert fast(x).tolist() == step(x).tolist() == [4.0, 5.0]
    weight.register_hook(lambda grad: grad * 3)
    assert fast(x).tolist() == step(x).tolist() == [12.0, 15.0]
    first.remove()
    assert fast(x).tolist() == step(x).tolist() == [9.0, 12.0]


def test_hooks_of_computed_arguments_run_once():
    def f(y):
        return (y * y).sum()

    fast = compiled(f)
    x = tangrad.randn(3, requires_grad=True)
    for _ in range(3):
        found = []
        for run in (fast, f):
            x.grad = None
            y = x * 2
            y.register_hook(lambda grad: grad * 3)
            run(y).backward()
            found.append(x.grad)
        assert same(*found)


def leaf_of_what_is_cut_off(x):
    return x.prod(), x.prod().detach().requires_grad_()


def view_without_history(x):
    with tangrad.inference_mode():
        rows = x[::2]
    return x.sum(), rows


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (leaf_of_what_is_cut_off, "a gradient of its own"),
        (view_without_history, "in inference mode and ops outside"),
    ],
)
def test_a_result_that_wants_a_gradient_of_its_own_is_refused(function, told):
    x = tangrad.tensor([2.0, 3.0, 4.0], requires_grad=True)
    with pytest.raises(RuntimeError, match=told):
        compiled(function)(x)
    freely = tangrad.compile(function, options={"measure": False})
    expected = tangrad.autograd.grad(sum(t.sum() for t in function(x)), x)[0]
    for _ in range(3):
        assert same(tangrad.autograd.grad(sum(t.sum() for t in freely(x)), x)[0], expected)


def test_a_result_whose_own_history_is_used_up_beside_one_whose_is_not_is_refused():
    def f(x, w):
        loss = (x * w).sum()
        loss.backward(inputs=[w])
        return loss, x.sin()

    x, w = tangrad.randn(3, requires_grad=True), tangrad.randn(3, requires_grad=True)
    f(x, w)
    with pytest.raises(RuntimeError, match="differentiated what made some of its results"):
        compiled(f)(x, w)


def test_a_result_that_leads_to_no_argument_is_refused_where_backward_is():
    def f(x):
        leaf = tangrad.ones(2, requires_grad=True)
        made = leaf * leaf
        made.sum().backward()
        return made, x * 2

    def backward_is_refused(run):
        x = tangrad.randn(2, requires_grad=True)
        made, _ = run(x)
        with pytest.raises(RuntimeError, match="second time"):
            made.sum().backward()

    fast = tangrad.compile(f, options={"measure": False})
    for _ in range(3):
        backward_is_refused(f)
        backward_is_refused(fast)
    with pytest.raises(RuntimeError, match="cannot be differentiated"):
        compiled(f)(tangrad.randn(2, requires_grad=True))


class _Same(tangrad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 7


def test_a_result_that_a_function_returned_as_it_was_given_has_its_own_derivative():
    def f(x):
        y = x * 2
        return _Same.apply(x), y, _Same.apply(y), y

    def derivatives(run):
        x = tangrad.ones(3, requires_grad=True)
        made = run(x)
        found = [tangrad.autograd.grad(t.sum(), x, retain_graph=True)[0] for t in made]
        return [g.tolist() for g in found], made[0] is x, made[1] is made[2], made[1] is made[3]

    fast = compiled(f)
    for _ in range(3):
        assert derivatives(fast) == derivatives(f)


def test_what_a_function_returned_as_it_was_given_under_no_grad_is_not_its_argument():
    def f(x):
        with tangrad.no_grad():
            return _Same.apply(x)

    fast, x = compiled(f), tangrad.ones(3, requires_grad=True)
    for _ in range(3):
        made = fast(x)
        assert made is not x
        assert not made.requires_grad


def test_a_result_whose_history_is_ambiguous_leaves_the_call_as_it_is():
    def f(x):
        y = x * 2
        with tangrad.no_grad():
            part = y[1:]
        y.mul_(3)
        return part, y

    fast = tangrad.compile(f, options={"measure": False})
    for _ in range(3):
        x = tangrad.ones(3, requires_grad=True)
        part, y = fast(x)
        y.sum().backward()
        assert x.grad.tolist() == [6, 6, 6]
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            part.sum().backward()
    with pytest.raises(RuntimeError, match="cannot be differentiated"):
        compiled(f)(tangrad.ones(3, requires_grad=True))


class Scaled(tangrad.autograd.Function):
    """Has derivatives that are not those of its ops."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0]


class Told(tangrad.autograd.Function):
    """Tells a gradient that is not there from zeros."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        return tangrad.ones(3) if first is None or second is None else first + second


def test_what_is_computed_without_gradients_has_no_second_derivative():
    def f(x):
        with tangrad.no_grad():
            scale = x * x
        return (x * x * scale).sum()

    fast = tangrad.compile(f, fullgraph=True, options={"measure": False})
    for _ in range(3):
        found = []
        for function in (fast, f):
            x = tangrad.arange(3.0).requires_grad_()
            (first,) = tangrad.autograd.grad(function(x), x, create_graph=True)
            found.append((first, *tangrad.autograd.grad(first.sum(), x)))
        assert all(a.equal(b) for a, b in zip(*found, strict=True))


def test_second_derivatives_through_a_function_are_refused():
    fast = tangrad.compile(lambda x: Scaled.apply(x).sum(), options={"measure": False})
    x = tangrad.arange(3.0).requires_grad_()
    for _ in range(2):
        fast(x)
    assert tangrad.autograd.grad(fast(x), x)[0].tolist() == [0.0, 3.0, 6.0]
    with pytest.raises(RuntimeError, match="calls a Function .ScaledBackward.*twice"):
        tangrad.autograd.grad(fast(x), x, create_graph=True)


def test_a_function_that_tells_missing_gradients_from_zeros_is_given_all():
    fast = tangrad.compile(Told.apply, options={"measure": False})
    x = tangrad.ones(3, requires_grad=True)
    for _ in range(2):
        fast(x)
    first, second = fast(x)
    assert tangrad.autograd.grad((first + second).sum(), x)[0].tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(RuntimeError, match="set_materialize_grads"):
        tangrad.autograd.grad(fast(x)[0].sum(), x)
