"""Check what `interpolate` is asked for, and find the sizes of its result."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tangrad
from tangrad.plugin import Ints, get_intercept

Scales = tuple[float | None, ...]
NEAREST = ("nearest", "nearest-exact")
# The number of spatial dimensions that a mode is for, and the kernel that it applies to each.
_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "lanczos": 2}
_MODES = ("nearest", "linear", "bilinear", "bicubic", "trilinear", "lanczos", "area")
_ANTIALIASED = ("bilinear", "bicubic", "lanczos")


def _listed(value: Any, rank: int, what: str, shape: list[int]) -> list[Any]:
    if not isinstance(value, (tuple, list)):
        return [value] * rank
    if len(value) != rank:
        raise ValueError(
            f"Input and {what} must have the same number of spatial dimensions, but got input of "
            f"shape {shape} with {rank} of them and {what} {value}. Give an input (N, C, d1, ..., "
            f"dK) and {what} as one number or K numbers."
        )
    return list(value)


def _is_no_index(number: Any) -> bool:
    floating = isinstance(number, tangrad.Tensor) and not number.dtype.kind.endswith("int")
    return floating or not hasattr(number, "__index__")


def _wanted(
    shape: list[int], size: Any, scale_factor: Any, recompute: bool | None, mode: str
) -> tuple[Ints, Scales]:
    """Return the sizes of the result, and the scale of each dimension where it is to be used."""
    rank = len(shape) - 2
    if size is not None and scale_factor is not None:
        raise ValueError("interpolate: only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("interpolate: either size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError(
                "recompute_scale_factor is not meaningful with an explicit size (interpolate)."
            )
        listed = _listed(size, rank, "output size", shape)
        if any(isinstance(n, bool) or _is_no_index(n) for n in listed):
            raise TypeError(
                f"interpolate: expected size to be one of int or of sequences of int, got {size!r}"
            )
        return tuple(int(n) for n in listed), (None,) * rank
    factors = _listed(scale_factor, rank, "scale_factor", shape)
    if any(isinstance(f, str) or not hasattr(f, "__float__") for f in factors):
        raise TypeError(f"interpolate: expected scale_factor to be numbers, got {scale_factor!r}")
    factors = [float(f) for f in factors]
    products = [n * f for n, f in zip(shape[2:], factors, strict=True)]
    if not all(abs(size) < 2**63 for size in products):
        raise RuntimeError(
            f"interpolate: scale_factor {scale_factor} of input {shape} gives sizes {products}, "
            "which are no 64-bit integers"
        )
    sizes = tuple(map(int, products))
    used = not recompute and mode != "area"
    return sizes, tuple(factors) if used else (None,) * rank


def _request(
    shape: Ints,
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute: bool | None,
    antialias: bool,
) -> tuple[Ints, Scales]:
    """Check the arguments of `interpolate`; return sizes and scales as `_wanted` does."""
    if mode in (*NEAREST, "area") and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | "
            f"bilinear | bicubic | trilinear, got mode '{mode}'"
        )
    ndim = len(shape)
    rank = ndim - 2
    if rank < 1:
        raise NotImplementedError(
            f"interpolate: only 3D, 4D and 5D inputs are supported, got {ndim}D"
        )
    sizes, scales = _wanted(list(shape), size, scale_factor, recompute, mode)
    if antialias and not (mode in _ANTIALIASED and rank == 2):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires "
            f"a 4-D tensor as input, got mode '{mode}' and {ndim} dimensions"
        )
    if rank > 3 or mode not in (*_MODES, "nearest-exact") or _RANKS.get(mode, rank) != rank:
        raise NotImplementedError(
            f"interpolate: got {ndim}D input for mode '{mode}'; 3D, 4D and 5D inputs are "
            "supported for nearest, nearest-exact and area, 3D for linear, 4D for bilinear, "
            "bicubic and lanczos, 5D for trilinear"
        )
    if mode == "lanczos" and (align_corners or not antialias):
        raise ValueError("Lanczos mode requires antialias=True and align_corners=False")
    if mode == "area":
        return sizes, scales
    if min(*shape[2:], *sizes) < 1:
        raise RuntimeError(
            "Input and output sizes should be greater than 0, but got input "
            f"{list(shape)[2:]} and output {list(sizes)} (interpolate)"
        )
    if shape[1] == 0:
        raise RuntimeError(
            f"interpolate: Non-empty {ndim}D data tensor expected but got a tensor with "
            f"sizes {list(shape)}"
        )
    return sizes, scales


_known_request = lru_cache(maxsize=256, typed=True)(_request)
_INT, _NUMBER = {int}, {int, float}


def _fixed(value: Any, types: set[Any]) -> Any:
    """Return a number or tuple of numbers that never change, or NotImplemented; a tensor does."""
    if value is None or type(value) in types:
        return value
    if isinstance(value, (tuple, list)) and types.issuperset(map(type, value)):
        return tuple(value)
    return NotImplemented


def requested(shape: Ints, size: Any, scale_factor: Any, *options: Any) -> tuple[Ints, Scales]:
    """Return what `_request` does, kept unless sizes may be symbols of a recorded program."""
    wanted, factors = _fixed(size, _INT), _fixed(scale_factor, _NUMBER)
    if wanted is NotImplemented or factors is NotImplemented or get_intercept() is not None:
        return _request(shape, size, scale_factor, *options)
    return _known_request(shape, wanted, factors, *options)
