"""Writes in place meet what backward needs: the gradients of PyTorch, or its refusal."""

from __future__ import annotations

import pytest

import tangrad

WRITTEN = "modified by an inplace operation"
VIEWED = ("being modified inplace", "has been modified inplace")


def outcome(compute):
    """Return numbers, or that a program was refused because of a write."""
    try:
        return [g if g is None else g.tolist() for g in compute()]
    except RuntimeError as error:
        if not any(reason in str(error) for reason in (WRITTEN, *VIEWED)):
            raise
        return "refused"


@pytest.mark.parametrize("how", ["grad", "hook", "argument"])
def test_a_retained_gradient_has_memory_of_its_own(agree, how):
    def program(t):
        x = t.tensor([1.0, 2.0], requires_grad=True)
        e, seen = x * 2, []
        e.retain_grad()
        if how == "grad":
            seen.append(t.autograd.grad((e * e).sum(), e, create_graph=True)[0])
        elif how == "hook":
            e.register_hook(seen.append)
            t.autograd.grad((e * e).sum(), x, create_graph=True)
        else:
            seen.append(t.ones(2))
            t.autograd.grad(e, x, seen[0], create_graph=True)
        with t.no_grad():
            seen[0].exp_()
        return e.grad.tolist()

    agree(program)


def functions(t):
    class Triple(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(3)

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    class Claimed(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 5

    class Same(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 7

    class Beside(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, other):
            ctx.mark_dirty(x)
            return x.mul_(3)

        @staticmethod
        def backward(ctx, grad):
            return grad * 3, grad * 11

    return {"triple": Triple, "claimed": Claimed, "same": Same, "beside": Beside}


@pytest.mark.parametrize("used", ["result", "argument", "other view", "base"])
@pytest.mark.parametrize("name", ["triple", "claimed", "beside"])
def test_function_that_writes_a_view(agree, name, used):
    def program(t):
        x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
        base = x * 2
        view, other = base.narrow(0, 0, 2), base.narrow(0, 1, 2)
        args = (view, other) if name == "beside" else (view,)
        result = functions(t)[name].apply(*args)
        seen = {"result": result, "argument": view, "other view": other, "base": base}[used]
        weights = t.tensor([1.0, 10.0, 100.0])[: len(seen)]
        return outcome(lambda: t.autograd.grad((seen * weights).sum(), x))

    agree(program)


@pytest.mark.parametrize("written", ["result", "argument"])
@pytest.mark.parametrize("recorded", [True, False])
def test_function_that_returns_its_argument(agree, recorded, written):
    def program(t):
        x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
        argument = x * 2

        def compute():
            with t.set_grad_enabled(recorded):
                result = functions(t)["same"].apply(argument)
            same = result is argument, result.requires_grad
            (result if written == "result" else argument).mul_(5)
            sums = [argument.sum(), result.sum()][: 1 + recorded]
            found = [t.autograd.grad(s, x, retain_graph=True)[0] for s in sums]
            return [*found, t.tensor(same)]

        return outcome(compute)

    agree(program)


@pytest.mark.parametrize("name", ["triple", "claimed"])
def test_function_that_writes_without_recording_gives_a_constant(agree, name):
    def program(t):
        x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
        argument = x * 2
        with t.no_grad():
            result = functions(t)[name].apply(argument)
        return result.requires_grad, outcome(lambda: t.autograd.grad(argument.sum(), x))

    agree(program)


SECOND = {
    "square": lambda t, a, b: a * a,
    "product": lambda t, a, b: a * b,
    "quotient": lambda t, a, b: a / (b * b + 2),
    "addcmul": lambda t, a, b: t.addcmul(b, a, b),
    "sigmoid": lambda t, a, b: (a * b).sigmoid(),
    "hypot": lambda t, a, b: t.hypot(a, b),
    "matmul": lambda t, a, b: a @ b,
}


@pytest.mark.parametrize("wanted", ["a", "b", "x"])
@pytest.mark.parametrize("written", ["a", "b"])
@pytest.mark.parametrize("name", SECOND)
def test_derivatives_need_no_more_than_theirs(agree, name, written, wanted):
    """What a fused derivative saves for another input, or only for its type, may be written."""

    def program(t):
        x = t.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=t.float64, requires_grad=True)
        named = {"x": x, "a": x * 1, "b": x * 2}
        y = SECOND[name](t, named["a"], named["b"])
        (first,) = t.autograd.grad(y.sum(), named[wanted], create_graph=True, allow_unused=True)
        named[written][named[written] > 1] = 0.25
        if first is None or not first.requires_grad:
            return None
        return outcome(lambda: t.autograd.grad(first.sum(), x, allow_unused=True))

    agree(program)


def test_a_gradient_reads_only_its_own_factor():
    """PyTorch refuses this, for it unpacks what both factors' gradients need."""
    x, y = (tangrad.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    a, b = x * 1, y * 3
    product = (a * b).sum()
    a.add_(1)
    assert tangrad.autograd.grad(product, x, retain_graph=True)[0].tolist() == [3.0, 6.0]
    with pytest.raises(RuntimeError, match=WRITTEN):
        tangrad.autograd.grad(product, y)
