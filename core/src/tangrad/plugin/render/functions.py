"""The functions that the expression language writes itself, for want of them in C's library."""

from __future__ import annotations

from typing import Any, NamedTuple

from tangrad.expr.c_special import SPECIAL
from tangrad.expr.composed import COMPOSED
from tangrad.expr.infer import typed_body, typed_function
from tangrad.expr.loop import loop_of
from tangrad.expr.primitives import PRIMITIVES


def own_functions() -> dict[str, int]:
    """Return {name: number of operands} of the functions written out in float64.

    Their helper is called `tg_<name>`. They are long: a dialect may replace their text in
    `helpers`, or compile them once and call them.
    """
    names = (*(helper.removeprefix("tg_") for helper in SPECIAL), *COMPOSED)
    return {name: PRIMITIVES[name].arity for name in names}


def own_program(name: str) -> Any:
    """Return the program in float64 of a function that the language writes in its own steps.

    Its inputs are the operands in their order. None of the functions that have a text in C alone.
    """
    return typed_function(name) if name in COMPOSED else None


class Repeated(NamedTuple):
    """What a step "iterate" repeats.

    Attributes:
        bound: the most rounds.
        states: how many of the step's operands, the first, are the states before the first round.
        program: of a round: of the round's number and of all operands, the condition under which
            an element goes on, and its next states.
    """

    bound: int
    states: int
    program: Any


def repeated(step: Any) -> Repeated:
    """Return what a step "iterate" of a program repeats."""
    loop = loop_of(str(step.value))
    return Repeated(loop.bound, loop.states, typed_body(str(step.value), step.type))
