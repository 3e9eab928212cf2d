"""Random numbers: a file draws its own, of the same distributions."""

from __future__ import annotations

from typing import Any

import numpy as np

import tangrad
from tangrad_onnx.writing.forms.registry import form
from tangrad_onnx.writing.graph import Writer, type_of


def _uniform_like(w: Writer, name: str, dtype: Any, low: float = 0.0, high: float = 1.0) -> str:
    """Return uniform numbers; those of other dtypes than float32 and float64 are cast."""
    wide = dtype if dtype in (tangrad.float32, tangrad.float64) else tangrad.float32
    found = w.op("RandomUniformLike", name, low=low, high=high, dtype=type_of(wide))
    return w.cast(str(found), wide, dtype)


@form("uniform_")
def _uniform(w: Writer, a: Any, out: Any) -> Any:
    return _uniform_like(w, a.self.name, out.dtype, float(a.from_), float(a.to))


@form("normal_")
def _normal(w: Writer, a: Any, out: Any) -> Any:
    wide = out.dtype if out.dtype in (tangrad.float32, tangrad.float64) else tangrad.float32
    mean, scale = float(a.mean), float(a.std)
    drawn = w.op("RandomNormalLike", a.self.name, mean=mean, scale=scale, dtype=type_of(wide))
    return w.cast(drawn, wide, out.dtype)


@form("exponential_")
def _exponential(w: Writer, a: Any, out: Any) -> Any:
    wide = tangrad.float64 if out.dtype is tangrad.float64 else tangrad.float32
    rest = w.op("Sub", w.constant(1, wide), _uniform_like(w, a.self.name, wide))
    scaled = w.op("Div", w.op("Neg", w.op("Log", rest)), w.constant(a.lambd, wide))
    return w.cast(scaled, wide, out.dtype)


@form("random_between_")
def _between(w: Writer, a: Any, out: Any) -> Any:
    wide = tangrad.float64
    drawn = _uniform_like(w, a.self.name, wide, float(a.from_), float(a.to))
    # Rounding may reach the upper end.
    below = w.op("Min", w.op("Floor", drawn), w.constant(float(a.to - 1), wide))
    return w.cast(below, wide, out.dtype)


@form("bernoulli_number_")
def _bernoulli(w: Writer, a: Any, out: Any) -> Any:
    drawn = _uniform_like(w, a.self.name, tangrad.float32)
    kept = w.op("Less", drawn, w.constant(float(a.p), tangrad.float32))
    return w.cast(kept, tangrad.bool, out.dtype)


@form("bernoulli_tensor")
def _bernoulli_of(w: Writer, a: Any, out: Any) -> Any:
    drawn = _uniform_like(w, a.self.name, a.self.dtype)
    return w.cast(w.op("Less", drawn, a.self.name), tangrad.bool, out.dtype)


@form("native_dropout")
def _dropout(w: Writer, a: Any, out: Any) -> Any:
    ratio = w.constant(float(a.p), tangrad.float32)
    names = w.op("Dropout", a.self.name, ratio, w.constant(np.array(True)), outputs=2)
    return names[0]


@form("_permutation_of")
def _permutation(w: Writer, a: Any, out: Any) -> Any:
    drawn = _uniform_like(w, a.self.name, tangrad.float32)
    _, order = w.op("TopK", drawn, w.shape(a.self.name), outputs=2)
    return w.cast(order, tangrad.int64, out.dtype)
