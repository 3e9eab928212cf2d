"""First and second derivatives against torch's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tangrad
from tangrad_testing.calls import (
    REFUSALS,
    describe,
    detached,
    is_differentiable_dtype,
    normal_like,
    tangrad_arguments,
    tangrad_tensor_on,
)
from tangrad_testing.cases import Case, may_have_derivative
from tangrad_testing.closeness import as_array
from tangrad_testing.oracle import (
    assert_same,
    counterpart,
    rebuild,
    tensors_in,
    torch,
    torch_arguments,
    torch_tensor,
)


class Side:
    """A call in one of the two libraries, with its floating arguments as leaves."""

    def __init__(self, library: Any, make: Any, call: Any, arguments: Any) -> None:
        self.library, self.make = library, make
        given = tensors_in(arguments)
        leaves = [detached(t) if is_differentiable_dtype(t) else t for t in given]
        args, kwargs = rebuild(arguments, iter(leaves))
        self.leaves = [t for t in leaves if t.requires_grad]
        self.outputs = [t for t in tensors_in(call(*args, **kwargs)) if t.requires_grad]

    def cotangents(self, requires_grad: bool = False) -> list[Any]:
        """Draw a cotangent for each output; the same numbers on both sides."""
        made = []
        for i, out in enumerate(self.outputs):
            value = self.make(normal_like(out, i), str(out.dtype).rpartition(".")[2])
            made.append(detached(value, requires_grad))
        return made

    def gradients(self, cotangents: list[Any], create_graph: bool = False) -> tuple[Any, ...]:
        """Return the gradients of the leaves, None where an output does not depend on one."""
        return self.library.autograd.grad(
            self.outputs, self.leaves, cotangents, create_graph=create_graph, allow_unused=True
        )

    def second(self) -> tuple[Any, ...]:
        """Return the gradients, by leaves and cotangents, of the gradients times random numbers."""
        cotangents = self.cotangents(requires_grad=True)
        gradients = enumerate(self.gradients(cotangents, create_graph=True))
        numbered = [(i, g) for i, g in gradients if g is not None and g.requires_grad]
        if not numbered:
            return ()
        first = [g for _, g in numbered]
        weights = [
            self.make(normal_like(g, 100 + i), str(g.dtype).rpartition(".")[2]) for i, g in numbered
        ]
        return self.library.autograd.grad(
            first, [*self.leaves, *cotangents], weights, allow_unused=True
        )


def compare(case: Case, derivative: Callable[[Side], tuple[Any, ...]], slack: float) -> None:
    """Compare a derivative of every sample, where torch has one."""
    oracle = counterpart(case.definition)
    for sample in case.samples():
        try:
            theirs = Side(torch, torch_tensor, oracle, torch_arguments(sample))
            if not theirs.outputs or not theirs.leaves:
                continue
            expected = derivative(theirs)
        except REFUSALS:
            continue
        ours = Side(
            tangrad,
            tangrad_tensor_on(case.device),
            case.call,
            tangrad_arguments(sample, case.device, case.definition),
        )
        context = f"{case.op}{describe(sample)}: "
        assert len(ours.outputs) == len(theirs.outputs), (
            f"{context}{len(ours.outputs)} outputs require grad, in torch {len(theirs.outputs)}"
        )
        assert_same_gradients(derivative(ours), expected, context, slack)


def assert_same_gradients(
    ours: tuple[Any, ...], theirs: tuple[Any, ...], context: str, slack: float
) -> None:
    """Compare gradients; None is as good as zeros."""
    if not ours or not theirs:
        known = [t for t in (*ours, *theirs) if t is not None]
        assert not any(as_array(t).any() for t in known), (
            f"{context}gradients {ours}, torch has {theirs}"
        )
        return
    assert len(ours) == len(theirs), f"{context}{len(ours)} gradients, torch has {len(theirs)}"
    for i, (a, e) in enumerate(zip(ours, theirs, strict=True)):
        where = f"{context}gradient {i}: "
        if a is None or e is None:
            known = a if e is None else e
            assert known is None or not as_array(known).any(), f"{where}got {a}, torch has {e}"
            continue
        assert_same(a, e, slack=slack, context=where)


@pytest.mark.tangrad_cases(dtypes="derivatives", when=may_have_derivative)
def test_vjp_is_that_of_torch(case: Case) -> None:
    compare(case, lambda side: side.gradients(side.cotangents()), slack=10)


@pytest.mark.tangrad_cases(dtypes="derivatives", when=may_have_derivative)
def test_second_order_is_that_of_torch(case: Case) -> None:
    compare(case, Side.second, slack=100)


@pytest.mark.tangrad_cases(dtypes="derivatives", when=may_have_derivative)
def test_jvp_is_that_of_torch(case: Case) -> None:
    for sample in case.samples():
        expected = torch_jvp(case, sample)
        if expected is None:
            continue
        arguments = tangrad_arguments(sample, case.device, case.definition)
        primals, function = primal_function(case.call, arguments)
        tangents = tuple(
            tangrad_tensor_on(case.device)(normal_like(p, i), case.dtype)
            for i, p in enumerate(primals)
        )
        _, actual = tangrad.func.jvp(function, primals, tangents)
        assert_same(
            tuple(tensors_in(actual)), expected, slack=10, context=f"{case.op}{describe(sample)} "
        )


def primal_function(call: Any, arguments: Any) -> tuple[tuple[Any, ...], Any]:
    """Return (the floating tensors, the call as a function of them giving its floating results)."""
    given = tensors_in(arguments)
    free = [is_differentiable_dtype(t) for t in given]
    primals = tuple(t for t, f in zip(given, free, strict=True) if f)

    def function(*values: Any) -> Any:
        moving = iter(values)
        tensors = [next(moving) if f else t for t, f in zip(given, free, strict=True)]
        args, kwargs = rebuild(arguments, iter(tensors))
        return tuple(t for t in tensors_in(call(*args, **kwargs)) if is_differentiable_dtype(t))

    return primals, function


def torch_jvp(case: Case, sample: Any) -> tuple[Any, ...] | None:
    """Return torch's tangents: by forward mode, or where it has none by reverse mode twice."""
    primals, function = primal_function(counterpart(case.definition), torch_arguments(sample))
    if not primals or any(str(p.dtype).rpartition(".")[2] != case.dtype for p in primals):
        return None
    tangents = tuple(torch_tensor(normal_like(p, i), case.dtype) for i, p in enumerate(primals))
    for transform in (torch.func.jvp, torch.autograd.functional.jvp):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results, found = transform(function, primals, tangents)
        except REFUSALS:
            continue
        return tuple(tensors_in(found)) if tensors_in(results) else None
    return None
