"""Names of Python for the values, nodes and functions of a model."""

from __future__ import annotations

import keyword
import re

__all__ = ["Names"]

_LONGEST = 60


class Names:
    """Give out identifiers, each once.

    Args:
        taken: identifiers that are not given out.
    """

    def __init__(self, taken: object = ()) -> None:
        self._taken = set(taken)  # type: ignore[call-overload]
        self._counts: dict[str, int] = {}

    def unique(self, wanted: str, otherwise: str = "value") -> str:
        """Return an identifier like a name, which may hold any characters."""
        base = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_")[:_LONGEST] or otherwise
        if base[0].isdigit() or keyword.iskeyword(base) or keyword.issoftkeyword(base):
            base = f"{otherwise}_{base}"
        name = base
        while name in self._taken:
            self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}_{self._counts[base]}"
        self._taken.add(name)
        return name
