"""Which of overlapping boxes stay."""

from __future__ import annotations

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad.plugin import op
from tangrad_vision.places import as_array


def _suppressed(boxes: Tensor, order: Tensor, iou_threshold: float) -> Tensor:
    """Compare each box that stays with all that come after it."""
    ranks = np.asarray(order.cpu().numpy())
    corners = as_array(boxes)[ranks]
    x1, y1, x2, y2 = corners.T
    areas = (x2 - x1) * (y2 - y1)
    gone = np.zeros(len(corners), dtype=bool)
    kept = np.zeros(len(corners) + 1, dtype=np.int64)
    count = 0
    for i in range(len(corners)):
        if gone[i]:
            continue
        kept[count] = ranks[i]
        count += 1
        with np.errstate(all="ignore"):
            width = np.minimum(x2[i], x2[i + 1 :]) - np.maximum(x1[i], x1[i + 1 :])
            height = np.minimum(y2[i], y2[i + 1 :]) - np.maximum(y1[i], y1[i + 1 :])
            shared = np.maximum(width, 0) * np.maximum(height, 0)
            gone[i + 1 :] |= shared / (areas[i] + areas[i + 1 :] - shared) > iou_threshold
    kept[-1] = count
    return tangrad.from_numpy(kept).to(boxes.device)


_kept = op(
    "vision::suppressed(Tensor boxes, Tensor order, float iou_threshold) -> Tensor",
    shape=lambda boxes: (boxes.shape[0] + 1,),
    dtype=lambda: tangrad.int64,
    decompose=_suppressed,
    vjp="none: the output is indices",
    samples=lambda s: [],
    function=False,
    method=False,
    out=False,
    doc="Return the indices that `nms` keeps of boxes in an order, then zeros; last, how many.",
)


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
    boxes = boxes.detach()
    if boxes.dtype not in (tangrad.float32, tangrad.float64):
        boxes = boxes.float()
    order = tangrad.argsort(scores.detach(), descending=True, stable=True)
    found = _kept(boxes.contiguous(), order, float(iou_threshold))
    result: Tensor = found[: int(found[-1])]
    return result


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
