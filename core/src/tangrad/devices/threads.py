"""Read and set how many threads the kernels of device `cpu` use."""

from __future__ import annotations

from tangrad.devices.registry import get_driver


def get_num_threads() -> int:
    """Return the number of threads that kernels of device `cpu` use, the caller's included."""
    return get_driver("cpu").get_num_threads()


def init_num_threads() -> None:
    """Do nothing: what `set_num_threads` set holds in every thread, those made later included."""


def set_num_threads(int: int) -> None:
    """Set the number of threads that kernels of device `cpu` may use; results do not change.

    Raises:
        RuntimeError: the number is not positive.
    """
    if int <= 0:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {int}")
    get_driver("cpu").set_num_threads(int)
