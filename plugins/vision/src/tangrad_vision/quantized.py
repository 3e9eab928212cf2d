"""Boxes and regions of quantized tensors, given as integers with their scales and zero points."""

from __future__ import annotations

import tangrad
from tangrad import Tensor
from tangrad_vision import boxes as float_boxes
from tangrad_vision import regions


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return which boxes of integers stay: zero points and scales cancel in what is compared.

    Args:
        boxes: (N, 4) of an integer dtype.
        scores: (N,) of an integer dtype.
        iou_threshold: area of the intersection by area of the union.

    Raises:
        RuntimeError: the shapes do not fit.
    """
    if boxes.is_quantized:
        boxes, scores = boxes.int_repr(), scores.int_repr()
    return float_boxes.nms(boxes.float(), scores.float(), iou_threshold)


def roi_align(
    input: Tensor,
    boxes: Tensor,
    input_scale: float,
    input_zero_point: int,
    boxes_scale: float,
    boxes_zero_point: int,
    output_size: tuple[int, int],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Return `roi_align` of one quantized picture, quantized as the picture is.

    Args:
        input: (1, C, H, W) of an integer dtype.
        boxes: (K, 5) of the same dtype; the numbers of the pictures are not read.
        input_scale, input_zero_point, boxes_scale, boxes_zero_point: what the integers mean.
        output_size, spatial_scale, sampling_ratio, aligned: as for `regions.roi_align`.

    Raises:
        RuntimeError: there are several pictures, or shapes or dtypes do not fit.
    """
    if boxes.dim() != 2 or boxes.size(1) != 5:
        raise RuntimeError(f"rois must have shape as Tensor[K, 5], got {tuple(boxes.shape)}")
    if input.dim() != 4 or input.size(0) != 1:
        raise RuntimeError(
            "Only one image per batch is allowed in roi_align when quantized tensors are passed. "
            f"Got input of shape {tuple(input.shape)}"
        )
    if input.dtype != boxes.dtype:
        raise RuntimeError(
            "Expected tensor for input to have the same type as tensor for rois; but type "
            f"{input.dtype} does not equal {boxes.dtype}"
        )
    corners = (boxes.float() - boxes_zero_point) * float(boxes_scale)
    corners[:, 0] = 0
    values = input.float()
    # What lies outside of the map is zero, not the integer that stands for it.
    found = regions.roi_align(
        values - input_zero_point, corners, output_size, spatial_scale, sampling_ratio, aligned
    )
    limits = tangrad.iinfo(input.dtype)
    # In single precision by way of the numbers that integers stand for, as torchvision rounds them.
    scale = tangrad.tensor(input_scale, dtype=tangrad.float32)
    found = (found * scale * (1.0 / scale)).round() + input_zero_point
    return found.clamp(limits.min, limits.max).to(input.dtype)
