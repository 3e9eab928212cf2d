"""Define resampling of signals, images and volumes to another size.

Every mode works dimension by dimension: a result is a weighted sum of a few elements of its line,
so it is made of listed indices and products, and its derivatives of every order follow.

Sources: Keys, "Cubic convolution interpolation for digital image processing", 1981, for the cubic
kernels; Duchon, "Lanczos filtering in one and two dimensions", 1979.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import tangrad
from tangrad.ops.nn.convolution import in_format_of, ordered_channels_last
from tangrad.ops.nn.fusing import by_device, fuses, plain_on_host
from tangrad.ops.nn.interpolation_request import NEAREST, Scales, requested
from tangrad.ops.nn.pooling.adaptive import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from tangrad.ops.nn.weighted_lines import Band, Taps, band_of, kept, summed_lines
from tangrad.plugin import Ints, Tensor, composite, constant, get_intercept, index_vector, op

_AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
# Results along a dimension whose places may be listed before memory is asked for, and are kept.
_LISTED_UNASKED = 4096


# Which elements a result is made of ---------------------------------------------------------------


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _ratio(size: int, out: int, align_corners: bool, scale: float | None) -> float:
    """Return how far apart in the input neighbours of the result are."""
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / scale if scale is not None and scale > 0 else size / out


@lru_cache(maxsize=256)
def _nearest_places(
    size: int, out: int, exact: bool, scale: float | None, by_sizes: bool
) -> tuple[int, ...]:
    """List the element for each result, rounded as PyTorch does: in float32.

    With `by_sizes` an equal and a double size are recognized, whatever the scale.
    """
    if by_sizes and out in (size, 2 * size):
        return tuple(i * size // out for i in range(out))
    ratio, shift = _float32(_ratio(size, out, False, scale)), 0.5 if exact else 0.0
    return tuple(
        min(max(math.floor(_float32((i + shift) * ratio)), 0), size - 1) for i in range(out)
    )


@lru_cache(maxsize=256)
def _linear_taps(size: int, out: int, align_corners: bool, scale: float | None) -> Taps:
    ratio = _ratio(size, out, align_corners, scale)
    if align_corners:
        positions = [ratio * i for i in range(out)]
    else:
        positions = [max(ratio * (i + 0.5) - 0.5, 0.0) for i in range(out)]
    lower = tuple(min(int(x), size - 1) for x in positions)
    upper = tuple(min(i + 1, size - 1) for i in lower)
    share = tuple(min(max(x - i, 0.0), 1.0) for x, i in zip(positions, lower, strict=True))
    return (lower, tuple(1 - t for t in share)), (upper, share)


def _cubic(x: float, a: float) -> float:
    """Evaluate Keys' kernel with slope a at 1."""
    x = abs(x)
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


@lru_cache(maxsize=256)
def _cubic_taps(size: int, out: int, align_corners: bool, scale: float | None) -> Taps:
    ratio = _ratio(size, out, align_corners, scale)
    shift = 0.0 if align_corners else 0.5
    positions = [ratio * (i + shift) - shift for i in range(out)]
    taps = []
    for k in range(-1, 3):
        places = tuple(min(max(math.floor(x) + k, 0), size - 1) for x in positions)
        taps.append((places, tuple(_cubic(x - math.floor(x) - k, -0.75) for x in positions)))
    return tuple(taps)


def _triangle(x: float) -> float:
    return max(0.0, 1 - abs(x))


def _lanczos(x: float) -> float:
    if abs(x) >= 3:
        return 0.0
    turn = math.pi * x
    return 1.0 if x == 0 else 3 * math.sin(turn) * math.sin(turn / 3) / (turn * turn)


# mode -> (half the width of the kernel, the kernel)
_FILTERS: dict[str, tuple[float, Callable[[float], float]]] = {
    "bilinear": (1.0, _triangle),
    "bicubic": (2.0, lambda x: _cubic(x, -0.5)),
    "lanczos": (3.0, _lanczos),
}


