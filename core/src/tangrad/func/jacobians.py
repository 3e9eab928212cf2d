"""Jacobians and Hessians: vmap over the rows (reverse mode) or columns (forward mode)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.func.mapping import vmap
from tangrad.func.transforms import (
    Argnums,
    _split_aux,
    checked_argnums,
    pulled_back,
    pushed_forward,
    select,
)
from tangrad.utils._pytree import tree_flatten, tree_map, tree_unflatten


def _as_tuple(argnums: Argnums) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else argnums


def _require_real(name: str, what: str, tensors: list[Any]) -> None:
    """Refuse complex numbers, of which a basis of real ones shows half of the derivative.

    Raises:
        RuntimeError: a tensor is complex.
    """
    for i, t in enumerate(tensors):
        if isinstance(t, _C.Tensor) and t.dtype.is_complex:
            raise RuntimeError(
                f"{name}: Expected all {what}s to be real but received a complex tensor "
                f"({t.dtype}) at flattened {what} {i}; use view_as_real, or jvp and vjp"
            )


def _bases(tensors: list[Any]) -> list[Any]:
    """Return for each tensor the standard basis of them all: (elements of all, *shape)."""
    total = sum(t.numel() for t in tensors)
    made, start = [], 0
    zeros, eye, cat = _C.lookup_op("zeros"), _C.lookup_op("eye"), _C.lookup_op("cat")
    for t in tensors:
        n = t.numel()
        parts = [
            zeros((start, n), dtype=t.dtype, device=t.device),
            eye(n, dtype=t.dtype, device=t.device),
            zeros((total - start - n, n), dtype=t.dtype, device=t.device),
        ]
        made.append(cat(parts, 0).reshape((total, *t.shape)))
        start += n
    return made


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """Return the function that computes the Jacobian in reverse mode: one row per output element.

    Args:
        func: returns a tree of tensors (has_aux: that and another).
        argnums: which positional argument(s) to differentiate for.
        has_aux: `func` returns (output, aux); the result is (jacobian, aux).
        chunk_size: rows to compute at a time.

    Returns:
        A function whose result has, per output leaf, the structure of the chosen arguments; each
        tensor has shape (*output.shape, *input.shape).
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = checked_argnums(argnums, len(args), "jacrev")
        places = _as_tuple(chosen)
        _require_real("jacrev", "input", tree_flatten(select(args, places))[0])
        found = pulled_back(func, args, kwargs, places, has_aux)
        outputs, spec = tree_flatten(found[0])
        _require_real("jacrev", "output", outputs)
        bases = _bases(outputs)

        def pull(*row: Any) -> Any:
            return found[1](tree_unflatten(row, spec))

        if chunk_size == 1 and len(bases[0]):  # without vmap, which not every backward can have
            each = [tree_flatten(pull(*row)) for row in zip(*bases, strict=True)]
            stack, in_spec = _C.lookup_op("stack"), each[0][1]
            inputs = [stack(list(rows)) for rows in zip(*(row for row, _ in each), strict=True)]
        else:
            inputs, in_spec = tree_flatten(vmap(pull, chunk_size=chunk_size)(*bases))
        per_output = _split_rows(inputs, outputs)
        jac = tree_unflatten(
            [_restored(tree_unflatten(parts, in_spec), argnums) for parts in per_output], spec
        )
        return (jac, found[2]) if has_aux else jac

    return jacobian


def _restored(per_primal: Any, argnums: Argnums) -> Any:
    return per_primal[0] if isinstance(argnums, int) else tuple(per_primal)


def _split_rows(inputs: list[Any], outputs: list[Any]) -> list[list[Any]]:
    """Cut stacked rows by output: [output][input] of shape (*output.shape, *input.shape)."""
    parts, start = [], 0
    for o in outputs:
        n = o.numel()
        parts.append([x.narrow(0, start, n).reshape((*o.shape, *x.shape[1:])) for x in inputs])
        start += n
    return parts


def jacfwd(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """Return the function that computes the Jacobian in forward mode: one column per input element.

    Args:
        func, argnums, has_aux: as for `jacrev`.
        randomness: as for `vmap`.
    """

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = checked_argnums(argnums, len(args), "jacfwd")
        places = _as_tuple(chosen)
        leaves, in_spec = tree_flatten(select(args, places))
        _require_real("jacfwd", "input", leaves)

        def push(*basis: Any) -> Any:
            tangents = tree_unflatten(basis, in_spec)
            found = pushed_forward(func, args, kwargs, places, tangents, has_aux=has_aux)
            _require_real("jacfwd", "output", tree_flatten(found[0])[0])
            return (found[1], found[2]) if has_aux else found[1]

        columns = vmap(push, randomness=randomness)(*_bases(leaves))
        aux: Any = None
        if has_aux:
            columns, aux = _split_aux(columns, "jacfwd(f)", "output")
            aux = tree_map(lambda x: x.select(0, 0), aux)
        jac = tree_map(lambda c: _by_input(c, leaves, in_spec, argnums), columns)
        return (jac, aux) if has_aux else jac

    return jacobian


def _by_input(columns: Any, leaves: list[Any], in_spec: Any, argnums: Argnums) -> Any:
    """Cut stacked columns by input: each of shape (*output.shape, *input.shape)."""
    parts, start = [], 0
    for x in leaves:
        n = x.numel()
        part = columns.narrow(0, start, n).movedim(0, -1)
        parts.append(part.reshape((*part.shape[:-1], *x.shape)))
        start += n
    return _restored(tree_unflatten(parts, in_spec), argnums)


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the function that computes the Hessian, forward over reverse.

    Args:
        func, argnums: as for `jacrev`.
    """
    return jacfwd(jacrev(func, argnums), argnums)
