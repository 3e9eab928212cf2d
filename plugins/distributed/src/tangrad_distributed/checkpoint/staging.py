"""How a state is copied before it is saved while its owner goes on."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from tangrad_distributed.checkpoint.state_dict_saver import staged


@runtime_checkable
class AsyncStager(Protocol):
    """Copy states."""

    def stage(self, state_dict: dict[str, Any]) -> Any:
        """Return a copy of a state that its owner does not change."""
        ...


class BlockingAsyncStager:
    """Copy states to the host while the caller waits.

    Args:
        cache_staged_state_dict: changes nothing.
        type_check: changes nothing.
    """

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        self.cache_staged_state_dict = cache_staged_state_dict

    def stage(self, state_dict: dict[str, Any]) -> Any:
        """Return a copy of a state on the host."""
        return staged(state_dict)

    def close(self) -> None:
        """Do nothing: nothing is kept."""
