"""Exchange of tensors by DLPack: `torch.utils.dlpack`."""

from tangrad import from_dlpack as from_dlpack
from tangrad import to_dlpack as to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
