"""The ops of this package, as functions of tensors."""

from tangrad_vision.boxes import nms
from tangrad_vision.deform import deform_conv2d
from tangrad_vision.regions import ps_roi_align, ps_roi_pool, roi_align, roi_pool

__all__ = ["deform_conv2d", "nms", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool"]
