"""Images and volumes of other sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

import tangrad
from tangrad_onnx.errors import UnsupportedOperatorError
from tangrad_onnx.writing.forms.layers import for_each
from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.graph import Writer

_MODES = {"nearest": "nearest", "nearest-exact": "nearest", "bicubic": "cubic"}


@form("interpolate", whole=True)
def _interpolate(w: Writer, a: Any, out: Any) -> Any:
    if a.antialias and w.opset < 18:
        raise UnsupportedOperatorError("antialias needs opset 18")
    if a.antialias and a.align_corners:
        raise UnsupportedOperatorError("antialias with align_corners")
    if a.mode == "area":
        raise UnsupportedOperatorError("an average over areas")
    rank, kind = a.input.rank - 2, a.input.dtype
    options = _options(a)
    sizes, scales = _wanted(w, a, rank)
    if options["mode"] == "nearest" or kind.is_floating_point:
        return _resized(w, a.input.name, sizes, scales, range(rank), options)
    # The library rounds what it has resized along one dimension before it goes on.
    name = w.cast(a.input.name, kind, tangrad.float32)
    half, low, high = (w.constant(n, tangrad.float32) for n in (0.5, 0, 255))
    for axis in reversed(range(rank)):
        name = _resized(w, name, sizes, scales, [axis], options)
        name = str(w.op("Clip", w.op("Floor", w.op("Add", name, half)), low, high))
    return w.cast(name, tangrad.float32, kind)


def _options(a: Any) -> dict[str, Any]:
    mode = _MODES.get(a.mode, "linear")
    how = "align_corners" if a.align_corners else "pytorch_half_pixel"
    if mode == "nearest":
        how = "asymmetric" if a.mode == "nearest" else "half_pixel"
    elif mode == "cubic" and not a.align_corners:
        how = "half_pixel"
    nearest = "floor" if a.mode == "nearest" else "round_prefer_ceil"
    return {
        "mode": mode,
        "coordinate_transformation_mode": how,
        "nearest_mode": nearest if mode == "nearest" else None,
        "antialias": int(a.antialias) or None,
        "exclude_outside": int(a.antialias) or None,
        "cubic_coeff_a": (-0.5 if a.antialias else -0.75) if mode == "cubic" else None,
    }


def _wanted(w: Writer, a: Any, rank: int) -> tuple[str | None, list[float]]:
    """Return the sizes, None if they follow from the factors, and the factors."""
    factor = a.scale_factor
    factors = for_each(factor, rank)
    if a.size is not None:
        return w.sizes(for_each(a.size, rank)), factors
    if not a.recompute_scale_factor:
        return None, factors
    have = w.cast(w.sizes(a.input.shape[2:]), tangrad.int64, tangrad.float64)
    found = w.op("Floor", w.op("Mul", have, w.constant(np.array(factors), tangrad.float64)))
    return w.cast(found, tangrad.float64, tangrad.int64), factors


def _resized(
    w: Writer, name: str, sizes: str | None, scales: list[float], axes: Any, options: Any
) -> str:
    """Resize along some of the dimensions behind the first two."""
    rank = len(scales)
    given: tuple[str | None, str | None]
    if sizes is None:
        factors = [scales[axis] if axis in axes else 1 for axis in range(rank)]
        given = w.constant(np.array([1, 1, *factors], np.float32)), None
    else:
        shape = w.shape(name)
        parts = [w.slice(shape, 0, 0, 2)]
        for axis in range(rank):
            source, at = (sizes, axis) if axis in axes else (shape, axis + 2)
            parts.append(w.slice(source, 0, at, at + 1))
        if len(axes) == rank:
            parts[1:] = [sizes]
        given = None, str(w.op("Concat", *parts, axis=0))
    return str(w.op("Resize", name, None, *given, **options))
