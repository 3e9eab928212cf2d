"""Say where ops that do in one pass what others do in several are worth calling."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.devices.registry import get_driver


def fuses(x: Any) -> bool:
    """Whether a tensor's device has kernels of such ops, and nothing stands before them."""
    return bool(get_driver(x.device.type).one_pass) and _C.get_intercept() is None
