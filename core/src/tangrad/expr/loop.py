"""Bounded loops: what the body of an ``iterate`` is.

``iterate(bound, "condition; next values", state=initial, ...)`` repeats the body while its
condition holds, at most ``bound`` times, and is the first state variable at the end. The body is
text of the language over the states, over ``k``, which counts the rounds from 0, and over any name
known outside. Series and continued fractions whose length depends on the operand are written so::

    iterate(200, "t > 1e-17 * s; s + t; t * x / (a + k + 2)", s=1.0, t=x / (a + 1))

All of it is computed in one floating-point type. On arrays every element ends when its own
condition fails.
"""

from __future__ import annotations

from functools import cache

from tangrad.expr.formula import Formula
from tangrad.expr.syntax import parse_nodes


class Loop:
    """Hold the body of a loop.

    Attributes:
        bound: the most rounds that it runs.
        states: how many of the node's operands, the first ones, are initial values of states;
            the others are constants.
        body: the condition and the next states over ``k`` and the operands' names.
    """

    __slots__ = ("body", "bound", "states")

    def __init__(self, bound: int, states: int, body: Formula) -> None:
        self.bound, self.states, self.body = bound, states, body


@cache
def loop_of(value: str) -> Loop:
    """Return the loop that the value of an ``iterate`` node says."""
    bound, states, names, text = value.split(";", 3)
    inputs = ("k", *names.split())
    return Loop(int(bound), int(states), Formula(parse_nodes(text, inputs), inputs, (), text))
