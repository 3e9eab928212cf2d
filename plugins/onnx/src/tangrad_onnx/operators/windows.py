"""Convolution and pooling: geometry that the operators share, and the operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad_onnx.limits import check_work, checked_count
from tangrad_onnx.operators.registry import operator

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_AVERAGES = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_MAXIMA = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class Geometry(NamedTuple):
    """Where windows lie, for each spatial axis.

    Attributes:
        kernel, strides, dilations: of the windows.
        before, after: what is padded; `after` covers the last window.
        sizes: how many windows there are.
        real_after: what the model pads after, of which `after` may be more.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    sizes: tuple[int, ...]
    real_after: tuple[int, ...]


def geometry(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Any = None,
    dilations: Any = None,
    pads: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Geometry:
    """Return where the windows of an operator lie."""
    rank = len(spatial)
    strides = tuple(strides or (1,) * rank)
    dilations = tuple(dilations or (1,) * rank)
    given = tuple(pads or (0,) * 2 * rank)
    before, after, sizes, real = [], [], [], []
    for i, size in enumerate(spatial):
        reach = dilations[i] * (kernel[i] - 1) + 1
        low, high = given[i], given[i + rank]
        if auto_pad in {"SAME_UPPER", "SAME_LOWER"}:
            count = -(-size // strides[i])
            missing = max((count - 1) * strides[i] + reach - size, 0)
            small = missing // 2
            low, high = (small, missing - small)
            if auto_pad == "SAME_LOWER":
                low, high = high, low
        elif auto_pad == "VALID":
            low = high = 0
        room = size + low + high - reach
        if room < 0:
            raise ValueError(f"a window of {reach} does not fit into {size} + {low} + {high}")
        count = (-(-room // strides[i]) if ceil_mode else room // strides[i]) + 1
        if ceil_mode and (count - 1) * strides[i] >= size + low:
            count -= 1
        needed = (count - 1) * strides[i] + reach - size - low
        before.append(low)
        after.append(needed)
        real.append(high)
        sizes.append(count)
    return Geometry(
        tuple(kernel),
        strides,
        dilations,
        tuple(before),
        tuple(after),
        tuple(sizes),
        tuple(real),
    )


def _widths(before: Sequence[int], after: Sequence[int]) -> list[int]:
    pairs = zip(reversed(before), reversed(after), strict=True)
    return [width for pair in pairs for width in pair]


def padded(x: Any, g: Geometry, value: float) -> Any:
    """Pad spatial axes such that the windows fill them."""
    if not any(g.before) and not any(g.after):
        return x
    _check_padded(x, g.before, g.after)
    return F.pad(x, _widths(g.before, g.after), value=value)


def _check_padded(x: Any, before: Sequence[int], after: Sequence[int]) -> None:
    sizes = zip(x.shape[2:], before, after, strict=False)
    checked_count([*x.shape[:2], *(max(sum(part), 0) for part in sizes)], x.element_size())


def _check_windows(x: Any, w: Any, before: Any, after: Any, strides: Any, dilations: Any) -> None:
    """Refuse a convolution whose result does not fit into what the run may hold."""
    given, kernel = x.shape, w.shape
    sizes = [given[0], kernel[0]]
    for i, size in enumerate(given[2:]):
        room = size + before[i] + after[i] - (kernel[2 + i] - 1) * dilations[i] - 1
        sizes.append(max(room // strides[i] + 1, 0) if strides[i] > 0 else 0)
    checked_count(sizes, x.element_size())


@operator()
def Conv(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    rank = w.ndim - 2
    if kernel_shape is not None and tuple(kernel_shape) != tuple(w.shape[2:]):
        raise ValueError(f"Conv: kernel_shape {kernel_shape} is not that of W, {tuple(w.shape)}")
    convolve = _CONVOLUTIONS.get(rank)
    if convolve is None:
        raise ValueError(f"Conv: {rank} spatial axes; 1 to 3 are supported")
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    if auto_pad == "NOTSET":
        pads = pads or (0,) * (2 * rank)
        _check_windows(x, w, pads[:rank], pads[rank:], strides, dilations)
        if pads[:rank] == pads[rank:]:
            return convolve(x, w, b, strides, pads[:rank], dilations, group)
        _check_padded(x, pads[:rank], pads[rank:])
        x = F.pad(x, _widths(pads[:rank], pads[rank:]))
        return convolve(x, w, b, strides, 0, dilations, group)
    g = geometry(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    _check_windows(x, w, g.before, g.after, strides, dilations)
    return convolve(padded(x, g, 0), w, b, strides, 0, dilations, group)


@operator()
def ConvTranspose(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    rank = w.ndim - 2
    strides = tuple(strides or (1,) * rank)
    dilations = tuple(dilations or (1,) * rank)
    extra = tuple(output_padding or (0,) * rank)
    pads = list(pads or (0,) * (2 * rank))
    sizes = []
    for i in range(rank):
        reach = (w.shape[2 + i] - 1) * dilations[i] + 1
        whole = (x.shape[2 + i] - 1) * strides[i] + reach + extra[i]
        sizes.append(max(whole, 0) + max(-pads[i], 0) + max(-pads[i + rank], 0))
        if output_shape is not None:
            missing = whole - output_shape[len(output_shape) - rank + i]
        elif auto_pad in {"SAME_UPPER", "SAME_LOWER"}:
            missing = whole - x.shape[2 + i] * strides[i]
        else:
            continue
        small = missing // 2
        low, high = (small, missing - small)
        if auto_pad == "SAME_LOWER" or (output_shape is not None and auto_pad != "SAME_UPPER"):
            low, high = high, low
        pads[i], pads[i + rank] = low, high
    channels = (x.shape[0], w.shape[1] * group)
    checked_count([*channels, *sizes], x.element_size())
    if output_shape is not None:
        checked_count([*channels, *(max(size, 0) for size in output_shape[-rank:])])
    full = _TRANSPOSED[rank](x, w, b, strides, 0, 0, group, dilations)
    if any(extra):
        filled = F.pad(full, _widths((0,) * rank, extra))
        full = filled if b is None else _with_bias_beyond(filled, full, b, rank)
    return F.pad(full, _widths([-p for p in pads[:rank]], [-p for p in pads[rank:]]))


def _with_bias_beyond(filled: Any, full: Any, b: Any, rank: int) -> Any:
    """Add the bias where an output was extended beyond what the windows reach."""
    inside = F.pad(tangrad.ones_like(full), _widths((0,) * rank, _difference(filled, full)))
    return tangrad.where(inside == 1, filled, b.reshape(-1, *([1] * rank)))


def _difference(a: Any, b: Any) -> list[int]:
    return [p - q for p, q in zip(a.shape[2:], b.shape[2:], strict=True)]


def windows(x: Any, g: Geometry, value: float) -> Any:
    """Return windows of shape (N, C, *sizes, *kernel)."""
    x = padded(x, g, value)
    rank = len(g.kernel)
    checked_count([*x.shape[:2], *g.sizes, *g.kernel], x.element_size())
    at: list[Any] = []
    for i in range(rank):
        starts = np.arange(g.sizes[i])[:, None] * g.strides[i]
        places = starts + np.arange(g.kernel[i])[None] * g.dilations[i]
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = places.shape
        at.append(tangrad.tensor(places.reshape(shape), device=x.device))
    return x[(slice(None), slice(None), *at)]


def _pooled(x: Any, kernel: Sequence[int], *where: Any) -> Geometry:
    """Return where the windows of pooling lie, refusing those out of proportion."""
    g = geometry(x.shape[2:], kernel, *where)
    reach = [d * (k - 1) + 1 for d, k in zip(g.dilations, g.kernel, strict=True)]
    if any(p >= r for pads in (g.before, g.real_after) for p, r in zip(pads, reach, strict=True)):
        raise ValueError(f"pooling by windows of {reach} pads {g.before} and {g.real_after}")
    count = math.prod((*x.shape[:2], *g.sizes, *g.kernel))
    check_work(count, x.numel(), f"pooling by windows of {list(g.kernel)}")
    return g


@operator()
def AveragePool(
    x: Any,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    g = _pooled(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    rank = len(g.kernel)
    plain = all(d == 1 for d in g.dilations) and rank in _AVERAGES
    if plain:
        average = _AVERAGES[rank](padded(x, g, 0), g.kernel, g.strides)
    else:
        average = windows(x, g, 0).mean(dim=tuple(range(-rank, 0)))
    counted = g.real_after if count_include_pad else (0,) * rank
    if not any(g.before) and not any(g.after):
        return average
    if count_include_pad and all(a <= c for a, c in zip(g.after, counted, strict=True)):
        return average
    ones = tangrad.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
    before = g.before if count_include_pad else (0,) * rank
    after = [min(a, c) for a, c in zip(g.after, counted, strict=True)]
    ones = F.pad(ones, _widths(before, after), value=1)
    rest = [a - c for a, c in zip(g.after, after, strict=True)]
    ones = F.pad(ones, _widths([a - b for a, b in zip(g.before, before, strict=True)], rest))
    inner = g._replace(before=(0,) * rank, after=(0,) * rank)
    return average / windows(ones, inner, 0).mean(dim=tuple(range(-rank, 0)))


@operator()
def MaxPool(
    x: Any,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None,
    storage_order: int = 0,
    strides: Any = None,
    indices: bool = True,
) -> Any:
    g = _pooled(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    rank = len(g.kernel)
    kind = x.dtype
    values = x if x.is_floating_point() else x.to(tangrad.float64)
    if not indices and _pads_alike(x.shape[2:], g):
        found = _MAXIMA[rank](values, g.kernel, g.strides, g.before, g.dilations)
        return found.to(kind), None
    full = padded(values, g, -float("inf"))
    if not indices:
        return _MAXIMA[rank](full, g.kernel, g.strides, 0, g.dilations).to(kind), None
    found, at = _MAXIMA[rank](full, g.kernel, g.strides, 0, g.dilations, return_indices=True)
    return found.to(kind), _original(at, full.shape[2:], x.shape, g, storage_order)


def _pads_alike(spatial: Sequence[int], g: Geometry) -> bool:
    """Return whether padding both ends alike, as the pooling ops do, gives these windows."""
    for i, size in enumerate(spatial):
        room = size + 2 * g.before[i] - g.dilations[i] * (g.kernel[i] - 1) - 1
        if 2 * g.before[i] > g.kernel[i] or room // g.strides[i] + 1 != g.sizes[i]:
            return False
    return True


def _original(at: Any, full: Any, shape: Any, g: Geometry, storage_order: int) -> Any:
    """Return indices into padded images as indices into the whole tensor."""
    rank = len(full)
    places = []
    for i in reversed(range(rank)):
        places.append(at % full[i] - g.before[i])
        at = at // full[i]
    places.reverse()
    order = list(range(rank))
    if storage_order:
        order.reverse()
    index = tangrad.zeros_like(at)
    for i in order:
        index = index * shape[2 + i] + places[i]
    images = tangrad.arange(shape[0] * shape[1], device=at.device)
    offset = images.reshape(shape[0], shape[1], *([1] * rank)) * math.prod(shape[2:])
    return index + offset


@operator(ints=(2,))
def MaxUnpool(
    x: Any,
    indices: Any,
    output_shape: Any = None,
    *,
    kernel_shape: Any,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    rank = len(kernel_shape)
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)
    inner = [
        (x.shape[2 + i] - 1) * strides[i] + kernel_shape[i] - pads[i] - pads[rank + i]
        for i in range(rank)
    ]
    shape = (*x.shape[:2], *inner)
    checked_count(shape, x.element_size())
    flat = tangrad.zeros(math.prod(shape), dtype=x.dtype, device=x.device)
    result = flat.scatter(0, indices.reshape(-1), x.reshape(-1)).reshape(shape)
    if output_shape and tuple(output_shape) != shape:
        # Indices are those of the smaller image, which lies in the corner of the larger.
        checked_count(output_shape, x.element_size())
        rest = [wanted - have for wanted, have in zip(output_shape[2:], inner, strict=True)]
        return F.pad(result, _widths((0,) * rank, rest))
    return result


@operator()
def LpPool(
    x: Any,
    *,
    kernel_shape: Any,
    p: int = 2,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    g = _pooled(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    parts = windows(x, g, 0).abs() ** p
    return parts.sum(dim=tuple(range(-len(g.kernel), 0))) ** (1 / p)


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator()
def GlobalAveragePool(x: Any) -> Any:
    return x.mean(_spatial(x), keepdim=True)


@operator()
def GlobalMaxPool(x: Any) -> Any:
    return tangrad.amax(x, _spatial(x), keepdim=True)


@operator()
def GlobalLpPool(x: Any, *, p: int = 2) -> Any:
    return (x.abs() ** p).sum(_spatial(x), keepdim=True) ** (1 / p)


@operator(ints=(1, 2))
def Col2Im(
    x: Any,
    image_shape: list[int],
    block_shape: list[int],
    *,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    g = geometry(image_shape, block_shape, strides, dilations, pads)
    rank = len(image_shape)
    channels = x.shape[1] // math.prod(block_shape)
    full = [
        size + low + high
        for size, low, high in zip(image_shape, g.before, g.real_after, strict=True)
    ]
    checked_count([x.shape[0], channels, *full])
    checked_count([x.shape[0], channels, *block_shape, *g.sizes])
    at: Any = np.zeros((1,) * (2 * rank), np.int64)
    for i in range(rank):
        places = np.arange(block_shape[i])[:, None] * g.dilations[i]
        places = places + np.arange(g.sizes[i])[None] * g.strides[i]
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = places.shape
        at = at * full[i] + places.reshape(shape)
    index = tangrad.tensor(at.reshape(-1), device=x.device).expand(x.shape[0], channels, -1)
    sums = tangrad.zeros(x.shape[0], channels, math.prod(full), dtype=x.dtype, device=x.device)
    sums = sums.scatter_add(2, index, x.reshape(x.shape[0], channels, -1))
    cut = _widths([-b for b in g.before], [-a for a in g.real_after])
    return F.pad(sums.reshape(x.shape[0], channels, *full), cut)
