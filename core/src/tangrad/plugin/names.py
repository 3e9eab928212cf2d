"""Which names `tangrad.plugin` offers, by who needs them, and where each is defined."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# {audience: {module below `tangrad`: names, each `name` or `name=attribute` of the module}}
_PLACES = {
    # Define ops: the language of definitions, samples, and what rules of ops stand on.
    "op": {
        "_C": (
            "Op bind_arguments call_recorded call_unrecorded constant dispatch dtype_by_name "
            "get_intercept is_backward_watched is_intercepted level_of register_dtype "
            "set_recording=_set_grad_enabled"
        ),
        "devices.kernels": "reference_kernel",
        "devices.lapack_spectral": "lapack_address lapack_threads",
        "dispatch.batching": "BatchLevel",
        "dispatch.binding": "handled_form",
        "dispatch.levels": "map_tensors open_tensor",
        "dispatch.overrides": "overloaded_arguments",
        "dispatch.python_dispatch": "CallsShown handle_call=handle is_shown",
        "dispatch.random_state": "Drawn",
        "dispatch.resolution": "FallbackWarning decomposition fallback fallback_calls",
        "dispatch.stack": "Stack current flat_tensors",
        "dispatch.tracing": "require",
        "ops.definition.catalogue": "all_ops find_op has_op plain_ops",
        "ops.definition.define": "at_all_sizes composite op overload pointwise reduction scan view",
        "ops.definition.indexing": "build_index",
        "ops.definition.registry": "OpNamespace op_namespaces=NAMESPACES",
        "ops.definition.samples": "Sample Sampler SampleTensor materialise",
        "ops.definition.schema": "split_schema=split",
        "ops.definition.signature": (
            "DType Device Dim Dims Dims1 Generator Ints1 Ints2 Ints3 MemoryFormat Operand Scalar "
            "TensorLayout WrittenTensor"
        ),
        "ops.indexing.index": "require_integer_index",
        "ops.linalg.contraction": "check_dtypes product_of",
        "ops.linalg.distance": "difference_plus",
        "ops.rearrange": "check_pad pad_pairs",
        "ops.reduction.softmax": "require_floating",
        "ops.refusal": "refuse_values",
        "ops.views.geometry": "Ints batched_front numel_of",
        "tensor.construct": "index_vector",
        "tensor.ranges": "require_fit",
    },
    # Bring a device: its driver, memory, streams and kernels.
    "device": {
        "_C": (
            "CachingAllocator Tensor allocator_of default_accelerator=_default_accelerator "
            "private_allocator registered_devices tensor_from_pointer use_allocator"
        ),
        "devices.driver": "DeviceDriver SettingError",
        "devices.kernels": "location register_kernel",
        "devices.queues": "DeviceStreams PinnedMemory",
        "devices.registry": "allocators availability device_names get_driver opened_drivers",
        "devices.streams": "set_stream",
        "discovery": "API_VERSION",
        "discovery.discovery": "DEVICES known_names",
        "discovery.headers": "include_directory",
        "dispatch.watching": "watched_kernels",
        "holders": "accounts_of_memory sources_of_holdings",
        "plugin.compiled": "CompilingDriver KernelDialect",
        "tensor.caller": "warn_once",
        "tensor.exchange": "register_array_protocol register_dlpack_device",
        "tensor.legacy": "tensor_type",
    },
    # Bring a layout: tensors of components in place of memory.
    "layout": {
        "_C": "register_layout",
        "layouts": (
            "Layout LayoutWarning component components layout_tensor metadata replace_components "
            "to_layout"
        ),
        "tensor.layouts": "register_conversion",
    },
    # Watch programs: ops, modules, stretches of time.
    "observe": {
        "_C": "op_calls value_reads walk_is_selective walks",
        "autograd.observed_calls": "is_silent of_modules program_line silent tensors_in",
        "autograd.saved_arguments": "SavedArguments",
        "dispatch.intercept": "intercepted pop_observer push_observer",
        "dispatch.phases": "done_elsewhere phase phase_is_watched unwatch_phases watch_phases",
        "nn.modules.interception": "intercepted_modules",
    },
    # Record programs: tracers, symbolic sizes.
    "trace": {
        "_C": "engine_run",
        "control_flow": "keeping_branches keeps_branches",
        "dispatch.tracing": "innermost_tracer number_of serves_all_sizes traced_calls",
        "tensor.symbolic": "ShapeEnv",
    },
    # Be a package among others: hooks, entry points, public names.
    "package": {
        "_C": "Parameter become_plain dtype_of_type new_parameter offer_members",
        "compat.overridable": "overridable",
        "discovery.discovery": "PluginError load_by_name plugin_names",
        "discovery.hooks": "call_hook",
        "discovery.hookspecs": "hookimpl",
        "discovery.namespaces": "attribute_of resolve submodules_on_demand",
        "discovery.neutral": "MissingPluginError foreign_library is_placeholder missing refused"
        " scripts",
        "serialization.writing": "atomically",
        "utils._state": "own_copy",
        "utils.program_models": "load_model",
    },
}


def _by_name(places: dict[str, str]) -> dict[str, str]:
    found = {}
    for module, names in places.items():
        for name, same, attribute in (word.partition("=") for word in names.split()):
            found[name] = f"tangrad.{module}{':' if same else ''}{attribute}"
    return found


#: {audience: {name: module that defines it, or module:attribute}}
OFFERED: dict[str, dict[str, str]] = {who: _by_name(places) for who, places in _PLACES.items()}


def offered(
    module: str, where: dict[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a module that offers names of others.

    Args:
        module: its `__name__`.
        where: {name: module that defines it, or module:attribute}, imported when it is asked for.
    """

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        place, _, attribute = where[name].partition(":")
        return getattr(import_module(place), attribute or name)

    return find, lambda: sorted(where)
