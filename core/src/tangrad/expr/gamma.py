"""The gamma function's logarithm, its derivatives, and the Hurwitz zeta function."""
from __future__ import annotations
import math
import numpy as np
Array = np.ndarray
def _safe(x):
    try: return math.lgamma(x)
    except ValueError: return math.inf
_lgamma = np.frompyfunc(_safe, 1, 1)
def lgamma(a: Array) -> Array:
    a = np.asarray(a); return np.asarray(_lgamma(a), a.dtype)
def zeta(s: Array, q: Array) -> Array:
    s, q = np.broadcast_arrays(s, q); dt = s.dtype
    s = s.astype(np.float64); q = q.astype(np.float64)
    total = np.zeros_like(q)
    x = q.copy()
    for _ in range(12):
        total = total + x ** -s; x = x + 1
    total = total + x ** (1 - s) / (s - 1) + 0.5 * x ** -s
    term = s * x ** (-s - 1)
    for k, b in enumerate([1/6,-1/30,1/42,-1/30,5/66,-691/2730,7/6,-3617/510,43867/798,-174611/330], 1):
        total = total + b / math.factorial(2*k) * term
        term = term * (s + 2*k - 1) * (s + 2*k) / (x * x)
    return total.astype(dt)
def polygamma(n: Array, a: Array) -> Array:
    a = np.asarray(a); n = np.asarray(n, np.float64); x = a.astype(np.float64)
    v = np.where(n % 2 == 0, -1.0, 1.0) * np.exp(lgamma(n + 1)) * zeta(n + 1, x)
    return np.asarray(v, a.dtype)
def trigamma(a: Array) -> Array:
    a = np.asarray(a); x = a.astype(np.float64)
    r = polygamma(1.0, np.where(x < 0.5, 1 - x, x))
    return np.where(x < 0.5, -r + (np.pi / np.sin(np.pi * x)) ** 2, r).astype(a.dtype)
def digamma(a: Array) -> Array:
    a = np.asarray(a); x0 = a.astype(np.float64)
    x = np.where(x0 < 0, 1 - x0, x0)
    total = np.zeros_like(x)
    for _ in range(12):
        total = total - np.where(x < 12, 1 / x, 0); x = np.where(x < 12, x + 1, x)
    z = 1 / (x * x)
    s = z * (1/12 - z * (1/120 - z * (1/252 - z * (1/240 - z * (1/132 - z * (691/32760 - z / 12))))))
    v = total + np.log(x) - 0.5 / x - s
    v = np.where(x0 < 0, v - np.pi / np.tan(np.pi * x0), v)
    return v.astype(a.dtype)
