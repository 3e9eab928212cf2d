"""Sampling of images: grids, regions, deformed convolution, and decoding."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np

import tangrad
from tangrad.nn import functional as F
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.values import to_array


@operator()
def GridSample(
    x: Any,
    grid: Any,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Any:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    checked_count([*x.shape[:2], *grid.shape[1:-1]], x.element_size())
    return F.grid_sample(x, grid, names.get(mode, mode), padding_mode, bool(align_corners))


@operator(ints=(1,))
def AffineGrid(theta: Any, size: list[int], *, align_corners: int = 0) -> Any:
    checked_count([*size, len(size)])
    return F.affine_grid(theta, size, bool(align_corners))


def _bilinear(image: Any, y: Any, x: Any) -> Any:
    """Sample images (..., H, W) at points; what lies outside is 0.

    Args:
        image: of shape (C, H, W).
        y, x: points, of one shape; the result has shape (C, *points).
    """
    height, width = image.shape[-2:]
    top, left = tangrad.floor(y), tangrad.floor(x)
    total: Any = 0
    for row, of_row in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, of_column in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            i = row.clamp(0, height - 1).to(tangrad.int64)
            j = column.clamp(0, width - 1).to(tangrad.int64)
            total = total + image[:, i, j] * (of_row * of_column * inside)
    return total


@operator()
def DeformConv(
    x: Any,
    w: Any,
    offset: Any,
    b: Any = None,
    mask: Any = None,
    *,
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    offset_group: int = 1,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    kh, kw = w.shape[2:]
    strides, dilations, pads = strides or (1, 1), dilations or (1, 1), pads or (0, 0, 0, 0)
    n, c = x.shape[:2]
    rows, columns = offset.shape[2:]
    checked_count([n, max(c, w.shape[0]), kh * kw, rows, columns])
    moves = offset.reshape(n, offset_group, kh * kw, 2, rows, columns)
    base_y = tangrad.arange(rows).reshape(1, -1, 1) * strides[0] - pads[0]
    base_x = tangrad.arange(columns).reshape(1, 1, -1) * strides[1] - pads[1]
    tap = tangrad.arange(kh * kw).reshape(-1, 1, 1)
    base_y = (base_y + (tap // kw) * dilations[0]).to(x.device)
    base_x = (base_x + (tap % kw) * dilations[1]).to(x.device)
    part = c // offset_group
    samples = []
    for i in range(n):
        groups = []
        for g in range(offset_group):
            points_y, points_x = base_y + moves[i, g, :, 0], base_x + moves[i, g, :, 1]
            found = _bilinear(x[i, g * part : (g + 1) * part], points_y, points_x)
            if mask is not None:
                found = found * mask.reshape(n, offset_group, kh * kw, rows, columns)[i, g]
            groups.append(found)
        samples.append(tangrad.cat(groups))
    taps = tangrad.stack(samples).reshape(n, group, (c // group) * kh * kw, rows * columns)
    kernels = w.reshape(group, w.shape[0] // group, -1)
    y = (kernels @ taps).reshape(n, w.shape[0], rows, columns)
    return y if b is None else y + b.reshape(-1, 1, 1)


@operator()
def RoiAlign(
    x: Any,
    rois: Any,
    batch_indices: Any,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Any:
    shift = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    height, width = x.shape[2:]
    results = []
    corners = to_array(rois).astype(np.float64) * spatial_scale - shift
    for (x1, y1, x2, y2), batch in zip(corners, to_array(batch_indices), strict=True):
        w, h = x2 - x1, y2 - y1
        if not shift:
            w, h = max(w, 1.0), max(h, 1.0)
        bin_h, bin_w = h / output_height, w / output_width
        count_h = sampling_ratio or math.ceil(bin_h)
        count_w = sampling_ratio or math.ceil(bin_w)
        checked_count([x.shape[1], output_height, count_h, output_width, count_w])
        at_y = y1 + (np.arange(output_height * count_h) + 0.5) * bin_h / max(count_h, 1)
        at_x = x1 + (np.arange(output_width * count_w) + 0.5) * bin_w / max(count_w, 1)
        image = x[int(batch)]
        shape = (-1, output_height, count_h, output_width, count_w)
        parts = [part.reshape(shape) for part in _samples(image, at_y, at_x, height, width)]
        if mode == "max":
            # The greatest of the weighted corners, as the standard's function computes it.
            greatest = tangrad.stack(parts).amax(0)
            results.append(greatest.amax((2, 4)))
        else:
            results.append(sum(parts).sum((2, 4)) / max(count_h * count_w, 1))
    if not results:
        return x.new_zeros(0, x.shape[1], output_height, output_width)
    return tangrad.stack(results).to(x.dtype)


def _samples(image: Any, at_y: Any, at_x: Any, height: int, width: int) -> list[Any]:
    """Return the four weighted corners of each point of a grid; a point outside counts 0."""
    inside_y, inside_x = (at_y >= -1) & (at_y <= height), (at_x >= -1) & (at_x <= width)
    at_y, at_x = np.clip(at_y, 0, height - 1), np.clip(at_x, 0, width - 1)
    top, left = np.floor(at_y).astype(np.int64), np.floor(at_x).astype(np.int64)
    below, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    parts = []
    for row, of_row in ((top, 1 - (at_y - top)), (below, at_y - top)):
        for column, of_column in ((left, 1 - (at_x - left)), (right, at_x - left)):
            weights = np.outer(of_row * inside_y, of_column * inside_x)
            i, j = tangrad.tensor(row), tangrad.tensor(column)
            values = image.index_select(1, i.to(image.device)).index_select(2, j.to(image.device))
            parts.append(values * tangrad.tensor(weights, dtype=image.dtype, device=image.device))
    return parts


_CELL = 256  # what a cell costs as a loop's step, in elements


@operator()
def MaxRoiPool(x: Any, rois: Any, *, pooled_shape: Any, spatial_scale: float = 1.0) -> Any:
    height, width = x.shape[2:]
    rows, columns = pooled_shape
    checked_count([rois.shape[0], x.shape[1], rows, columns, _CELL])
    results = []
    for batch, *corners in to_array(rois).tolist():
        x1, y1, x2, y2 = (math.floor(c * spatial_scale + 0.5) for c in corners)
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        cells = x.new_zeros(x.shape[1], rows, columns)
        for i in range(rows):
            for j in range(columns):
                top = min(max(y1 + math.floor(i * h / rows), 0), height)
                bottom = min(max(y1 + math.ceil((i + 1) * h / rows), 0), height)
                left = min(max(x1 + math.floor(j * w / columns), 0), width)
                right = min(max(x1 + math.ceil((j + 1) * w / columns), 0), width)
                if bottom > top and right > left:
                    part = x[int(batch), :, top:bottom, left:right]
                    cells[:, i, j] = part.amax((1, 2))
        results.append(cells)
    return tangrad.stack(results)


@operator(raw=True)
def ImageDecoder(stream: Any, *, pixel_format: str = "RGB") -> Any:
    """Decode an image by Pillow, which must be installed."""
    from PIL import Image

    picture = Image.open(io.BytesIO(to_array(stream).tobytes()))
    if pixel_format == "Grayscale":
        pixels = np.asarray(picture.convert("L"))[..., None]
    else:
        pixels = np.asarray(picture.convert("RGB"))
        if pixel_format == "BGR":
            pixels = pixels[..., ::-1]
    return tangrad.tensor(np.ascontiguousarray(pixels))
