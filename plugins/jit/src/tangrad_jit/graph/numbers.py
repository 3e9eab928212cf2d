"""Operations on numbers, which graphs have beside the ops on tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

__all__ = ["NUMBER_OPS", "NumberOp"]


class _Schema:
    """What a graph asks of a signature."""

    written, written_lists, returns, params = -1, (), (), ()


class _Definition:
    """What a graph asks of an op's definition."""

    random = collective = ordered = shape_depends_on_data = False
    schema, results = _Schema(), ()

    def __init__(self, key: str) -> None:
        self.key = key


class NumberOp:
    """What a number is computed by: a node of a graph has one in the place of an op.

    Attributes:
        compute: the function itself.
        reads: whether it looks at a tensor.
        checks: whether it raises what the program would, so that it is there without users.
    """

    kind = "number"
    overloads = ()

    def __init__(self, name: str, compute: Callable[..., Any], count: int) -> None:
        self.name = self.title = f"number.{name}"
        self.compute, self.reads, self.checks = compute, name == "item", name == "require"
        self.parameter_names = ("a", "b")[:count]
        self.definition = _Definition(self.name)

    def __repr__(self) -> str:
        return f"<{self.name}>"


def _item(tensor: Any) -> Any:
    return tensor.item()


def _require(condition: Any, message: str) -> bool:
    if not condition.item():
        raise RuntimeError(message)
    return True


_TABLE: dict[str, tuple[Callable[..., Any], int]] = {
    "add": (operator.add, 2),
    "sub": (operator.sub, 2),
    "mul": (operator.mul, 2),
    "truediv": (operator.truediv, 2),
    "floordiv": (operator.floordiv, 2),
    "mod": (operator.mod, 2),
    "pow": (operator.pow, 2),
    "neg": (operator.neg, 1),
    "abs": (abs, 1),
    "float": (float, 1),
    "sqrt": (math.sqrt, 1),
    "item": (_item, 1),
    "require": (_require, 2),
}

#: The name in a graph's text -> the operation.
NUMBER_OPS = {f"number.{name}": NumberOp(name, *row) for name, row in _TABLE.items()}
