"""Operators that reduce along axes, and running sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tangrad
from tangrad_onnx.operators.registry import operator
from tangrad_onnx.values import to_ints


def _chosen(x: Any, axes: Any, noop_with_empty_axes: int) -> list[int]:
    axes = to_ints(axes)
    if axes:
        return sorted(axis % x.ndim if -x.ndim <= axis < x.ndim else axis for axis in axes)
    return [] if noop_with_empty_axes else list(range(x.ndim))


def _least(x: Any) -> Any:
    if x.dtype is tangrad.bool:
        return False
    return -float("inf") if x.is_floating_point() else tangrad.iinfo(x.dtype).min


def _greatest(x: Any) -> Any:
    if x.dtype is tangrad.bool:
        return True
    return float("inf") if x.is_floating_point() else tangrad.iinfo(x.dtype).max


def _extreme(function: Callable[..., Any], of_none: Callable[[Any], Any]) -> Callable[..., Any]:
    def call(x: Any, dims: list[int], keep: bool) -> Any:
        if all(x.shape[dim] for dim in dims):
            return function(x, dims, keepdim=keep)
        return _sum(x, dims, keep).to(x.dtype).fill_(of_none(x))

    return call


def _sum(x: Any, dims: list[int], keep: bool) -> Any:
    return tangrad.sum(x, dims, keepdim=keep, dtype=x.dtype)


def _product(x: Any, dims: list[int], keep: bool) -> Any:
    for dim in reversed(dims):
        x = tangrad.prod(x, dim, keepdim=keep, dtype=x.dtype)
    return x


def _mean(x: Any, dims: list[int], keep: bool) -> Any:
    if x.is_floating_point():
        return tangrad.mean(x, dims, keepdim=keep)
    count = int(np.prod([x.shape[dim] for dim in dims]))
    return tangrad.div(_sum(x, dims, keep), count, rounding_mode="trunc")


def _log_sum_exp(x: Any, dims: list[int], keep: bool) -> Any:
    if x.is_floating_point():
        return tangrad.logsumexp(x, dims, keepdim=keep)
    return tangrad.logsumexp(x.to(tangrad.float64), dims, keepdim=keep).to(x.dtype)


def _root(x: Any) -> Any:
    return tangrad.sqrt(x) if x.is_floating_point() else tangrad.sqrt(x.double()).to(x.dtype)


def _log(x: Any) -> Any:
    return tangrad.log(x) if x.is_floating_point() else tangrad.log(x.double()).to(x.dtype)


def _same(x: Any) -> Any:
    return x


_REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "ReduceL1": (tangrad.abs, _sum, _same),
    "ReduceL2": (lambda x: x * x, _sum, _root),
    "ReduceLogSum": (_same, _sum, _log),
    "ReduceLogSumExp": (_same, _log_sum_exp, _same),
    "ReduceMax": (_same, _extreme(tangrad.amax, _least), _same),
    "ReduceMean": (_same, _mean, _same),
    "ReduceMin": (_same, _extreme(tangrad.amin, _greatest), _same),
    "ReduceProd": (_same, _product, _same),
    "ReduceSum": (_same, _sum, _same),
    "ReduceSumSquare": (lambda x: x * x, _sum, _same),
}


def _reduced(
    x: Any,
    axes: Any = None,
    *,
    name: str,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Any:
    before, along, after = _REDUCTIONS[name]
    dims = _chosen(x, axes, noop_with_empty_axes)
    x = before(x)
    if not dims and (noop_with_empty_axes or not x.ndim):
        # A reduction of nothing: only a log of a sum of exponentials cancels itself.
        return after(x)
    return after(along(x, dims, bool(keepdims)))


def _reduced_on_host(
    x: Any, axes: Any = None, *, function: Any, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Any:
    dims = tuple(_chosen(x, axes, noop_with_empty_axes))
    return function(x, axis=dims, keepdims=bool(keepdims)).astype(x.dtype)


_ON_HOST = {"ReduceMax": np.max, "ReduceMin": np.min, "ReduceProd": np.prod, "ReduceSum": np.sum}
for _name in _REDUCTIONS:
    _host = _ON_HOST.get(_name)
    operator(
        _name,
        ints=(1,),
        host=None if _host is None else partial(_reduced_on_host, function=_host),
    )(partial(_reduced, name=_name))


def _extreme_at(function: Callable[..., Any], name: str) -> None:
    @operator(name)
    def call(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        if select_last_index:
            found = function(tangrad.flip(x, [axis]), axis, keepdim=bool(keepdims))
            return x.shape[axis] - 1 - found
        return function(x, axis, keepdim=bool(keepdims))


_extreme_at(tangrad.argmax, "ArgMax")
_extreme_at(tangrad.argmin, "ArgMin")


def _running(name: str, function: Callable[..., Any], neutral: int) -> None:
    @operator(name, ints=(1,))
    def call(x: Any, axis: list[int], *, exclusive: int = 0, reverse: int = 0) -> Any:
        dim = axis[0]
        if reverse:
            x = tangrad.flip(x, [dim])
        result = function(x, dim, dtype=x.dtype)
        if exclusive and x.shape[dim]:
            first = tangrad.full_like(result.narrow(dim, 0, 1), neutral)
            result = tangrad.cat([first, result.narrow(dim, 0, x.shape[dim] - 1)], dim)
        return tangrad.flip(result, [dim]) if reverse else result


_running("CumSum", tangrad.cumsum, 0)
_running("CumProd", tangrad.cumprod, 1)
