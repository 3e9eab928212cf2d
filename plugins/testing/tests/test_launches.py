"""Transforms call no op once for each sample: their launches do not grow with the batch."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.func import grad, jacrev, jvp, vmap
from tangrad.plugin import find_op, op_calls
from tangrad_testing.calls import (
    REFUSALS,
    is_differentiable_dtype,
    rebuild,
    tangrad_arguments,
    tensors_in,
)
from tangrad_testing.cases import (
    Case,
    fraction,
    has_values,
    is_chosen,
    may_have_derivative,
    op_names,
)

BATCHES = (3, 8)
# Where there is only a loop over the samples, as docs/add-an-op.md tells.
LOOPS = frozenset(
    "bag_argmax bag_numbers bincount embedding_bag linalg_ldl_solve "
    "masked_scatter repeat_interleave_along repeat_interleave_places".split()
)


def launched(call):
    """Return how many ops a call calls, the second time: the first may load definitions."""
    for _ in range(2):
        before = op_calls()
        call()
        count = op_calls() - before
    return count


def real_sum(results):
    found = [r for r in tensors_in(results) if is_differentiable_dtype(r)]
    parts = [(r.real if r.is_complex() else r).sum() for r in found]
    return sum(parts[1:], parts[0])


def programs(function, tensors):
    """Return the transforms of a call by name, each a function of a batch's size."""
    places = tuple(k for k, t in enumerate(tensors) if is_differentiable_dtype(t))
    batch = lambda size: [t.expand(size, *t.shape).clone() for t in tensors]  # noqa: E731
    found = {"vmap": lambda size: vmap(function)(*batch(size))}
    if not places:
        return found
    total = lambda *given: real_sum(function(*given))  # noqa: E731

    def pushed(*given):
        fixed = list(given)

        def of_places(*moved):
            for k, t in zip(places, moved, strict=True):
                fixed[k] = t
            return total(*fixed)

        primals = tuple(given[k] for k in places)
        return jvp(of_places, primals, primals)[1]

    return found | {
        "vmap of grad": lambda size: vmap(grad(total, places))(*batch(size)),
        "vmap of jvp": lambda size: vmap(pushed)(*batch(size)),
        "jacrev": lambda size: jacrev(lambda *given: vmap(total)(*given), places)(*batch(size)),
    }


def looping(op):
    """Return the transforms under which the launches of an op grow with the batch."""
    found = set()
    for sample in Case(op, "float64", "cpu").samples():
        arguments = tangrad_arguments(sample, "cpu", find_op(op).definition)
        tensors = tensors_in(arguments)
        if not tensors:
            continue

        def function(*given, arguments=arguments):
            args, kwargs = rebuild(arguments, iter(given))
            return tuple(tensors_in(find_op(op)(*args, **kwargs)))

        for name, run in programs(function, tensors).items():
            try:
                counts = [launched(lambda run=run, n=n: run(n)) for n in BATCHES]
            except REFUSALS:
                continue  # what cannot be transformed is the subject of other tests
            if counts[0] != counts[1]:
                found.add(name)
    return found


def asked():
    """Return the ops that this run asks: a part of all, the loops always."""
    cases = [Case(op, "float64", "cpu") for op in op_names()]
    chosen = [c for c in cases if c.op in LOOPS or is_chosen("launches", c, fraction())]
    return [c.op for c in chosen if has_values(c) and may_have_derivative(c)]


@pytest.mark.parametrize("op", asked())
def test_launches_do_not_grow_with_the_batch(op):
    assert bool(looping(op)) == (op in LOOPS)


def test_a_gradient_of_each_sample_seeds_all_at_once():
    def energy(x):
        return (x @ x).sum()

    counts = [launched(lambda n=n: vmap(grad(energy))(tangrad.ones(n, 4, 4))) for n in (2, 500)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("fill", [lambda x: x.fill_(2.0), lambda x: x.zero_()])
def test_writing_one_number_to_each_sample_is_one_launch(fill):
    def written(x):
        return fill(x.clone()) + x

    counts = [launched(lambda n=n: vmap(written)(tangrad.ones(n, 4))) for n in (2, 50)]
    assert counts[0] == counts[1]
