"""Drive the devices that the core brings: the host served by NumPy, and `meta`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad.devices.driver import DeviceDriver
from tangrad.discovery import API_VERSION

API = API_VERSION


class Host(DeviceDriver):
    """Compute on the host with the reference kernels: slow and right."""

    host = True
    amp_dtypes = ("bfloat16", "float16")

    def kernel_for(self, op: Any, dtype: Any) -> Callable[..., Any] | None:
        """Return the reference kernel of an op."""
        from tangrad.devices import reference

        return reference.kernel_for(op, dtype)


class Meta(DeviceDriver):
    """Compute shapes and dtypes only."""

    meta = True
