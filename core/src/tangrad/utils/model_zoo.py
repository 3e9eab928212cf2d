"""Older names of `tangrad.hub`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from tangrad.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


class _Progress:
    """Tell on standard error how much is done; in the place of `tqdm` where that is not installed.

    Args:
        total: what all is; None: unknown.
        disable: tell nothing.
        settings: what else `tqdm` takes; not used.
    """

    def __init__(self, total: float | None = None, disable: bool = False, **settings: Any) -> None:
        self.total, self.disable, self.n = total, disable, 0.0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def update(self, n: float = 1) -> None:
        """Add to what is done."""
        self.n += n
        if not self.disable:
            told = f"{self.n:.0f}" if not self.total else f"{100 * self.n / self.total:.1f}%"
            print(f"\r{told}", end="", file=sys.stderr, flush=True)

    def set_description(self, *description: Any, **settings: Any) -> None:
        """Do nothing: there is no room for a description."""

    def write(self, text: str) -> None:
        """Print a line on standard error."""
        print(text, file=sys.stderr)

    def close(self) -> None:
        """End the line."""
        if not self.disable and self.n:
            print(file=sys.stderr)
        self.disable = True


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # which other libraries import from here, installed or not
        try:
            return import_module("tqdm").tqdm
        except ImportError:
            return _Progress
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
