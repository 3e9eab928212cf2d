"""Discrete Fourier transforms: `torch.fft`."""

from __future__ import annotations

from tangrad.ops.definition.shown import show

__getattr__, __dir__ = show(__name__, "fft")
