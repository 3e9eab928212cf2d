"""The ops of torchvision's extension `_C`, by its names and signatures; it declares them itself."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_vision import boxes, regions


def _nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    return boxes.nms(dets, scores, iou_threshold)


def _roi_align(
    input: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    size = pooled_height, pooled_width
    found = regions.roi_align(input, rois, size, spatial_scale, sampling_ratio, aligned)
    return found.contiguous()


def _roi_align_backward(
    grad: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    shape = batch_size, channels, height, width
    return regions.roi_align_gradient(grad, rois, shape, spatial_scale, sampling_ratio, aligned)


def _roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> Any:
    return regions.roi_pool_with_places(input, rois, spatial_scale, pooled_height, pooled_width)


def _roi_pool_backward(
    grad: Any,
    rois: Any,
    argmax: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Any:
    return regions.roi_pool_gradient(grad, rois, argmax, (batch_size, channels, height, width))


_COMPUTED = {
    "nms": _nms,
    "roi_align": _roi_align,
    "_roi_align_backward": _roi_align_backward,
    "roi_pool": _roi_pool,
    "_roi_pool_backward": _roi_pool_backward,
}
for _name, _kernel in _COMPUTED.items():
    tangrad.library.impl(f"torchvision::{_name}", "cpu", _kernel)
