"""What TensorRT can quantize: all in signed integers of 8 bits."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_quantization.backend_config import operators
from tangrad_quantization.backend_config.backend_config import BackendConfig, DTypeConfig

__all__ = ["get_tensorrt_backend_config", "get_tensorrt_backend_config_dict"]


def get_tensorrt_backend_config() -> BackendConfig:
    """Return the patterns of TensorRT; models are handed over by `convert_to_reference_fx`."""
    int8 = tangrad.qint8
    weighted = [DTypeConfig(int8, int8, int8, tangrad.float32)]
    plain = [DTypeConfig(int8, int8)]
    addmm = operators.plain(tangrad.addmm, weighted)
    made = BackendConfig("tensorrt")
    for configs in (
        operators.conv_configs(weighted),
        [addmm._set_input_type_to_index({"bias": 0, "input": 1, "weight": 2})],
        operators.cat_configs(plain),
        operators.linear_configs(weighted),
        operators.binary_configs(weighted),
        operators.sharing_configs(plain),
        operators.size_configs(plain),
    ):
        made.set_backend_pattern_configs(configs)
    return made


def get_tensorrt_backend_config_dict() -> dict[str, Any]:
    """Return `get_tensorrt_backend_config()` as a dict."""
    return get_tensorrt_backend_config().to_dict()
