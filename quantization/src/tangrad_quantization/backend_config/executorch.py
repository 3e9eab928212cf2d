"""What backends below ExecuTorch can quantize: XNNPACK's signed integers first, then quint8."""

from __future__ import annotations

import operator
from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.backend_config import native, operators
from tangrad_quantization.backend_config.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
)

__all__ = ["get_executorch_backend_config"]

_signed_dynamic = DTypeConfig(
    native.signed_with_smallest_scale,
    tangrad.float32,
    native.signed_weight_with_smallest_scale,
    tangrad.float32,
    True,
)
_weighted = [native.weighted_signed_dtype_config, native.weighted_op_quint8_dtype_config]
_default = [native.default_signed_dtype_config, native.default_op_quint8_dtype_config]
_linear = [
    *_weighted,
    native.default_dynamic_int8_dtype_config,
    _signed_dynamic,
    native.default_dynamic_float16_dtype_config,
]
_FUNCTIONS = (operator.add, tangrad.add, operator.sub, tangrad.sub, operator.mul, tangrad.mul)
_SHARING: tuple[Any, ...] = (
    *(nn.Flatten, F.adaptive_avg_pool2d, F.elu, F.hardtanh, F.max_pool2d, F.pad, F.relu, F.relu6),
    *(F.leaky_relu, F.leaky_relu_, nn.AdaptiveAvgPool2d, nn.ConstantPad2d, nn.ELU, nn.MaxPool2d),
    *(nn.ReLU6, nn.Hardtanh, nn.LeakyReLU, tangrad.clamp, tangrad.flatten, tangrad.mean),
    *(tangrad.permute, tangrad.permute_copy, tangrad.squeeze, "clamp", "mean", "permute"),
    *("reshape", "relu", "relu_", "squeeze", "squeeze_", "leaky_relu"),
)


def _embedding_configs() -> list[BackendPatternConfig]:
    types = [native.weight_only_quint8_dtype_config]
    function = operators.plain(F.embedding, types)._set_input_type_to_index({"weight": 1})
    return [*operators.embedding_configs(types), function]


def get_executorch_backend_config() -> BackendConfig:
    """Return the patterns of backends that are reached through ExecuTorch."""
    made = BackendConfig("executorch")
    for configs in (
        operators.single_linear_configs(_linear),
        operators.image_conv_configs(_weighted),
        operators.of_two_configs(_weighted_sums(), _FUNCTIONS),
        operators.shared(_default, _SHARING),
        [operators.plain(nn.BatchNorm2d, _default)],
        operators.shared(_default, (tangrad.cat, tangrad.concat, tangrad.concatenate)),
        _embedding_configs(),
    ):
        made.set_backend_pattern_configs(configs)
    return made


def _weighted_sums() -> list[DTypeConfig]:
    # As in PyTorch, whose quint8 sums are listed with the dtype of a weight that they do not have.
    return [native.default_signed_dtype_config, native.weighted_op_quint8_dtype_config]