@lru_cache(maxsize=256)
def _antialiased_taps(
    size: int, out: int, align_corners: bool, scale: float | None, mode: str
) -> Taps:
    """Stretch the kernel over all that one result covers, where the result is smaller."""
    ratio = _ratio(size, out, align_corners, scale)
    reach, kernel = _FILTERS[mode]
    stretch = max(ratio, 1.0)
    rows = []
    for i in range(out):
        center = ratio * (i + 0.5)
        start = max(int(center - reach * stretch + 0.5), 0)
        stop = min(int(center + reach * stretch + 0.5), size)
        weights = [kernel((j - center + 0.5) / stretch) for j in range(start, stop)]
        total = sum(weights)
        rows.append((start, [w / total if total else w for w in weights]))
    width = max(len(weights) for _, weights in rows)
    return tuple(
        (
            tuple(start + min(k, len(weights) - 1) for start, weights in rows),
            tuple(weights[k] if k < len(weights) else 0.0 for _, weights in rows),
        )
        for k in range(width)
    )


# Sums of taps -------------------------------------------------------------------------------------


def _band(size: int, mode: str, *given: Any) -> Band:
    return band_of(_taps(mode, size, *given))


def _weighted(input: Any, dim: int, taps: Taps) -> Any:
    """Sum the listed elements of a dimension times their weights."""
    tail = (1,) * (input.ndim - dim - 1)
    like = {"dtype": input.dtype, "device": input.device}
    if len(taps) > 4:
        listed = [place for row in zip(*(p for p, _ in taps), strict=True) for place in row]
        factors = [w for row in zip(*(w for _, w in taps), strict=True) for w in row]
        shape = (len(listed) // len(taps), len(taps))
        index = constant(index_vector(listed, input.device))
        taken = input.index_select(dim, index).unflatten(dim, shape)
        weight = constant(tangrad.tensor(factors, **like).reshape((*shape, *tail)))
        return (taken * weight).sum(dim + 1)
    result = None
    for places, weights in taps:
        index = constant(index_vector(places, input.device))
        taken = input.index_select(dim, index)
        weight = constant(tangrad.tensor(weights, **like).reshape((-1, *tail)))
        # In place: these are large and fresh, and memory is what resampling waits for.
        result = taken.mul_(weight) if result is None else result.addcmul_(taken, weight)
    return result


def _taps(
    mode: str, size: int, out: int, align_corners: bool, scale: float | None, antialias: bool
) -> Taps:
    if antialias:
        return _antialiased_taps(size, out, align_corners, scale, mode)
    if mode == "bicubic":
        return _cubic_taps(size, out, align_corners, scale)
    return _linear_taps(size, out, align_corners, scale)


def _quantized(taps: Taps) -> Taps:
    """Round weights to the 16-bit fixed-point numbers that PyTorch resamples pixels with.

    Sums of bytes times such weights have up to 30 bits and are exact in float64, so pixels come out
    the same. An element that several taps look at, at the border, has one weight.
    """
    merged = [list(weights) for _, weights in taps]
    for k, (places, _) in enumerate(taps):
        for i, place in enumerate(places):
            first = next(j for j, (others, _) in enumerate(taps) if others[i] == place)
            if first != k:
                merged[first][i] += merged[k][i]
                merged[k][i] = 0.0
    taps = tuple((places, tuple(row)) for (places, _), row in zip(taps, merged, strict=True))
    greatest = max(w for _, weights in taps for w in weights)
    precision = 0
    while precision < 22 and int(0.5 + greatest * 2 ** (precision + 1)) < 1 << 15:
        precision += 1
    unit = 2.0**precision
    return tuple(
        (places, tuple(int(w * unit + math.copysign(0.5, w)) / unit for w in weights))
        for places, weights in taps
    )


def _reserve(input: Any, sizes: Ints) -> None:
    """Ask for the result's memory before the places of its elements are listed: it may lack."""
    if max(sizes) > _LISTED_UNASKED:
        input.new_empty((*input.shape[:2], *sizes))


def _without_values(input: Any, sizes: Ints) -> Any:
    """Resample what has no values: which elements a result is made of need not be listed."""
    x = input
    for dim, out in enumerate(sizes, 2):
        if out != input.shape[dim]:
            x = x.index_select(dim, tangrad.empty(out, dtype=tangrad.int64, device=input.device))
    return input.clone() if x is input else x


@lru_cache(maxsize=256)
def _resampled_dims(
    shape: Ints, sizes: Ints, mode: str, align_corners: bool, scales: Scales, antialias: bool
) -> tuple[tuple[float, ...], tuple[tuple[int, tuple[Any, ...]], ...]]:
    """Return how far apart neighbours are in each dimension, and what the taps of some depend on.

    The latter are the dimensions that are summed, with the arguments of `_taps`, except for mode
    and size.
    """
    spatial = list(zip(shape[2:], sizes, scales, strict=True))
    ratios = tuple([_ratio(n, out, align_corners, scale) for n, out, scale in spatial])
    # As in PyTorch, a scale near 1 that leaves the size alone moves nothing but cubic curves.
    cubic = mode == "bicubic" and not (antialias or align_corners)
    # Lines first in the usual case: a row is copied at once.
    summed = [
        (dim, (out, align_corners, scale, antialias))
        for dim, (n, out, scale) in enumerate(spatial, 2)
        if n != out or (cubic and scale is not None)
    ]
    return ratios, tuple(summed)


def _resample(
    input: Any,
    sizes: Ints,
    mode: str,
    align_corners: bool,
    scales: Scales,
    antialias: bool,
) -> Any:
    if not (input.is_floating_point() or (input.dtype == tangrad.uint8 and input.ndim == 4)):
        raise NotImplementedError(
            f"interpolate in mode '{mode}' is not implemented for {input.dtype} of "
            f"{input.ndim} dimensions; convert to a floating-point dtype"
        )
    laid = _resampled_dims if get_intercept() is None else _resampled_dims.__wrapped__
    ratios, summed = laid(tuple(input.shape), sizes, mode, align_corners, scales, antialias)
    found = by_device("interpolate", input, sizes, mode, align_corners, ratios, antialias)
    if found is not None:
        return found
    if input.device.type == "meta":
        return _without_values(input, sizes)
    _reserve(input, sizes)
    if not input.is_floating_point():
        return resampled_pixels(input, sizes, mode, align_corners, *ratios, antialias)
    x = input.to(tangrad.float32) if input.dtype.itemsize < 4 else input
    by_lines = plain_on_host(input)
    for dim, given in summed:
        if by_lines:
            x = summed_lines(x, dim, _band, mode, *given)
        else:
            x = _weighted(x, dim, _taps(mode, input.shape[dim], *given))
    if x.dtype != input.dtype:
        return x.to(input.dtype)
    return input.clone() if x is input else x


def _resample_pixels(
    input: Any,
    size: Ints,
    mode: str,
    align_corners: bool,
    ratio_rows: float,
    ratio_columns: float,
    antialias: bool,
) -> Any:
    """Sum by columns first, as PyTorch does: pixels are rounded in between."""
    x = input.to(tangrad.float64)
    for dim, ratio in ((3, ratio_columns), (2, ratio_rows)):
        old, new = input.shape[dim], size[dim - 2]
        if old == new:
            continue
        scale = None if align_corners or ratio == old / new else 1.0 / ratio
        taps = _taps(mode, old, new, align_corners, scale, antialias)
        x = (_weighted(x, dim, _quantized(taps)) + 0.5).floor().clamp(0, 255)
    return x.to(input.dtype)


resampled_pixels = op(
    "resampled_pixels(Tensor input, int[] size, str mode, bool align_corners, float ratio_rows,"
    " float ratio_columns, bool antialias) -> Tensor",
    shape=lambda input, size: (*input.shape[:2], *size),
    dtype=lambda input: input.dtype,
    memory_format=lambda input: (
        tangrad.channels_last
        if input.shape[1] > 1 and input.stride(1) == 1 and ordered_channels_last(input)
        else tangrad.contiguous_format
    ),
    decompose=_resample_pixels,
    vjp="none: pixels are integers",
    function=False,
    method=False,
    out=False,
    samples=lambda s: [],
    doc="""Resample pictures of bytes with weights of 16 bits in fixed point.

    Args:
        input: uint8, (N, C, H, W).
        size: rows and columns of the result.
        mode: "bilinear", "bicubic" or "lanczos".
        align_corners, antialias: as for `interpolate`.
        ratio_rows, ratio_columns: how far apart in the input neighbours of the result are.
    """,
)


@lru_cache(maxsize=256)
def _nearest_dims(
    shape: Ints, sizes: Ints, exact: bool, scales: Scales
) -> tuple[tuple[Any, ...] | None, ...]:
    """Return the arguments of `_nearest_places` for each dimension; None: its elements stay."""
    # PyTorch goes by the sizes of images, and by the scale of signals and volumes.
    by_sizes = len(shape) == 4 and not exact
    found: list[tuple[Any, ...] | None] = []
    for n, out, scale in zip(shape[2:], sizes, scales, strict=True):
        given = (n, out, exact, scale, by_sizes)
        found.append(None if _nearest_places(*given) == tuple(range(n)) else given)
    return tuple(found)


def _nearest_index(device: Any, *given: Any) -> Any:
    return constant(index_vector(_nearest_places(*given), device))


def _resample_nearest(input: Any, sizes: Ints, exact: bool, scales: Scales) -> Any:
    if input.device.type == "meta":
        return _without_values(input, sizes)
    _reserve(input, sizes)
    x = input
    laid = _nearest_dims if get_intercept() is None else _nearest_dims.__wrapped__
    listed = laid(tuple(input.shape), sizes, exact, scales)
    # Channels that lie last stay there, and are copied together.
    last = input.ndim > 3 and not input.is_contiguous() and ordered_channels_last(input)
    x = x.movedim(1, -1) if last else x
    if fuses(input) and all(given is None or _repeats(*given) for given in listed):
        x = _repeated(x, sizes, 1 if last else 2)
    else:
        for dim, given in enumerate(listed, 1 if last else 2):
            if given is not None:
                made = (_nearest_index, input.device, *given)
                index = kept(*made) if given[1] <= _LISTED_UNASKED else made[0](*made[1:])
                x = x.index_select(dim, index)
    x = x.movedim(-1, 1) if last else x
    return x.clone() if tuple(x.shape) == tuple(input.shape) else x


@lru_cache(maxsize=256)
def _repeats(size: int, *given: Any) -> bool:
    """Whether places list each of `size` elements equally often, one after the other."""
    places = _nearest_places(size, *given)
    most = len(places)
    return (
        0 < size <= most
        and most % size == 0
        and places == tuple(i * size // most for i in range(most))
    )


def _repeated(input: Any, sizes: Ints, first: int) -> Any:
    """Repeat elements along the spatial dimensions in one copy, without a list of places."""
    wide, end = input, first + len(sizes)
    shape = list(input.shape[:first])
    for k, (n, out) in enumerate(zip(input.shape[first:end], sizes, strict=True)):
        wide, shape = wide.unsqueeze(first + 1 + 2 * k), [*shape, n, out // n]
    wide = wide.expand((*shape, *input.shape[end:]))
    return wide.reshape((*input.shape[:first], *sizes, *input.shape[end:]))


@composite(
    dtypes="floating",
    namespace="nn",
    samples=lambda s: [
        s(s.tensor(1, 2, 3), 5),
        s(s.tensor(1, 2, 3), None, 2, "linear"),
        s(s.tensor(1, 2, 3, 4), (5, 3)),
        s(s.tensor(1, 1, 3, 4, strided=True), None, 1.7, "nearest-exact"),
        s(s.tensor(1, 2, 3, 4), (5, 3), None, "bilinear", False),
        s(s.tensor(1, 2, 3, 4), None, (1.5, 2.3), "bilinear", True),
        s(s.tensor(1, 2, 3, 4, strided=True), None, 1.6, "bilinear", None, True),
        s(s.tensor(1, 1, 3, 4), (5, 7), None, "bicubic"),
        s(s.tensor(1, 1, 5, 6), (3, 2), None, "bicubic", True),
        s(s.tensor(1, 1, 5, 7), (3, 2), None, "bilinear", False, None, True),
        s(s.tensor(1, 1, 5, 7), (3, 9), None, "bicubic", False, None, True),
        s(s.tensor(1, 1, 2, 3, 2), 3, None, "trilinear"),
        s(s.tensor(1, 1, 2, 3, 2), None, 2, "nearest"),
        s(s.tensor(1, 2, 5, 4), (2, 3), None, "area"),
        s(s.tensor(0, 2, 3), 5, None, "linear"),
    ],
    oracle="nn.functional.interpolate",
    errors=lambda s: [
        (s(s.tensor(1, 1, 4)), ValueError, "either size or scale_factor"),
        (s(s.tensor(1, 1, 4), None, 1e20), RuntimeError, "no 64-bit integers"),
        (s(s.tensor(1, 1, 4), 3, 2), ValueError, "only one of size or scale_factor"),
        (s(s.tensor(1, 1, 4), (3, 3)), ValueError, "number of spatial dimensions"),
        (s(s.tensor(1, 1, 4), 3.5), TypeError, "size"),
        (s(s.tensor(1, 1, 4), 0), RuntimeError, "greater than 0"),
        (s(s.tensor(1, 1, 4), 2, None, "bilinear"), NotImplementedError, "bilinear"),
        (s(s.tensor(1, 1, 4), 2, None, "sharp"), NotImplementedError, "sharp"),
        (s(s.tensor(1, 1, 4), 2, None, "nearest", True), ValueError, "align_corners"),
        (
            s(s.tensor(1, 1, 4), 2, None, "linear", None, True),
            ValueError,
            "recompute_scale_factor is not meaningful",
        ),
        (
            s(s.tensor(1, 1, 4), 2, None, "linear", None, None, True),
            ValueError,
            "restricted to bilinear",
        ),
        (s(s.tensor(1, 0, 4), 2), RuntimeError, "Non-empty"),
    ],
)
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resample signals (N, C, L), images (N, C, H, W) or volumes (N, C, D, H, W).

    Args:
        size: sizes of the result; or
        scale_factor: how much larger it is.
        mode: "nearest" (PyTorch's, half an element off), "nearest-exact", "area" (means of what a
            result covers), "linear", "bilinear", "trilinear", "bicubic" or "lanczos".
        align_corners: whether the centers of the corners coincide, instead of the corners.
        recompute_scale_factor: go by the ratio of the sizes, which are integers, instead of by
            `scale_factor`.
        antialias: widen the kernel of "bilinear", "bicubic" and "lanczos" where the result is
            smaller.
    """
    options = (mode, align_corners, recompute_scale_factor, antialias)
    sizes, scales = requested(tuple(input.shape), size, scale_factor, *options)
    if mode == "area":
        return _AREA[input.ndim - 2](input, sizes)
    if mode in NEAREST:
        result = _resample_nearest(input, sizes, mode == "nearest-exact", scales)
    else:
        result = _resample(input, sizes, mode, bool(align_corners), scales, antialias)
    return in_format_of(result, input)


@composite(
    dtypes="floating",
    method=False,
    samples=lambda s: [
        s(s.tensor(1, 2, 5, 6), (3, 2), False),
        s(s.tensor(1, 1, 4, 5), (6, 7), True),
        s(s.tensor(2, 1, 3, 4, strided=True), (2, 3), False, 0.5, 0.7),
    ],
    oracle=lambda torch, *given: torch.ops.aten._upsample_bilinear2d_aa(*given),
)
def _upsample_bilinear2d_aa(
    self: Tensor,
    output_size: Ints | None,
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
    *,
    scale_factors: Any = None,
) -> Tensor:
    """Resample images by triangles as wide as what one pixel covers."""
    scales = [scales_h, scales_w] if scale_factors is None else list(scale_factors)
    if output_size is None:
        output_size = [int(n * scale) for n, scale in zip(self.shape[2:], scales, strict=True)]
    return _resample(self, tuple(output_size), "bilinear", align_corners, tuple(scales), True)
