"""Offer, in one place, all that a package needs that extends tangrad.

A plugin imports from here and nowhere else below `tangrad`. What each name means is told where it
is defined; the hooks are told in `tangrad.plugins.hookspecs`, a device in
`tangrad.devices.driver`. Every plugin module states the version it was made for: `API = 1`.
"""

from __future__ import annotations

from typing import Any

_WHERE: dict[str, str] = {
    "API_VERSION": "tangrad.plugins",
    "DeviceDriver": "tangrad.devices.driver",
    "FallbackWarning": "tangrad.dispatch.resolution",
    "PluginError": "tangrad.plugins.discovery",
    "SettingError": "tangrad.devices.driver",
    "Tensor": "tangrad._C",
    "composite": "tangrad.ops.define",
    "hookimpl": "tangrad.plugins.hookspecs",
    "include_directory": "tangrad.plugins.headers",
    "intercepted": "tangrad.dispatch.intercept",
    "location": "tangrad.devices.kernels",
    "op": "tangrad.ops.define",
    "overload": "tangrad.ops.define",
    "pointwise": "tangrad.ops.define",
    "reduction": "tangrad.ops.define",
    "register_dtype": "tangrad._C",
    "register_kernel": "tangrad.devices.kernels",
    "register_layout": "tangrad._C",
    "scan": "tangrad.ops.define",
    "view": "tangrad.ops.define",
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
