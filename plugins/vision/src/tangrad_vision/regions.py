"""Regions of a feature map, brought to one size: by interpolation, means or maxima of each cell."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad.plugin import op
from tangrad_vision.places import (
    Kind,
    Sampling,
    as_array,
    gathered,
    half_away,
    refuse_boxes,
    spread,
)

_BOXES = "none: coordinates of boxes are no differentiable input, as in torchvision"
_PARAMETERS = "int height, int width, float spatial_scale, int sampling_ratio, bool aligned"
_HIDDEN: dict[str, Any] = {"function": False, "method": False, "out": False}


def check(input: Tensor, boxes: Tensor, height: int, width: int) -> None:
    """Raise where a map and boxes do not fit.

    Raises:
        RuntimeError: the boxes have another shape, or another dtype than the map, or the output or
            the map has no cells.
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
    if height <= 0 or width <= 0:
        raise RuntimeError(f"regions: the output has {height} by {width} cells; give at least 1")


def _check_sensitive(input: Tensor, boxes: Tensor, height: int, width: int) -> None:
    check(input, boxes, height, width)
    if input.size(1) % (height * width):
        raise RuntimeError(
            f"input channels must be a multiple of pooling height * pooling width: {input.size(1)} "
            f"of {height} * {width}"
        )


def _folded(size: int, dims: tuple[Any, ...], input: Tensor, boxes: Tensor) -> tuple[Any, Any]:
    """Return a batch of maps and boxes as one map with all pictures, and boxes of these."""
    input = input.unsqueeze(0).expand(size, *input.shape) if dims[0] is None else (
        input.movedim(dims[0], 0)
    )  # fmt: skip
    boxes = boxes.unsqueeze(0).expand(size, *boxes.shape) if dims[1] is None else (
        boxes.movedim(dims[1], 0)
    )  # fmt: skip
    pictures = input.shape[1]
    first = tangrad.arange(size, device=boxes.device, dtype=boxes.dtype).reshape(-1, 1, 1)
    boxes = tangrad.cat([boxes[:, :, :1] + first * pictures, boxes[:, :, 1:]], 2)
    return input.reshape(-1, *input.shape[2:]), boxes.reshape(-1, 5)


