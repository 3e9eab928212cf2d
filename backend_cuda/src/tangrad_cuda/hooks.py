"""Make this package's ops known to programs that ask for them by name, such as saved graphs."""

from __future__ import annotations

from tangrad.plugin import hookimpl


@hookimpl
def tangrad_register_ops() -> None:
    """Define the ops, when a name is asked for that tangrad itself does not know."""
    from tangrad_cuda import resampling, row_norm  # noqa: F401  importing a definition registers it
