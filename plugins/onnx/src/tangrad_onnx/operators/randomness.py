"""Operators that draw numbers, by tangrad's generator or a seed of their own."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_onnx.limits import checked_count
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.values import TENSOR_TYPES


def _generator(seed: float | None, device: Any) -> Any:
    return None if seed is None else tangrad.Generator(device).manual_seed(int(seed))


def _uniform(shape: Any, dtype: Any, low: float, high: float, seed: Any, device: Any) -> Any:
    checked_count(shape)
    u = tangrad.rand(tuple(shape), generator=_generator(seed, device), device=device)
    return (u * (high - low) + low).to(dtype)


def _normal(shape: Any, dtype: Any, mean: float, scale: float, seed: Any, device: Any) -> Any:
    checked_count(shape)
    z = tangrad.randn(tuple(shape), generator=_generator(seed, device), device=device)
    return (z * scale + mean).to(dtype)


@operator(raw=True)
def RandomUniform(
    *, shape: Any, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Any:
    return _uniform(shape, TENSOR_TYPES[dtype], low, high, seed, "cpu")


@operator(raw=True)
def RandomNormal(
    *, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Any:
    return _normal(shape, TENSOR_TYPES[dtype], mean, scale, seed, "cpu")


@operator()
def RandomUniformLike(
    x: Any,
    *,
    dtype: int | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> Any:
    kind = x.dtype if dtype is None else TENSOR_TYPES[dtype]
    return _uniform(x.shape, kind, low, high, seed, x.device)


@operator()
def RandomNormalLike(
    x: Any,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Any:
    kind = x.dtype if dtype is None else TENSOR_TYPES[dtype]
    return _normal(x.shape, kind, mean, scale, seed, x.device)


@operator()
def Bernoulli(x: Any, *, dtype: int | None = None, seed: float | None = None) -> Any:
    kind = x.dtype if dtype is None else TENSOR_TYPES[dtype]
    u = tangrad.rand(x.shape, generator=_generator(seed, x.device), device=x.device)
    return (u < x).to(kind)


@operator()
def Multinomial(x: Any, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Any:
    checked_count([*x.shape[:-1], sample_size])
    shares = tangrad.softmax(x, -1)
    drawn = tangrad.multinomial(
        shares, sample_size, replacement=True, generator=_generator(seed, x.device)
    )
    return drawn.to(TENSOR_TYPES[dtype])
