"""Whether notebooks show more than text."""

from __future__ import annotations

import os

_chosen: bool | None = None


def rich(on: bool = True) -> None:
    """Choose what notebooks show of tensors and modules.

    Args:
        on: statistics, pictures and trees; False: plain text, as scripts print it.
    """
    global _chosen
    _chosen = bool(on)


def is_rich() -> bool:
    """Return whether notebooks show more than text: as chosen, else by TANGRAD_DISPLAY."""
    if _chosen is not None:
        return _chosen
    return os.environ.get("TANGRAD_DISPLAY", "rich") != "plain"
