"""Check gradients of functions of sparse tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad.plugin import component
from tangrad_sparse import compressed, coo


def as_sparse_gradcheck(gradcheck: Callable[..., bool]) -> Callable[..., bool]:
    """Return a `gradcheck` that takes functions of sparse tensors, and to sparse tensors.

    The values of each sparse input are what is varied. `masked=True` leaves it at the places that
    the input has; otherwise an input is first given all places.

    Args:
        gradcheck: `autograd.gradcheck`, or a form of it with arguments filled in.
    """

    def check(func: Callable[..., Any], inputs: Any, **options: Any) -> bool:
        masked = options.pop("masked", False)
        given = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
        full = [x if masked or not _varies(x) else _with_all_places(x) for x in given]
        varied = tuple(
            component(x, "values").detach().clone().requires_grad_() if _varies(x) else x
            for x in full
        )

        def of_values(*values: Any) -> Any:
            made = (
                compressed.with_values(x, v) if _varies(x) else v
                for x, v in zip(full, values, strict=True)
            )
            result = func(*made)
            if isinstance(result, (list, tuple)):
                return tuple(_dense(r, masked) for r in result)
            return _dense(result, masked)

        return gradcheck(of_values, varied, **options)

    return check


def _varies(x: Any) -> bool:
    sparse = isinstance(x, tangrad.Tensor) and x.layout is not tangrad.strided
    return sparse and bool(x.requires_grad)


def _dense(result: Any, masked: bool) -> Any:
    sparse = isinstance(result, tangrad.Tensor) and result.layout is not tangrad.strided
    return result.to_dense(masked_grad=masked) if sparse else result


def _with_all_places(x: Any) -> Any:
    dense = x.detach().to_dense()
    count = x.ndim - x.dense_dim()
    sparse = tuple(x.shape[:count])
    numbers = tangrad.arange(tangrad.Size(sparse).numel(), device=x.device)
    values = dense.reshape((numbers.shape[0], *x.shape[count:]))
    made = coo.make(coo.from_numbers(numbers, sparse), values, x.shape, True)
    return (made if x.layout is coo.COO else compressed.like(x, made)).requires_grad_()
