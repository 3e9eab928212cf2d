"""What a backend can quantize, for graph mode."""

from tangrad_quantization.backend_config.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from tangrad_quantization.backend_config.executorch import get_executorch_backend_config
from tangrad_quantization.backend_config.native import (
    get_fbgemm_backend_config,
    get_native_backend_config,
    get_native_backend_config_dict,
    get_onednn_backend_config,
    get_qnnpack_backend_config,
    get_x86_backend_config,
)
from tangrad_quantization.backend_config.tensorrt import (
    get_tensorrt_backend_config,
    get_tensorrt_backend_config_dict,
)

__all__ = [
    "BackendConfig",
    "BackendPatternConfig",
    "DTypeConfig",
    "DTypeWithConstraints",
    "ObservationType",
    "get_executorch_backend_config",
    "get_fbgemm_backend_config",
    "get_native_backend_config",
    "get_native_backend_config_dict",
    "get_onednn_backend_config",
    "get_qnnpack_backend_config",
    "get_tensorrt_backend_config",
    "get_tensorrt_backend_config_dict",
    "get_x86_backend_config",
]
