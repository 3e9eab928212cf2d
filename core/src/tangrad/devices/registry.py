"""Find, probe and open device drivers by name, each once in a process."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tangrad.devices.driver import SettingError
from tangrad.random.generator import initial_seeds

if TYPE_CHECKING:
    from tangrad.devices.driver import DeviceDriver
    from tangrad.discovery.discovery import Plugin

# The devices that the core brings. A plugin of the same name takes the place of "cpu", which the
# reference device serves until then; the others are the core's own.
BUILTIN: dict[str, str] = {
    "cpu": "tangrad.devices.builtin:Host",
    "meta": "tangrad.devices.builtin:Meta",
    "reference": "tangrad.devices.builtin:Host",
}
REPLACEABLE = frozenset({"cpu"})

_lock = threading.RLock()
_opened: dict[str, DeviceDriver] = {}
_providers: dict[str, Plugin] = {}


def get_driver(name: str) -> DeviceDriver:
    """Return the opened driver of a device type.

    Args:
        name: such as "cpu"; a device index is not part of it.

    Raises:
        RuntimeError: no device has the name; or its plugin is broken, says why it cannot work
            here, or failed to open (`PluginError`).
    """
    driver = _opened.get(name)
    if driver is not None:
        return driver
    plugin = _plugin(name)
    if plugin is None:
        return _open_builtin(name)
    from tangrad.discovery import discovery

    try:
        return _open_plugin(name, plugin)
    except discovery.PluginError as error:
        if name not in BUILTIN or discovery.is_half_imported(plugin):
            raise
        warnings.warn(
            f"device '{name}' is served by the slow reference device: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return _open_builtin(name)


def open_device(name: str) -> DeviceDriver:
    """Open a device and register it with the compiled core, with all its kernels.

    The compiled core calls this for a device type that it does not know yet.

    Raises:
        RuntimeError: as `get_driver`.
    """
    from tangrad import _C

    driver = get_driver(name)
    with _lock:
        if name not in _C.registered_devices():
            # Kernels first: a device whose kernels cannot be registered must stay unknown.
            _register_kernels(driver)
            _C.register_device_type(name, driver, host=driver.host, meta=driver.meta)
            initial_seeds[name] = driver.initial_seed
    return driver


def opened_drivers() -> list[DeviceDriver]:
    """Return the drivers of the devices in use, in the order in which they were opened."""
    return list(_opened.values())


def allocators() -> dict[int, Any]:
    """Return {number: device} of the allocators of devices in use: what watchers of memory name."""
    from tangrad import _C

    # The compiled core keeps those of a device whose driver is gone.
    return {number: device for number, device in _C.allocators().items() if device.type in _opened}


def device_names() -> list[str]:
    """Return the device types that exist here, usable or not: the core's, then the plugins'."""
    from tangrad.discovery import discovery

    return [*BUILTIN, *(n for n in discovery.names(discovery.DEVICES) if n not in BUILTIN)]


def availability(name: str) -> tuple[str, str]:
    """Return who provides a device, and "available" or the reason why it is not; opens nothing.

    Raises:
        RuntimeError: no device has the name.
    """
    from tangrad.discovery import discovery, probing

    try:
        plugin = _plugin(name)
        if plugin is None:
            if name not in BUILTIN:
                raise _unknown(name)
            return "tangrad", "available"
        reason = probing.probe(plugin, _instance(plugin).probe)
    except discovery.PluginError as error:
        failed = error.failure
        return f"{failed.plugin.distribution} {failed.plugin.version}", f"broken: {failed.cause}"
    provider = f"{plugin.distribution} {plugin.version}"
    return provider, "available" if reason is None else f"not available: {reason}"


def accelerates(driver: DeviceDriver) -> bool:
    """Return whether programs that take whatever accelerator there is may take this one."""
    apart = not driver.host and not driver.meta
    return driver.accelerator and (apart or driver.streams is not None or driver.pinned is not None)


def is_usable_accelerator(name: str) -> bool:
    """Return whether an installed device is an accelerator that works here; opens nothing."""
    from tangrad.discovery import discovery, probing

    try:
        plugin = _plugin(name)
        if plugin is None or not accelerates(driver := _instance(plugin)):
            return False
        return probing.probe(plugin, driver.probe) is None
    except discovery.PluginError:
        return False


def _plugin(name: str) -> Plugin | None:
    if name in BUILTIN and name not in REPLACEABLE:
        return None
    from tangrad.discovery import discovery

    return discovery.find(discovery.DEVICES, name)


def _open_builtin(name: str) -> DeviceDriver:
    if name not in BUILTIN:
        raise _unknown(name)
    with _lock:
        if name not in _opened:
            driver = _driver_class(BUILTIN[name])(name)
            driver.open()
            _opened[name] = driver
        return _opened[name]


def _open_plugin(name: str, plugin: Plugin) -> DeviceDriver:
    from tangrad.discovery import discovery, probing

    driver = _instance(plugin)
    reason = probing.probe(plugin, driver.probe)
    if reason is not None:
        discovery.raise_kept(plugin, "probe")
    with _lock:
        if name in _opened:
            return _opened[name]
        discovery.raise_kept(plugin, "open")
        try:
            driver.open()
            for method in ("device_count", "current_device"):
                if not isinstance(answer := getattr(driver, method)(), int):
                    raise TypeError(f"{method}() returned {answer!r}, not an integer")
        except SettingError:
            raise
        except Exception as error:
            raise _failed(plugin, "open", error) from error
        _opened[name], _providers[name] = driver, plugin
    return driver


def _instance(plugin: Plugin) -> DeviceDriver:
    """Return an unopened driver of a plugin: the class, called with the device's name."""
    from tangrad.discovery import discovery

    loaded = discovery.load(plugin)
    discovery.raise_kept(plugin, "driver")
    try:
        driver: DeviceDriver = loaded(plugin.name)
        _check(driver)
    except Exception as error:
        remedy = "The entry point has to name a subclass of tangrad.plugin.DeviceDriver."
        failure = discovery.keep_failure(plugin, "driver", error, remedy)
        raise discovery.PluginError(failure) from error
    return driver


