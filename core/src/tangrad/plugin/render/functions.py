"""The functions that the expression language writes itself, for want of them in C's library."""

from __future__ import annotations

from tangrad.expr.c_special import SPECIAL
from tangrad.expr.composed import COMPOSED
from tangrad.expr.primitives import PRIMITIVES


def own_functions() -> dict[str, int]:
    """Return {name: number of operands} of the functions written out in float64.

    Their helper is called `tg_<name>`. They are long: a dialect may replace their text in
    `helpers`, or compile them once and call them.
    """
    names = (*(helper.removeprefix("tg_") for helper in SPECIAL), *COMPOSED)
    return {name: PRIMITIVES[name].arity for name in names}
