"""What a compiled function returns and leaves: what the function does, or the call is no graph."""

from __future__ import annotations

import dataclasses

import pytest

import tangrad
from tangrad import nn
from tangrad.utils.checkpoint import checkpoint
from tangrad_jit.capture.errors import CaptureError


class Tagged(tangrad.Tensor):
    pass


@dataclasses.dataclass
class Pair:
    first: tangrad.Tensor
    second: float


def compiled(function, **options):
    return tangrad.compile(function, options={"measure": False}, **options)


def written_constant(x):
    made = tangrad.tensor([1.0, 2.0])
    made.add_(x)
    return made * 2, made


@pytest.mark.parametrize(
    "function",
    [
        written_constant,
        lambda x: (tangrad.tensor([1.0, 2.0]),),
        lambda x: (tangrad.tensor([1.0, 2.0])[1], tangrad.tensor([[1.0], [2.0]]).t()),
        lambda x: ((tangrad.tensor([1.0, 2.0]) * 2).view(2, 1),),
    ],
)
def test_who_writes_into_results_changes_no_constant(function):
    fast = compiled(function, fullgraph=True)
    for k in range(4):
        x = tangrad.full((2,), float(k))
        found, wanted = fast(x), function(x)
        assert all(a.equal(b) for a, b in zip(found, wanted, strict=True))
        for t in found:
            t.zero_()


def with_attribute(x):
    y = x * 2
    y.tag = 5
    return y


def with_gradient_kept(x):
    y = x * x
    y.retain_grad()
    return y


def with_hook_on_what_is_given(x):
    x.register_hook(lambda grad: grad * 10)
    return (x * x).sum()


def with_attribute_on_what_is_given(x):
    x.tag = 5
    return x * 2


HELD = [tangrad.ones(2)]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.as_subclass(Tagged) * 2, "a result is a Tagged"),
        (with_attribute, "a result has attributes"),
        (with_gradient_kept, "keeps its gradient"),
        (with_hook_on_what_is_given, "hooks or attributes in the run"),
        (with_attribute_on_what_is_given, "hooks or attributes in the run"),
        (lambda x: (HELD, x * 2), "returns a list"),
    ],
)
def test_a_result_that_is_more_than_a_graph_makes_is_refused(function, reason):
    with pytest.raises(CaptureError, match=reason):
        compiled(function, fullgraph=True)(tangrad.ones(2, requires_grad=True))
    fast = compiled(function)
    for _ in range(3):
        x = tangrad.ones(2, requires_grad=True)
        assert type(fast(x)) is type(function(tangrad.ones(2, requires_grad=True)))


def test_lists_that_are_given_and_returned_stay_themselves():
    fast, held = compiled(lambda items: (items, items[0] * 2)), [tangrad.ones(2)]
    for _ in range(3):
        assert fast(held)[0] is held


def test_tensors_of_one_memory_may_part():
    one, other = tangrad.ones(2), tangrad.ones(2)
    other.data = one.data
    fast, x = compiled(lambda x: x * one + other * 2, fullgraph=True), tangrad.ones(2)
    for _ in range(3):
        assert fast(x).tolist() == [3.0, 3.0]
    other.data = tangrad.full((2,), 5.0)
    assert fast(x).tolist() == [11.0, 11.0]


def test_objects_among_arguments_may_hold_tensors():
    fast = compiled(lambda pair: pair.first * pair.second)
    pair = Pair(tangrad.ones(2), 2.0)
    for second in (2.0, 2.0, 3.0, 3.0):
        pair.second = second
        assert fast(pair).tolist() == [second, second]
    for first in (2.0, 3.0):
        pair.first = tangrad.full((2,), first)
        assert fast(pair).tolist() == [3 * first, 3 * first]
    assert fast(Pair(tangrad.ones(2), 7.0)).tolist() == [7.0, 7.0]


def test_gradients_are_enabled_within_a_call_without():
    model = nn.Linear(2, 2)

    def f(x):
        with tangrad.enable_grad():
            return model(x)

    fast, x = compiled(f), tangrad.ones(2)
    with tangrad.no_grad():
        assert all(fast(x).requires_grad for _ in range(3))
        with pytest.raises(CaptureError, match="without gradients"):
            compiled(f, fullgraph=True)(x)


def test_a_backward_that_accumulates_by_itself_runs_once():
    def trained(wrap):
        tangrad.manual_seed(0)
        model = nn.Linear(2, 2)
        run = wrap(lambda x: checkpoint(model, x, use_reentrant=True).sum())
        for _ in range(3):
            run(tangrad.ones(2, requires_grad=True)).backward()
        return model.weight.grad

    assert trained(compiled).equal(trained(lambda f: f))


@pytest.mark.parametrize("first", ["detach", "write", "nothing"])
def test_a_view_of_what_was_detached_is_a_view_of_the_tensor_itself(first):
    held = tangrad.zeros(2, 3)

    def function(x):
        if first == "detach":
            x.detach(), held.detach()
        elif first == "write":
            x.detach().fill_(1.5), held.detach().mul_(2)
        return x.t(), held[0], held.detach()

    fast = tangrad.compile(function, fullgraph=True, options={"measure": False})
    for _ in range(4):
        x = tangrad.ones(2, 3)
        one, other, same = fast(x)
        assert one._base is x
        assert other._base is held
        assert same is not held
        # So a write that brings a history reaches the base, as in eager.
        one.mul_(tangrad.ones(1, requires_grad=True))
        assert x.requires_grad
    assert fast.compiled.executables


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.t(),
        lambda x: (x.view(-1)[1:], x.sort()[0])[0],
        lambda x: (x * 2).t(),
        lambda x: (x.cumsum(0).unbind(), x * 2)[1][0],
    ],
)
def test_results_may_be_written_with_a_history(function):
    fast = compiled(function, fullgraph=True)
    scale = tangrad.tensor(3.0, requires_grad=True)
    for _ in range(4):
        found = []
        for call in (fast, function):
            x, scale.grad = tangrad.arange(6.0).view(2, 3), None
            written = call(x)
            written.mul_(scale)
            (written.sum() + x.sum()).backward()
            found.append((x.requires_grad, scale.grad.item()))
        assert found[0] == found[1]
    with tangrad.no_grad():
        made = fast(tangrad.ones(2, 3))
    if made._base is not None:
        with pytest.raises(RuntimeError, match="no_grad mode"):
            made.mul_(scale)
    assert fast.compiled.executables


def test_a_view_of_what_was_written_through_data_is_a_view_of_the_argument():
    def function(x):
        x.data.mul_(2)
        return x.view(-1)

    fast = compiled(function)
    for _ in range(4):
        x = tangrad.ones(2, 3)
        assert fast(x)._base is x
        assert x._version == 0
    with pytest.raises(CaptureError, match="written through .data"):
        compiled(function, fullgraph=True)(tangrad.ones(2))
