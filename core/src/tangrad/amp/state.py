"""What autocast is set to in a thread, and the rewriter that stands in the way of calls."""

from __future__ import annotations

import threading
from typing import Any

from tangrad import _C
from tangrad.amp.policies import AS_IS, FLOAT32, LOWER, UNSAFE_ON_ACCELERATORS, policy_of
from tangrad.devices import registry
from tangrad.discovery import discovery, neutral
from tangrad.dispatch import stack

HOST_TYPE = "cpu"
# Where programs run that name no device: PyTorch's functions without one mean this type.
USUAL_ACCELERATOR = neutral.device_flags()[0]


class _State(threading.local):
    def __init__(self) -> None:
        self.enabled: set[str] = set()
        self.dtypes: dict[str, Any] = {}
        self.nesting = 0
        self.caching = True
        self.cache: dict[Any, tuple[Any, Any]] = {}


_state = _State()


def driver_of(device_type: str) -> Any:
    """Return the driver of a device type, or None where no package or machine brings it.

    Raises:
        RuntimeError: no device has such a name, or its plugin is broken.
    """
    require_name(device_type)
    try:
        return registry.get_driver(device_type) if device_type in registry.device_names() else None
    except discovery.PluginError as error:
        if not error.failure.missing:
            raise
        return None


def require_name(device_type: str) -> None:
    """Refuse what is no type of device; one that cannot be opened here is a type all the same.

    Raises:
        RuntimeError: no device has such a name.
    """
    known = {*registry.device_names(), *neutral.device_flags()}
    if device_type not in known:
        names = ", ".join(sorted(known))
        raise RuntimeError(f"autocast: Expected one of {names} as device type, not: {device_type}")


def default_dtype(device_type: str) -> Any:
    """Return the dtype that autocast uses unless told otherwise.

    Raises:
        RuntimeError: the device has no autocast.
    """
    driver = driver_of(device_type)
    if driver is None:
        return _C.dtype_by_name("float16")
    if not driver.amp_dtypes:
        raise RuntimeError(
            f"autocast: unsupported scalarType: device '{device_type}' names no dtype that "
            "autocast may compute in (amp_dtypes of its driver)"
        )
    return _C.dtype_by_name(driver.amp_dtypes[0])


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Return whether autocast is active for a device type in this thread."""
    wanted = USUAL_ACCELERATOR if device_type is None else device_type
    if wanted not in _state.enabled:
        require_name(wanted)
        return False
    return True


def set_autocast_enabled(device_type: Any, enabled: Any = None) -> None:
    """Switch autocast for a device type; with one argument, for the usual accelerator.

    Raises:
        TypeError: `enabled` is no bool.
    """
    if enabled is None:
        device_type, enabled = USUAL_ACCELERATOR, device_type
    if not isinstance(enabled, bool):
        raise TypeError(
            "set_autocast_enabled(): argument 'enabled' (position 2) must be bool, not "
            f"{type(enabled).__name__}"
        )
    require_name(device_type)
    (_state.enabled.add if enabled else _state.enabled.discard)(device_type)
    rewriters = stack.current().rewriters
    if _state.enabled and rewrite not in rewriters:
        rewriters.append(rewrite)
    elif not _state.enabled and rewrite in rewriters:
        rewriters.remove(rewrite)
    stack.current().install()


def get_autocast_dtype(device_type: str) -> Any:
    """Return the dtype that autocast computes in on a device type."""
    found = _state.dtypes.get(device_type)
    return default_dtype(device_type) if found is None else found


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Set the dtype that autocast computes in on a device type.

    Raises:
        TypeError: `dtype` is no dtype.
    """
    if not isinstance(dtype, _C.dtype):
        raise TypeError(
            "set_autocast_dtype(): argument 'dtype' (position 2) must be dtype, not "
            f"{type(dtype).__name__}"
        )
    require_name(device_type)
    _state.dtypes[device_type] = dtype


