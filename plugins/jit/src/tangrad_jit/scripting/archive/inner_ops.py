"""PyTorch's inner ops whose arguments differ from those of the functions here, for archives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.nn import functional as F

__all__ = ["INNER_OPS", "SEVERAL"]

_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}

# Functions of the library that return so many tensors.
SEVERAL = {
    "lstm": 3,
    "gru": 2,
    "rnn_tanh": 2,
    "rnn_relu": 2,
    "lstm_cell": 2,
    "native_batch_norm": 3,
    "native_group_norm": 3,
    "native_dropout": 2,
    "max_pool1d_with_indices": 2,
    "max_pool2d_with_indices": 2,
}


def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    output_padding: Any,
    groups: Any,
    benchmark: Any = False,
    deterministic: Any = False,
    cudnn_enabled: Any = True,
    allow_tf32: Any = True,
) -> Any:
    """Convolve, forwards or transposed, in as many dimensions as the weight has."""
    return tangrad.convolution(
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )


def _loss(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(input: Any, target: Any, reduction: Any = 1) -> Any:
        return function(input, target, reduction=_REDUCTIONS[reduction])

    return call


def cross_entropy_loss(
    self: Any,
    target: Any,
    weight: Any = None,
    reduction: Any = 1,
    ignore_index: Any = -100,
    label_smoothing: Any = 0.0,
) -> Any:
    """Return the cross entropy of logits."""
    return F.cross_entropy(
        self,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=_REDUCTIONS[reduction],
        label_smoothing=label_smoothing,
    )


def nll_loss(
    self: Any, target: Any, weight: Any = None, reduction: Any = 1, ignore_index: Any = -100
) -> Any:
    """Return the negative log likelihood."""
    return F.nll_loss(
        self, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction]
    )


def binary_cross_entropy(self: Any, target: Any, weight: Any = None, reduction: Any = 1) -> Any:
    """Return the binary cross entropy of probabilities."""
    return F.binary_cross_entropy(self, target, weight, reduction=_REDUCTIONS[reduction])


def _resized(mode: str) -> Callable[..., Any]:
    if mode == "nearest":

        def nearest(input: Any, output_size: Any, scale_factors: Any = None) -> Any:
            return F.interpolate(input, output_size, scale_factors, mode="nearest")

        return nearest

    def smooth(input: Any, output_size: Any, align_corners: Any, scale_factors: Any = None) -> Any:
        return F.interpolate(
            input, output_size, scale_factors, mode=mode, align_corners=align_corners
        )

    return smooth


def _padded(mode: str) -> Callable[..., Any]:
    def call(self: Any, padding: Any) -> Any:
        return F.pad(self, padding, mode=mode)

    return call


def elu(self: Any, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Any:
    """Return x where it is positive, `alpha` (exp(x) - 1) elsewhere, both scaled."""
    return F.elu(self * input_scale, alpha) * scale


def number_tensor(value: Any) -> Any:
    """Return a number as a tensor."""
    return tangrad.tensor(value)


INNER_OPS: dict[str, Callable[..., Any]] = {
    "_convolution": convolution,
    "cross_entropy_loss": cross_entropy_loss,
    "nll_loss": nll_loss,
    "nll_loss_nd": nll_loss,
    "nll_loss2d": nll_loss,
    "binary_cross_entropy": binary_cross_entropy,
    **{name: _loss(getattr(F, name)) for name in ("mse_loss", "l1_loss", "smooth_l1_loss")},
    **{f"upsample_nearest{d}d": _resized("nearest") for d in (1, 2, 3)},
    "upsample_linear1d": _resized("linear"),
    "upsample_bilinear2d": _resized("bilinear"),
    "upsample_trilinear3d": _resized("trilinear"),
    "upsample_bicubic2d": _resized("bicubic"),
    **{f"reflection_pad{d}d": _padded("reflect") for d in (1, 2, 3)},
    **{f"replication_pad{d}d": _padded("replicate") for d in (1, 2, 3)},
    "elu": elu,
    "NumToTensor": number_tensor,
}
