"""What PyTorch has and this package has not: it can be imported, and says so when it is called."""

from __future__ import annotations

from typing import Any


def absent(module: str, name: str, why: str) -> type:
    """Return a class whose call is refused.

    Args:
        module: where programs find it, below `tangrad.distributed`.
        name: its name.
        why: what is missing, and what to do instead.
    """

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"tangrad.distributed.{module}.{name}: {why}")

    # The core marks its own placeholders so, which are counted apart from what works.
    marked = {"_stands_for_missing": name}
    return type(
        name, (), {"__new__": refuse, "__doc__": f"Stand for what is absent: {why}", **marked}
    )
