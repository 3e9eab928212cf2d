"""Signal processing: `torch.signal`."""

from tangrad.signal import windows as windows

__all__ = ["windows"]
