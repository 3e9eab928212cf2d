"""Have plugins define their ops when a name is asked for that the core does not know."""

from __future__ import annotations


def load_plugin_ops() -> None:
    """Call `tangrad_register_ops` of every plugin that was not called yet."""
    from tangrad.discovery.hooks import call_hook_once

    call_hook_once("tangrad_register_ops")
