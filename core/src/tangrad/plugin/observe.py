"""Watch programs: ops, modules, stretches of time."""

from __future__ import annotations

from tangrad.plugin.names import OFFERED, offered

__getattr__, __dir__ = offered(__name__, OFFERED["observe"])
