"""Exchange of memory with other libraries: `torch.utils.dlpack`."""

from __future__ import annotations

from tangrad.tensor.exchange import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
