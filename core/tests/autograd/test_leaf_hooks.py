"""What is told of a leaf that backward has reached, and of the end of backward."""

import pytest
import torch

import tangrad
from tangrad.autograd.graph import get_gradient_edge


def stopped(t):
    class Stopped(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return None

    return Stopped.apply


def seen(gradient):
    return None if gradient is None else gradient.tolist()


def leaf_with_hook(t, told):
    leaf = t.ones(2, requires_grad=True)
    node = (
        get_gradient_edge(leaf).node
        if t is tangrad
        else torch.autograd.graph.get_gradient_edge(leaf).node
    )
    node.register_hook(lambda given, made: told.append((given, [seen(one) for one in made])))
    return leaf, node


@pytest.mark.parametrize("gradient", ["none", "some", "inputs", "not of inputs", "of grad"])
def test_hooks_of_an_accumulator_are_called_as_pytorch_calls_them(gradient):
    def run(t):
        told = []
        leaf, node = leaf_with_hook(t, told)
        other = t.ones(2, requires_grad=True)
        inner = stopped(t)(leaf) if gradient == "none" else leaf * 3
        loss = (inner + other).sum()
        if gradient == "of grad":
            t.autograd.grad(loss, [leaf])
        else:
            inputs = {"inputs": [leaf, leaf], "not of inputs": [other]}.get(gradient)
            loss.backward(inputs=inputs)
        return str(told), seen(leaf.grad), seen(other.grad), node is not None

    assert run(tangrad) == run(torch)


def test_hooks_after_accumulation_are_called_where_inputs_are_given():
    def run(t):
        told = []
        leaf = t.ones(2, requires_grad=True)
        leaf.register_hook(lambda g: g * 2)
        leaf.register_post_accumulate_grad_hook(lambda one: told.append(one.grad.tolist()))
        (leaf * 3).sum().backward(inputs=[leaf])
        (leaf * 3).sum().backward(inputs=leaf)
        return told

    assert run(tangrad) == run(torch) == [[6.0, 6.0], [12.0, 12.0]]


def test_a_queued_callback_is_called_when_backward_has_ended():
    def run(t):
        told = []
        queue = t.autograd.Variable._execution_engine.queue_callback
        leaf = t.ones(2, requires_grad=True)

        def hook(gradient):
            queue(lambda: told.append(("end", leaf.grad.tolist())))
            told.append("hook")

        inner = leaf * 3
        inner.register_hook(hook)
        inner.sum().backward()
        return told

    assert run(tangrad) == run(torch) == ["hook", ("end", [3.0, 3.0])]


def test_a_queued_callback_waits_for_the_outermost_pass_and_may_queue_another():
    told = []
    queue = tangrad.autograd.Variable._execution_engine.queue_callback
    leaf = tangrad.ones(1, requires_grad=True)

    def inner_pass(gradient):
        def first():
            told.append("first")
            queue(lambda: told.append("second"))

        with tangrad.enable_grad():
            inner = leaf * 2
        inner.register_hook(lambda g: queue(first))
        inner.backward()
        told.append("inner pass is over")

    outer = leaf * 3
    outer.register_hook(inner_pass)
    outer.backward()
    assert told == ["inner pass is over", "first", "second"]


def test_a_callback_cannot_be_queued_where_no_pass_runs_nor_outlives_one_that_failed():
    told = []
    queue = tangrad.autograd.Variable._execution_engine.queue_callback
    leaf = tangrad.ones(1, requires_grad=True)

    def fail(gradient):
        queue(lambda: told.append("called"))
        raise ValueError("in the middle")

    inner = leaf * 2
    inner.register_hook(fail)
    with pytest.raises(ValueError, match="in the middle"):
        inner.backward()
    with pytest.raises(RuntimeError, match="can only be installed during backward pass"):
        queue(lambda: None)
    (leaf * 3).backward()
    assert told == []


@pytest.mark.parametrize("dtype", ["float64", "int64", "float32"])
@pytest.mark.parametrize("of", ["leaf", "result"])
def test_a_hook_of_a_tensor_keeps_the_dtype_of_its_gradient(agree, of, dtype):
    def program(t):
        x = t.ones(2, requires_grad=True)
        y = x * 2
        (x if of == "leaf" else y).register_hook(lambda g: (g * 3).to(getattr(t, dtype)))
        y.sum().backward()
        return x.grad

    agree(program, message=False)
