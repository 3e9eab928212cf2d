"""A batch normalization in evaluation, made part of the layer before it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

import tangrad
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]

M = TypeVar("M", bound=Module)


def _check(layer: Module, bn: Any) -> None:
    """Refuse layers in training, and a normalization by the statistics of the batch.

    Raises:
        AssertionError: as PyTorch does.
    """
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval! Call eval() of both modules first")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")


def fuse_conv_bn_eval(conv: M, bn: Any, transpose: bool = False) -> M:
    """Return a convolution that does what `conv` and then `bn` do, both in evaluation.

    Args:
        conv: the convolution; it is not changed.
        bn: the batch normalization, with running statistics.
        transpose: whether it is a transposed convolution.

    Raises:
        AssertionError: a module is in training, or `bn` has no running statistics.
    """
    _check(conv, bn)
    fused = deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight,
        fused.bias,
        bn.running_mean,
        bn.running_var,
        bn.eps,
        bn.weight,
        bn.bias,
        transpose,
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
    transpose: bool = False,
) -> tuple[Any, Any]:
    """Return weight and bias of a convolution and the batch normalization after it.

    Args:
        conv_w: weight of the convolution. conv_b: its bias, or None.
        bn_rm: running mean. bn_rv: running variance. bn_eps: added to that.
        bn_w: weight of the normalization, or None. bn_b: its bias, or None.
        transpose: whether it is a transposed convolution.
    """
    bias_dtype = conv_w.dtype if conv_b is None else conv_b.dtype
    conv_b = tangrad.zeros_like(bn_rm) if conv_b is None else conv_b
    bn_w = tangrad.ones_like(bn_rm) if bn_w is None else bn_w
    bn_b = tangrad.zeros_like(bn_rm) if bn_b is None else bn_b
    inverse = tangrad.rsqrt(bn_rv + bn_eps)
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    weight = (conv_w * (bn_w * inverse).reshape(shape)).to(conv_w.dtype)
    bias = ((conv_b - bn_rm) * inverse * bn_w + bn_b).to(bias_dtype)
    return Parameter(weight, conv_w.requires_grad), Parameter(bias, conv_b.requires_grad)


def fuse_linear_bn_eval(linear: M, bn: Any) -> M:
    """Return a linear layer that does what `linear` and then `bn` do, both in evaluation.

    Args:
        linear: the layer; it is not changed.
        bn: the batch normalization, with running statistics; its channels are the layer's
            outputs, or it has one.

    Raises:
        AssertionError: a module is in training, `bn` has no running statistics, or the sizes
            do not fit.
    """
    _check(linear, bn)
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, "
            f"got linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused = deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Any, Any]:
    """Return weight and bias of a linear layer and the batch normalization after it.

    Args:
        linear_w: weight of the layer. linear_b: its bias, or None.
        bn_rm: running mean. bn_rv: running variance. bn_eps: added to that.
        bn_w: weight of the normalization. bn_b: its bias.
    """
    bias_dtype = linear_w.dtype if linear_b is None else linear_b.dtype
    linear_b = tangrad.zeros_like(bn_rm) if linear_b is None else linear_b
    scale = bn_w * tangrad.rsqrt(bn_rv + bn_eps)
    weight = linear_w * scale.unsqueeze(-1).to(linear_w.dtype)
    bias = ((linear_b - bn_rm) * scale + bn_b).to(bias_dtype)
    return Parameter(weight, linear_w.requires_grad), Parameter(bias, linear_b.requires_grad)
