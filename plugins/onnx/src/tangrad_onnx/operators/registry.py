"""How the operators of the standard are registered, and what is done before one is called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

import numpy as np

from tangrad import Tensor
from tangrad.nn import Parameter
from tangrad_onnx.limits import check_broadcast, current
from tangrad_onnx.values import Array, device_of, has_tensor, to_ints, to_tensor

__all__ = ["OPERATORS", "Operator", "broadcasting", "operator"]


class Operator(NamedTuple):
    """An operator as it runs.

    Attributes:
        call: the function: operands by position, None for what is absent, attributes by keyword.
        ints: positions of the operands that are sizes, axes or other integers of the host.
    """

    call: Callable[..., Any]
    ints: tuple[int, ...]


OPERATORS: dict[str, Operator] = {}


def operator(
    *names: str,
    ints: tuple[int, ...] = (),
    raw: bool = False,
    moves: bool = False,
    host: Callable[..., Any] | None = None,
    grows: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as an operator.

    Args:
        names: of the operator; by default the function's.
        ints: positions of operands that the function takes as lists of integers.
        raw: operands are handed over as they come.
        moves: the operator only moves elements of its operands, so that it serves every dtype.
        host: the operator for arrays, by NumPy: what shapes are computed by.
        grows: called with the operands and attributes first; raises where the result is too large.
            None: the result is as large as an operand, or the function checks it.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if raw:
            call = _bounded(function)
        else:
            prepared = _prepared(function, ints, moves, host, grows)
            call = _bounded(prepared, None if ints else function, grows)
        for name in names or (function.__name__,):
            OPERATORS[name] = Operator(call, ints)
        return call

    return register


_TENSORS = frozenset({Tensor, Parameter, type(None)})

#: Register an operator whose operands broadcast.
broadcasting = partial(operator, grows=check_broadcast)


def _bounded(
    function: Callable[..., Any],
    direct: Callable[..., Any] | None = None,
    grows: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Return a function whose results are counted among what the run holds.

    Args:
        function: called with operands of any kind.
        direct: called in its place where all operands are tensors; None: never.
        grows: called before `direct`.
    """

    @wraps(function)
    def call(*operands: Any, **attributes: Any) -> Any:
        if direct is not None and _TENSORS.issuperset(map(type, operands)):
            if grows is not None:
                grows(*operands, **attributes)
            result = direct(*operands, **attributes)
        else:
            result = function(*operands, **attributes)
        current().count(result)
        return result

    return call


def _prepared(
    function: Callable[..., Any],
    ints: tuple[int, ...],
    moves: bool,
    host: Callable[..., Any] | None,
    grows: Callable[..., Any] | None,
) -> Callable[..., Any]:
    @wraps(function)
    def call(*operands: Any, **attributes: Any) -> Any:
        given = list(operands)
        for at in ints:
            if at < len(given) and given[at] is not None:
                given[at] = to_ints(given[at])
        if grows is not None:
            grows(*given, **attributes)
        arrays = [i for i, value in enumerate(given) if isinstance(value, np.ndarray)]
        if not arrays:
            return function(*given, **attributes)
        plain = all(has_tensor(given[i].dtype) for i in arrays)
        tensors = any(isinstance(value, Tensor) for value in given)
        if host is not None and plain and not tensors:
            return _as_arrays(host(*given, **attributes))
        if moves and not plain:
            return _moved(function, given, arrays, attributes)
        device = device_of(given)
        for i in arrays:
            if has_tensor(given[i].dtype):
                given[i] = to_tensor(given[i], device)
        return function(*given, **attributes)

    return call


def _as_arrays(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)(np.asarray(part) for part in result)
    return np.asarray(result)


def _moved(
    function: Callable[..., Any], given: list[Any], arrays: list[int], attributes: dict[str, Any]
) -> Any:
    """Call a function that moves elements with numbers that stand for them."""
    strange = [i for i in arrays if not has_tensor(given[i].dtype)]
    dtype = given[strange[0]].dtype
    flat = np.concatenate([given[i].ravel() for i in strange])
    if dtype.kind in "OU":
        known, codes = np.unique(flat.astype(str), return_inverse=True)
        decoded: Array = known.astype(object)
    else:
        codes, decoded = flat.view(np.uint8), np.arange(256).astype(np.uint8).view(dtype)
    start = 0
    for i in strange:
        stop = start + given[i].size
        given[i] = to_tensor(codes[start:stop].astype(np.int64).reshape(given[i].shape))
        start = stop
    for i in arrays:
        given[i] = to_tensor(given[i])
    result = function(*given, **attributes)

    def decode(value: Any) -> Any:
        return decoded[value.numpy()] if isinstance(value, Tensor) else value

    return (
        type(result)(map(decode, result)) if isinstance(result, (tuple, list)) else decode(result)
    )
