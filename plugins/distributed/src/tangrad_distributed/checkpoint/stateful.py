"""What can be saved and loaded by its own methods."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """Give a state, and take it over: modules, optimizers, schedulers, loaders do."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state."""
        ...


StatefulT = TypeVar("StatefulT", bound=Stateful)


def states_of(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return a dict in which what is stateful is replaced by its state."""
    return {
        key: value.state_dict() if isinstance(value, Stateful) else value
        for key, value in state_dict.items()
    }
