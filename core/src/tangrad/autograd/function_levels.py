"""Functions with a derivative written by hand, inside grad, jvp and vmap and outside."""

from __future__ import annotations

from typing import Any, NamedTuple

from tangrad import _C
from tangrad.autograd.function_call import (
    FunctionCtx,
    FunctionRules,
    apply_recorded,
    fixed_among,
    has_setup_context,
    run_forward,
)
from tangrad.autograd.function_tangents import Moved, has_tangent, versions_of
from tangrad.dispatch.batching import BatchLevel
from tangrad.dispatch.levels import GradLevel, JvpLevel, Level, map_tensors
from tangrad.dispatch.stack import current, entered, flat_tensors
from tangrad.utils._pytree import broadcast_prefix, tree_flatten, tree_unflatten


class VmapInfo(NamedTuple):
    """What a Function's vmap rule is told of the vmap."""

    batch_size: int
    randomness: str


def apply(cls: Any, args: tuple[Any, ...]) -> Any:
    """Run a Function at the innermost level, or record it where there is none."""
    levels = current().levels
    if levels:
        return _apply_in_level(cls, levels[-1], args)
    return apply_recorded(cls, args, lambda ctx: run_forward(cls, ctx, args))


def _apply_in_level(cls: Any, level: Level, args: tuple[Any, ...]) -> Any:
    """Run a Function at the innermost level of the stack.

    Raises:
        RuntimeError: the class lacks what the level needs of it.
    """
    alone = isinstance(level, JvpLevel) and level.lenient and not _below_own(level, args)
    unconcerned = isinstance(level, BatchLevel) and not level.has_own(args)
    if not has_setup_context(cls) and not alone and not unconcerned:
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, "
            f"jacrev, ...), it must override the setup_context staticmethod ({cls.__name__}). "
            "forward then takes no ctx."
        )
    if isinstance(level, GradLevel):
        return _apply_grad(cls, level, args)
    if isinstance(level, JvpLevel):
        return _apply_jvp(cls, level, args)
    assert isinstance(level, BatchLevel)
    return _apply_vmap(cls, level, args)


def _below_own(level: Level, args: tuple[Any, ...]) -> bool:
    """Return whether what this level's arguments stand for belongs to a level below it."""
    inner = level.unwrap(args)
    return any(below.has_own(inner) for below in current().levels if below is not level)


def _apply_grad(cls: Any, level: GradLevel, args: tuple[Any, ...]) -> Any:
    inner = level.unwrap(args)
    mode = _C.is_grad_enabled()

    def run(ctx: Any) -> Any:
        # What lies below records by its own mode; only this level must not record forward.
        previous = _C._set_grad_enabled(mode)
        try:
            with level.below():
                result = apply(cls, inner)
        finally:
            _C._set_grad_enabled(previous)
        known = {id(x): a for x, a in zip(inner, args, strict=True) if isinstance(a, _C.Tensor)}
        wrapped = map_tensors(lambda r: known[id(r)] if id(r) in known else level.wrap(r), result)
        cls.setup_context(ctx, args, wrapped)
        return wrapped

    return apply_recorded(cls, args, run)


def _apply_jvp(cls: Any, level: JvpLevel, args: tuple[Any, ...]) -> Any:
    inner = level.unwrap(args)
    ctx = FunctionCtx()
    with level.below():
        tangents = level.tangents(args)
        if has_setup_context(cls):
            result = apply(cls, inner)
        else:
            result, ctx = _with_context(cls, inner)
        if not any(isinstance(t, _C.Tensor) for t in tangents):
            call = Moved(cls, level, args, inner, tangents, (), [])
            return map_tensors(call.unmoved, result)
        if has_setup_context(cls):
            cls.setup_context(ctx, inner, result)
        if ctx.materialize_grads:
            tangents = [
                _C.lookup_op("zeros_like")(x) if t is None and has_tangent(x) else t
                for t, x in zip(tangents, inner, strict=True)
            ]
        ctx._in_jvp, versions = True, versions_of(tangents)
        moved = cls.jvp(ctx, *tangents)
        ctx._in_jvp = False
        several = isinstance(result, (tuple, list))
        fixed = ctx._fixed or fixed_among(ctx, result if several else [result])
        call = Moved(cls, level, args, inner, tangents, fixed, versions)
        if not several:
            return call.moved(0, result, moved[0] if isinstance(moved, (tuple, list)) else moved)
        found = call.all_moved(result, moved)
    return type(result)(*found) if hasattr(result, "_fields") else type(result)(found)


