"""Settings of the top level: determinism, precision, threads between ops, default tensor type.

Several of them steer what PyTorch's libraries do and find nothing to steer here; they are kept
and told, so that programs which set them run unchanged.
"""

from __future__ import annotations

import warnings
from typing import Any

from tangrad import _C
from tangrad.tensor import caller

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_deterministic_debug_mode",
    "get_device_module",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_default_tensor_type",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_warn_always",
    "use_deterministic_algorithms",
]

_MODES = ("default", "warn", "error")
_PRECISIONS = ("highest", "high", "medium")
_TENSOR_TYPES = {
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
}
_settings: dict[str, Any] = {
    "deterministic": False,
    "warn_only": False,
    "fills_memory": True,
    "precision": "highest",
    "interop_threads": 1,
    "warn_always": False,
}


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for algorithms that give the same bits each time.

    The kernels of this core and of device `cpu` always do; a device that has others obeys. So that
    memory which nobody wrote gives the same, too, `empty` and its kin fill theirs with NaN or the
    largest integer, unless `utils.deterministic.fill_uninitialized_memory` is False.

    Args:
        mode: whether to refuse others.
        warn_only: warn instead.

    Raises:
        TypeError: `mode` is not a bool.
    """
    if not isinstance(mode, bool) or not isinstance(warn_only, bool):
        wrong, which = (mode, "'mode' (position 1)")
        if isinstance(mode, bool):
            wrong, which = (warn_only, "'warn_only'")
        raise TypeError(
            f"_set_deterministic_algorithms(): argument {which} must be bool, not "
            f"{type(wrong).__name__} (use_deterministic_algorithms)"
        )
    _settings["deterministic"], _settings["warn_only"] = mode, warn_only
    _tell_of_memory()


def fills_uninitialized_memory() -> bool:
    """Return whether new memory is filled while deterministic algorithms are asked for."""
    return bool(_settings["fills_memory"])


def fill_uninitialized_memory(mode: bool) -> None:
    """Say whether new memory is filled while deterministic algorithms are asked for.

    Raises:
        RuntimeError: it is not a bool.
    """
    _require_bool("fill_uninitialized_memory", mode)
    _settings["fills_memory"] = mode
    _tell_of_memory()


def _tell_of_memory() -> None:
    """Have `empty` take the way that fills, or the short one."""
    from tangrad.tensor import memory

    fills = bool(_settings["deterministic"] and _settings["fills_memory"])
    if fills != memory.fills_memory:
        memory.fills_memory = fills
        for name in ("empty", "new_empty"):
            _C.use_c_implementation(_C.lookup_op(name), not fills)


def are_deterministic_algorithms_enabled() -> bool:
    """Return whether deterministic algorithms were asked for, warnings included."""
    return _settings["deterministic"] is True


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Return whether other algorithms only warn."""
    return _settings["warn_only"] is True


def get_deterministic_debug_mode() -> int:
    """Return 0 where any algorithm may be used, 1 where others warn, 2 where they are refused."""
    return 2 - _settings["warn_only"] if _settings["deterministic"] else 0


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Set what `use_deterministic_algorithms` sets, by a number or a word.

    Args:
        debug_mode: 0 or "default", 1 or "warn", 2 or "error".

    Raises:
        TypeError: it is neither an int nor a str.
        RuntimeError: it is another one.
    """
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    allowed: tuple[Any, ...] = _MODES if isinstance(debug_mode, str) else (0, 1, 2)
    if debug_mode not in allowed:
        raise RuntimeError(
            f"invalid value of debug_mode, expected one of {', '.join(map(str, allowed))}, "
            f"but got {debug_mode}"
        )
    mode = allowed.index(debug_mode)
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_float32_matmul_precision() -> str:
    """Return the precision that was asked of matrix products of float32."""
    precision: str = _settings["precision"]
    return precision


def set_float32_matmul_precision(precision: str) -> None:
    """Say how much precision matrix products of float32 may give up for speed.

    Device `cpu` computes them in float32 whatever is said.

    Args:
        precision: "highest", "high" or "medium"; any other warns and changes nothing.
    """
    if precision not in _PRECISIONS:
        warnings.warn(
            f"{precision} is not one of {', '.join(_PRECISIONS)}; the current "
            "set_float32_matmul_precision call has no effect.",
            UserWarning,
            stacklevel=2,
        )
        return
    _settings["precision"] = precision


def _require_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise RuntimeError(f"{name} expects a bool, but got {type(value).__name__}")


def set_flush_denormal(mode: bool, /) -> bool:
    """Ask for denormal numbers to be taken as zero; returns whether that is supported: no.

    Raises:
        RuntimeError: `mode` is not a bool.
    """
    _require_bool("set_flush_denormal", mode)
    return False


def set_warn_always(b: bool, /) -> None:
    """Say whether warnings that come once in a process come each time, if the filters let them.

    Raises:
        RuntimeError: it is not a bool.
    """
    _require_bool("set_warn_always", b)
    _settings["warn_always"] = caller.warns_always = b


def is_warn_always_enabled() -> bool:
    """Return what `set_warn_always` was told."""
    return bool(_settings["warn_always"])


def get_num_interop_threads() -> int:
    """Return how many ops may run beside each other: one, unless set."""
    return int(_settings["interop_threads"])


def set_num_interop_threads(threads: int, /) -> None:
    """Set what `get_num_interop_threads` returns; ops run in the thread that calls them.

    Raises:
        RuntimeError: the number is not a positive integer.
    """
    if not isinstance(threads, int) or isinstance(threads, bool):
        raise RuntimeError(
            f"set_num_interop_threads expects an int, but got {type(threads).__name__}"
        )
    if threads <= 0:
        raise RuntimeError(f"set_num_interop_threads expects a positive integer, got {threads}")
    _settings["interop_threads"] = threads


def set_default_tensor_type(t: Any, /) -> None:
    """Set the default dtype by the name of a tensor type, such as "torch.DoubleTensor".

    Deprecated in PyTorch: use `set_default_dtype` and `set_default_device`.

    Raises:
        TypeError: it is no floating-point tensor type.
    """
    warnings.warn(
        "set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
        "torch.set_default_dtype() and torch.set_default_device() as alternatives.",
        UserWarning,
        stacklevel=2,
    )
    name = t if isinstance(t, str) else getattr(t, "__name__", repr(t))
    module, _, kind = name.rpartition(".")
    if kind not in _TENSOR_TYPES or module not in ("", "torch", "tangrad"):
        raise TypeError(
            f"invalid type object: only floating-point types are supported as the default type, "
            f"got {name}; choose one of {', '.join(_TENSOR_TYPES)}"
        )
    _C.set_default_dtype(_C.dtype_by_name(_TENSOR_TYPES[kind]))


def get_device_module(device: Any = None) -> Any:
    """Return the module that shows a device, such as `tangrad.cuda`.

    Args:
        device: a device or its name. Default: the default device.

    Raises:
        RuntimeError: no module of that name is shown, or it is no device.
    """
    import tangrad

    if device is not None and not isinstance(device, (str, _C.device)):
        raise RuntimeError(
            f"Invalid value of device '{device}', expect tangrad.device, str, or None"
        )
    text = _C.get_default_device() if device is None else device
    name = text.partition(":")[0] if isinstance(text, str) else text.type
    module = getattr(tangrad, name, None)
    if module is None:
        raise RuntimeError(
            f"Device '{name}' does not have a corresponding module registered as 'tangrad.{name}'."
        )
    return module
