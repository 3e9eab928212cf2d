"""Marks for Intel's tools: `torch.profiler.itt`, whose library is not part of tangrad."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """Return False: no mark is seen by Intel's tools."""
    return False


def _refused(name: str) -> NoReturn:
    raise RuntimeError(
        f"itt.{name}: ITT functions are not installed; mark parts of a program by record_function"
    )


def range_push(msg: str) -> int:
    """Raise RuntimeError: ranges are not seen by Intel's tools."""
    _refused("range_push")


def range_pop() -> int:
    """Raise RuntimeError: ranges are not seen by Intel's tools."""
    _refused("range_pop")


def mark(msg: str) -> None:
    """Raise RuntimeError: marks are not seen by Intel's tools."""
    _refused("mark")


@contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """Raise RuntimeError: ranges are not seen by Intel's tools."""
    range_push(msg.format(*args, **kwargs))
    yield
