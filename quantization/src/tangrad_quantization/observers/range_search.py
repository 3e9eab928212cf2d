"""A range of numbers whose quantization to few bits has the least error, by a greedy search."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tangrad
from tangrad.plugin import Tensor, composite


def least_error(row: Any, bins: int, ratio: float, bits: int) -> tuple[float, float]:
    """Return the lower and upper end of the range with the least error of quantized numbers.

    In each step the range loses a bin at the end where that costs less, until only a part of it
    is left; of its local minima the least wins. Guan et al.: "Post-training 4-bit quantization
    on embedding tables", 2019. Computed in float32, as PyTorch does.

    Args:
        row: float32 numbers [n], n > 0.
        bins: into how many parts the range is divided.
        ratio: the part of the range that may be lost.
        bits: of the integers.
    """
    single = np.float32
    low, high = row.min(), row.max()
    step = single((high - low) / single(bins))
    least_width = single(single(bins * (1.0 - single(ratio))) * step)
    best = error = _error(row, low, high, bits)
    found = low, high
    while low + least_width < high:
        from_left = _error(row, single(low + step), high, bits)
        from_right = _error(row, low, single(high - step), bits)
        if error < from_left and error < from_right and error < best:
            best, found = error, (low, high)
        if from_left < from_right:
            low, error = single(low + step), from_left
        else:
            high, error = single(high - step), from_right
    return float(found[0]), float(found[1])


def _error(row: Any, low: Any, high: Any, bits: int) -> float:
    """Return the root of the summed squares of what rounding changes; ends are kept in halves."""
    single = np.float32
    width = single(high - low)
    low = single(np.float16(low))
    scale = single(1.0) if width == 0 else single(np.float16(width / single(2**bits - 1)))
    inverse = single(1.0) if scale == 0 else single(1.0) / scale
    levels = np.clip(np.rint((row - low) * inverse), 0, 2**bits - 1).astype(single)
    off = (row - (levels * scale + low)).astype(np.float64)
    return math.sqrt(float((off * off).sum()))


@composite(method=False, samples=lambda s: [])
def choose_qparams_optimized(
    input: Tensor, numel: int, n_bins: int, ratio: float, bit_width: int
) -> tuple[Tensor, Tensor]:
    """Search the range of numbers that loses least when it is quantized to few bits.

    Args:
        input: float32; its first `numel` elements count.
        numel: how many elements count, at least 1.
        n_bins: into how many parts the range is divided.
        ratio: the part of the range that may be lost, 0 to 1.
        bit_width: of the integers, 1 to 8.

    Returns:
        The upper and the lower end of the range, float32 tensors of one element.

    Raises:
        RuntimeError: the input is not float32 or not finite, or a number is out of its range.
    """
    name = "choose_qparams_optimized"
    if input.dtype != tangrad.float32:
        raise RuntimeError(
            f"{name}: expected a tensor of float32, got {input.dtype}; call .float()"
        )
    if not 0 < numel <= input.numel():
        raise RuntimeError(
            f"{name}: numel is out of the bound of input tensor: {numel} of its "
            f"{input.numel()} elements"
        )
    if n_bins < 1 or not 0 <= ratio <= 1 or not 1 <= bit_width <= 8:
        raise RuntimeError(
            f"{name}: n_bins must be at least 1, ratio from 0 to 1 and bit_width from 1 to 8, got "
            f"{n_bins}, {ratio} and {bit_width}"
        )
    row = input.detach().reshape(-1)[:numel].cpu().numpy()
    if not np.isfinite(row).all():
        raise RuntimeError(f"{name}: the input holds NaN or infinity, which have no range")
    low, high = least_error(row, n_bins, ratio, bit_width)
    return tangrad.tensor([high]), tangrad.tensor([low])
