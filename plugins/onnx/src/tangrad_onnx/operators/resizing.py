"""Resize: each axis is a product with a matrix of weights, whose rows name what they read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tangrad
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.values import Array, to_array, to_ints


def _coordinates(
    size: int, count: int, scale: float, mode: str, region: tuple[float, float]
) -> Array:
    """Return where the elements of a result lie in an axis of `size` elements."""
    at = np.arange(count, dtype=np.float64)
    if mode == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        wanted = scale * size
        offset = size / 2 * (1 - count / wanted)
        return offset + (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if count > 1 else np.zeros(1)
    if mode == "align_corners":
        wanted = scale * size
        return np.zeros(count) if wanted == 1 else at * (size - 1) / (wanted - 1)
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = region
        if count == 1:
            return np.full(1, 0.5 * (start + end) * (size - 1))
        return start * (size - 1) + at * (end - start) * (size - 1) / (count - 1)
    raise ValueError(f"Resize: unknown coordinate_transformation_mode {mode!r}")


def _nearest(at: Array, mode: str) -> Array:
    if mode == "round_prefer_floor":
        return np.ceil(at - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(at + 0.5)
    if mode in {"floor", "simple"}:
        return np.floor(at)
    if mode == "ceil":
        return np.ceil(at)
    raise ValueError(f"Resize: unknown nearest_mode {mode!r}")


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _weights(
    size: int, at: Array, mode: str, scale: float, a: float, antialias: bool, exclude: bool
) -> Array:
    """Return the matrix (results, elements) of linear or cubic interpolation."""
    stretch = min(scale, 1.0) if antialias else 1.0
    reach = math.ceil((2 if mode == "cubic" else 1) / stretch)
    checked_count([len(at), 2 * reach + 1, 4])
    checked_count([len(at), size])
    offsets = np.arange(-reach, reach + 1)
    base = np.floor(at)[:, None] + offsets[None]
    distance = (base - at[:, None]) * stretch
    if mode == "cubic":
        weights = _cubic(distance, a)
    else:
        weights = np.maximum(1 - np.abs(distance), 0)
    if exclude:
        weights = np.where((base >= 0) & (base < size), weights, 0)
    if exclude or antialias:
        weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros((len(at), size))
    places = np.clip(base, 0, size - 1).astype(np.int64)
    np.add.at(matrix, (np.arange(len(at))[:, None], places), weights)
    return matrix


def _along(x: Any, axis: int, matrix: Array) -> Any:
    wide = tangrad.float64 if x.dtype is tangrad.float64 else tangrad.float32
    m = tangrad.tensor(matrix, dtype=wide, device=x.device)
    return (x.to(wide).movedim(axis, -1) @ m.t()).movedim(-1, axis)


@operator(raw=True)
def Resize(
    x: Any,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    axes = [axis % x.ndim for axis in axes] if axes is not None else list(range(x.ndim))
    factors, counts = _extents(x.shape, axes, scales, sizes, keep_aspect_ratio_policy)
    sizes = list(x.shape)
    for axis, count in zip(axes, counts, strict=True):
        sizes[axis] = count
        checked_count(sizes, max(x.element_size(), 4))
        checked_count([count, 4])  # coordinates, in float64
    region = [] if roi is None else to_array(roi).astype(np.float64).tolist()
    outside = None
    kind = x.dtype
    for i, axis in enumerate(axes):
        size, count, scale = x.shape[axis], counts[i], factors[i]
        part = (region[i], region[i + len(axes)]) if len(region) == 2 * len(axes) else (0.0, 1.0)
        crop = coordinate_transformation_mode == "tf_crop_and_resize"
        if size == count and scale == 1 and not crop:
            continue
        at = _coordinates(size, count, scale, coordinate_transformation_mode, part)
        if crop:
            beyond = tangrad.tensor((at < 0) | (at > size - 1), device=x.device)
            beyond = beyond.reshape(-1, *([1] * (x.ndim - 1 - axis)))
            outside = beyond if outside is None else outside | beyond
        if mode == "nearest":
            taken = np.clip(_nearest(at, nearest_mode), 0, size - 1).astype(np.int64)
            x = x.index_select(axis, tangrad.tensor(taken, device=x.device))
        else:
            matrix = _weights(
                size, at, mode, scale, cubic_coeff_a, bool(antialias), bool(exclude_outside)
            )
            x = _along(x, axis, matrix)
    if outside is not None:
        x = x.masked_fill(outside, extrapolation_value)
    if not kind.is_floating_point and x.is_floating_point():
        x = tangrad.round(x)
    return x.to(kind)


def _extents(
    shape: Sequence[int], axes: list[int], scales: Any, sizes: Any, policy: str
) -> tuple[list[float], list[int]]:
    """Return scale and size of each axis."""
    if scales is not None and np.size(to_array(scales)):
        factors = [float(scale) for scale in to_array(scales).astype(np.float32)]
        if len(factors) != len(axes) or min(factors) <= 0:
            raise ValueError(f"Resize: scales {factors} do not fit axes {axes}")
        return factors, [math.floor(shape[a] * f) for a, f in zip(axes, factors, strict=True)]
    counts = to_ints(sizes)
    if len(counts) != len(axes):
        raise ValueError(f"Resize: sizes {counts} do not fit axes {axes}")
    factors = [count / shape[axis] for axis, count in zip(axes, counts, strict=True)]
    if policy != "stretch":
        one = min(factors) if policy == "not_larger" else max(factors)
        factors = [one] * len(axes)
        counts = [math.floor(one * shape[axis] + 0.5) for axis in axes]
    return factors, counts


@operator(raw=True)
def Upsample(x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    return Resize(
        x,
        None,
        scales,
        mode="linear" if mode in {"linear", "bilinear"} else mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@operator(raw=True)
def UpsampleImages(x: Any, rows: float, columns: float, *, mode: str = "nearest") -> Any:
    """Enlarge images, as Upsample did before opset 7."""
    return Upsample(x, np.array([1, 1, rows, columns], np.float32), mode=mode)
