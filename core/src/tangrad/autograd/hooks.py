"""Handles that take hooks away again."""

from __future__ import annotations

import itertools
from typing import Any

_ids = itertools.count()


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away."""

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks = hooks_dict
        self.id = next(_ids)
        self.extra = (
            tuple(extra_dict)
            if isinstance(extra_dict, list)
            else (() if extra_dict is None else (extra_dict,))
        )

    def remove(self) -> None:
        """Remove the hook; doing it twice is fine."""
        self.hooks.pop(self.id, None)
        for extra in self.extra:
            extra.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()
