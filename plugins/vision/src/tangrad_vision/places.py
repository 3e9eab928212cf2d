"""Which cells of a map the outputs of regions are made of, for devices without a kernel.

A map (N, C, H, W) is seen as a table of rows, one for each cell. What `roi_align` and its like give
for one cell of one region is a weighted sum of such rows, so a whole output is one
`embedding_bag`, and the gradient adds weighted rows back. Position-sensitive forms read, for each
cell of the output, channels of its own: their table has a row for each of these, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import tangrad
from tangrad import Tensor

# Rows that a gradient expands at a time: 2**20 rows of 256 float32 are 1 GB.
_ROWS_AT_ONCE = 1 << 16
# Cells from the origin: farther out, float32 has no halves of cells.
FARTHEST = float(1 << 24)


class Kind(NamedTuple):
    """How regions are read.

    Attributes:
        name: of the op, for errors.
        whole: whether cells are averaged whole; else samples are interpolated.
        sensitive: whether each cell of the output has channels of its own.
    """

    name: str
    whole: bool = False
    sensitive: bool = False


class Sampling(NamedTuple):
    """What an op says of its regions: as the parameters of `roi_align`."""

    height: int
    width: int
    scale: float
    ratio: int
    aligned: bool


class Places(NamedTuple):
    """Cells of the outputs of some regions.

    Attributes:
        regions: numbers of the regions, (R,).
        rows: rows of the table, (R * height * width, samples).
        weights: their weights, of the same shape.
    """

    regions: np.ndarray
    rows: Tensor
    weights: Tensor


def gathered(input: Tensor, boxes: Tensor, kind: Kind, sampling: Sampling) -> Tensor:
    """Return the outputs, (K, channels, height, width)."""
    height, width = sampling.height, sampling.width
    table = _table(input, kind, height * width)
    channels = table.size(1)
    result = input.new_zeros((boxes.size(0), height, width, channels))
    for places in _places(input.shape, boxes, kind, sampling):
        found = tangrad.nn.functional.embedding_bag(
            places.rows.to(input.device),
            table,
            per_sample_weights=places.weights.to(table),
            mode="sum",
        )
        found = found.reshape(-1, height, width, channels)
        if len(places.regions) == boxes.size(0):
            result = found
        else:
            at = tangrad.from_numpy(places.regions).to(input.device)
            result = result.index_put((at,), found)
    return result.permute(0, 3, 1, 2)


def spread(
    gradient: Tensor, boxes: Tensor, shape: tuple[int, ...], kind: Kind, sampling: Sampling
) -> Tensor:
    """Return the gradient by the map of that shape, from that of the outputs."""
    batch, channels, height, width = shape
    cells = sampling.height * sampling.width
    parts = cells if kind.sensitive else 1
    table = gradient.new_zeros((batch * parts * height * width, channels // parts))
    by_cell = gradient.permute(0, 2, 3, 1).reshape(boxes.size(0), cells, channels // parts)
    for places in _places(shape, boxes, kind, sampling):
        at = tangrad.from_numpy(places.regions).to(gradient.device)
        given = by_cell[at].reshape(-1, channels // parts)
        step = max(1, _ROWS_AT_ONCE // max(places.rows.size(1), 1))
        for first in range(0, len(given), step):
            part = slice(first, first + step)
            weights = places.weights[part].to(table)
            added = given[part].unsqueeze(1) * weights.unsqueeze(2)
            rows = places.rows[part].flatten().to(table.device)
            table.index_add_(0, rows, added.reshape(-1, channels // parts))
    if not kind.sensitive:
        return table.reshape(batch, height, width, channels).permute(0, 3, 1, 2)
    back = table.reshape(batch, cells, height, width, channels // cells)
    return back.permute(0, 4, 1, 2, 3).reshape(batch, channels, height, width)


def _table(input: Tensor, kind: Kind, cells: int) -> Tensor:
    if not kind.sensitive:
        return input.permute(0, 2, 3, 1).reshape(-1, input.size(1))
    batch, channels, height, width = input.shape
    parts = input.reshape(batch, channels // cells, cells, height, width)
    return parts.permute(0, 2, 3, 4, 1).reshape(-1, channels // cells)


def _places(
    shape: tuple[int, ...], boxes: Tensor, kind: Kind, sampling: Sampling
) -> Iterator[Places]:
    """Yield the cells for regions of one number of samples at a time."""
    table = as_array(boxes)
    refuse_boxes(kind.name, table, shape[0], sampling.scale)
    if not len(table):
        return
    make = _whole_cells if kind.whole else _sampled
    pictures = table[:, 0].astype(np.int64)[:, None, None, None, None]
    cells = np.arange(sampling.height * sampling.width).reshape(
        1, sampling.height, sampling.width, 1, 1
    )
    for chosen, (y, weight_y), (x, weight_x) in make(shape, table, sampling):
        # (R, height, 1, samples y, 1) and (R, 1, width, 1, samples x)
        plane = pictures[chosen]
        if kind.sensitive:
            plane = plane * cells.size + cells
        row = plane * shape[2] + y[:, :, None, :, None]
        row = row * shape[3] + x[:, None, :, None, :]
        weight = weight_y[:, :, None, :, None] * weight_x[:, None, :, None, :]
        outputs = len(chosen) * cells.size
        yield Places(
            chosen,
            tangrad.from_numpy(row.reshape(outputs, -1)),
            tangrad.from_numpy(weight.reshape(outputs, -1).astype(table.dtype)),
        )


def _sampled(shape: tuple[int, ...], table: np.ndarray, sampling: Sampling) -> Iterator[Any]:
    number = table.dtype.type
    shift, scale = number(0.5 if sampling.aligned else 0.0), number(sampling.scale)
    left, top, right, bottom = (table[:, k] * scale - shift for k in (1, 2, 3, 4))
    wide, high = right - left, bottom - top
    if not sampling.aligned:
        wide, high = np.maximum(wide, 1), np.maximum(high, 1)
    cell_high, cell_wide = high / number(sampling.height), wide / number(sampling.width)
    if sampling.ratio > 0:
        counts = np.full((len(table), 2), sampling.ratio)
    else:
        counts = np.ceil(np.stack([cell_high, cell_wide], 1)).astype(np.int64)
    for count in np.unique(counts, axis=0):
        if (count <= 0).any():
            continue
        chosen = np.flatnonzero((counts == count).all(1))
        yield (
            chosen,
            _between(top[chosen], cell_high[chosen], sampling.height, int(count[0]), shape[2]),
            _between(left[chosen], cell_wide[chosen], sampling.width, int(count[1]), shape[3]),
        )


def _between(
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
    number = start.dtype.type
    steps = (np.arange(count, dtype=start.dtype) + number(0.5)) * cell[:, None] / number(count)
    at = start[:, None] + np.arange(cells, dtype=start.dtype) * cell[:, None]
    at = (at[:, :, None] + steps[:, None, :]).astype(start.dtype)
    inside = (at >= -1) & (at <= limit)
    at = np.clip(at, 0, limit)
    low = np.minimum(at.astype(np.int64), limit - 1)
    high = np.minimum(low + 1, limit - 1)
    at = np.where(low >= limit - 1, low, at)
    upper = (at - low) * inside / number(count)
    lower = (1 - (at - low)) * inside / number(count)
    return np.concatenate([low, high], -1), np.concatenate([lower, upper], -1)


def _whole_cells(shape: tuple[int, ...], table: np.ndarray, sampling: Sampling) -> Iterator[Any]:
    corners = half_away(table[:, 1:] * table.dtype.type(sampling.scale)).astype(np.int64)
    yield (
        np.arange(len(table)),
        _cells(corners[:, 1], corners[:, 3], sampling.height, shape[2], table.dtype),
        _cells(corners[:, 0], corners[:, 2], sampling.width, shape[3], table.dtype),
    )


def _cells(
    first: np.ndarray, last: np.ndarray, count: int, limit: int, dtype: Any
) -> tuple[np.ndarray, np.ndarray]:
    size = np.maximum(last - first, 1).astype(dtype)[:, None] / dtype.type(count)
    numbers = np.arange(count, dtype=dtype)
    begin = np.floor(numbers * size).astype(np.int64) + first[:, None]
    end = np.ceil((numbers + 1) * size).astype(np.int64) + first[:, None]
    begin, end = np.clip(begin, 0, limit - 1), np.clip(end, 0, limit - 1)
    length = np.maximum(end - begin, 0)
    steps = np.arange(max(int(length.max()), 1))
    inside = steps < length[:, :, None]
    at = np.where(inside, begin[:, :, None] + steps, 0)
    return at, inside / np.maximum(length, 1).astype(dtype)[:, :, None]


def half_away(values: np.ndarray) -> np.ndarray:
    """Round as C's `round` does: halves away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(values) + 0.5), values))


def as_array(t: Tensor) -> np.ndarray:
    """Return a tensor as an array of at least float32: areas overflow half precision."""
    t = t.detach().cpu()
    return np.asarray((t.float() if t.element_size() < 4 else t).numpy())


def refuse_boxes(op: str, table: np.ndarray, batch: int, scale: float) -> None:
    """Raise where a box is of no picture, or cannot be on a map.

    Raises:
        RuntimeError: with the number of the box.
    """
    if not len(table):
        return
    outside = ~((table[:, 0] >= 0) & (table[:, 0] < batch))
    if outside.any():
        k = int(outside.argmax())
        raise RuntimeError(
            f"{op}: rois name pictures beyond the batch of {batch}: box {k} is of picture "
            f"{table[k, 0]:g}; give numbers from 0 to {batch - 1}"
        )
    with np.errstate(all="ignore"):
        far = ~(np.abs(table[:, 1:].astype(np.float64) * scale) <= FARTHEST).all(1)
    if far.any():
        k = int(far.argmax())
        corners = ", ".join(f"{v:g}" for v in table[k, 1:])
        raise RuntimeError(
            f"{op}: box {k} is ({corners}), which is not finite or farther than 2^24 cells from "
            "the map"
        )
