"""The error function, its complement and its inverse, vectorised."""
from __future__ import annotations
import math
import numpy as np
Array = np.ndarray
_erf, _erfc = np.frompyfunc(math.erf, 1, 1), np.frompyfunc(math.erfc, 1, 1)
def erf(a: Array) -> Array:
    a = np.asarray(a); return np.asarray(_erf(a), a.dtype)
def erfc(a: Array) -> Array:
    a = np.asarray(a); return np.asarray(_erfc(a), a.dtype)
def erfinv(a: Array) -> Array:
    a = np.asarray(a); y = a.astype(np.float64)
    w = -np.log((1 - y) * (1 + y))
    t = 2 / (np.pi * 0.147) - w / 2
    x = np.copysign(np.sqrt(np.sqrt(t * t + w / 0.147) - t), y)
    for _ in range(3):
        e = np.where(np.abs(y) < 0.5, erf(x) - y, np.sign(y) * ((1 - np.abs(y)) - erfc(np.abs(x))))
        s = e / (2 / np.sqrt(np.pi) * np.exp(-x * x))
        x = x - s / (1 + x * s)
    x = np.where(np.abs(y) == 1, y * np.inf, x)
    return np.where(y == 0, y, x).astype(a.dtype)
