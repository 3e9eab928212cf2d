"""Gamma, Poisson and binomial numbers of the sequential engine, one after the other.

The methods are published, and named at each function; the order in which numbers are drawn for
them, and the precision of each step, are PyTorch's on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

_TAIL = (
    0.0810614667953272,
    0.0413406959554092,
    0.0276779256849983,
    0.0207906721037650,
    0.0166446911898211,
    0.0138761288230707,
    0.0118967099458917,
    0.0104112652619720,
    0.0092554621827127,
    0.0083305634333631,
)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def gamma(alpha: Any, uniform: Callable[[], float], normal: Callable[[], float]) -> float:
    """Return a gamma distributed number of rate 1 (Marsaglia and Tsang 2000).

    Args:
        alpha: the concentration, a NumPy number of the tensor's dtype.
        uniform, normal: draw a number in double precision.
    """
    kind, scale = type(alpha), 1.0
    if alpha == 0:
        return 0.0
    if not 0 < alpha < math.inf:
        return math.inf if alpha > 0 else math.nan
    if alpha < 1:
        scale = (1.0 - uniform()) ** float(kind(1) / alpha)
        alpha = alpha + kind(1)
    single = float(_single(1) / _single(3))
    d = float(alpha - kind(single))
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal()
        y = 1.0 + c * x
        if y <= 0:
            continue
        v = y * y * y
        u = 1.0 - uniform()
        square = x * x
        if u < 1.0 - float(_single(0.0331)) * square * square:
            return scale * d * v
        if _log(u) < 0.5 * square + d * (1.0 - v + _log(v)):
            return scale * d * v


def _single(x: float) -> Any:
    import numpy as np

    return np.float32(x)


def poisson(mean: float, uniform: Callable[[], float]) -> float:
    """Return a Poisson distributed number (Knuth; from 10 on PTRS of Hörmann 1993).

    Raises:
        RuntimeError: the mean is negative or nan.
    """
    if not mean >= 0:
        raise RuntimeError(f"invalid Poisson rate, expected rate to be non-negative, got {mean}")
    if mean == 0 or mean == math.inf:
        return mean
    if mean < 10:
        return _poisson_by_products(mean, uniform)
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    tight = 0.9277 - 3.6224 / (b - 2)
    while True:
        u = uniform() - 0.5
        v = uniform()
        us = 0.5 - abs(u)
        if us == 0:
            continue
        k = math.floor((2 * a / us + b) * u + mean + 0.43)
        if us >= 0.07 and v <= tight:
            return float(k)
        if k < 0 or (us < 0.013 and v > us):
            continue
        height = _log(v) + math.log(inverse) - math.log(a / (us * us) + b)
        if height <= -mean + k * math.log(mean) - math.lgamma(k + 1.0):
            return float(k)


def _poisson_by_products(mean: float, uniform: Callable[[], float]) -> float:
    least, count, product = math.exp(-mean), 0, 1.0
    while True:
        product *= uniform()
        if product <= least:
            return float(count)
        count += 1


def binomial(count: Any, prob: Any, uniform: Callable[[], float]) -> float:
    """Return a number of successes, by waiting times or, from a mean of 10 on, BTRS.

    BTRS is of Hörmann 1993, "The generation of binomial random variates".

    Args:
        count: number of trials. prob: of success; NumPy numbers of the tensors' dtype.
        uniform: draws a number in double precision.
    """
    if not count < math.inf or math.isnan(prob):
        return math.nan
    if count <= 0 or prob <= 0:
        return 0.0
    if prob >= 1:
        return float(count)
    if prob > 0.5:
        return float(count) - binomial(count, type(prob)(1) - prob, uniform)
    if count * prob >= 10:
        return _binomial_by_rejection(float(count), float(prob), uniform)
    import numpy as np

    slope, waited, successes = float(np.log1p(-prob)), 0.0, 0
    while True:
        waited += math.ceil(_log(uniform()) / slope)
        if waited > count:
            return float(successes)
        successes += 1


def _stirling_tail(k: float) -> float:
    if k <= 9:
        return _TAIL[int(k)]
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


def _binomial_by_rejection(n: float, p: float, uniform: Callable[[], float]) -> float:
    spread = math.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    center, tight = n * p + 0.5, 0.92 - 4.2 / b
    odds, alpha = p / (1 - p), (2.83 + 5.1 / b) * spread
    m = math.floor((n + 1) * p)
    while True:
        u = uniform() - 0.5
        v = uniform()
        us = 0.5 - abs(u)
        if us == 0:
            continue
        k = math.floor((2 * a / us + b) * u + center)
        if us >= 0.07 and v <= tight:
            return float(k)
        if k < 0 or k > n:
            continue
        bound = (
            (m + 0.5) * math.log((m + 1) / (odds * (n - m + 1)))
            + (n + 1) * math.log((n - m + 1) / (n - k + 1))
            + (k + 0.5) * math.log(odds * (n - k + 1) / (k + 1))
            + _stirling_tail(m)
            + _stirling_tail(n - m)
            - _stirling_tail(k)
            - _stirling_tail(n - k)
        )
        if _log(v * alpha / (a / (us * us) + b)) <= bound:
            return float(k)
