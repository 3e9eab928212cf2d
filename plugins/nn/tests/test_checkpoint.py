"""Checkpointed functions have the gradients of plain ones, and save less."""

import gc
import weakref

import pytest

import tangrad
from tangrad.utils.checkpoint import CheckpointError, checkpoint, set_checkpoint_early_stop

BOTH = pytest.mark.parametrize("reentrant", [True, False])


@BOTH
def test_gradients_are_those_of_torch(agree, reentrant):
    def program(t):
        from importlib import import_module

        run = import_module(f"{t.__name__}.utils.checkpoint").checkpoint
        w = (t.arange(4.0).reshape(2, 2) / 4).requires_grad_()
        x = t.ones(2, 2, requires_grad=True)
        calls = []

        def block(x, power, y=None):
            calls.append(t.is_grad_enabled())
            return t.tanh(x @ w).pow(power), x.sin()

        first, second = run(block, x, 2, use_reentrant=reentrant)
        (first.sum() + run(block, second, 3, use_reentrant=reentrant)[0].sum()).backward()
        return x.grad.tolist(), w.grad.tolist(), calls

    agree(program)


@BOTH
@pytest.mark.parametrize("segments", [1, 2, 3, 9])
def test_sequences_are_split_as_in_torch(agree, reentrant, segments):
    def program(t):
        from importlib import import_module

        run = import_module(f"{t.__name__}.utils.checkpoint").checkpoint_sequential
        count = [0] * 5

        def step(i):
            def f(x):
                count[i] += 1
                return (x + i).sin()

            return f

        x = t.ones(3, requires_grad=True)
        run([step(i) for i in range(5)], segments, x, use_reentrant=reentrant).sum().backward()
        return count, x.grad.tolist()

    agree(program, message=False)


@BOTH
@pytest.mark.parametrize("preserve", [True, False])
def test_random_numbers_are_drawn_again_the_same(reentrant, preserve):
    x = tangrad.ones(100, requires_grad=True)
    tangrad.manual_seed(3)
    result = checkpoint(
        lambda v: tangrad.nn.functional.dropout(v, 0.5) * v,
        x,
        use_reentrant=reentrant,
        preserve_rng_state=preserve,
    )
    before = tangrad.get_rng_state()
    result.sum().backward()
    # d/dv of mask * v * v is twice the mask times v, if the mask is the same.
    assert x.grad.equal(2 * result.detach()) == preserve
    assert tangrad.get_rng_state().equal(before) == preserve


@BOTH
def test_autocast_acts_in_the_second_run_too(reentrant):
    seen = []

    def block(v):
        product = v @ v
        seen.append(product.dtype)
        return product.sin()

    x = tangrad.ones(2, 2, requires_grad=True)
    with tangrad.autocast("cpu"):
        result = checkpoint(block, x, use_reentrant=reentrant)
    result.float().sum().backward()
    assert set(seen) == {tangrad.bfloat16}
    assert len(seen) == 2
    assert x.grad.dtype is tangrad.float32


@BOTH
def test_nothing_of_the_inside_is_kept(reentrant):
    alive = []

    def block(v):
        middle = v.exp()
        alive.append(weakref.ref(middle))
        return middle.sin().exp().sum()

    x = tangrad.ones(3, requires_grad=True)
    kept = tangrad.Tensor.exp(x).sin()
    result = checkpoint(block, x, use_reentrant=reentrant)
    gc.collect()
    assert alive[0]() is None
    result.backward()
    kept.sum().backward()


def test_a_graph_can_be_walked_twice_and_differentiated_twice():
    x = tangrad.full((2,), 0.5, requires_grad=True)
    result = checkpoint(lambda v: v.sin() * v, x, use_reentrant=False).sum()
    (first,) = tangrad.autograd.grad(result, x, create_graph=True)
    (second,) = tangrad.autograd.grad(first.sum(), x, retain_graph=True)
    again = tangrad.autograd.grad(result, x)[0]
    y = x.detach()
    assert first.allclose(y.cos() * y + y.sin())
    assert again.allclose(first)
    assert second.allclose(2 * y.cos() - y.sin() * y)


def test_regions_nest():
    x = tangrad.full((2,), 0.5, requires_grad=True)

    def inner(v):
        return v.exp().sin()

    def outer(v):
        return checkpoint(inner, v.cos(), use_reentrant=False).exp()

    checkpoint(outer, x, use_reentrant=False).sum().backward()
    y = x.detach().requires_grad_()
    y.cos().exp().sin().exp().sum().backward()
    assert x.grad.allclose(y.grad)


@pytest.mark.parametrize("stop", [True, False])
def test_the_second_run_ends_when_nothing_more_is_needed(stop):
    ended = []

    def block(v):
        v = v.exp()
        ended.append(True)
        return v

    x = tangrad.ones(2, requires_grad=True)
    with set_checkpoint_early_stop(stop):
        result = checkpoint(block, x, use_reentrant=False)
    result.sum().backward()
    assert len(ended) == (1 if stop else 2)


def test_contexts_surround_the_first_and_the_second_run():
    from contextlib import contextmanager

    seen = []

    @contextmanager
    def noting(word):
        seen.append(word)
        yield
        seen.append(f"after {word}")

    x = tangrad.ones(2, requires_grad=True)
    checkpoint(
        lambda v: v.exp(),
        x,
        use_reentrant=False,
        early_stop=False,
        context_fn=lambda: (noting("first"), noting("second")),
    ).sum().backward()
    assert seen == ["first", "after first", "second", "after second"]


@pytest.mark.parametrize(
    "bodies",
    [
        (lambda v: v.exp(), lambda v: v[:1].exp()),
        (lambda v: v.exp(), lambda v: v + 1),
    ],
)
def test_a_function_that_changes_its_mind_is_told(bodies):
    order = iter(bodies)
    x = tangrad.ones(2, requires_grad=True)
    result = checkpoint(lambda v: next(order)(v), x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="during the"):
        result.sum().backward()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t, c: c(t.sin, t.ones(2), use_reentrant=True, other=1),
        lambda t, c: c(t.sin, t.ones(2), use_reentrant=True, debug=True),
        lambda t, c: c(t.sin, t.ones(2), use_reentrant=False, determinism_check="some"),
    ],
)
def test_wrong_arguments_are_refused(agree, wrong):
    def program(t):
        from importlib import import_module

        return wrong(t, import_module(f"{t.__name__}.utils.checkpoint").checkpoint)

    agree(program)


@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "whole"])
def test_what_differentiates_itself_can_be_checkpointed(stop):
    import torch
    from torch.utils.checkpoint import checkpoint as theirs
    from torch.utils.checkpoint import set_checkpoint_early_stop as set_theirs

    def slope(lib, function):
        return lambda x: lib.autograd.grad(function(x), x, create_graph=True)[0]

    found = []
    for lib, again, early_stop in (
        (tangrad, checkpoint, set_checkpoint_early_stop),
        (torch, theirs, set_theirs),
    ):

        def inner(x, lib=lib, again=again):
            return again(lambda v: lib.sin(lib.exp(v)), x, use_reentrant=False)

        x = lib.tensor(0.5, dtype=lib.float64, requires_grad=True)
        with early_stop(stop):
            first = again(slope(lib, inner), x, use_reentrant=False)
            second = again(slope(lib, slope(lib, inner)), x, use_reentrant=False)
            (first + second).backward()
        found.append((first.item(), second.item(), x.grad.item()))
    assert found[0] == pytest.approx(found[1])
