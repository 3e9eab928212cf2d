"""The standard module `multiprocessing`, where tensors are sent by sharing their memory."""

from __future__ import annotations

import multiprocessing as _standard
from multiprocessing import *  # noqa: F403

import tangrad.multiprocessing.reductions as reductions
from tangrad.multiprocessing.spawn import ProcessContext as ProcessContext
from tangrad.multiprocessing.spawn import ProcessExitedException as ProcessExitedException
from tangrad.multiprocessing.spawn import ProcessRaisedException as ProcessRaisedException
from tangrad.multiprocessing.spawn import SpawnContext as SpawnContext
from tangrad.multiprocessing.spawn import spawn as spawn
from tangrad.multiprocessing.spawn import start_processes as start_processes

__all__ = [
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "reductions",
    "set_sharing_strategy",
]
__all__ += _standard.__all__

_strategies = {"file_descriptor", "file_system"}
_strategy = "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Set how memory is said to be shared. It is by descriptor in any case.

    Args:
        new_strategy: one of `get_all_sharing_strategies()`.

    Raises:
        ValueError: it is not.
    """
    global _strategy
    if new_strategy not in _strategies:
        raise ValueError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {sorted(_strategies)}"
        )
    _strategy = new_strategy


def get_sharing_strategy() -> str:
    """Return what `set_sharing_strategy` was told."""
    return _strategy


def get_all_sharing_strategies() -> set[str]:
    """Return the names that `set_sharing_strategy` takes."""
    return set(_strategies)


_OWN_NAME = "/proc/thread-self/comm"


def _set_thread_name(name: str) -> None:
    """Name the calling thread for tools such as top, by at most 15 bytes."""
    with open(_OWN_NAME, "w") as file:
        file.write(name)


def _get_thread_name() -> str:
    """Return the system's name of the calling thread."""
    with open(_OWN_NAME) as file:
        return file.read().rstrip("\n")
