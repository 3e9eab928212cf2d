"""The ops of this package, as functions of tensors."""

import tangrad
from tangrad_vision import _kernels
from tangrad_vision.boxes import nms
from tangrad_vision.deform import deform_conv2d
from tangrad_vision.regions import ps_roi_align, ps_roi_pool, roi_align, roi_pool

__all__ = ["deform_conv2d", "nms", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool"]

# Here and not when the device opens: programs without pictures load nothing of this package.
tangrad.empty(0, device="cpu")  # which opens it
_kernels.register("cpu")
