"""The tangents of a call's results: by the definition's jvp, by linearity, or by its vjp twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.dispatch.binding import call_bound, call_by_name
from tangrad.dispatch.slices import Memory, flags_of, flipped, positions
from tangrad.dispatch.stack import flat_tensors

# Given by `tangrad.func.transforms`, which everybody who enters a level imports.
vjp: Any = None


def put_back(view: Callable[[Any], Any], whole: Any, piece: Any) -> Any:
    """Return zeros shaped like `whole` with `piece` where `view` looks: the transpose of a view."""
    return vjp(view, _C.lookup_op("zeros_like")(whole))[1](piece)[0]


def is_paired(t: Any) -> bool:
    """Tell whether memory holds the pairs of the last dimension as complex numbers are held."""
    *others, last = t.stride()
    return last == 1 and not any(step % 2 for step in (*others, t.storage_offset()))


def view_of_tangent(
    op: _C.Op, whole: Any, piece: Any, rest: tuple[Any, ...]
) -> Callable[[Any], Any]:
    """Return the function that takes the tangent of `whole` to that of `piece`, a view of it.

    A tangent need not lie in memory as its primal does, so views that depend on strides become
    their counterparts that do not.
    """
    if op.name == "view_size" and isinstance(rest[0], tuple):
        return lambda t: _C.lookup_op("reshape")(t, tuple(piece.shape))
    if op.name == "view_as_complex":
        return lambda t: op(t if is_paired(t) else t.contiguous())
    if op.name == "view_as_real":
        return lambda t: op(t.resolve_conj())
    if op.name == "as_strided":
        return view_by_memory(whole, piece)
    return lambda t: call_bound(op, (t, *rest))


def shows_its_numbers(whole: Any, piece: Any) -> bool:
    """Tell whether a view shows the numbers of its base: in part, as pairs, or as complex ones."""
    a, b = whole.dtype, piece.dtype
    return a is b or (a.is_complex != b.is_complex and a.to_real() is b.to_real())


def view_by_memory(whole: Any, piece: Any) -> Callable[[Any], Any]:
    """Return the function that takes the tangent of `whole` to that of `piece`, by their places."""
    paired = piece.dtype is not whole.dtype
    memories = Memory(whole, paired), Memory(piece, paired)
    bits, joins = (flags_of(whole), flags_of(piece)), paired and piece.dtype.is_complex

    def read(t: Any) -> Any:
        t = flipped(t, bits[0])
        if paired and not joins:
            t = _C.lookup_op("view_as_real")(t)
        places = positions(*memories).flatten().to(t.device)
        flat = t.reshape((-1,))
        if (places < 0).any():  # the storage outside of `whole` has no tangent
            flat = _C.lookup_op("cat")([flat.new_zeros((1,)), flat])
            places = places + 1
        found = _C.lookup_op("index_select")(flat, 0, places).reshape(memories[1].shape)
        return flipped(_C.lookup_op("view_as_complex")(found) if joins else found, bits[1])

    return read


def written_tangent(op: _C.Op, args: tuple[Any, ...], tangents: list[Any], result: Any) -> Any:
    """Return the tangent of a tensor that an op such as copy_ or fill_ has overwritten."""
    given = [t for t in tangents if isinstance(t, _C.Tensor)]
    if not given or op.definition.random:
        return None
    return given[0].to(result.dtype).expand(result.shape)


def tangent_of(op: _C.Op, args: tuple[Any, ...], tangents: list[Any], result: Any) -> Any:
    """Return the tangent(s) of a call's result(s): by the definition's jvp, linearity or vjp.

    Args:
        args: the arguments, with primals only.
        tangents: parallel to args: a tensor, a list (of a Tensor[]), or None.
        result: what the call gave.

    Returns:
        None where all are zero, else a tensor or a list with one entry per result.
    """
    definition = op.definition
    given = {
        name for name, t in zip(definition.parameter_names, tangents, strict=True) if _any_tensor(t)
    }
    if not given or not definition.differentiable:
        return None
    if op.kind == "pointwise" and not callable(definition.jvp):
        try:
            found = _pointwise_tangent(definition, args, tangents, result)
        except NotImplementedError as error:
            raise NotImplementedError(
                f"Trying to use forward AD with {op.title} that does not support it: {error}"
            ) from error
    elif definition.jvp is not None:
        found = _authored_tangent(definition, args, tangents, result)
    elif definition.linear and given <= set(definition.linear):
        found = _linear_tangent(op, args, tangents, given)
    else:
        found = tangent_by_vjp(op, args, tangents)
    if isinstance(result, _C.Tensor):
        return _fitted(found[0] if isinstance(found, (tuple, list)) else found, result)
    return [_fitted(t, r) for t, r in zip(found, result, strict=True)]


def _any_tensor(value: Any) -> bool:
    return isinstance(value, _C.Tensor) or (
        isinstance(value, list) and any(map(_any_tensor, value))
    )


def _fitted(tangent: Any, result: Any) -> Any:
    """Give a tangent the dtype and shape of its result; results without tangents have none."""
    if tangent is None or not (result.dtype.is_floating_point or result.dtype.is_complex):
        return None
    if tangent.dtype != result.dtype:
        tangent = tangent.to(result.dtype)
    return tangent if tuple(tangent.shape) == tuple(result.shape) else tangent.expand(result.shape)


def _named(
    definition: Any, args: tuple[Any, ...], tangents: list[Any], result: Any, suffix: str = "_t"
) -> dict[str, Any]:
    named = dict(zip(definition.parameter_names, args, strict=True))
    named.update(
        {name + suffix: t for name, t in zip(definition.parameter_names, tangents, strict=True)}
    )
    named.update(
        {
            f"{name}_meta": value
            for name, value in zip(definition.parameter_names, args, strict=True)
        }
    )
    results = (result,) if isinstance(result, _C.Tensor) else result
    # A derived op may have an input called result: the saved result of the op it derives from.
    named.setdefault("result", results[0])
    for k, r in enumerate(results):
        named.setdefault(f"result{k}", r)
    return named


def _pointwise_tangent(
    definition: Any, args: tuple[Any, ...], tangents: list[Any], result: Any
) -> Any:
    named = _named(definition, args, tangents, result, definition.tangent_suffix)
    given = tuple(
        n for n, t in zip(definition.parameter_names, tangents, strict=True) if t is not None
    )
    op, names = definition.tangent(given)
    return op(*[named[name] for name in names])


def _authored_tangent(
    definition: Any, args: tuple[Any, ...], tangents: list[Any], result: Any
) -> Any:
    named = _named(definition, args, tangents, result)
    if not isinstance(result, _C.Tensor):
        named["result"] = result
    return call_by_name(definition.jvp, named)


def _linear_tangent(op: _C.Op, args: tuple[Any, ...], tangents: list[Any], given: set[str]) -> Any:
    total = None
    for k, name in enumerate(op.definition.parameter_names):
        if name in given:
            term = call_bound(op, (*args[:k], tangents[k], *args[k + 1 :]))
            total = term if total is None else _summed(total, term)
    return total


def _summed(a: Any, b: Any) -> Any:
    return a + b if isinstance(a, _C.Tensor) else [x + y for x, y in zip(a, b, strict=True)]


def tangent_by_vjp(op: _C.Op, args: tuple[Any, ...], tangents: list[Any]) -> Any:
    """Return tangents as the vjp of the vjp, which is linear in its cotangent."""
    moving = [t for t in flat_tensors(tangents) if t is not None]
    primals: list[Any] = []
    for a, t in zip(args, tangents, strict=True):
        members = zip(a, t, strict=True) if isinstance(t, list) else ((a, t),)
        primals += [m for m, moved in members if isinstance(moved, _C.Tensor)]

    def outputs(*given: Any) -> tuple[Any, ...]:
        left = iter(given)

        def put(value: Any, tangent: Any) -> Any:
            if isinstance(tangent, list) and flat_tensors(tangent):  # not of a list of sizes
                return [put(v, t) for v, t in zip(value, tangent, strict=True)]
            return next(left) if isinstance(tangent, _C.Tensor) else value

        full = tuple(put(a, t) for a, t in zip(args, tangents, strict=True))
        made = call_bound(op, full)
        return tuple(
            r for r in ((made,) if isinstance(made, _C.Tensor) else made) if _differentiable(r)
        )

    metas = op.definition.output_metas(args) if op.kind == "kernel" else ()
    if metas and not any(d.is_floating_point or d.is_complex for _, d in metas):
        return [None] * len(metas)  # integers have no tangent, and nothing to ask a derivative for
    results, pull = vjp(outputs, *primals)
    cotangents = tuple(_C.lookup_op("zeros_like")(r) for r in results)
    _, push = vjp(lambda *c: pull(tuple(c)), *cotangents)
    found = push(tuple(moving))
    if len(metas) <= len(found):
        return found
    left = iter(found)
    return [next(left) if d.is_floating_point or d.is_complex else None for _, d in metas]


def _differentiable(t: Any) -> bool:
    return t.dtype.is_floating_point or t.dtype.is_complex
