"""Which of overlapping boxes stay."""

from __future__ import annotations

import numpy as np

import tangrad
from tangrad import Tensor


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the indices of the boxes that stay when those that overlap a better one go.

    Non-maximum suppression: the boxes are taken in the order of their scores, and each that
    overlaps one that stays by more than the threshold goes.

    Args:
        boxes: (N, 4) of (x1, y1, x2, y2), with x1 <= x2 and y1 <= y2.
        scores: (N,).
        iou_threshold: area of the intersection by area of the union.

    Returns:
        int64 of shape (kept,), by falling score.

    Raises:
        RuntimeError: the shapes are others, or the dtypes differ.
    """
    _check(boxes, scores)
    order = tangrad.argsort(scores, descending=True, stable=True)
    corners = as_array(boxes[order])
    x1, y1, x2, y2 = corners.T
    areas = (x2 - x1) * (y2 - y1)
    gone = np.zeros(len(corners), dtype=bool)
    kept = []
    for i in range(len(corners)):
        if gone[i]:
            continue
        kept.append(i)
        width = np.minimum(x2[i], x2[i + 1 :]) - np.maximum(x1[i], x1[i + 1 :])
        height = np.minimum(y2[i], y2[i + 1 :]) - np.maximum(y1[i], y1[i + 1 :])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            gone[i + 1 :] |= shared / (areas[i] + areas[i + 1 :] - shared) > iou_threshold
    return order[tangrad.tensor(kept, dtype=tangrad.int64, device=order.device)]


def as_array(t: Tensor) -> np.ndarray:
    """Return a tensor as an array of at least float32: areas overflow half precision."""
    t = t.detach().cpu()
    return np.asarray((t.float() if t.element_size() < 4 else t).numpy())


def _check(boxes: Tensor, scores: Tensor) -> None:
    if boxes.dim() != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {boxes.dim()}D")
    if boxes.size(1) != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {boxes.size(1)}")
    if scores.dim() != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.dim()}D")
    if boxes.size(0) != scores.size(0):
        raise RuntimeError(
            "boxes and scores should have same number of elements in dimension 0, got "
            f"{boxes.size(0)} and {scores.size(0)}"
        )
    if boxes.dtype != scores.dtype:
        raise RuntimeError(
            f"dets should have the same type as scores, got {boxes.dtype} and {scores.dtype}"
        )
