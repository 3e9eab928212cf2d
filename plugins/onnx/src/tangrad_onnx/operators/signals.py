"""Fourier transforms and windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tangrad
from tangrad.nn import functional as F
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.values import NUMPY_TYPES, TENSOR_TYPES, to_number, to_tensor


def _as_complex(x: Any) -> Any:
    if x.shape[-1] == 1:
        return x[..., 0]
    return tangrad.view_as_complex(x.contiguous())


@operator("DFT", ints=(1, 2))
def DFT(
    x: Any, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> Any:
    kind = x.dtype
    wide = x.float() if x.element_size() == 2 else x
    dim = axis[0] if axis else -2
    dim = dim % x.ndim if dim >= 0 else (dim + x.ndim)
    count = length[0] if length else None
    if count is not None and x.shape[dim]:
        checked_count([x.numel() // x.shape[dim], count], 4 * x.element_size())
    if inverse and onesided:
        half = tangrad.view_as_complex(wide.contiguous())
        return tangrad.fft.irfft(half, count, dim).unsqueeze(-1).to(kind)
    values = _as_complex(wide)
    if inverse:
        result = tangrad.fft.ifft(values, count, dim)
    elif onesided:
        if values.is_complex():
            raise ValueError("DFT: a one-sided transform of complex values does not exist")
        result = tangrad.fft.rfft(values, count, dim)
    else:
        result = tangrad.fft.fft(values, count, dim)
    return tangrad.view_as_real(result).to(kind)


@operator("STFT", ints=(1, 3))
def STFT(
    x: Any, step: list[int], window: Any = None, length: Any = None, *, onesided: int = 1
) -> Any:
    size = length[0] if length else window.shape[0]
    values = x[..., 0] if x.ndim == 3 and x.shape[-1] == 1 else x
    if values.ndim == 3:
        values = tangrad.view_as_complex(values.contiguous())
    frames = 1 + (values.shape[1] - size) // step[0]
    checked_count([max(frames, 0), size])
    checked_count([values.shape[0], max(frames, 0), size], 2 * values.element_size())
    at = np.arange(frames)[:, None] * step[0] + np.arange(size)[None]
    parts = values[:, tangrad.tensor(at, device=x.device)]
    if window is not None:
        missing = size - window.shape[0]
        window = F.pad(window, [missing // 2, missing - missing // 2])
        parts = parts * window
    transform = tangrad.fft.rfft if onesided and not values.is_complex() else tangrad.fft.fft
    result = transform(parts, dim=-1)
    if onesided and values.is_complex():
        result = result[..., : size // 2 + 1]
    return tangrad.view_as_real(result.resolve_conj())


def _window(name: str, *weights: float) -> None:
    @operator(name, raw=True)
    def call(size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Any:
        count = int(to_number(size))
        checked_count([count, 4])  # four vectors live at once
        angle = 2 * math.pi * np.arange(count) / max(count if periodic else count - 1, 1)
        values = sum(w * (-1) ** i * np.cos(i * angle) for i, w in enumerate(weights))
        return tangrad.tensor(values, dtype=TENSOR_TYPES[output_datatype])


_window("HannWindow", 0.5, 0.5)
_window("HammingWindow", 25 / 46, 21 / 46)
_window("BlackmanWindow", 0.42, 0.5, 0.08)


_STEP = 64  # what a step of a loop costs, in elements


@operator(raw=True)
def MelWeightMatrix(
    bins: Any, length: Any, rate: Any, low: Any, high: Any, *, output_datatype: int = 1
) -> Any:
    """Return triangular filters of (spectrum, mel) as the standard's formula gives them."""
    bins, length, rate = (int(to_number(x)) for x in (bins, length, rate))
    ends = [2595 * math.log10(1 + float(to_number(hertz)) / 700) for hertz in (low, high)]
    spectrum = length // 2 + 1
    checked_count([spectrum, bins])
    checked_count([bins, _STEP])
    mel = ends[0] + np.arange(bins + 2) * ((ends[1] - ends[0]) / (bins + 2))
    at = np.floor((length + 1) * (700 * (10 ** (mel / 2595) - 1)) / rate).astype(np.int64)
    result = np.zeros((spectrum, bins))
    for i in range(bins):
        left, centre, right = at[i : i + 3]
        rise = np.arange(left, centre + 1)
        if centre == left:
            result[centre, i] = 1
        else:
            result[rise, i] = (rise - left) / (centre - left)
        if right > centre:
            fall = np.arange(centre, right)
            result[fall, i] = (right - fall) / (right - centre)
    return to_tensor(result.astype(NUMPY_TYPES[output_datatype]))
