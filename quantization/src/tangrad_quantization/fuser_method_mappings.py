"""How modules that follow each other become one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tangrad import nn
from tangrad.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from tangrad_quantization.nn import intrinsic as nni

__all__ = [
    "MatchAllNode",
    "fuse_conv_bn",
    "fuse_conv_bn_relu",
    "fuse_convtranspose_bn",
    "fuse_linear_bn",
    "get_fuser_method",
    "get_fuser_method_new",
]

_WITH_BN = {nn.Conv1d: nni.ConvBn1d, nn.Conv2d: nni.ConvBn2d, nn.Conv3d: nni.ConvBn3d}
_WITH_BN_RELU = {
    nn.Conv1d: nni.ConvBnReLU1d,
    nn.Conv2d: nni.ConvBnReLU2d,
    nn.Conv3d: nni.ConvBnReLU3d,
}
_WITH_RELU = {nn.Conv1d: nni.ConvReLU1d, nn.Conv2d: nni.ConvReLU2d, nn.Conv3d: nni.ConvReLU3d}


def _require_one_mode(*modules: Any) -> None:
    if len({module.training for module in modules}) > 1:
        names = " and ".join(type(module).__name__ for module in modules)
        raise AssertionError(
            f"{names} both must be in the same mode (train or eval): call train() or eval() on "
            f"the whole model before fusing"
        )


def _require_trainable(features: int, bn: Any) -> None:
    if bn.num_features != features:
        raise AssertionError(
            f"Output channel must match num_features of {type(bn).__name__}: {features} and "
            f"{bn.num_features}"
        )
    for attribute in ("affine", "track_running_stats"):
        if not getattr(bn, attribute):
            raise AssertionError(
                f"Only support fusing {type(bn).__name__} with {attribute} set to True"
            )


def _fused_class(table: dict[Any, Any], modules: tuple[Any, ...], mode: str) -> Any:
    found = table.get(type(modules[0]))
    if found is None:
        raise NotImplementedError(f"Cannot fuse {mode} modules: {modules}")
    return found


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any) -> Any:
    """Fold a batch norm into a convolution, or for training make one module of both.

    Args:
        is_qat: whether the model is to be trained.
        conv: the convolution.
        bn: the batch norm after it.

    Raises:
        AssertionError: they are in different modes, or the batch norm cannot be trained folded.
        NotImplementedError: there is no module of both.
    """
    _require_one_mode(conv, bn)
    if not is_qat:
        return fuse_conv_bn_eval(conv, bn)
    _require_trainable(conv.out_channels, bn)
    return _fused_class(_WITH_BN, (conv, bn), "train")(conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Any, bn: Any, relu: Any) -> Any:
    """Make one module of a convolution, a batch norm and a ReLU; see `fuse_conv_bn`."""
    _require_one_mode(conv, bn, relu)
    if not is_qat:
        kind = _fused_class(_WITH_RELU, (conv, bn, relu), "eval")
        return kind(fuse_conv_bn_eval(conv, bn), relu)
    _require_trainable(conv.out_channels, bn)
    return _fused_class(_WITH_BN_RELU, (conv, bn, relu), "train")(conv, bn, relu)


def fuse_linear_bn(is_qat: bool, linear: Any, bn: Any) -> Any:
    """Fold a batch norm into a linear layer, or for training make one module of both."""
    _require_one_mode(linear, bn)
    if not is_qat:
        return fuse_linear_bn_eval(linear, bn)
    _require_trainable(linear.out_features, bn)
    return nni.LinearBn1d(linear, bn)


def fuse_convtranspose_bn(is_qat: bool, convt: Any, bn: Any) -> Any:
    """Fold a batch norm into a transposed convolution.

    Raises:
        Exception: the model is to be trained.
    """
    _require_one_mode(convt, bn)
    if is_qat:
        raise Exception("Fusing ConvTranspose+BatchNorm not yet supported in QAT.")
    return fuse_conv_bn_eval(convt, bn, transpose=True)


def _as(kind: Any) -> Callable[..., Any]:
    """Return a function that makes one module of two, in either mode."""
    return lambda is_qat, first, second: kind(first, second)


METHODS: dict[tuple[type, ...], Callable[..., Any]] = {
    (nn.Conv1d, nn.BatchNorm1d): fuse_conv_bn,
    (nn.Conv1d, nn.BatchNorm1d, nn.ReLU): fuse_conv_bn_relu,
    (nn.Conv2d, nn.BatchNorm2d): fuse_conv_bn,
    (nn.Conv2d, nn.BatchNorm2d, nn.ReLU): fuse_conv_bn_relu,
    (nn.Conv3d, nn.BatchNorm3d): fuse_conv_bn,
    (nn.Conv3d, nn.BatchNorm3d, nn.ReLU): fuse_conv_bn_relu,
    (nn.Conv1d, nn.ReLU): _as(nni.ConvReLU1d),
    (nn.Conv2d, nn.ReLU): _as(nni.ConvReLU2d),
    (nn.Conv3d, nn.ReLU): _as(nni.ConvReLU3d),
    (nn.Linear, nn.BatchNorm1d): fuse_linear_bn,
    (nn.Linear, nn.ReLU): _as(nni.LinearReLU),
    (nn.BatchNorm2d, nn.ReLU): _as(nni.BNReLU2d),
    (nn.BatchNorm3d, nn.ReLU): _as(nni.BNReLU3d),
    (nn.ConvTranspose1d, nn.BatchNorm1d): fuse_convtranspose_bn,
    (nn.ConvTranspose2d, nn.BatchNorm2d): fuse_convtranspose_bn,
    (nn.ConvTranspose3d, nn.BatchNorm3d): fuse_convtranspose_bn,
}


def get_fuser_method(op_list: Any, additional_fuser_method_mapping: Any = None) -> Any:
    """Return the function that makes one module of modules of these types.

    Raises:
        AssertionError: there is none.
    """
    method = {**METHODS, **(additional_fuser_method_mapping or {})}.get(tuple(op_list))
    if method is None:
        raise AssertionError(
            f"did not find fuser method for: {op_list}; known are "
            f"{', '.join('-'.join(kind.__name__ for kind in kinds) for kinds in METHODS)}"
        )
    return method


class MatchAllNode:
    """Stand for any node in a pattern."""


def get_fuser_method_new(op_pattern: Any, fuser_method_mapping: Any) -> Any:
    """Return the function of the first pattern that fits, nested from the last op to the first.

    Raises:
        AssertionError: none fits.
    """
    for pattern in _generalized(op_pattern):
        if pattern in fuser_method_mapping:
            return fuser_method_mapping[pattern]
    raise AssertionError(f"did not find fuser method for: {op_pattern}")


def _generalized(pattern: Any) -> list[Any]:
    """Return a pattern and those with `MatchAllNode` in places of it."""
    if isinstance(pattern, (tuple, list)):
        return list(itertools.product(*map(_generalized, pattern)))
    return [pattern, MatchAllNode]
