"""What the core's composites are here: ops of this package, which do them in fewer launches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["COMPOSITES"]


def _of_one_dtype(input: Any, *others: Any) -> bool:
    """Whether the kernels take the operands: of the input's dtype and plain tensors, or None."""
    floating = input.dtype.is_floating_point and input.numel() > 0
    return floating and all(x is None or x.dtype == input.dtype for x in others)


def _rms_norm(input: Any, normalized_shape: Any, weight: Any, eps: float) -> Any:
    if not _of_one_dtype(input, weight):
        return None
    from tangrad_cuda.row_norm import row_norm

    length = math.prod(normalized_shape)
    return row_norm(input, weight, None, 1, length, 1, False, eps)[0]


def _group_norm(input: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    channels = input.shape[1]
    fits = all(x is None or x.numel() == channels for x in (weight, bias))
    if not (fits and _of_one_dtype(input, weight, bias)):
        return None
    from tangrad_cuda.row_norm import row_norm

    inner = math.prod(tuple(input.shape)[2:])
    length = channels // groups * inner
    result, *moments = row_norm(input, weight, bias, groups, length, inner, True, eps)
    return result, *(x.reshape((-1, groups)) for x in moments)


def _interpolate(
    input: Any, sizes: Any, mode: str, corners: bool, ratios: Any, antialias: bool
) -> Any:
    if not mode.endswith("linear") or antialias or not input.dtype.is_floating_point:
        return None
    from tangrad_cuda.resampling import resample_linear

    return resample_linear(input, sizes, *[1.0] * (3 - len(ratios)), *ratios, corners)


COMPOSITES: dict[str, Callable[..., Any]] = {
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "interpolate": _interpolate,
}
