"""Calls in other forms than a schema has.

With the factors in front, as in `addcmul_(value, a, b)`, which old programs make: PyTorch has been
warning of them since 1.5, once in a process, and takes them still. And `einsum(a, [0, 1], b,
[1, 2], [0, 2])`, NumPy's form, with numbers for letters behind each operand.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

from tangrad import _C
from tangrad.tensor import caller

_told = False


def modern(op: Any, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the arguments of a call as the schema has them; None if that is no form of here.

    Args:
        op: the op, whose definition says what its old form is.
        args: the positional arguments; of `addmm` and its like, the first factor may stand before
            the first tensor, as in a call of the function.
    """
    global _told
    form = op.definition.old_form
    if form == "labels":
        return _with_equation(args), {}
    keys, following = form
    tensors = [a for a in args if isinstance(a, _C.Tensor)]
    factors = [a for a in args if not isinstance(a, _C.Tensor)]
    front = args[: len(args) - following]
    if len(tensors) != 1 + following or len(front) != 1 + len(factors):
        return None
    if not 1 <= len(factors) <= len(keys):
        return None
    if not any(isinstance(a, _C.Tensor) for a in front[:2]):
        return None
    if not all(isinstance(factor, (int, float, complex)) for factor in factors):
        return None
    first = [isinstance(a, _C.Tensor) for a in front[:2]].index(True)
    if first and len(keys) == 1:
        return None
    given = dict(zip(keys, factors, strict=False))
    if not _told or caller.warns_always:
        _told = True
        told = ", ".join(f"{key}={value}" for key, value in given.items())
        warnings.warn(
            f"This overload of {op.title} is deprecated: write its factors behind the tensors, as "
            f"keywords ({told})",
            stacklevel=2,
        )
    return tensors, given


def _with_equation(args: Sequence[Any]) -> list[Any]:
    """Return the equation and operands of `einsum(a, labels, ..., [labels of the result])`."""
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one "
            "operand and its subscripts list"
        )
    for place, labels in enumerate(args[1::2], 1):
        _check_sublist(labels, 2 * place)
    equation = ",".join("".join(map(_letter, labels)) for labels in args[1::2])
    operands = args[::2]
    if len(args) % 2:
        operands = operands[:-1]
        _check_sublist(args[-1], len(args))
        equation += "->" + "".join(map(_letter, args[-1]))
    return [equation, *operands]


def _check_sublist(labels: Any, position: int) -> None:
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__iter__"):
        raise TypeError(
            f"einsum(): argument {position} must be the list of the operand's subscripts, as in "
            f"einsum(a, [0, 1], b, [1, 2]), not {type(labels).__name__}"
        )


def _letter(label: Any) -> str:
    if label is Ellipsis:
        return "..."
    number = operator.index(label)
    if not 0 <= number < 52:
        raise ValueError(
            "einsum(): subscript in subscript list is not within the valid range [0, 52)"
        )
    return chr(ord("A") + number) if number < 26 else chr(ord("a") + number - 26)
