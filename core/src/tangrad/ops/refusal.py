"""Refuse calls because of values in tensors, inside of transforms too."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.ops.definition.define import op


def _refuse(np: Any, refused: Any, text: str) -> Any:
    if refused.any():
        raise RuntimeError(text)
    return np.zeros((), np.bool_)


_refuse_values = op(
    "_refuse_values(Tensor refused, str text) -> Tensor",
    shape=lambda: (),
    reference=_refuse,
    vjp="none: a check",
    batch=lambda size, dims, refused, text: (_refuse_values(refused, text), None),
    function=False,
    method=False,
    doc="Raise RuntimeError if an element is true; an op, so that it also sees batches of vmap.",
)


def refuse_values(refused: Any, text: str) -> None:
    """Raise RuntimeError if an element of a tensor of bools is true, in any sample of a batch."""
    if refused.is_meta:
        return
    if _C.level_of(refused) is not None:
        _refuse_values(refused, text)
    elif bool(refused.any()):
        raise RuntimeError(text)
