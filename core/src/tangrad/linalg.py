"""Linear algebra: `torch.linalg`."""

from __future__ import annotations

from tangrad.devices.lapack import LinAlgError as LinAlgError
from tangrad.ops.definition.shown import show

__getattr__, __dir__ = show(__name__, "linalg")
