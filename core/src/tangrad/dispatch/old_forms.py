"""Calls with the factors in front, as in `addcmul_(value, a, b)`, which old programs make.

PyTorch has been warning of them since 1.5, once in a process, and takes them still.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from tangrad import _C

# The keywords of the factors, and how many tensors follow the first.
_FACTORS: dict[str, tuple[tuple[str, ...], int]] = {
    "add": (("alpha",), 1),
    "sub": (("alpha",), 1),
    "addcmul": (("value",), 2),
    "addcdiv": (("value",), 2),
    "addmm": (("beta", "alpha"), 2),
    "addmv": (("beta", "alpha"), 2),
    "addr": (("beta", "alpha"), 2),
    "addbmm": (("beta", "alpha"), 2),
    "baddbmm": (("beta", "alpha"), 2),
}
_told = False


def modern(title: str, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the arguments of a call as they are written today; None if that is no old form.

    Args:
        title: name of the op, with an underscore for the in-place form.
        args: the positional arguments; of `addmm` and its like, the first factor may stand before
            the first tensor, as in a call of the function.
    """
    global _told
    keys, following = _FACTORS[title.removesuffix("_")]
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
    if not _told:
        _told = True
        told = ", ".join(f"{key}={value}" for key, value in given.items())
        warnings.warn(
            f"This form of {title} is deprecated: write its factors behind the tensors, as "
            f"keywords ({told})",
            stacklevel=2,
        )
    return tensors, given
