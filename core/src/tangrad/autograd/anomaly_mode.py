"""Anomaly mode: find the forward line of a bad gradient."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.autograd.grad_mode import _ModeBase

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class set_detect_anomaly(_ModeBase):
    """Switch anomaly mode on or off, at once and for a `with` block.

    Args:
        mode: nodes remember where they were made; an error in backward tells it.
        check_nan: a gradient with NaN is an error.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.mode, self.check_nan = mode, check_nan
        self.previous = _C._set_anomaly(mode, check_nan)

    def clone(self) -> set_detect_anomaly:
        """Return a fresh context of the same setting."""
        return type(self)(self.mode, self.check_nan)

    def __enter__(self) -> None:
        _C._set_anomaly(self.mode, self.check_nan)

    def __exit__(self, *exc: Any) -> None:
        _C._set_anomaly(*self.previous)


class detect_anomaly(_ModeBase):
    """Context manager: backward errors, and NaN gradients, tell the forward line that made them.

    Args:
        check_nan: a gradient with NaN is an error.
        check_finite: beyond PyTorch: what any op of any thread gives is looked at, in forward and
            in backward. NaN is an error, and so is infinity where operands and numbers were
            finite: masks of infinity pass. The error names op, line of the forward call, module,
            the first bad element and the ranges of the operands. It is raised in the thread that
            called; one that was there before is looked at from its next call of a function on.
    """

    def __init__(self, check_nan: bool = True, *, check_finite: bool = False) -> None:
        self.check_nan, self.check_finite = check_nan, check_finite
        self.previous: list[tuple[bool, bool]] = []
        self._watching: list[Any] = []

    def clone(self) -> detect_anomaly:
        """Return a fresh context of the same setting."""
        return type(self)(self.check_nan, check_finite=self.check_finite)

    def __enter__(self) -> None:
        self.previous.append(_C._set_anomaly(True, self.check_nan))
        if self.check_finite:
            from tangrad.autograd.finite_values import Watch

            self._watching.append(Watch().looking())
            self._watching[-1].__enter__()

    def __exit__(self, *exc: Any) -> None:
        if self.check_finite:
            self._watching.pop().__exit__(None, None, None)
        _C._set_anomaly(*self.previous.pop())
