"""Ops that plugins define."""

from __future__ import annotations

_done = False


def load_plugin_ops() -> None:
    """Ask plugins for their op definitions, once."""
    global _done
    if _done:
        return
    _done = True
    from tangrad.plugins.hooks import call_hook

    call_hook("tangrad_register_ops")


def forget() -> None:
    """Ask again at the next unknown name (after plugins were installed or removed)."""
    global _done
    _done = False
