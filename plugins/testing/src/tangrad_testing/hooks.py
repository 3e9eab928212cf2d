"""What the kit adds to tangrad: its commands."""

from __future__ import annotations

from typing import Any

from tangrad.plugin import hookimpl


@hookimpl
def tangrad_add_cli(commands: Any) -> None:
    """Add `check` and `new`."""
    from tangrad_testing.command import add_check
    from tangrad_testing.new import add_new

    add_check(commands)
    add_new(commands)
