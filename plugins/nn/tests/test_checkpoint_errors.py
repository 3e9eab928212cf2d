"""What checkpoints refuse, as PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import checkpoint as theirs

import tangrad
from tangrad.utils import checkpoint as ours

BOTH = [pytest.param(tangrad, ours, id="tangrad"), pytest.param(torch, theirs, id="torch")]


@pytest.mark.parametrize(("lib", "module"), BOTH)
def test_one_that_reenters_is_not_for_chosen_gradients(lib: Any, module: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    for walk in (lambda y: lib.autograd.grad(y, [x]), lambda y: y.backward(inputs=[x])):
        y = module.checkpoint(lib.exp, x, use_reentrant=True).sum()
        with pytest.raises(Exception, match=r"torch\.utils\.checkpoint is incompatible with"):
            walk(y)
    module.checkpoint(lib.exp, x, use_reentrant=True).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(("lib", "module"), BOTH)
def test_saved_tensors_are_given_once_in_a_walk(lib: Any, module: Any) -> None:
    class Product(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, y = ctx.saved_tensors
            with pytest.raises(RuntimeError, match="already unpacked once"):
                ctx.saved_tensors
            return grad * y, grad * x

    x = lib.full((2,), 3.0, requires_grad=True)
    y = module.checkpoint(lambda x: Product.apply(x * 2, x), x, use_reentrant=False)
    y.sum().backward(retain_graph=True)
    y.sum().backward()  # another walk computes them again
    assert x.grad.tolist() == [24, 24]


@pytest.mark.parametrize("by", ["argument", "context"])
def test_an_error_lists_the_ops_of_both_runs(by: str) -> None:
    runs = []

    def changing(x: Any) -> Any:
        runs.append(x)
        return x.sin().exp() if len(runs) == 1 else x.sin() * tangrad.ones(2)

    x = tangrad.ones(1, requires_grad=True)
    debug = True if by == "context" else None
    with ours.set_checkpoint_debug_enabled(debug):
        y = ours.checkpoint(changing, x, use_reentrant=False, debug=by == "argument")
        with pytest.raises(RuntimeError, match="You are seeing this error because") as told:
            y.sum().backward()
    said = str(told.value)
    assert [said.find(f"  {name}") > 0 for name in ("exp", "mul")] == [True, True], said
