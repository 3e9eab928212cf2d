"""Measure a graph against eager in its first calls, and check a share of the later ones."""

from __future__ import annotations

from typing import Any

__all__ = ["trial_of"]


def trial_of(executable: Any, settings: Any) -> Any:
    """Return what runs an executable's calls both ways, or None where nothing is to be compared."""
    return None
