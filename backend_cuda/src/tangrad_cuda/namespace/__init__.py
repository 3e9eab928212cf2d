"""GPUs by PyTorch's names: what is shown as `tangrad.cuda`.

Importing it links nothing and initialises nothing; where there is no GPU, questions have the
answers that they have without this package, and everything else says why.
"""

from __future__ import annotations

import importlib
from typing import Any

from tangrad import AcceleratorError as AcceleratorError
from tangrad import OutOfMemoryError as OutOfMemoryError

_NAMES = {
    "devices": "CudaError DeferredCudaCallError can_device_access_peer check_error clock_rate "
    "cudaStatus cudart current_blas_handle current_device current_solver_handle device "
    "device_count device_memory_used device_of get_arch_list get_device_capability "
    "get_device_name get_device_properties get_gencode_flags get_sync_debug_mode init "
    "ipc_collect is_available is_bf16_supported is_initialized is_tf32_supported "
    "list_gpu_processes memory_usage power_draw set_device set_sync_debug_mode synchronize "
    "temperature utilization",
    "streams": "Event ExternalStream Stream StreamContext current_stream default_stream "
    "get_stream_from_external is_current_stream_capturing set_stream stream",
    "memory": "caching_allocator_alloc caching_allocator_delete caching_allocator_disabled "
    "caching_allocator_enable empty_cache get_allocator_backend "
    "get_per_process_memory_fraction host_memory_stats host_memory_stats_as_nested_dict "
    "max_memory_allocated max_memory_cached max_memory_reserved mem_get_info memory_allocated "
    "memory_cached memory_reserved memory_snapshot memory_stats memory_stats_as_nested_dict "
    "memory_summary reset_accumulated_host_memory_stats reset_accumulated_memory_stats "
    "reset_max_memory_allocated reset_max_memory_cached reset_peak_host_memory_stats "
    "reset_peak_memory_stats set_per_process_memory_fraction",
    "random": "get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed "
    "seed_all set_rng_state set_rng_state_all",
    "graphs": "CUDAGraph graph graph_pool_handle make_graphed_callables",
    "not_yet": "CUDAPluggableAllocator GreenContext MemPool change_current_allocator use_mem_pool",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = ("graphs", "memory", "nvtx", "profiler", "random", "sparse", "streams")

has_half, has_magma = True, False

__all__ = [
    *_WHERE,
    "AcceleratorError",
    "OutOfMemoryError",
    "default_generators",
    "has_half",
    "has_magma",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        found = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
        globals()[name] = found
        return found
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "_initialized":  # libraries ask, so as not to wake the driver
        return importlib.import_module(f"{__name__}.devices").is_initialized()
    if name == "default_generators":
        from tangrad_cuda.namespace.random import generators

        return generators()
    if name.endswith(("Tensor", "Storage")):
        found = _typed(name)
        if found is not None:
            return found
    raise AttributeError(f"module 'tangrad.cuda' has no attribute '{name}'")


def _typed(name: str) -> type | None:
    """Return the class that stands for tensors or storages of one dtype on GPUs."""
    if name.endswith("Tensor"):
        from tangrad.plugin import tensor_type

        return tensor_type(name, "cuda")
    from tangrad_cuda.namespace.not_yet import STORAGES

    return STORAGES.get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
