"""The ops of this package, as functions of tensors."""

from tangrad_vision.boxes import nms
from tangrad_vision.regions import roi_align, roi_pool

__all__ = ["nms", "roi_align", "roi_pool"]
