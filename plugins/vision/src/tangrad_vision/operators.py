"""The ops of torchvision's extension `_C`, by its names and signatures; it declares them itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_vision import boxes, deform, guards, quantized, regions


def _nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    return boxes.nms(dets, scores, iou_threshold)


def _roi_align(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    size = pooled_height, pooled_width
    return regions.roi_align(input, rois, size, spatial_scale, sampling_ratio, aligned)


def _roi_align_backward(
    grad: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int,
    batch_size: int, channels: int, height: int, width: int, sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    shape = batch_size, channels, height, width
    return regions.gradient_of(
        "roi_align", grad, rois, shape, spatial_scale, sampling_ratio, aligned
    )


def _roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> Any:
    return regions.roi_pool_with_places(input, rois, pooled_height, pooled_width, spatial_scale)


def _roi_pool_backward(
    grad: Any, rois: Any, argmax: Any, spatial_scale: float, pooled_height: int, pooled_width: int,
    batch_size: int, channels: int, height: int, width: int,
) -> Any:  # fmt: skip
    return regions.roi_pool_gradient(grad, rois, argmax, (batch_size, channels, height, width))


def _channels(pooled: Any) -> Any:
    """Return, for each cell of a position-sensitive result, the channel that it was read from."""
    _, channels, height, width = pooled.shape
    numbers = tangrad.arange(channels * height * width, dtype=tangrad.int32, device=pooled.device)
    return numbers.reshape(1, channels, height, width).expand(pooled.shape).contiguous()


def _ps_roi_align(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int,
) -> Any:  # fmt: skip
    size = pooled_height, pooled_width
    pooled = regions.ps_roi_align(input, rois, size, spatial_scale, sampling_ratio)
    return pooled, _channels(pooled)


def _ps_roi_align_backward(
    grad: Any, rois: Any, channel_mapping: Any, spatial_scale: float, pooled_height: int,
    pooled_width: int, sampling_ratio: int, batch_size: int, channels: int, height: int, width: int,
) -> Any:  # fmt: skip
    shape = batch_size, channels, height, width
    return regions.gradient_of(
        "ps_roi_align", grad, rois, shape, spatial_scale, sampling_ratio, True
    )


def _ps_roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> Any:
    pooled = regions.ps_roi_pool(input, rois, (pooled_height, pooled_width), spatial_scale)
    return pooled, _channels(pooled)


def _ps_roi_pool_backward(
    grad: Any, rois: Any, channel_mapping: Any, spatial_scale: float, pooled_height: int,
    pooled_width: int, batch_size: int, channels: int, height: int, width: int,
) -> Any:  # fmt: skip
    shape = batch_size, channels, height, width
    return regions.gradient_of("ps_roi_pool", grad, rois, shape, spatial_scale)


def _deform_conv2d(
    input: Any, weight: Any, offset: Any, mask: Any, bias: Any, stride_h: int, stride_w: int,
    pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int,
    use_mask: bool,
) -> Any:  # fmt: skip
    if groups != input.size(1) // max(weight.size(1), 1):
        raise RuntimeError(
            f"deform_conv2d: {groups} groups of weights {tuple(weight.shape)} do not fit an input "
            f"of {input.size(1)} channels"
        )
    return deform.deform_conv2d(
        input, offset, weight, bias, (stride_h, stride_w), (pad_h, pad_w),
        (dilation_h, dilation_w), mask if use_mask else None,
    )  # fmt: skip


def _deform_conv2d_backward(
    grad: Any, input: Any, weight: Any, offset: Any, mask: Any, bias: Any, *more: Any
) -> Any:
    """Return the gradients by input, weight, offset, mask and bias."""
    inputs = [t.detach().requires_grad_() for t in (input, weight, offset, mask, bias)]
    with tangrad.enable_grad():
        made = _deform_conv2d(*inputs, *more)
    found = tangrad.autograd.grad(made, inputs, grad, allow_unused=True)
    return tuple(
        tangrad.zeros_like(t) if g is None else g for g, t in zip(found, inputs, strict=True)
    )


def _qnms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    return quantized.nms(dets, scores, iou_threshold)


def _qroi_align(
    input: Any, rois: Any, input_scale: float, input_zero_point: int, rois_scale: float,
    rois_zero_point: int, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    return quantized.roi_align(
        input, rois, input_scale, input_zero_point, rois_scale, rois_zero_point,
        (pooled_height, pooled_width), spatial_scale, sampling_ratio, aligned,
    )  # fmt: skip


_COMPUTED: dict[str, Callable[..., Any]] = {
    "nms": _nms,
    "roi_align": _roi_align,
    "_roi_align_backward": _roi_align_backward,
    "roi_pool": _roi_pool,
    "_roi_pool_backward": _roi_pool_backward,
    "ps_roi_align": _ps_roi_align,
    "_ps_roi_align_backward": _ps_roi_align_backward,
    "ps_roi_pool": _ps_roi_pool,
    "_ps_roi_pool_backward": _ps_roi_pool_backward,
    "deform_conv2d": _deform_conv2d,
    "_deform_conv2d_backward": _deform_conv2d_backward,
    "qnms": _qnms,
    "qroi_align": _qroi_align,
}
# Computed in single precision under autocast, which gives back the dtype that came in.
_AUTOCAST = ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")


def _in_single(compute: Callable[..., Any]) -> Callable[..., Any]:
    def single(first: Any, *args: Any) -> Any:
        kind = first.dtype
        cast = [_single(a) for a in (first, *args)]
        found = compute(*cast)
        if isinstance(found, tuple):
            return (found[0].to(kind), *found[1:])
        return found.to(kind) if found.dtype.is_floating_point else found

    return single


def _single(value: Any) -> Any:
    halves = (tangrad.float16, tangrad.bfloat16)
    return value.float() if isinstance(value, tangrad.Tensor) and value.dtype in halves else value


for _name, _kernel in _COMPUTED.items():
    tangrad.library.impl(f"torchvision::{_name}", "default", _kernel)
_library = tangrad.library.Library("torchvision", "IMPL")
for _name in _AUTOCAST:
    for _device in ("CPU", "CUDA"):
        _library.impl(_name, _in_single(_COMPUTED[_name]), f"Autocast{_device}")

# torchvision loads its extension before its modules of data sets.
guards.install()
