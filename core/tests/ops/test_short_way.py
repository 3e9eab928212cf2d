"""Pointwise calls of one or two plain operands go a short way, with the long one's results."""

from __future__ import annotations

import itertools
import operator

import pytest

import tangrad
from tangrad.plugin import call_recorded
from tangrad.plugin.render import pointwise_ops

DTYPES = ("float32", "float64", "float16", "complex64", "int32", "bool")
NUMBERS = (0.5, 2, -1, True, 1j)


def ops():
    """Return the pointwise ops of one or two operands and nothing else, by name."""
    found = {described.op.name: described.op for described in pointwise_ops(derived=False)}
    return {
        name: op
        for name, op in sorted(found.items())
        if len(op.parameter_names) <= 2
        and all(p.type in ("Tensor", "Operand") for p in op.definition.schema.params)
    }


def operands(types):
    """Yield tensors and numbers: those that the short way takes, and some that are close to it."""
    made = [tangrad.tensor([[2, 1, 0], [1, 3, 1]]).to(getattr(tangrad, name)) for name in DTYPES]
    made += [tangrad.tensor(1.5), made[0].t(), made[0][:, :1], *NUMBERS]
    for given in itertools.product(made, repeat=len(types)):
        tensors = [isinstance(item, tangrad.Tensor) for item in given]
        # Numbers in the place of tensors are refused, or made tensors, before ways part.
        if any(tensors) and all(map(operator.or_, tensors, (t == "Operand" for t in types))):
            yield given


def outcome(function, *args):
    """Return what a call gives, or its error, as text."""
    try:
        made = function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    several = made if isinstance(made, tuple) else (made,)
    return [f"{t.dtype} {tuple(t.shape)} {t.stride()} {t.tolist()!r}" for t in several]


@pytest.mark.parametrize("name", ops())
def test_the_short_way_gives_what_the_long_one_does(name):
    op = ops()[name]
    for given in operands([p.type for p in op.definition.schema.params]):
        long = outcome(lambda *args: call_recorded(op, args), *given)
        assert outcome(op, *given) == long, given


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "**"])
def test_operators_record_numbers_beside_tensors(sign):
    x = tangrad.tensor([0.5, 2.0, 3.0], requires_grad=True)
    for text in (f"x {sign} 1.5", f"1.5 {sign} x", f"x {sign} 2"):
        long = text.replace("x", "x.reshape(3, 1).t()[0]")
        one, other = (eval(code, {"x": x}) for code in (text, long))
        assert one.tolist() == other.tolist()
        grads = [tangrad.autograd.grad(made.sum(), x)[0].tolist() for made in (one, other)]
        assert grads[0] == grads[1]
