"""An older name of `func.functional_call`."""

from __future__ import annotations

import warnings
from typing import Any

import tangrad

__all__ = ["functional_call"]


def _functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other parameters and buffers: what older libraries ask for."""
    if isinstance(module, tangrad.nn.DataParallel):
        raise RuntimeError("The stateless API can't be used with nn.DataParallel module")
    return tangrad.func.functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )


def functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other parameters and buffers; deprecated, see `func.functional_call`."""
    warnings.warn(
        "`nn.utils.stateless.functional_call` is deprecated. Please use "
        "`torch.func.functional_call` instead, which does the same.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )
