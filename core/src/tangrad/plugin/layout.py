"""Bring a layout: tensors of components in place of memory."""

from __future__ import annotations

from tangrad.plugin.names import OFFERED, offered

__getattr__, __dir__ = offered(__name__, OFFERED["layout"])
