"""What the kernels of this package offer, and what PyTorch's backends of other names do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad_quantization.backend_config import operators
from tangrad_quantization.backend_config.additions import addition_configs, follower_configs
from tangrad_quantization.backend_config.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
)

__all__ = [
    "default_dynamic_float16_dtype_config",
    "default_dynamic_int8_dtype_config",
    "default_op_fp16_dtype_config",
    "default_op_quint8_dtype_config",
    "get_fbgemm_backend_config",
    "get_native_backend_config",
    "get_native_backend_config_dict",
    "get_onednn_backend_config",
    "get_qnnpack_backend_config",
    "get_test_only_legacy_native_backend_config",
    "get_test_only_legacy_native_backend_config_dict",
    "get_x86_backend_config",
    "input_output_only_quint8_dtype_config",
    "weight_only_quint4x2_dtype_config",
    "weight_only_quint8_dtype_config",
    "weighted_op_quint8_dtype_config",
]

_quint8, _float, _half = tangrad.quint8, tangrad.float32, tangrad.float16

weighted_op_quint8_dtype_config = DTypeConfig(_quint8, _quint8, tangrad.qint8, _float)
default_op_quint8_dtype_config = DTypeConfig(_quint8, _quint8)
default_op_fp16_dtype_config = DTypeConfig(_half, _half, _half, _half)
default_dynamic_int8_dtype_config = DTypeConfig(_quint8, _float, tangrad.qint8, _float, True)
default_dynamic_float16_dtype_config = DTypeConfig(_half, _float, _half, _float, True)
input_output_only_quint8_dtype_config = DTypeConfig(_quint8, _quint8, _float, _float)
weight_only_quint8_dtype_config = DTypeConfig(_float, _float, tangrad.quint8)
weight_only_quint4x2_dtype_config = DTypeConfig(_float, _float, tangrad.quint4x2)
_weight_only_qint8 = DTypeConfig(_float, _float, tangrad.qint8)

# XNNPACK's symmetric int8 needs scales that its fixed-point multipliers can tell from zero.
signed_with_smallest_scale = DTypeWithConstraints(tangrad.qint8, scale_min_lower_bound=2**-12)
signed_weight_with_smallest_scale = DTypeWithConstraints(
    tangrad.qint8,
    quant_min_lower_bound=-127,
    quant_max_upper_bound=127,
    scale_min_lower_bound=2**-12,
)
weighted_signed_dtype_config = DTypeConfig(
    signed_with_smallest_scale,
    signed_with_smallest_scale,
    signed_weight_with_smallest_scale,
    _float,
)
default_signed_dtype_config = DTypeConfig(signed_with_smallest_scale, signed_with_smallest_scale)

# Families of patterns, in PyTorch's order.
_FAMILIES: dict[str, Callable[[Sequence[DTypeConfig]], list[BackendPatternConfig]]] = {
    "conv": operators.conv_configs,
    "linear": operators.linear_configs,
    "binary": operators.binary_configs,
    "cat": operators.cat_configs,
    "default": operators.default_configs,
    "fixed": operators.fixed_configs,
    "sharing": operators.sharing_configs,
    "size": operators.size_configs,
    "batch_norm": operators.batch_norm_configs,
    "layer_norm": operators.layer_norm_configs,
    "recurrent": operators.recurrent_configs,
    "embedding": operators.embedding_configs,
}
_NATIVE: dict[str, list[DTypeConfig]] = {
    "conv": [weighted_op_quint8_dtype_config],
    "linear": [
        weighted_op_quint8_dtype_config,
        default_dynamic_int8_dtype_config,
        default_dynamic_float16_dtype_config,
    ],
    **{
        family: [default_op_quint8_dtype_config]
        for family in ("binary", "cat", "default", "fixed", "sharing", "size", "batch_norm")
    },
    "layer_norm": [input_output_only_quint8_dtype_config],
    "recurrent": [default_dynamic_int8_dtype_config, default_dynamic_float16_dtype_config],
    "embedding": [weight_only_quint8_dtype_config, weight_only_quint4x2_dtype_config],
}


def _of(name: str, types: dict[str, list[DTypeConfig]]) -> BackendConfig:
    made = BackendConfig(name)
    for family, configs in _FAMILIES.items():
        if family in types:
            made.set_backend_pattern_configs(configs(types[family]))
    return made


def _without(*families: str) -> dict[str, list[DTypeConfig]]:
    return {family: types for family, types in _NATIVE.items() if family not in families}


def get_native_backend_config() -> BackendConfig:
    """Return what the kernels of this package offer; graph mode's default."""
    return _of("native", _NATIVE)


def get_native_backend_config_dict() -> dict[str, Any]:
    """Return `get_native_backend_config()` as a dict."""
    return get_native_backend_config().to_dict()


def get_test_only_legacy_native_backend_config() -> BackendConfig:
    """Return the native patterns, and float16 for linear layers, sums and what moves elements."""
    half = {
        family: [*_NATIVE[family], default_op_fp16_dtype_config]
        for family in ("linear", "binary", "fixed", "sharing")
    }
    return _of("_native_and_fp16", {**_NATIVE, **half})


def get_test_only_legacy_native_backend_config_dict() -> dict[str, Any]:
    """Return `get_test_only_legacy_native_backend_config()` as a dict."""
    return get_test_only_legacy_native_backend_config().to_dict()


def get_x86_backend_config() -> BackendConfig:
    """Return the patterns of PyTorch's "x86" backend."""
    return _of("x86", _without("layer_norm"))


def get_fbgemm_backend_config() -> BackendConfig:
    """Return the patterns of PyTorch's "fbgemm" backend."""
    return _of("fbgemm", _without("layer_norm"))


def get_qnnpack_backend_config() -> BackendConfig:
    """Return the patterns of PyTorch's "qnnpack" backend, symmetric int8 among them."""
    weighted = {
        family: [weighted_signed_dtype_config, *_NATIVE[family]] for family in ("conv", "linear")
    }
    signed = {
        family: [default_signed_dtype_config, *_NATIVE[family]]
        for family in ("binary", "cat", "default", "sharing", "batch_norm")
    }
    return _of("qnnpack", {**_without("layer_norm", "size"), **weighted, **signed})


def get_onednn_backend_config() -> BackendConfig:
    """Return the patterns of PyTorch's "onednn" backend: leaky ReLU, tanh and sums are fused."""
    linear = [weighted_op_quint8_dtype_config, default_dynamic_int8_dtype_config]
    made = _of(
        "onednn",
        {
            **_without("size"),
            "linear": linear,
            "recurrent": [default_dynamic_int8_dtype_config],
            "embedding": [_weight_only_qint8],
        },
    )
    made.set_backend_pattern_configs(addition_configs([weighted_op_quint8_dtype_config]))
    return made.set_backend_pattern_configs(follower_configs(linear))
