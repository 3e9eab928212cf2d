"""Regions of a feature map, brought to one size: by interpolation, or by the maximum of each cell.

A map of shape (N, C, H, W) is seen as a table of N·H·W rows of C numbers. What `roi_align` gives
for one cell of one region is a weighted sum of such rows, so a whole output is one
`embedding_bag`, and the gradient adds weighted rows back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad_vision.boxes import as_array

# Rows that a gradient expands at a time: 2**20 rows of 256 float32 are 1 GB.
_ROWS_AT_ONCE = 1 << 16


class Places(NamedTuple):
    """Which cells of the map the outputs of some regions are made of.

    Attributes:
        regions: numbers of the regions, (R,).
        rows: rows of the table, (R * height * width, samples).
        weights: their weights, of the same shape.
    """

    regions: np.ndarray
    rows: Tensor
    weights: Tensor


def roi_align(
    input: Tensor,
    boxes: Tensor,
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """Bring regions of a map to one size: each cell is the mean of interpolated samples.

    He, Gkioxari, Dollár, Girshick, "Mask R-CNN", 2017.

    Args:
        input: (N, C, H, W).
        boxes: (K, 5) of (number of the picture, x1, y1, x2, y2).
        output_size: (height, width) of the results.
        spatial_scale: cells of the map per unit of the boxes.
        sampling_ratio: samples per cell in each direction; at most 0: as many as the cell is wide.
        aligned: whether coordinates are moved by half a cell, so that they mean centres.

    Returns:
        (K, C, height, width).

    Raises:
        RuntimeError: the boxes have another shape, or another dtype than the map.
    """
    check(input, boxes)
    height, width = _pair(output_size)
    table = input.permute(0, 2, 3, 1).reshape(-1, input.size(1))
    result = input.new_zeros((boxes.size(0), height, width, input.size(1)))
    for places in sampled(
        input.shape, boxes, height, width, spatial_scale, sampling_ratio, aligned
    ):
        found = tangrad.nn.functional.embedding_bag(
            places.rows, table, per_sample_weights=places.weights.to(table.dtype), mode="sum"
        )
        found = found.reshape(-1, height, width, input.size(1))
        if len(places.regions) == boxes.size(0):
            result = found
        else:
            result = result.index_put((tangrad.from_numpy(places.regions),), found)
    return result.permute(0, 3, 1, 2)


def roi_align_gradient(
    gradient: Tensor,
    boxes: Tensor,
    shape: tuple[int, ...],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Return the gradient of `roi_align` for the map.

    Args:
        gradient: of the results, (K, C, height, width).
        boxes, spatial_scale, sampling_ratio, aligned: as `roi_align` had them.
        shape: of the map.
    """
    batch, channels, height, width = shape
    table = gradient.new_zeros((batch * height * width, channels))
    out_height, out_width = gradient.shape[-2:]
    cells_each = out_height * out_width
    by_cell = gradient.permute(0, 2, 3, 1).reshape(boxes.size(0), cells_each, channels)
    for places in sampled(
        shape, boxes, out_height, out_width, spatial_scale, sampling_ratio, aligned
    ):
        cells = by_cell[tangrad.from_numpy(places.regions)].reshape(-1, channels)
        step = max(1, _ROWS_AT_ONCE // places.rows.size(1))
        for at in range(0, len(cells), step):
            part = slice(at, at + step)
            weights = places.weights[part].to(table.dtype)
            spread = cells[part].unsqueeze(1) * weights.unsqueeze(2)
            table.index_add_(0, places.rows[part].flatten(), spread.reshape(-1, channels))
    return table.reshape(batch, height, width, channels).permute(0, 3, 1, 2)


def sampled(
    shape: tuple[int, ...],
    boxes: Tensor,
    height: int,
    width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> Iterator[Places]:
    """Yield which cells each output is made of, for regions of one number of samples at a time."""
    _, _, rows, columns = shape
    table = as_array(boxes)
    shift = table.dtype.type(0.5 if aligned else 0.0)
    scale = table.dtype.type(spatial_scale)
    left, top, right, bottom = (table[:, k] * scale - shift for k in (1, 2, 3, 4))
    wide, high = right - left, bottom - top
    if not aligned:
        wide, high = np.maximum(wide, 1), np.maximum(high, 1)
    cell_high, cell_wide = high / table.dtype.type(height), wide / table.dtype.type(width)
    if sampling_ratio > 0:
        counts = np.full((len(table), 2), sampling_ratio)
    else:
        counts = np.ceil(np.stack([cell_high, cell_wide], 1)).astype(np.int64)
    pictures = table[:, 0].astype(np.int64)
    for count in np.unique(counts, axis=0) if len(table) else ():
        if (count <= 0).any():
            continue
        chosen = np.flatnonzero((counts == count).all(1))
        y, weight_y = _samples(top[chosen], cell_high[chosen], height, int(count[0]), rows)
        x, weight_x = _samples(left[chosen], cell_wide[chosen], width, int(count[1]), columns)
        # (R, height, 1, samples y, 1) and (R, 1, width, 1, samples x)
        cell = (pictures[chosen, None, None, None, None] * rows + y[:, :, None, :, None]) * columns
        cell = cell + x[:, None, :, None, :]
        weight = weight_y[:, :, None, :, None] * weight_x[:, None, :, None, :] / np.prod(count)
        outputs = len(chosen) * height * width
        yield Places(
            chosen,
            tangrad.from_numpy(cell.reshape(outputs, -1)),
            tangrad.from_numpy(weight.reshape(outputs, -1).astype(table.dtype)),
        )


def _samples(
    start: np.ndarray, cell: np.ndarray, cells: int, count: int, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return, along one direction, the two cells beside each sample and their weights.

    Args:
        start, cell: where regions begin, and how long one cell of the output is, (R,).
        cells: number of cells of the output.
        count: samples per cell.
        limit: length of the map.

    Returns:
        Places and weights, (R, cells, 2 * count).
    """
    steps = (np.arange(count, dtype=start.dtype) + start.dtype.type(0.5)) / count
    at = start[:, None, None] + (np.arange(cells)[:, None] + steps) * cell[:, None, None]
    at = at.astype(start.dtype)
    inside = (at >= -1) & (at <= limit)
    at = np.maximum(at, 0)
    low = np.minimum(at.astype(np.int64), limit - 1)
    high = np.minimum(low + 1, limit - 1)
    at = np.where(low >= limit - 1, low, at)
    upper = (at - low) * inside
    lower = (1 - (at - low)) * inside
    return np.concatenate([low, high], -1), np.concatenate([lower, upper], -1)


def roi_pool(
    input: Tensor,
    boxes: Tensor,
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
) -> Tensor:
    """Bring regions of a map to one size: each cell is the maximum of what lies in it.

    Girshick, "Fast R-CNN", 2015.

    Args:
        input: (N, C, H, W).
        boxes: (K, 5) of (number of the picture, x1, y1, x2, y2).
        output_size: (height, width) of the results.
        spatial_scale: cells of the map per unit of the boxes.

    Returns:
        (K, C, height, width).

    Raises:
        RuntimeError: the boxes have another shape, or another dtype than the map.
    """
    height, width = _pair(output_size)
    result: Tensor = _RoiPool.apply(input, boxes, spatial_scale, height, width)[0]
    return result


class _RoiPool(tangrad.autograd.Function):
    """Pool, and send each gradient to where the maximum was."""

    @staticmethod
    def forward(ctx, input, boxes, spatial_scale, height, width):  # type: ignore[no-untyped-def]
        pooled, places = roi_pool_with_places(input, boxes, spatial_scale, height, width)
        ctx.save_for_backward(boxes, places)
        ctx.shape = input.shape
        ctx.mark_non_differentiable(places)
        return pooled, places

    @staticmethod
    def backward(ctx, gradient, _):  # type: ignore[no-untyped-def]
        boxes, places = ctx.saved_tensors
        return roi_pool_gradient(gradient, boxes, places, ctx.shape), None, None, None, None


def roi_pool_with_places(
    input: Tensor, boxes: Tensor, spatial_scale: float, height: int, width: int
) -> tuple[Tensor, Tensor]:
    """Return what `roi_pool` does, and where in its plane each maximum was (int32; -1: nowhere)."""
    check(input, boxes)
    maps = as_array(input)
    _, channels, rows, columns = maps.shape
    pooled = np.zeros((boxes.size(0), channels, height, width), dtype=maps.dtype)
    places = np.full(pooled.shape, -1, dtype=np.int32)
    for k, box in enumerate(as_array(boxes)):
        left, top, right, bottom = (_half_away(v * spatial_scale) for v in box[1:])
        ys = _cuts(top, max(bottom - top + 1, 1), height, rows)
        xs = _cuts(left, max(right - left + 1, 1), width, columns)
        plane = maps[int(box[0])]
        for i, (y0, y1) in enumerate(ys):
            for j, (x0, x1) in enumerate(xs):
                if y1 <= y0 or x1 <= x0:
                    continue
                window = plane[:, y0:y1, x0:x1].reshape(channels, -1)
                best = window.argmax(1)
                pooled[k, :, i, j] = window[np.arange(channels), best]
                places[k, :, i, j] = (y0 + best // (x1 - x0)) * columns + x0 + best % (x1 - x0)
    return (
        tangrad.from_numpy(pooled).to(dtype=input.dtype, device=input.device),
        tangrad.from_numpy(places).to(input.device),
    )


def _half_away(value: float) -> int:
    """Round as C's `round` does: halves away from zero."""
    return int(np.floor(abs(value) + 0.5) * (1 if value >= 0 else -1))


def _cuts(start: int, length: int, cells: int, limit: int) -> list[tuple[int, int]]:
    """Return where the cells of an output begin and end in the map."""
    size = np.float32(length) / np.float32(cells)
    ends = []
    for i in range(cells):
        begin = int(np.floor(np.float32(i) * size)) + start
        end = int(np.ceil(np.float32(i + 1) * size)) + start
        ends.append((min(max(begin, 0), limit), min(max(end, 0), limit)))
    return ends


def roi_pool_gradient(
    gradient: Tensor, boxes: Tensor, places: Tensor, shape: tuple[int, ...]
) -> Tensor:
    """Return the gradient of `roi_pool` for the map.

    Args:
        gradient: of the results, (K, C, height, width).
        boxes: as `roi_pool` had them.
        places: where the maxima were.
        shape: of the map.
    """
    batch, channels, rows, columns = shape
    plane = rows * columns
    pictures = boxes[:, 0].to(tangrad.int64).reshape(-1, 1, 1, 1) * channels
    channel = tangrad.arange(channels, device=places.device).reshape(1, -1, 1, 1)
    found = places >= 0
    at = (pictures + channel) * plane + places.clamp(min=0).to(tangrad.int64)
    result = gradient.new_zeros((batch * channels * plane,))
    result.index_add_(0, at.flatten(), (gradient * found.to(gradient.dtype)).flatten())
    return result.reshape(batch, channels, rows, columns)


def check(input: Tensor, boxes: Tensor) -> None:
    """Raise where a map and boxes do not fit.

    Raises:
        RuntimeError: the boxes have another shape, or another dtype than the map.
    """
    if input.dim() != 4:
        raise RuntimeError(f"input must have 4 dimensions (N, C, H, W), got {input.dim()}")
    if boxes.dim() != 2 or boxes.size(1) != 5:
        raise RuntimeError(f"rois must have shape as Tensor[K, 5], got {tuple(boxes.shape)}")
    if input.dtype != boxes.dtype:
        raise RuntimeError(
            "Expected tensor for input to have the same type as tensor for rois; but type "
            f"{input.dtype} does not equal {boxes.dtype}"
        )
    if len(boxes) and not 0 <= int(boxes[:, 0].min()) <= int(boxes[:, 0].max()) < len(input):
        raise RuntimeError(f"rois name pictures beyond the batch of {len(input)}")


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