def _linear_pooling(kind: Kind) -> tuple[Any, Any]:
    """Define an op whose outputs are weighted sums of the map, and its gradient."""

    def out_channels(channels: int, height: int, width: int) -> int:
        return channels // (height * width) if kind.sensitive else channels

    def forward_batch(
        size: int, dims: Any, input: Any, boxes: Any, height: int, width: int, *more: Any
    ) -> Any:
        maps, regions = _folded(size, dims, input, boxes)
        found = forward(maps, regions, height, width, *more)
        return found.reshape(size, found.shape[0] // size, *found.shape[1:]), 0

    def backward_batch(
        size: int, dims: Any, gradient: Any, boxes: Any, batch: int, *more: Any
    ) -> Any:
        # The pictures of a sample are those of its gradient's map.
        given = gradient.unsqueeze(0).expand(size, *gradient.shape) if dims[0] is None else (
            gradient.movedim(dims[0], 0)
        )  # fmt: skip
        holder = given.new_empty(size, batch, 1)
        _, regions = _folded(size, (0, dims[1]), holder, boxes)
        found = backward(given.reshape(-1, *given.shape[2:]), regions, size * batch, *more)
        return found.reshape(size, batch, *found.shape[1:]), 0

    forward = op(
        f"vision::{kind.name}(Tensor input, Tensor boxes, {_PARAMETERS}) -> Tensor",
        shape=lambda input, boxes, height, width: (
            boxes.shape[0],
            out_channels(input.shape[1], height, width),
            height,
            width,
        ),
        dtype=lambda input: input.dtype,
        check=_check_sensitive if kind.sensitive else check,
        decompose=lambda input, boxes, height, width, spatial_scale, sampling_ratio, aligned: (
            gathered(
                input, boxes, kind, Sampling(height, width, spatial_scale, sampling_ratio, aligned)
            )
        ),
        vjp={
            "input": lambda g, input_meta, boxes, height, width, spatial_scale, sampling_ratio, aligned: (  # noqa: E501
                backward(
                    g.contiguous(), boxes, *input_meta.shape, spatial_scale, sampling_ratio, aligned
                )
            ),
            "boxes": _BOXES,
        },
        linear=("input",),
        batch=forward_batch,
        samples=lambda s: [],
        doc=f"Compute `tangrad.vision.ops.{kind.name}` of boxes (K, 5).",
        **_HIDDEN,
    )
    backward = op(
        f"vision::{kind.name}_backward(Tensor gradient, Tensor boxes, int batch, int channels,"
        " int rows, int columns, float spatial_scale, int sampling_ratio, bool aligned) -> Tensor",
        shape=lambda batch, channels, rows, columns: (batch, channels, rows, columns),
        dtype=lambda gradient: gradient.dtype,
        decompose=lambda gradient, boxes, batch, channels, rows, columns, spatial_scale, sampling_ratio, aligned: (  # noqa: E501
            spread(
                gradient,
                boxes,
                (batch, channels, rows, columns),
                kind,
                Sampling(*gradient.shape[2:], spatial_scale, sampling_ratio, aligned),
            )
        ),
        vjp={
            "gradient": lambda g, gradient_meta, boxes, spatial_scale, sampling_ratio, aligned: (
                forward(
                    g.contiguous(),
                    boxes,
                    *gradient_meta.shape[2:],
                    spatial_scale,
                    sampling_ratio,
                    aligned,
                )
            ),
            "boxes": _BOXES,
        },
        linear=("gradient",),
        batch=backward_batch,
        samples=lambda s: [],
        doc=f"Return the gradient of `vision::{kind.name}` by the map.",
        **_HIDDEN,
    )
    return forward, backward


_align, _align_backward = _linear_pooling(Kind("roi_align"))
_ps_align, _ps_align_backward = _linear_pooling(Kind("ps_roi_align", sensitive=True))
_ps_pool, _ps_pool_backward = _linear_pooling(Kind("ps_roi_pool", whole=True, sensitive=True))


def _places_of_maxima(
    input: Tensor, boxes: Tensor, height: int, width: int, spatial_scale: float
) -> tuple[Tensor, Tensor]:
    maps, table = as_array(input), as_array(boxes)
    refuse_boxes("roi_pool", table, len(maps), spatial_scale)
    _, channels, rows, columns = maps.shape
    pooled = np.zeros((len(table), channels, height, width), dtype=maps.dtype)
    places = np.full(pooled.shape, -1, dtype=np.int32)
    corners = half_away(table[:, 1:] * table.dtype.type(spatial_scale)).astype(np.int64)
    for k, (left, top, right, bottom) in enumerate(corners):
        ys = _cuts(top, max(bottom - top + 1, 1), height, rows, table.dtype)
        xs = _cuts(left, max(right - left + 1, 1), width, columns, table.dtype)
        plane = maps[int(table[k, 0])]
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


def _cuts(start: int, length: int, cells: int, limit: int, dtype: Any) -> list[tuple[int, int]]:
    """Return where the cells of an output begin and end in the map."""
    size = dtype.type(length) / dtype.type(cells)
    ends = []
    for i in range(cells):
        begin = int(np.floor(dtype.type(i) * size)) + start
        end = int(np.ceil(dtype.type(i + 1) * size)) + start
        ends.append((min(max(begin, 0), limit), min(max(end, 0), limit)))
    return ends


def _pool_batch(
    size: int, dims: Any, input: Any, boxes: Any, height: int, width: int, spatial_scale: float
) -> Any:
    found = _pool(*_folded(size, dims, input, boxes), height, width, spatial_scale)
    return tuple(f.reshape(size, f.shape[0] // size, *f.shape[1:]) for f in found), (0, 0)


def _pool_tangent(input_t: Tensor, boxes: Tensor, result1: Tensor) -> tuple[Tensor, None]:
    channels, rows, columns = input_t.shape[1:]
    at = _flat_places(boxes, result1, channels, rows * columns)
    return input_t.reshape(-1)[at] * (result1 >= 0).to(input_t.dtype), None


_pool = op(
    "vision::roi_pool(Tensor input, Tensor boxes, int height, int width, float spatial_scale)"
    " -> (Tensor, Tensor)",
    shape=lambda input, boxes, height, width: (
        (boxes.shape[0], input.shape[1], height, width),
        (boxes.shape[0], input.shape[1], height, width),
    ),
    dtype=lambda input: (input.dtype, tangrad.int32),
    check=check,
    decompose=_places_of_maxima,
    vjp={
        "input": lambda g, input_meta, boxes, result1: roi_pool_gradient(
            g, boxes, result1, input_meta.shape
        ),
        "boxes": _BOXES,
    },
    jvp=_pool_tangent,
    batch=_pool_batch,
    samples=lambda s: [],
    doc="Compute `tangrad.vision.ops.roi_pool`, and where each maximum was (-1: nowhere).",
    **_HIDDEN,
)


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
    at = _flat_places(boxes, places, channels, rows * columns)
    given = (gradient * (places >= 0).to(gradient.dtype)).flatten()
    flat = gradient.new_zeros((batch * channels * rows * columns,))
    return flat.index_add(0, at.flatten(), given).reshape(batch, channels, rows, columns)


def _flat_places(boxes: Tensor, places: Tensor, channels: int, plane: int) -> Tensor:
    pictures = boxes[:, 0].to(tangrad.int64).reshape(-1, 1, 1, 1) * channels
    channel = tangrad.arange(channels, device=places.device).reshape(1, -1, 1, 1)
    return (pictures + channel) * plane + places.clamp(min=0).to(tangrad.int64)


# --- as functions ------------------------------------------------------------------------------


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
        boxes: (K, 5) of (number of the picture, x1, y1, x2, y2), of the map's dtype.
        output_size: (height, width) of the results.
        spatial_scale: cells of the map per unit of the boxes.
        sampling_ratio: samples per cell in each direction; at most 0: as many as the cell is wide.
        aligned: whether coordinates are moved by half a cell, so that they mean centres.

    Returns:
        (K, C, height, width).

    Raises:
        RuntimeError: the boxes have another shape, or another dtype than the map, are of no
            picture, or are not finite.
    """
    return _called(_align, input, boxes, output_size, spatial_scale, sampling_ratio, aligned)


def ps_roi_align(
    input: Tensor,
    boxes: Tensor,
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> Tensor:
    """Bring regions to one size by interpolation, each cell from channels of its own.

    Li, Peng, Yu, Zhang, Deng, Sun, "Light-Head R-CNN", 2017.

    Args:
        input: (N, C · height · width, H, W).
        boxes, output_size, spatial_scale, sampling_ratio: as for `roi_align`.

    Returns:
        (K, C, height, width).

    Raises:
        RuntimeError: as `roi_align`, or the channels do not fit.
    """
    return _called(_ps_align, input, boxes, output_size, spatial_scale, sampling_ratio, True)


def ps_roi_pool(
    input: Tensor, boxes: Tensor, output_size: int | tuple[int, int], spatial_scale: float = 1.0
) -> Tensor:
    """Bring regions to one size by means, each cell from channels of its own.

    Dai, Li, He, Sun, "R-FCN", 2016.

    Args:
        input: (N, C · height · width, H, W).
        boxes, output_size, spatial_scale: as for `roi_align`.

    Returns:
        (K, C, height, width).

    Raises:
        RuntimeError: as `roi_align`, or the channels do not fit.
    """
    return _called(_ps_pool, input, boxes, output_size, spatial_scale, 0, False)


def roi_pool(
    input: Tensor, boxes: Tensor, output_size: int | tuple[int, int], spatial_scale: float = 1.0
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
        RuntimeError: as `roi_align`.
    """
    result: Tensor = roi_pool_with_places(input, boxes, *_pair(output_size), spatial_scale)[0]
    return result


def roi_pool_with_places(
    input: Tensor, boxes: Tensor, height: int, width: int, spatial_scale: float
) -> tuple[Tensor, Tensor]:
    """Return what `roi_pool` does, and where in its plane each maximum was (int32; -1: nowhere)."""
    made = _pool(*_operands(input, boxes), height, width, _finite(spatial_scale))
    return made[0].to(input.dtype), made[1]


def gradient_of(
    name: str,
    gradient: Tensor,
    boxes: Tensor,
    shape: tuple[int, ...],
    spatial_scale: float,
    sampling_ratio: int = 0,
    aligned: bool = False,
) -> Tensor:
    """Return the gradient by the map of `roi_align`, `ps_roi_align` or `ps_roi_pool`.

    Args:
        name: the function's.
        gradient: of the results, (K, C, height, width).
        boxes, spatial_scale, sampling_ratio, aligned: as the function had them.
        shape: of the map.
    """
    backward: Callable[..., Tensor] = {
        "roi_align": _align_backward,
        "ps_roi_align": _ps_align_backward,
        "ps_roi_pool": _ps_pool_backward,
    }[name]
    given, regions = _operands(gradient, boxes)
    found = backward(given, regions, *shape, _finite(spatial_scale), sampling_ratio, aligned)
    return found.to(gradient.dtype)


def _called(
    pooling: Any, input: Tensor, boxes: Tensor, size: Any, scale: float, ratio: int, aligned: bool
) -> Tensor:
    if input.dtype == boxes.dtype:
        maps, regions = _operands(input, boxes)
    else:
        maps, regions = input, boxes  # which the op refuses
    found: Tensor = pooling(maps, regions, *_pair(size), _finite(scale), ratio, aligned)
    return found.to(input.dtype)


def _operands(input: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Return tensors as kernels take them: contiguous, and halves in single precision."""
    if input.dtype in (tangrad.float16, tangrad.bfloat16):
        input, boxes = input.float(), boxes.float()
    return input.contiguous(), boxes.detach().contiguous()


def _finite(scale: float) -> float:
    if not math.isfinite(scale):
        raise RuntimeError(f"regions: spatial_scale is {scale}; give a finite number")
    return float(scale)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
