"""Batching: run an op once for a whole batch, by its definition's rule or by a loop.

A rule sees physical tensors. `definition.batch` is "pointwise" (align ranks and broadcast),
"dims" (batch dimension first, dimension numbers shifted by one), a function
`batch(size, dims, *args) -> (results, out_dims)`, or None (one call per sample, stacked).
"""

from __future__ import annotations

import math
from typing import Any

from tangrad import _C
from tangrad.dispatch.binding import call_bound
from tangrad.dispatch.levels import Level, Record, _lift, levelled, map_tensors
from tangrad.dispatch.stack import current

_DIM_TYPES = ("dim", "dim?", "dim[]", "dim[]?")


class BatchRecord(Record):
    """A physical tensor and which of its dimensions is the batch."""

    __slots__ = ("dim",)

    def __init__(self, inner: Any, level: Level, dim: int) -> None:
        super().__init__(inner, level)
        self.dim = dim
        strides = list(inner.stride())
        del strides[dim]
        self.strides = tuple(strides)


class BatchLevel(Level):
    """One vmap in progress.

    Attributes:
        size: number of samples.
        randomness: "error", "same" or "different".
    """

    transform = "vmap"

    def __init__(self, size: int, randomness: str) -> None:
        self.size, self.randomness = size, randomness

    def wrap(self, inner: Any, dim: int | None) -> Any:
        """Return a tensor of this level: its batch is dimension `dim` of inner (None: inner)."""
        if dim is None:
            return inner
        shape = list(inner.shape)
        if dim < 0:
            dim += len(shape)
        del shape[dim]
        return _C.wrap_level(inner, BatchRecord(inner, self, dim), tuple(shape))

    def resize(self, target: Any, shape: tuple[int, ...]) -> Any:
        """Give every sample another shape; it keeps its own first elements.

        Raises:
            RuntimeError: the tensor requires a gradient.
        """
        if target.requires_grad:
            raise RuntimeError("cannot resize variables that require grad")
        record = _C.level_of(target)
        with self.below():
            inner = record.inner
            rows = front(inner, record.dim).reshape((self.size, target.numel())).clone()
            inner.resize_((self.size, *shape))
            made = inner.reshape((self.size, math.prod(shape)))
            kept = min(rows.shape[1], made.shape[1])
            made.narrow(1, 0, kept).copy_(rows.narrow(1, 0, kept))
        return _C.adopt(target, self.wrap(inner, 0))

    def lift(self, made: Any, like: Any, stack: list[Level]) -> Any:
        """Take a tensor made inside the transform into this level; `stack` lies below."""
        if not isinstance(like, _C.Tensor) or not self.owns(like):
            return _lift(made, like, stack)
        below = _C.level_of(like).inner
        strides = tuple(made.stride())
        extent = (
            1 + sum((n - 1) * s for n, s in zip(made.shape, strides, strict=True))
            if made.numel()
            else 1
        )
        physical = _C.empty_strided(
            (self.size, *made.shape), (extent, *strides), made.dtype, made.device
        )
        current().tell_of_allocation(physical)
        return self.wrap(_lift(physical, below, stack), 0)

    def item(self, record: Record) -> Any:
        """Refuse to tell values: each sample has its own."""
        raise RuntimeError(
            "vmap: It looks like you're calling .item() on a Tensor, or using a Tensor in "
            "data-dependent control flow. "
            "vmap does not support that, as each sample has a value of its own; rewrite it with "
            "other operations, "
            "for example torch.where."
        )

    def tolist(self, record: Record) -> Any:
        """Refuse to tell values: each sample has its own."""
        return self.item(record)

    def dims(self, value: Any) -> Any:
        """Return the batch dimensions of tensors in lists; None where there is none."""
        if isinstance(value, _C.Tensor):
            return _C.level_of(value).dim if self.owns(value) else None
        if isinstance(value, (list, tuple)) and any(isinstance(v, _C.Tensor) for v in value):
            return [self.dims(v) for v in value]
        return None

    def functional(self, op: _C.Op, args: tuple[Any, ...]) -> Any:
        """Run an op that writes nothing."""
        if op.definition.random and args[-1] is None:
            return self._random(op, args)
        inner = self.unwrap(args)
        if not self.has_own(args):
            with self.below() as stack:
                return levelled(op, op, inner, None, stack)
        if op.definition.batch is None and op.definition.decompose is not None:
            return op.definition.decomposed(args)  # whose ops have rules
        dims = tuple(self.dims(a) for a in args)
        with self.below():
            result, out_dims = batched_call(op, self.size, dims, inner, args)
        return self._wrapped(result, out_dims)

    def _wrapped(self, result: Any, out_dims: Any) -> Any:
        if isinstance(result, _C.Tensor):
            return self.wrap(result, out_dims)
        places = iter(out_dims if isinstance(out_dims, (tuple, list)) else [out_dims] * len(result))
        return map_tensors(lambda r: self.wrap(r, next(places)), result)

    def _random(self, op: _C.Op, args: tuple[Any, ...]) -> Any:
        self._check_randomness()
        inner, dims = self.unwrap(args), tuple(self.dims(a) for a in args)
        at_once = op.definition.batch == "pointwise"
        if at_once:
            refuse_same(op.title, *args)
        with self.below():
            if self.randomness == "same" and not self.has_own(args):
                return call_bound(op, inner)
            if at_once:  # the numbers are those of one call for the whole batch
                whole = (
                    front(x, dim, self.size) if isinstance(x, _C.Tensor) else x
                    for x, dim in zip(inner, dims, strict=True)
                )
                return self.wrap(call_bound(op, tuple(whole)), 0)
            if self.randomness == "same":
                inner = (*inner[:-2], *op.definition.draw(tuple(_first_sample(inner, dims))))
            return self._wrapped(*looped(op, self.size, dims, inner))

    def _check_randomness(self) -> None:
        if self.randomness == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap or perform the randomness "
                "operation out of vmap"
            )

    def check_own(self, target: Any, name: str) -> None:
        """Refuse to write values that differ between samples to a tensor without a batch.

        Raises:
            RuntimeError: the target is not batched.
        """
        if not self.owns(target):
            raise RuntimeError(
                "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists "
                "a Tensor `other` in extra_args that has more elements than `self`. This happened "
                "due to `other` being vmapped over but `self` not being vmapped over in a vmap (op "
                f"'{name}'). Please try to use out-of-place operators instead of inplace "
                "arithmetic."
            )

    def _write(
        self, op: _C.Op, args: tuple[Any, ...], written: int, name: str, overwrites: bool = False
    ) -> Any:
        target = args[written]
        if op.definition.random and args[-1] is None:
            return self._random_write(op, args, written)
        inner = self.unwrap(args)
        if self.has_own(args):
            self.check_own(target, name)
            with self.below() as stack:
                self._write_batch(op, args, inner, written, stack)
            return target
        with self.below() as stack:
            result = levelled(op, op, inner, None, stack)
        return target if result is inner[written] else result

    def _write_batch(
        self, op: _C.Op, args: tuple[Any, ...], inner: tuple[Any, ...], written: int, stack: Any
    ) -> None:
        dims = tuple(self.dims(a) for a in args)
        sources = [k for k, a in enumerate(args) if isinstance(a, _C.Tensor) and k != written]
        if not sources and op.definition.batch == "pointwise":
            call_bound(op, inner)  # each element is written alike
            return
        if not sources:
            for i in range(self.size):
                call_bound(op, tuple(_sample(inner, dims, i)))
            return
        target = front(inner[written], dims[written])
        source = aligned(inner[sources[0]], dims[sources[0]], target.ndim - 1)
        copy = _C.lookup_op("copy_")
        levelled(copy, copy, (target, source, False), None, stack)

    def _random_write(self, op: _C.Op, args: tuple[Any, ...], written: int) -> Any:
        self._check_randomness()
        inner, dims = self.unwrap(args), tuple(self.dims(a) for a in args)
        target = args[written]
        at_once = op.definition.batch == "pointwise"

        def write(whole: Any) -> Any:
            return call_bound(op, (*inner[:written], whole, *inner[written + 1 :]))

        with self.below():
            if self.owns(target):
                if at_once:
                    whole = front(inner[written], dims[written])
                    if self.randomness == "different":
                        write(whole)
                    elif self.size:
                        whole.copy_(write(whole[0].clone()))
                    return target
                if self.randomness == "same":
                    inner = (*inner[:-2], *op.definition.draw(tuple(_first_sample(inner, dims))))
                for i in range(self.size):
                    call_bound(op, tuple(_sample(inner, dims, i)))
                return target
            if self.randomness == "same":
                result = call_bound(op, inner)
                return target if result is inner[written] else result
            if not current().creating:
                raise RuntimeError(
                    "vmap: Cannot ask for different inplace randomness on an unbatched tensor. "
                    "This will appear like same randomness. Clone a batched tensor, or draw out of "
                    "place."
                )
            if at_once:
                return self.wrap(write(front(inner[written], None, self.size).clone()), 0)
            drawn = [write(inner[written].clone()) for _ in range(self.size)]
            return self.wrap(_C.lookup_op("stack")(drawn), 0)


