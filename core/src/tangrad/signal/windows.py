"""Window functions: `torch.signal.windows`."""

from __future__ import annotations

from tangrad.ops.definition.shown import show

__getattr__, __dir__ = show(__name__, "windows")
