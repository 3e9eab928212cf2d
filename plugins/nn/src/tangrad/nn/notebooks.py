"""What notebooks show of modules and summaries, where a package brings it."""

from __future__ import annotations

from typing import Any

from tangrad.plugin import resolve

__all__ = ["shown"]


def shown(name: str, value: Any) -> str | None:
    """Return the HTML of a value, or None: then a notebook shows its text.

    Args:
        name: such as "nn.Module._repr_html_", by which a package lists a function of the value in
            the entry-point group `tangrad.names`.
        value: what is shown.
    """
    try:
        show = resolve(name)
    except AttributeError:
        return None
    found: str | None = show(value)
    return found
