"""`autocast` as a context manager and decorator, and the same for custom functions."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tangrad import _C
from tangrad.amp import state


def is_autocast_available(device_type: str) -> bool:
    """Return whether autocast knows a device type, installed or not.

    Raises:
        RuntimeError: no device has such a name.
    """
    driver = state.driver_of(device_type)
    return driver is None or bool(driver.amp_dtypes)


class autocast:
    """Run a region in mixed precision: a context manager, and a decorator.

    Regions nest; the innermost of a device type counts, and `enabled=False` switches it off.
    In-place forms and calls with `out=` are left as they are.

    Args:
        device_type: such as "cpu".
        dtype: what the ops that gain by it compute in; by default what the device prefers.
        enabled: whether anything is cast.
        cache_enabled: keep casts of parameters until the outermost region ends.

    Raises:
        ValueError: `device_type` is no string.
        RuntimeError: the device has no autocast.
    """

    def __init__(
        self,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.fast_dtype = state.get_autocast_dtype(device_type) if dtype is None else dtype
        self.device = device_type
        if not is_autocast_available(device_type):
            raise RuntimeError(
                f"User specified an unsupported autocast device_type '{device_type}'"
            )
        self._cache_enabled = (
            state.is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        )
        self._enabled = enabled and self._can_be_enabled()

    def _can_be_enabled(self) -> bool:
        """Warn and return False where the device is missing or lacks the dtype."""
        driver = state.driver_of(self.device)
        label = self.device.upper()
        if driver is None:
            message = f"{label} is not available. Disabling autocast."
        elif self.fast_dtype not in [_C.dtype_by_name(name) for name in driver.amp_dtypes]:
            supported = ", ".join(f"torch.{name}" for name in driver.amp_dtypes)
            message = (
                f"In {label} autocast, but the target dtype is not supported. Disabling "
                f"autocast.\n{label} Autocast only supports dtypes of {supported} currently."
            )
        else:
            return True
        warnings.warn(message, stacklevel=4)
        return False

    def __enter__(self) -> autocast:
        self.prev_cache_enabled = state.is_autocast_cache_enabled()
        self.prev = state.is_autocast_enabled(self.device)
        self.prev_fastdtype = state.get_autocast_dtype(self.device)
        state.set_autocast_enabled(self.device, bool(self._enabled))
        state.set_autocast_dtype(self.device, self.fast_dtype)
        state.autocast_increment_nesting()
        state.set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, *exc: Any) -> None:
        if state.autocast_decrement_nesting() == 0:
            state.clear_autocast_cache()
        state.set_autocast_enabled(self.device, self.prev)
        state.set_autocast_dtype(self.device, self.prev_fastdtype)
        state.set_autocast_cache_enabled(self.prev_cache_enabled)

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return `func` with its calls inside the region."""
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. Did you "
                "mean to use autocast as a context manager? For example:\n"
                "    with torch.autocast(device_type=...):\n        output = model(input)"
            )

        @functools.wraps(func)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return inside


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable[..., Any]:
    """Decorate `forward` of a custom Function so that autocast treats it as one op.

    Args:
        fwd: the function; None to get a decorator.
        device_type: the device type whose autocast counts.
        cast_inputs: in a region, cast floating inputs to this dtype and run without autocast;
            None runs the body under the region as it is.
    """
    _check_device_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        active = state.is_autocast_enabled(device_type)
        context._dtype = state.get_autocast_dtype(device_type)
        context._fwd_used_autocast = active and cast_inputs is None
        if not active or cast_inputs is None:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(
                *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs)
            )

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate `backward` of a custom Function to run under the autocast state of `forward`.

    Args:
        bwd: the function; None to get a decorator.
        device_type: the device type whose autocast counts.
    """
    _check_device_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        with autocast(device_type, context._dtype, context._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return backward


def _check_device_type(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """Cast the eligible tensors in nested arguments; strings and NumPy arrays pass."""
    if isinstance(value, _C.Tensor):
        eligible = (
            value.is_floating_point()
            and value.device.type == device_type
            and value.dtype is not _C.dtype_by_name("float64")
        )
        return value.to(dtype) if eligible else value
    numpy = sys.modules.get("numpy")
    if isinstance(value, (str, bytes)) or (numpy and isinstance(value, numpy.ndarray)):
        return value
    if isinstance(value, Mapping):
        return {
            _cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()
        }
    if isinstance(value, Iterable):
        cast = (_cast(v, device_type, dtype) for v in value)
        return type(value)(cast) if isinstance(value, (list, tuple)) else cast
    return value