def _with_context(cls: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Run a forward that takes the context, where no level is left; return the context too."""
    made = []

    def run(ctx: Any) -> Any:
        made.append(ctx)
        return run_forward(cls, ctx, args)

    return apply_recorded(cls, args, run), made[0]


def _apply_vmap(cls: Any, level: BatchLevel, args: tuple[Any, ...]) -> Any:
    if not level.has_own(args):
        with level.below():
            return apply(cls, args)
    custom = cls.vmap is not FunctionRules.vmap
    if cls.generate_vmap_rule and custom:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and "
            "an overriden vmap staticmethod. Please set generate_vmap_rule=False or delete the "
            "overriden vmap staticmethod to avoid ambiguity."
        )
    if not cls.generate_vmap_rule and not custom:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please "
            "override and implement the vmap staticmethod or set generate_vmap_rule=True."
        )
    inner, dims = level.unwrap(args), tuple(level.dims(a) for a in args)
    if custom:
        with level.below():
            returned = cls.vmap(VmapInfo(level.size, level.randomness), dims, *inner)
        return _with_dims(cls, level, returned)
    made = batched_function(cls, level.size, level.randomness, dims)
    with level.below():
        result = apply(made, inner)
    return level._wrapped(result, 0)


def _with_dims(cls: Any, level: BatchLevel, returned: Any) -> Any:
    """Make results of a level of what a vmap rule returned: them, and their batch dimensions.

    Raises:
        RuntimeError: it returned something else, or dimensions that do not fit the results.
    """
    if not isinstance(returned, tuple) or len(returned) != 2:
        got = f"{len(returned)}" if isinstance(returned, tuple) else type(returned).__name__
        raise RuntimeError(
            f"{cls.__name__}.vmap: Expected the vmap staticmethod to have two returns, "
            f"(output, out_dims), got {got}"
        )
    leaves, spec = tree_flatten(returned[0])
    places = broadcast_prefix(returned[1], spec)
    if places is None:
        raise RuntimeError(
            f"{cls.__name__}.vmap returned an incompatible (output, out_dims): out_dims are "
            f"{returned[1]}, output has structure {spec}; give one dimension, or the same structure"
        )
    wrapped = [
        level.wrap(r, d) if isinstance(r, _C.Tensor) else r
        for r, d in zip(leaves, places, strict=True)
    ]
    return tree_unflatten(wrapped, spec)


def batched_function(cls: Any, size: int, randomness: str, in_dims: tuple[Any, ...]) -> Any:
    """Return the Function of whole batches that follows from a Function of samples."""

    def wrap(level: BatchLevel, values: Any, dims: Any) -> list[Any]:
        return [
            level.wrap(v, d) if isinstance(v, _C.Tensor) else v
            for v, d in zip(values, dims, strict=True)
        ]

    def whole(level: BatchLevel, t: Any) -> Any:
        """Return a result with the batch in dimension 0, expanded where it has none."""
        if not isinstance(t, _C.Tensor):
            return t
        if not level.owns(t):
            return t.expand((size, *t.shape))
        record = _C.level_of(t)
        return record.inner.movedim(record.dim, 0)

    def inside(function: Any) -> Any:
        level = BatchLevel(size, randomness)
        with entered("levels", level):
            result = function(level)
            with level.below():
                return map_tensors(lambda t: whole(level, t), result)

    class Batched(FunctionRules):
        generate_vmap_rule = True

        @staticmethod
        def forward(*args: Any) -> Any:
            return inside(lambda level: cls.forward(*wrap(level, args, in_dims)))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            level = BatchLevel(size, randomness)
            sample = FunctionCtx()
            sample.needs_input_grad = ctx.needs_input_grad
            with entered("levels", level):
                results = map_tensors(lambda t: level.wrap(t, 0), output)
                samples = wrap(level, inputs, in_dims)
                cls.setup_context(sample, tuple(samples), results)
            ctx.sample = sample
            ctx.save_for_backward(*[level.unwrap(t) for t in sample._to_save])
            ctx.saved_dims = [level.dims(t) for t in sample._to_save]
            forward = sample._for_forward
            if forward is not None:
                ctx.save_for_forward(*[level.unwrap(t) for t in forward])
            ctx.forward_dims = [level.dims(t) for t in forward or ()]
            ctx.set_materialize_grads(sample.materialize_grads)
            physical = {
                id(t): p for t, p in zip(samples, inputs, strict=True) if isinstance(p, _C.Tensor)
            }
            results_flat, output_flat = (flat_tensors((results,)), flat_tensors((output,)))
            physical.update({id(r): o for r, o in zip(results_flat, output_flat, strict=True)})
            ctx.mark_dirty(*[physical[id(t)] for t in sample._dirty])
            ctx.mark_non_differentiable(*[physical[id(t)] for t in sample._non_differentiable])

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            saved = ctx.saved_tensors

            def run(level: BatchLevel) -> Any:
                sample = ctx.sample
                sample._to_save, sample._for_forward = (
                    tuple(wrap(level, saved, ctx.saved_dims)),
                    None,
                )
                found = cls.backward(sample, *wrap(level, grads, [0] * len(grads)))
                return found if isinstance(found, tuple) else (found,)

            found = inside(run)
            return tuple(_as_input(g, d) for g, d in zip(found, in_dims, strict=False))

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            saved = ctx.saved_tensors

            def run(level: BatchLevel) -> Any:
                sample = ctx.sample
                sample._for_forward = tuple(wrap(level, saved, ctx.forward_dims))
                return cls.jvp(sample, *wrap(level, tangents, in_dims))

            return inside(run)

    Batched.__name__ = f"Vmapped{cls.__name__}"
    return Batched


def _as_input(g: Any, dim: int | None) -> Any:
    """Bring a batched gradient to the layout of its input; one without batch gets the sum."""
    if g is None:
        return None
    return g.sum(0) if dim is None else g.movedim(0, dim)
