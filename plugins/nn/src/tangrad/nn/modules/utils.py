"""Arguments that may be one number or one for each dimension."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that makes a tuple of `n` values of one, and a tuple of an iterable."""

    def spread(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, Iterable) else (value,) * n

    return spread


_single = _ntuple(1)
_pair = _ntuple(2)
_triple = _ntuple(3)
_quadruple = _ntuple(4)


def _reverse_repeat_tuple(values: tuple[Any, ...], times: int) -> tuple[Any, ...]:
    """Return the values from last to first, each `times` times."""
    return tuple(value for value in reversed(values) for _ in range(times))


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix off the names of a state in place, as `DataParallel`'s "module.".

    Args:
        state_dict: of a module, with its order and metadata.
        prefix: what is taken off names that begin with it.
    """
    metadata: dict[str, Any] = getattr(state_dict, "_metadata", {})
    for names in (state_dict, metadata):
        for name in [name for name in names if name.startswith(prefix)]:
            names[name.removeprefix(prefix)] = names.pop(name)
    # Modules are listed without the last dot.
    outer = prefix.rstrip(".")
    if outer in metadata:
        metadata[""] = metadata.pop(outer)
