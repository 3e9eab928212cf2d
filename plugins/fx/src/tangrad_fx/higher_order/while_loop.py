"""`while_loop` where PyTorch has it, and the form of it that stands in graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad import while_loop

__all__ = ["while_loop", "while_loop_op"]


def while_loop_op(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> Any:
    """Run a loop whose functions are given further values, the same in each round.

    Args:
        cond_fn: of the carried values and the additional ones: a bool tensor of one element.
        body_fn: of the same: the carried values' successors.
        carried_inputs: the first values, a tuple or list.
        additional_inputs: what both functions are given behind them.

    Returns:
        The values for which the condition does not hold.

    Raises:
        RuntimeError: as `tangrad.while_loop`.
    """
    additional = tuple(additional_inputs)
    return tangrad.while_loop(
        lambda *values: cond_fn(*values, *additional),
        lambda *values: body_fn(*values, *additional),
        carried_inputs,
    )