def refuse_same(name: str, *args: Any) -> None:
    """Refuse, as PyTorch does, to draw the same numbers from parameters that differ."""
    for x in args:
        level = getattr(_C.level_of(x), "level", None) if isinstance(x, _C.Tensor) else None
        if isinstance(level, BatchLevel) and level.randomness == "same":
            raise RuntimeError(
                "Vmap does not currently support same randomness with a batched tensor input "
                f'({name}()). Draw from a tensor without a batch, or use randomness="different"'
            )


# --- physical tensors ----------------------------------------------------------------------------


def front(x: Any, dim: int | None, size: int | None = None) -> Any:
    """Return x with its batch dimension first; expanded to `size` where it has none."""
    if dim is None:
        return x if size is None else x.expand((size, *x.shape))
    return x if dim == 0 else x.movedim(dim, 0)


def aligned(x: Any, dim: int | None, rank: int) -> Any:
    """Return x with its batch dimension, if any, first and `rank` dimensions behind it."""
    if dim is None:
        return x
    x = front(x, dim)
    missing = rank - (x.ndim - 1)
    return x if missing <= 0 else x.reshape((x.shape[0], *(1,) * missing, *x.shape[1:]))


def batched_call(
    op: _C.Op, size: int, dims: tuple[Any, ...], inner: tuple[Any, ...], args: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Run an op on physical tensors.

    Args:
        size: of the batch.
        dims: batch dimension of each argument, None, or a list for lists.
        inner: the physical arguments. args: the logical ones.

    Returns:
        (result(s), batch dimension(s)).

    Raises:
        RuntimeError: the shape of the result depends on values, which differ between samples.
    """
    rule = op.definition.batch
    if rule == "pointwise":
        return _pointwise(op, dims, inner, args), 0
    if rule == "dims":
        return _by_dims(op, size, dims, inner, args)
    if callable(rule):
        op.definition.check_arguments(args)  # what the rule calls knows other shapes
        return rule(size, dims, *inner)
    if op.definition.shape_depends_on_data:
        raise RuntimeError(
            "vmap: We do not support batching operators that can output dynamic shape. It looks "
            f"like you're calling {op.definition.public_name or op.name}, whose result has a shape "
            "that depends on values; use torch.where or an operation of fixed shape."
        )
    return looped(op, size, dims, inner)


def _pointwise(
    op: _C.Op, dims: tuple[Any, ...], inner: tuple[Any, ...], args: tuple[Any, ...]
) -> Any:
    places = op.definition.schema.tensors
    rank = max(args[k].ndim for k in places if isinstance(args[k], _C.Tensor))
    made = list(inner)
    for k in places:
        if isinstance(args[k], _C.Tensor):
            made[k] = aligned(inner[k], dims[k], rank)
    _keep_promotion(op, made, args)
    return call_bound(op, tuple(made))


def _keep_promotion(op: _C.Op, made: list[Any], args: tuple[Any, ...]) -> None:
    """Cast where a zero-dimensional sample, which promotes less, is a vector physically."""
    names, fixed = op.definition.parameter_names, op.definition.fixed
    places = [
        k for k in op.definition.schema.tensors if names[k] not in fixed and args[k] is not None
    ]
    if len(places) < 2 or not any(
        isinstance(args[k], _C.Tensor) and args[k].ndim == 0 for k in places
    ):
        return
    wanted = promoted([args[k] for k in places])
    if wanted == promoted([made[k] for k in places]):
        return
    for k in places:
        if isinstance(made[k], _C.Tensor) and made[k].dtype != wanted:
            made[k] = made[k].to(wanted)


def promoted(operands: list[Any]) -> Any:
    """Return the dtype to which tensors and numbers promote."""
    result = operands[0]
    if len(operands) == 1:
        return result.dtype if isinstance(result, _C.Tensor) else None
    if len(operands) == 2:
        return _C.result_type(*operands)
    tensors = [o for o in operands if isinstance(o, _C.Tensor)]
    ranked = [t for t in tensors if t.ndim] or tensors
    dtype = ranked[0].dtype
    for t in ranked[1:]:
        dtype = _C.promote_types(dtype, t.dtype)
    return dtype


def _by_dims(
    op: _C.Op, size: int, dims: tuple[Any, ...], inner: tuple[Any, ...], args: tuple[Any, ...]
) -> tuple[Any, Any]:
    params = op.definition.schema.params
    if op.kind == "reduction" and not any(p.type in _DIM_TYPES for p in params):
        return looped(op, size, dims, inner)
    made: list[Any] = []
    for p, x, d in zip(params, inner, dims, strict=True):
        if p.type == "Tensor[]":
            made.append(
                [front(member, None if d is None else d[i], size) for i, member in enumerate(x)]
            )
        elif isinstance(x, _C.Tensor):
            made.append(front(x, d, size))
        else:
            made.append(x)
    first = op.definition.schema.tensors[0]
    logical = args[first][0] if isinstance(args[first], list) else args[first]
    rank = logical.ndim
    kinds = [p.type for p in params]
    scalar = rank == 0 and any(t in _DIM_TYPES for t in kinds)
    if scalar:
        made = [x.unsqueeze(1) if isinstance(x, _C.Tensor) else x for x in made]
        rank = 1
    folds = op.kind == "reduction"
    flattened = False
    for k, kind in enumerate(kinds):
        if kind in ("dim", "dim?") and made[k] is not None:
            made[k] = made[k] + 1
        elif kind == "dim?":
            made[first], made[k], flattened = made[first].reshape((size, -1)), 1, rank > 1
        elif kind in ("dim[]", "dim[]?"):
            whole = folds and not op.definition.keeps_without_dims
            every = made[k] is None or (whole and not made[k])
            made[k] = tuple(range(1, rank + 1)) if every else tuple(d + 1 for d in made[k])
    result = call_bound(op, tuple(made))
    if scalar:
        result = map_tensors(
            lambda r: r if r.ndim == 1 else r.squeeze(1) if r.ndim == 2 else r, result
        )
    if flattened:
        result = map_tensors(
            lambda r: r if r.ndim == 1 else r.reshape((size, *(1,) * rank)), result
        )
    return result, 0


# --- the loop over the batch
# -----------------------------------------------------------------------


def _sample(values: Any, dims: Any, i: int) -> list[Any]:
    """Return the arguments of one sample."""
    taken = []
    for x, d in zip(values, dims, strict=True):
        if isinstance(d, list):
            taken.append([v if e is None else v.select(e, i) for v, e in zip(x, d, strict=True)])
        else:
            taken.append(x if d is None else x.select(d, i))
    return taken


def _first_sample(values: Any, dims: Any) -> list[Any]:
    return _sample(values, dims, 0)


def looped(op: _C.Op, size: int, dims: tuple[Any, ...], inner: tuple[Any, ...]) -> tuple[Any, Any]:
    """Run an op once per sample and stack the results."""
    if size == 0:
        return _empty_batch(op, dims, inner)
    results = [call_bound(op, tuple(_sample(inner, dims, i))) for i in range(size)]
    stack = _C.lookup_op("stack")
    if isinstance(results[0], _C.Tensor):
        return stack(results), 0
    stacked = [stack([r[k] for r in results]) for k in range(len(results[0]))]
    kind = type(results[0])
    return kind(*stacked) if hasattr(kind, "_fields") else kind(stacked), 0


def _empty_batch(op: _C.Op, dims: tuple[Any, ...], inner: tuple[Any, ...]) -> tuple[Any, Any]:
    """Give results of the right shape for no sample, from a sample of zeros."""

    def one(x: Any, d: int | None) -> Any:
        if d is None:
            return x
        shape = list(x.shape)
        del shape[d]
        return x.new_zeros(tuple(shape))

    args = [
        [one(v, e) for v, e in zip(x, d, strict=True)] if isinstance(d, list) else one(x, d)
        for x, d in zip(inner, dims, strict=True)
    ]
    result = call_bound(op, tuple(args))
    return map_tensors(lambda r: r.new_empty((0, *r.shape)), result), 0
