"""Figures of a tensor's elements, of a sample where there are many."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tangrad

SAMPLE = 2**16  # elements looked at
BINS = 32
LARGEST_DEQUANTIZED = 2**20  # elements: some milliseconds


class Statistics(NamedTuple):
    """What `statistics` tells.

    Attributes:
        elements: number of elements of the tensor.
        looked_at: how many of them the other fields are of.
        least, greatest, mean, deviation: of the finite elements, None if there are none; of
            absolute values, if the elements are complex.
        zeros, nans, infinities: shares, from 0 to 1.
        counts: of the finite elements in 32 equal ranges from the least to the greatest.
    """

    elements: int
    looked_at: int
    least: float | None
    greatest: float | None
    mean: float | None
    deviation: float | None
    zeros: float
    nans: float
    infinities: float
    counts: list[int]

    @property
    def is_sample(self) -> bool:
        """Whether not every element was looked at."""
        return self.looked_at < self.elements


def statistics(tensor: Any, limit: int = SAMPLE) -> Statistics:
    """Return figures of a tensor's elements.

    Args:
        tensor: of any shape, dtype and device whose elements can be read.
        limit: of more elements, evenly spaced ones are looked at: at most so many.
    """
    values = numbers_of(sampled(readable(tensor), limit)).reshape(-1)
    total = values.size or 1
    finite = values[np.isfinite(values)]
    found: tuple[Any, Any, Any, Any] = (None, None, None, None)
    counts: list[int] = []
    if finite.size:
        # Scaled: squares of large numbers are no infinities.
        scale = float(np.abs(finite).max()) or 1.0
        part = finite / scale
        deviation = float(part.std()) * scale
        found = float(finite.min()), float(finite.max()), float(part.mean()) * scale, deviation
        counts = _histogram(part)
    return Statistics(
        tensor.numel(),
        values.size,
        *found,
        zeros=np.count_nonzero(values == 0) / total,
        nans=np.count_nonzero(np.isnan(values)) / total,
        infinities=np.count_nonzero(np.isinf(values)) / total,
        counts=counts,
    )


def has_elements(tensor: Any) -> bool:
    """Tell whether there are elements to look at.

    There are none in an empty tensor, on `meta`, and in a storage that was resized to 0.
    """
    if tensor.is_meta or not tensor.numel():
        return False
    # A quantized tensor has no storage to ask for; the class of a wrapper knows its elements.
    if tensor.is_quantized or hasattr(type(tensor), "__torch_dispatch__"):
        return True
    return bool(tensor.untyped_storage().nbytes())


def readable(tensor: Any) -> Any:
    """Return a tensor that views can be taken of.

    Those quantized by channel have no views: few elements are dequantized.

    Raises:
        ValueError: there are many.
    """
    if not tensor.is_quantized or "per_channel" not in str(tensor.qscheme()):
        return tensor
    if tensor.numel() > LARGEST_DEQUANTIZED:
        raise ValueError("its elements are many, and quantized by channel: call dequantize()")
    return tensor.dequantize()


def sampled(tensor: Any, limit: int) -> Any:
    """Return evenly spaced elements of a tensor, at most `limit`, by slicing: a view."""
    found = tensor.detach()
    while found.numel() > limit:
        dim = max(range(found.dim()), key=lambda d: found.shape[d])
        size = found.shape[dim]
        step = min(size, -(-found.numel() // limit))
        found = found[(slice(None),) * dim + (slice(None, None, max(step, 2)),)]
    return found


def numbers_of(tensor: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a tensor's elements as float64: of quantized ones their numbers, of complex ones
    absolute values.
    """
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        tensor = tensor.abs()
    return np.asarray(tensor.to("cpu").to(tangrad.float64).numpy(), dtype=np.float64)


def _histogram(values: np.ndarray[Any, Any]) -> list[int]:
    low, high = float(values.min()), float(values.max())
    if low == high:
        return [int(values.size)]
    places = ((values - low) * (BINS / (high - low))).astype(np.int64)
    found = np.bincount(np.minimum(places, BINS - 1), minlength=BINS)
    return [int(count) for count in found]