def is_autocast_cache_enabled() -> bool:
    """Return whether casts of parameters are kept until the outermost autocast ends."""
    return _state.caching


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep casts of parameters until the outermost autocast ends, or not."""
    _state.caching = bool(enabled)


def clear_autocast_cache() -> None:
    """Forget the casts of parameters that were kept."""
    _state.cache.clear()


def autocast_increment_nesting() -> int:
    """Enter one more region; return how many there are."""
    _state.nesting += 1
    return _state.nesting


def autocast_decrement_nesting() -> int:
    """Leave a region; return how many are left."""
    _state.nesting -= 1
    return _state.nesting


def is_autocast_cpu_enabled() -> bool:
    """Return whether autocast is active for the host."""
    return is_autocast_enabled(HOST_TYPE)


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Switch autocast for the host."""
    set_autocast_enabled(HOST_TYPE, enabled)


def get_autocast_cpu_dtype() -> Any:
    """Return the dtype that autocast computes in on the host."""
    return get_autocast_dtype(HOST_TYPE)


def set_autocast_cpu_dtype(dtype: Any) -> None:
    """Set the dtype that autocast computes in on the host."""
    set_autocast_dtype(HOST_TYPE, dtype)


def get_autocast_gpu_dtype() -> Any:
    """Return the dtype that autocast computes in on the usual accelerator."""
    return get_autocast_dtype(USUAL_ACCELERATOR)


def set_autocast_gpu_dtype(dtype: Any) -> None:
    """Set the dtype that autocast computes in on the usual accelerator."""
    set_autocast_dtype(USUAL_ACCELERATOR, dtype)


def rewrite(op: _C.Op, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Cast the arguments of a call as autocast wants; None where it has nothing to say.

    Raises:
        RuntimeError: the op is unsafe in a narrow dtype on this device.
    """
    device_type = _device_type(args)
    if device_type is None:
        return None
    host = bool(registry.get_driver(device_type).host)
    if op.name == UNSAFE_ON_ACCELERATORS and not host:
        raise RuntimeError(
            f"{op.name} is unsafe to autocast: combine the sigmoid with it in "
            "binary_cross_entropy_with_logits, which is safe"
        )
    policy = policy_of(op.name, args, host)
    if policy is None:
        return None
    if policy == AS_IS:
        return args
    narrow = get_autocast_dtype(device_type)
    wide = _C.dtype_by_name("float32")
    if policy == LOWER:
        target = narrow
    elif policy == FLOAT32:
        target = wide
    else:
        kinds = {t.dtype for t in stack.flat_tensors(args) if _eligible(t, device_type)}
        target = narrow if kinds <= {narrow} else wide
    return tuple(_cast(a, device_type, target) for a in args)


def _device_type(args: tuple[Any, ...]) -> str | None:
    """Return the device type among the tensors' for which autocast is active."""
    for t in stack.flat_tensors(args):
        if t.device.type in _state.enabled:
            return str(t.device.type)
    return None


def _eligible(t: Any, device_type: str) -> bool:
    return (
        t.device.type == device_type
        and t.is_floating_point()
        and t.dtype is not _C.dtype_by_name("float64")
    )


def _cast(a: Any, device_type: str, dtype: Any) -> Any:
    if isinstance(a, (list, tuple)):
        return type(a)(_cast(x, device_type, dtype) for x in a) if type(a) in (list, tuple) else a
    if not isinstance(a, _C.Tensor) or not _eligible(a, device_type) or a.dtype is dtype:
        return a
    kept = (
        _state.caching
        and dtype is not _C.dtype_by_name("float32")
        and a.requires_grad
        and a.is_leaf
        and a._base is None
        and not stack.current().levels
    )
    if not kept:
        return _converted(a, dtype)
    # A cast made without recording must not serve where gradients are wanted, nor one made
    # before the parameter was written.
    key = (id(a), dtype, _C.is_grad_enabled(), a._version)
    found = _state.cache.get(key)
    if found is None or found[0] is not a:
        found = _state.cache[key] = a, _converted(a, dtype)
    return found[1]


def _converted(a: Any, dtype: Any) -> Any:
    """Convert a tensor unseen by function modes and subclasses: the caller did not call this."""
    acting = stack.current()
    modes, acting.function_modes = acting.function_modes, []
    acting.functions_disabled += 1
    try:
        return a.to(dtype)
    finally:
        acting.functions_disabled -= 1
        acting.function_modes = modes
