"""Kept results are not computed again, and gradients are those without a checkpoint."""

import functools

import pytest

import tangrad
from tangrad.utils._python_dispatch import TorchDispatchMode
from tangrad.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name)
        return func(*args, **(kwargs or {}))


def leaves():
    generator = tangrad.Generator().manual_seed(3)
    return [tangrad.randn(3, 3, generator=generator).requires_grad_() for _ in range(2)]


def function(x, w):
    return (x @ w).tanh().sin() @ w


def policy(context, op, *args, **kwargs):
    chosen = op.name in ("mm", "tanh")
    return CheckpointPolicy.MUST_SAVE if chosen else CheckpointPolicy.MUST_RECOMPUTE


def gradients(call):
    x, w = leaves()
    call(x, w).sum().backward()
    return x.grad, w.grad


CHOICES = {
    "a policy": (policy, 0, 0),
    "a list": ([tangrad.mm], 0, 1),
    "nothing": ([], 2, 1),
    "bools": (lambda context, op, *args, **kwargs: op.name == "tanh", 2, 0),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_kept_results_are_not_computed_again(choice):
    chosen, mm_again, tanh_again = CHOICES[choice]
    contexts = functools.partial(create_selective_checkpoint_contexts, chosen)
    x, w = leaves()
    y = checkpoint(function, x, w, use_reentrant=False, context_fn=contexts)
    with Count() as count:
        y.sum().backward()
    expected = gradients(function)
    assert tangrad.equal(x.grad, expected[0])
    assert tangrad.equal(w.grad, expected[1])
    # Of the products only those of the gradients remain: two for each.
    assert count.names.count("mm") == 4 + mm_again
    assert count.names.count("tanh") == tanh_again


def test_a_kept_result_that_was_written_to_is_refused():
    def writes(x):
        y = x.tanh()
        z = y.detach()
        z.mul_(2)
        return y.sin()

    for allow in (False, True):
        contexts = functools.partial(
            create_selective_checkpoint_contexts, [tangrad.tanh], allow_cache_entry_mutation=allow
        )
        x = tangrad.ones(2, requires_grad=True)
        y = checkpoint(writes, x, use_reentrant=False, context_fn=contexts)
        if allow:
            y.sum().backward()
            assert x.grad is not None
        else:
            with pytest.raises(RuntimeError, match="mutated"):
                y.sum().backward()


def test_the_context_tells_the_second_run():
    seen = []

    def watch(context, op, *args, **kwargs):
        seen.append(context.is_recompute)
        return CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, watch)
    x = tangrad.ones(2, requires_grad=True)
    checkpoint(tangrad.tanh, x, use_reentrant=False, context_fn=contexts).sum().backward()
    assert set(seen) == {False, True}


def test_a_policy_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="policy_fn_or_list"):
        create_selective_checkpoint_contexts(3)
