"""Forward mode by dual tensors: a primal and a tangent that travel together."""

from __future__ import annotations

from typing import Any, NamedTuple

import tangrad.func.transforms  # noqa: F401  # whose vjp gives the tangents of ops without a jvp
from tangrad import _C
from tangrad.autograd.grad_mode import _ModeBase
from tangrad.dispatch.levels import JvpLevel
from tangrad.dispatch.stack import current, entered

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


class UnpackedDualTensor(NamedTuple):
    """A dual tensor taken apart; tangent is None where there is none."""

    primal: Any
    tangent: Any


_current_level = -1  # 0 in forward mode, for programs that ask


def _current() -> JvpLevel | None:
    return next(
        (v for v in reversed(current().levels) if isinstance(v, JvpLevel) and v.lenient), None
    )


def enter_dual_level() -> int:
    """Begin forward mode in this thread; returns the level's number.

    Raises:
        RuntimeError: it has begun already.
    """
    if _current() is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    global _current_level
    entered("levels", JvpLevel(lenient=True)).__enter__()
    _current_level = 0
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End forward mode; dual tensors stand for their primals from now on.

    Raises:
        RuntimeError: it has not begun.
    """
    found = _current()
    if found is None or level not in (None, 0):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is "
            "not supported."
        )
    global _current_level
    entered("levels", found).__exit__()
    found.give_back()
    _current_level = -1


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """Return a view of a tensor that carries a tangent.

    Args:
        tensor: the primal, floating-point or complex.
        tangent: of the same shape and dtype. It is taken itself, and written where the result is
            written, if it lies in memory as the primal does.

    Raises:
        RuntimeError: outside `dual_level`, shapes differ, or the tangent has a tangent itself.
    """
    found = _current()
    if found is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        raise ValueError(
            f"Expected primal to be floating point or complex, but got: {tensor.dtype}"
        )
    if not (tangent.dtype.is_floating_point or tangent.dtype.is_complex):
        raise ValueError(
            f"Expected tangent to be floating point or complex, but got: {tangent.dtype}"
        )
    if tuple(tensor.shape) != tuple(tangent.shape):
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(tensor.shape)} while the "
            f"given forward gradient is of size {list(tangent.shape)}."
        )
    if found.owns(tangent) and _C.level_of(tangent).tangent is not None:
        raise RuntimeError("make_dual: the tangent has a forward gradient at the same level")
    with found.below():
        primal = _C.lookup_op("alias")(found.unwrap(tensor))
        tangent = _laid_out_like(found.unwrap(tangent), primal)
        return _C.share_history(found.wrap(primal, tangent), primal)


def _laid_out_like(tangent: Any, primal: Any) -> Any:
    """Return a tangent whose views are those of its primal: itself, or a copy."""
    both, strided = (primal, tangent), _C.layout_named("strided")
    if any(t.layout != strided or type(t) is not _C.Tensor for t in both):
        return tangent
    room = [t.untyped_storage().nbytes() // t.element_size() for t in both]
    lies = [
        [t.is_conj(), t.is_neg(), t.storage_offset() if t.numel() else 0]
        + [step for n, step in zip(t.shape, t.stride(), strict=True) if n > 1 and t.numel()]
        for t in both
    ]
    if lies[0] == lies[1] and (room[0] == room[1] or _C.level_of(tangent) is not None):
        return tangent
    made = tangent.new_zeros((room[0],)).as_strided(
        tuple(primal.shape), primal.stride(), primal.storage_offset()
    )
    made = made.conj() if primal.is_conj() else made
    made = made._neg_view() if primal.is_neg() else made
    return made.copy_(tangent)


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """Return (primal, tangent) of a tensor; the primal is a view, made anew by each call.

    Raises:
        RuntimeError: outside `dual_level`.
    """
    found = _current()
    if found is None:
        return UnpackedDualTensor(tensor, None)
    if not found.owns(tensor):
        return UnpackedDualTensor(tensor, None)
    record = _C.level_of(tensor)
    with found.below():
        return UnpackedDualTensor(_C.lookup_op("alias")(record.inner), record.tangent)


class dual_level(_ModeBase):
    """Context manager in which `make_dual` makes tensors whose tangents follow them."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: Any) -> None:
        exit_dual_level()
