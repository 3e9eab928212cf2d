"""Bring a device: its driver, memory, streams and kernels."""

from __future__ import annotations

from tangrad.plugin.names import OFFERED, offered

__getattr__, __dir__ = offered(__name__, OFFERED["device"])
