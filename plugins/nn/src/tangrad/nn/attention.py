"""The choice of a kernel for attention: `torch.nn.attention`."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

from tangrad.plugin import attribute_of

__all__ = ["SDPBackend", "sdpa_kernel"]

__path__: list[str] = []  # below it there is only what packages bring
__getattr__ = attribute_of(__name__)


class SDPBackend(enum.IntEnum):
    """Name the ways to compute `scaled_dot_product_attention` that PyTorch has."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    __str__ = enum.Enum.__str__


@contextmanager
def sdpa_kernel(
    backends: list[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[None]:
    """Allow some ways to compute attention only; a device here has one, which is always taken.

    Args:
        backends: the ways that are allowed, one or a list.
        set_priority: whether their order is one of preference.

    Raises:
        AssertionError: `backends` is neither a backend nor a list.
    """
    if not isinstance(backends, list | SDPBackend):
        raise AssertionError(
            f"sdpa_kernel(): expected an SDPBackend or a list of them, got {backends!r}"
        )
    yield
