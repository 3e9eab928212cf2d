"""What a random op takes of its stream, where those who stand between have to see it."""

from __future__ import annotations

from typing import Any

from tangrad import _C


class Drawn(int):
    """A seed or an offset that a call took of a random stream: a tracer knows the object again."""


def drawn(op: _C.Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Take what a random op needs of its stream now, as backward asks for the same numbers."""
    if not op.definition.random or args[-1] is not None:
        return args
    if op.definition.generator_of(args).sequential is not None:
        return args  # which has no state to hand on: the op draws when it runs
    return (*args[:-2], *map(Drawn, op.definition.draw(args)))
