"""Which names `tangrad.plugin` offers, by who needs them, and where each is defined."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

OFFERED: dict[str, dict[str, str]] = {
    # Define ops: the language of definitions, samples, and what rules of ops stand on.
    "op": {
        "BatchLevel": "tangrad.dispatch.batching",
        "Drawn": "tangrad.dispatch.random_state",
        "FallbackWarning": "tangrad.dispatch.resolution",
        "Ints": "tangrad.ops.views.geometry",
        "Op": "tangrad._C",
        "OpNamespace": "tangrad.ops.definition.registry",
        "Sample": "tangrad.ops.definition.samples",
        "Sampler": "tangrad.ops.definition.samples",
        "SampleTensor": "tangrad.ops.definition.samples",
        "Stack": "tangrad.dispatch.stack",
        "all_ops": "tangrad.ops.definition.catalogue",
        "at_all_sizes": "tangrad.ops.definition.define",
        "batched_front": "tangrad.ops.views.geometry",
        "bind_arguments": "tangrad._C",
        "build_index": "tangrad.ops.definition.indexing",
        "call_recorded": "tangrad._C",
        "check_dtypes": "tangrad.ops.linalg.contraction",
        "check_pad": "tangrad.ops.rearrange",
        "composite": "tangrad.ops.definition.define",
        "current": "tangrad.dispatch.stack",
        "decomposition": "tangrad.dispatch.resolution",
        "difference_plus": "tangrad.ops.linalg.distance",
        "dispatch": "tangrad._C",
        "dtype_by_name": "tangrad._C",
        "fallback": "tangrad.dispatch.resolution",
        "fallback_calls": "tangrad.dispatch.resolution",
        "find_op": "tangrad.ops.definition.catalogue",
        "flat_tensors": "tangrad.dispatch.stack",
        "get_intercept": "tangrad._C",
        "has_op": "tangrad.ops.definition.catalogue",
        "index_vector": "tangrad.tensor.construct",
        "is_intercepted": "tangrad._C",
        "level_of": "tangrad._C",
        "map_tensors": "tangrad.dispatch.levels",
        "materialise": "tangrad.ops.definition.samples",
        "numel_of": "tangrad.ops.views.geometry",
        "op": "tangrad.ops.definition.define",
        "op_namespaces": "tangrad.ops.definition.registry:NAMESPACES",
        "open_tensor": "tangrad.dispatch.levels",
        "overload": "tangrad.ops.definition.define",
        "overloaded_arguments": "tangrad.dispatch.overrides",
        "pad_pairs": "tangrad.ops.rearrange",
        "plain_ops": "tangrad.ops.definition.catalogue",
        "pointwise": "tangrad.ops.definition.define",
        "product_of": "tangrad.ops.linalg.contraction",
        "reduction": "tangrad.ops.definition.define",
        "reference_kernel": "tangrad.devices.kernels",
        "refuse_values": "tangrad.ops.refusal",
        "register_dtype": "tangrad._C",
        "require": "tangrad.dispatch.tracing",
        "require_fit": "tangrad.tensor.ranges",
        "require_floating": "tangrad.ops.reduction.softmax",
        "require_integer_index": "tangrad.ops.indexing.index",
        "scan": "tangrad.ops.definition.define",
        "set_recording": "tangrad._C:_set_grad_enabled",
        "split_schema": "tangrad.ops.definition.schema:split",
        "view": "tangrad.ops.definition.define",
    },
    # Bring a device: its driver, memory, streams and kernels.
    "device": {
        "API_VERSION": "tangrad.discovery",
        "CachingAllocator": "tangrad._C",
        "CompilingDriver": "tangrad.plugin.compiled",
        "DeviceDriver": "tangrad.devices.driver",
        "DEVICES": "tangrad.discovery.discovery",
        "DeviceStreams": "tangrad.devices.queues",
        "KernelDialect": "tangrad.plugin.compiled",
        "PinnedMemory": "tangrad.devices.queues",
        "SettingError": "tangrad.devices.driver",
        "Tensor": "tangrad._C",
        "accounts_of_memory": "tangrad.holders",
        "allocator_of": "tangrad._C",
        "allocators": "tangrad.devices.registry",
        "availability": "tangrad.devices.registry",
        "device_names": "tangrad.devices.registry",
        "default_accelerator": "tangrad._C:_default_accelerator",
        "get_driver": "tangrad.devices.registry",
        "include_directory": "tangrad.discovery.headers",
        "known_names": "tangrad.discovery.discovery",
        "location": "tangrad.devices.kernels",
        "opened_drivers": "tangrad.devices.registry",
        "sources_of_holdings": "tangrad.holders",
        "register_array_protocol": "tangrad.tensor.exchange",
        "register_dlpack_device": "tangrad.tensor.exchange",
        "registered_devices": "tangrad._C",
        "register_kernel": "tangrad.devices.kernels",
        "set_stream": "tangrad.devices.streams",
        "tensor_from_pointer": "tangrad._C",
        "tensor_type": "tangrad.tensor.legacy",
        "watched_kernels": "tangrad.dispatch.watching",
    },
    # Bring a layout: tensors of components in place of memory.
    "layout": {
        "Layout": "tangrad.layouts",
        "LayoutWarning": "tangrad.layouts",
        "component": "tangrad.layouts",
        "components": "tangrad.layouts",
        "layout_tensor": "tangrad.layouts",
        "metadata": "tangrad.layouts",
        "register_conversion": "tangrad.tensor.layouts",
        "register_layout": "tangrad._C",
        "replace_components": "tangrad.layouts",
        "to_layout": "tangrad.layouts",
    },
    # Watch programs: ops, modules, stretches of time.
    "observe": {
        "done_elsewhere": "tangrad.dispatch.phases",
        "intercepted": "tangrad.dispatch.intercept",
        "intercepted_modules": "tangrad.nn.modules.interception",
        "of_modules": "tangrad.autograd.observed_calls",
        "op_calls": "tangrad._C",
        "phase": "tangrad.dispatch.phases",
        "phase_is_watched": "tangrad.dispatch.phases",
        "pop_observer": "tangrad.dispatch.intercept",
        "push_observer": "tangrad.dispatch.intercept",
        "unwatch_phases": "tangrad.dispatch.phases",
        "value_reads": "tangrad._C",
        "watch_phases": "tangrad.dispatch.phases",
    },
    # Record programs: tracers, fake tensors, symbolic sizes.
    "trace": {
        "FakeTensorMode": "tangrad._subclasses.fake_tensor",
        "ShapeEnv": "tangrad.tensor.symbolic",
        "engine_run": "tangrad._C",
        "innermost_tracer": "tangrad.dispatch.tracing",
        "number_of": "tangrad.dispatch.tracing",
        "serves_all_sizes": "tangrad.dispatch.tracing",
        "traced_calls": "tangrad.dispatch.tracing",
    },
    # Be a package among others: hooks, entry points, public names.
    "package": {
        "MissingPluginError": "tangrad.discovery.neutral",
        "Parameter": "tangrad._C",
        "PluginError": "tangrad.discovery.discovery",
        "attribute_of": "tangrad.discovery.namespaces",
        "become_plain": "tangrad._C",
        "call_hook": "tangrad.discovery.hooks",
        "dtype_of_type": "tangrad._C",
        "foreign_library": "tangrad.discovery.neutral",
        "hookimpl": "tangrad.discovery.hookspecs",
        "load_by_name": "tangrad.discovery.discovery",
        "missing": "tangrad.discovery.neutral",
        "new_parameter": "tangrad._C",
        "offer_members": "tangrad._C",
        "own_copy": "tangrad.utils._state",
        "overridable": "tangrad.compat.overridable",
        "plugin_names": "tangrad.discovery.discovery",
        "refused": "tangrad.discovery.neutral",
        "resolve": "tangrad.discovery.namespaces",
        "scripts": "tangrad.discovery.neutral",
        "submodules_on_demand": "tangrad.discovery.namespaces",
    },
}


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
