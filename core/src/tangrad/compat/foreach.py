"""Ops over lists of tensors, as optimizers and averaging of weights use them: `_foreach_add`, ...

One definition serves all: an op of the table is applied at each place of its lists. A list has a
value for each tensor; anything else serves every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad

__name__ = "tangrad.foreach"  # where PyTorch has it, which pickles say

_UNARY = (
    "abs acos asin atan ceil clone cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p "
    "log2 max neg norm reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc zero"
)
_BINARY = "add sub mul div pow maximum minimum clamp_max clamp_min mm copy"
_OPS = frozenset(f"{_UNARY} {_BINARY} lerp addcmul addcdiv".split())
_NEVER_IN_PLACE = frozenset({"clone", "norm", "max", "mm"})
_ONLY_IN_PLACE = frozenset({"copy", "zero"})
# The places of operands that may be given by name; all others come first.
_PLACES = {"tensor2": 1, "weight": 1, "weights": 1, "value": 2}
_FIRST = frozenset({"tensor1", "tensors1", "other", "scalar", "scalars", "exponent", "mat2", "src"})
# What bounds by a number, or in place; and truth values.
_BOUNDS = {"maximum": "clamp_min", "minimum": "clamp_max"}
_OF_BOOLS = {"maximum": "logical_or", "minimum": "logical_and"}


def find(name: str) -> Callable[..., Any]:
    """Return the function that PyTorch calls `_foreach_NAME` or, in place, `_foreach_NAME_`.

    Raises:
        AttributeError: there is none.
    """
    base = name.removeprefix("_foreach_")
    in_place = base.endswith("_")
    base = base.removesuffix("_")
    if base not in _OPS or base in (_NEVER_IN_PLACE if in_place else _ONLY_IN_PLACE):
        raise AttributeError(f"module 'tangrad' has no attribute {name!r}")

    def foreach(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply the op to each tensor of a list; lists among the arguments give one value each.

        Raises:
            RuntimeError: a list is empty, or they differ in length.
        """
        operands, options = _sorted(base, args, kwargs)
        results = [
            _apply(base, [_at(x, i) for x in (self, *operands)], options, in_place)
            for i in range(_length(name, self, operands))
        ]
        return self if in_place else tuple(results)

    foreach.__name__ = foreach.__qualname__ = name
    return foreach


def _sorted(
    base: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the operands in order, and what else was given by name."""
    operands = dict(enumerate(args))
    options = {}
    for key, value in kwargs.items():
        if key == "scalars" and base.startswith("addc"):
            operands[2] = value
        elif key in _FIRST or key in _PLACES:
            operands[_PLACES.get(key, 0)] = value
        else:
            options[key] = value
    numbers = operands.get(2)
    if isinstance(numbers, tangrad.Tensor) and base.startswith("addc"):
        if numbers.ndim != 1:
            raise RuntimeError(
                f"_foreach_{base}: Expected packed scalar Tensor to be of dimension 1. Got "
                f"{numbers.ndim} instead."
            )
        operands[2] = numbers.tolist()
    return [operands[place] for place in sorted(operands)], options


def _length(name: str, self: Any, operands: list[Any]) -> int:
    lengths = [len(x) for x in (self, *operands) if isinstance(x, (list, tuple))]
    if not lengths or not lengths[0]:
        raise RuntimeError(f"{name}: Tensor list must have at least one tensor.")
    last = operands[-1] if operands else None
    if len(set(lengths)) > 1 and isinstance(last, (list, tuple)) and not _holds_tensors(last):
        raise RuntimeError(
            f"{name}: Tensor list must have same number of elements as scalar list, got "
            f"{lengths[0]} and {len(last)}"
        )
    if len(set(lengths)) > 1:
        raise RuntimeError(
            f"{name}: Tensor lists must have the same number of tensors, got {lengths[0]} and "
            f"{next(n for n in lengths if n != lengths[0])}"
        )
    return lengths[0]


def _holds_tensors(values: Any) -> bool:
    return bool(values) and isinstance(values[0], tangrad.Tensor)


def _at(value: Any, place: int) -> Any:
    return value[place] if isinstance(value, (list, tuple)) else value


def _apply(base: str, operands: list[Any], options: dict[str, Any], in_place: bool) -> Any:
    if base == "norm":
        return tangrad.linalg.vector_norm(*operands, **options)
    if base == "max" and not operands[0].numel():
        raise RuntimeError("_foreach_max cannot compute the maximum of an empty tensor")
    if base.startswith("addc") and len(operands) == 4:
        options = {**options, "value": operands.pop()}
    if base in _BOUNDS and (in_place or not isinstance(operands[1], tangrad.Tensor)):
        truths = all(getattr(x, "dtype", None) is tangrad.bool for x in operands)
        base = (_OF_BOOLS if truths else _BOUNDS)[base]
    return getattr(tangrad.Tensor if in_place else tangrad, base + "_" * in_place)(
        *operands, **options
    )