def _check(driver: Any) -> None:
    from tangrad.devices.driver import DeviceDriver

    if not isinstance(driver, DeviceDriver):
        raise TypeError(f"{driver!r} is no DeviceDriver")


def _driver_class(value: str) -> Any:
    import importlib

    module, _, attribute = value.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _refuse_after_fork() -> None:
    """Keep a child of fork from what belongs to its parent; in a child nobody else runs yet."""
    for driver in _opened.values():
        if not driver.survives_fork:
            for method in ("allocate", "copy_from_host", "copy_to_host", "copy_within"):
                setattr(driver, method, _refusal(driver.name))
            for method in ("release", "synchronize"):
                setattr(driver, method, lambda *arguments: None)


def _refusal(name: str) -> Callable[..., None]:
    def refuse(*arguments: Any, **named: Any) -> None:
        raise RuntimeError(
            f"device '{name}' belongs to the process that this one was forked from and does not "
            "survive that: start processes by multiprocessing's 'spawn' or 'forkserver', or use "
            "the device in the child alone"
        )

    return refuse


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_after_fork)


def _register_kernels(driver: DeviceDriver) -> None:
    from functools import partial

    from tangrad.devices.kernels import register_kernel
    from tangrad.discovery import discovery
    from tangrad.discovery.hooks import call_hook_once

    plugin = _providers.get(driver.name)
    if plugin is None:
        driver.register_kernels(partial(register_kernel, device=driver.name))
    else:
        discovery.raise_kept(plugin, "kernels")
        try:
            driver.register_kernels(partial(register_kernel, device=driver.name))
        except Exception as error:
            raise _failed(plugin, "kernels", error) from error
    call_hook_once("tangrad_register_kernels", device=driver.name)


def _failed(plugin: Plugin, stage: str, error: Exception) -> Exception:
    from tangrad.discovery import discovery

    remedy = f"Report it to the authors of {plugin.distribution} if you cannot mend it."
    return discovery.PluginError(discovery.keep_failure(plugin, stage, error, remedy))


def _unknown(name: str) -> RuntimeError:
    """Return PyTorch's error for an unknown device, with what is known and what failed."""
    from tangrad.discovery import discovery
    from tangrad.discovery.neutral import device_flags, missing_device

    lines = [
        f"Expected one of {', '.join(device_names())} device type at start of device string: "
        f"{name}. Other devices come with plugins; python -m tangrad info lists them."
    ]
    off = discovery.find_disabled(discovery.DEVICES, name)
    if off is not None:
        lines.append(f"{off} is switched off by {discovery.DISABLE_VARIABLE}.")
    lines += [str(f) for f in discovery.failures() if f.plugin.group == discovery.DEVICES]
    error = RuntimeError("\n".join(lines))
    return missing_device(name, error) if name in device_flags() else error
