"""What all observers have in common: the base class, and constructors with arguments given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from tangrad import nn


class _PartialWrapper:
    """A constructor with some of its arguments given, and some made anew at each call."""

    def __init__(self, p: Any) -> None:
        self.p = p
        self.callable_args: dict[str, Callable[[], Any]] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        made = {key: make() for key, make in self.callable_args.items() if key not in keywords}
        return self.p(*args, **keywords, **made)

    def __repr__(self) -> str:
        return f"{self.p!r}{self.callable_args!r}"

    def with_args(self, **kwargs: Any) -> _PartialWrapper:
        return _with_args(self, **kwargs)

    def with_callable_args(self, **kwargs: Callable[[], Any]) -> _PartialWrapper:
        wrapper = _PartialWrapper(self.p)
        wrapper.callable_args = {**self.callable_args, **kwargs}
        return wrapper


def _with_args(constructor: Any, **kwargs: Any) -> _PartialWrapper:
    """Return a constructor that has these arguments already."""
    return _PartialWrapper(partial(constructor, **kwargs))


def _with_callable_args(constructor: Any, **kwargs: Callable[[], Any]) -> _PartialWrapper:
    """Return a constructor that makes these arguments by calling functions, at each use."""
    return _PartialWrapper(partial(constructor)).with_callable_args(**kwargs)


class ObserverBase(ABC, nn.Module):
    """A module that watches numbers pass; `calculate_qparams` says what fits them.

    Args:
        dtype: the quantized dtype that is aimed at.
        is_dynamic: whether the numbers are quantized anew in each call.

    Attributes:
        path: where the observer stands in its model, for messages; `prepare` sets it.
    """

    with_args = classmethod(_with_args)
    with_callable_args = classmethod(_with_callable_args)
    path = ""

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Watch a tensor, and return it."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Return scales and zero points."""

    def refuse_what_is_not_finite(self, low: Any, high: Any) -> None:
        """Refuse calibration data with NaN or infinity, which would widen a range to nothing.

        Raises:
            ValueError: an end of the range is not finite.
        """
        if bool((low - high).isfinite().all()):
            return
        where = f" at '{self.path}'" if self.path else ""
        raise ValueError(
            f"{type(self).__name__}{where}: the observed tensor holds NaN or infinity (range "
            f"{low.min().item()} to {high.max().item()}); look for the layer that makes them "
            f"with tangrad.autograd.detect_anomaly, or leave such inputs out of the calibration"
        )
