"""Add the ops `tangrad.snake` and `tangrad.rms`; tangrad finds this module by its entry point."""

from tangrad.plugin import hookimpl

API = 1


@hookimpl
def tangrad_register_ops():
    """Define the ops, when a name is asked for that tangrad itself does not know."""
    from tangrad_snake import ops  # noqa: F401  importing a definition registers it
