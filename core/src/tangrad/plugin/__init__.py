"""Offer, in one place, all that a package needs that extends tangrad.

A plugin imports from here, from `tangrad.plugin.render` and `tangrad.plugin.compiled`, and nowhere
else below `tangrad`, the public namespace aside. What each name means is told where it is defined;
the hooks are told in `tangrad.plugins.hookspecs`, a device in `tangrad.devices.driver`. Every
plugin module states the version it was made for: `API = 1`.

`tangrad.plugin.compiled` has the base class of devices that compile C-like source;
`tangrad.plugin.render` is for those who make kernels from definitions otherwise, and for compilers.
"""

from __future__ import annotations

from typing import Any

_WHERE: dict[str, str] = {
    "API_VERSION": "tangrad.plugins",
    "CachingAllocator": "tangrad._C",
    "CompilingDriver": "tangrad.plugin.compiled",
    "DeviceDriver": "tangrad.devices.driver",
    "DeviceStreams": "tangrad.devices.queues",
    "Drawn": "tangrad.dispatch.random_state",
    "FakeTensorMode": "tangrad._subclasses.fake_tensor",
    "FallbackWarning": "tangrad.dispatch.resolution",
    "KernelDialect": "tangrad.plugin.compiled",
    "Layout": "tangrad.layouts",
    "LayoutWarning": "tangrad.layouts",
    "PinnedMemory": "tangrad.devices.queues",
    "PluginError": "tangrad.plugins.discovery",
    "Sample": "tangrad.ops.definition.samples",
    "SampleTensor": "tangrad.ops.definition.samples",
    "Sampler": "tangrad.ops.definition.samples",
    "SettingError": "tangrad.devices.driver",
    "ShapeEnv": "tangrad.tensor.symbolic",
    "Tensor": "tangrad._C",
    "accounts_of_memory": "tangrad.holders",
    "all_ops": "tangrad.ops.definition.catalogue",
    "allocator_of": "tangrad._C",
    "allocators": "tangrad.devices.registry",
    "availability": "tangrad.devices.registry",
    "bind_arguments": "tangrad._C",
    "call_hook": "tangrad.plugins.hooks",
    "call_recorded": "tangrad._C",
    "component": "tangrad.layouts",
    "components": "tangrad.layouts",
    "composite": "tangrad.ops.definition.define",
    "device_names": "tangrad.devices.registry",
    "dispatch": "tangrad._C",
    "fallback_calls": "tangrad.dispatch.resolution",
    "find_op": "tangrad.ops.definition.catalogue",
    "get_driver": "tangrad.devices.registry",
    "has_op": "tangrad.ops.definition.catalogue",
    "hookimpl": "tangrad.plugins.hookspecs",
    "include_directory": "tangrad.plugins.headers",
    "innermost_tracer": "tangrad.dispatch.tracing",
    "intercepted": "tangrad.dispatch.intercept",
    "intercepted_modules": "tangrad.nn.modules.interception",
    "is_intercepted": "tangrad._C",
    "layout_tensor": "tangrad.layouts",
    "level_of": "tangrad._C",
    "load_by_name": "tangrad.plugins.discovery",
    "location": "tangrad.devices.kernels",
    "materialise": "tangrad.ops.definition.samples",
    "metadata": "tangrad.layouts",
    "op": "tangrad.ops.definition.define",
    "op_calls": "tangrad._C",
    "opened_drivers": "tangrad.devices.registry",
    "overload": "tangrad.ops.definition.define",
    "phase": "tangrad.dispatch.phases",
    "plugin_names": "tangrad.plugins.discovery",
    "pointwise": "tangrad.ops.definition.define",
    "pop_observer": "tangrad.dispatch.intercept",
    "push_observer": "tangrad.dispatch.intercept",
    "reduction": "tangrad.ops.definition.define",
    "reference_kernel": "tangrad.devices.kernels",
    "register_array_protocol": "tangrad.tensor.exchange",
    "register_conversion": "tangrad.tensor.layouts",
    "register_dlpack_device": "tangrad.tensor.exchange",
    "register_dtype": "tangrad._C",
    "register_kernel": "tangrad.devices.kernels",
    "register_layout": "tangrad._C",
    "replace_components": "tangrad.layouts",
    "scan": "tangrad.ops.definition.define",
    "serves_all_sizes": "tangrad.dispatch.tracing",
    "set_stream": "tangrad.devices.streams",
    "submodules_on_demand": "tangrad.plugins.namespaces",
    "tensor_from_pointer": "tangrad._C",
    "tensor_type": "tangrad.tensor.legacy",
    "to_layout": "tangrad.layouts",
    "unwatch_phases": "tangrad.dispatch.phases",
    "traced_calls": "tangrad.dispatch.tracing",
    "value_reads": "tangrad._C",
    "view": "tangrad.ops.definition.define",
    "watch_phases": "tangrad.dispatch.phases",
    "watched_kernels": "tangrad.dispatch.watching",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    import importlib

    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
