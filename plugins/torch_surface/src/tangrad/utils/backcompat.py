"""Switches of warnings about changes in PyTorch 0.2, which old programs set: nothing warns here."""

from __future__ import annotations

__all__ = ["Warning", "broadcast_warning", "keepdim_warning"]


class Warning:
    """A switch that is kept."""

    enabled: bool = False


broadcast_warning = Warning()
keepdim_warning = Warning()
