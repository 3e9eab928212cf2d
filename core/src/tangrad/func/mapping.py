"""vmap: a function of one sample becomes a function of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.dispatch.batching import BatchLevel
from tangrad.dispatch.stack import entered
from tangrad.random.generator import fork_rng
from tangrad.utils._pytree import broadcast_prefix, tree_flatten, tree_unflatten

InDims = int | tuple[Any, ...] | None


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return the function that applies `func` to every sample of a batch.

    Args:
        func: takes trees of tensors of one sample, returns a tree of tensors.
        in_dims: batch dimension of each positional argument: an int, None (not batched), or a tuple
            of such and of trees that match the arguments. Keyword arguments are not batched.
        out_dims: where the batch dimension goes in each output.
        randomness: "error": random operations raise; "same": all samples draw the same numbers;
            "different": each draws its own.
        chunk_size: do at most so many samples at a time.

    Raises:
        ValueError: in_dims or out_dims do not fit, or batch sizes differ.
        RuntimeError: a random or data-dependent operation, or an in-place write that cannot be
            batched.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. "
            f"Got {randomness}"
        )
    if chunk_size is not None and not (chunk_size == "auto" or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    from functools import update_wrapper

    def batched(*args: Any, **kwargs: Any) -> Any:
        size, leaves, dims, spec = _flat_inputs(func, in_dims, args, kwargs)
        if chunk_size is None or chunk_size >= size:
            return _run(func, size, leaves, dims, spec, out_dims, randomness)
        return _run_chunks(func, size, leaves, dims, spec, out_dims, randomness, chunk_size)

    try:
        return update_wrapper(batched, func)
    except AttributeError:
        return batched


def _name(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", None) or repr(func)


def _flat_inputs(
    func: Any, in_dims: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[int, list[Any], list[Any], Any]:
    """Return batch size, leaves, their batch dimensions and the trees, all checked."""
    call = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, int) and not isinstance(in_dims, tuple):
        raise ValueError(
            f"{call}: expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}."
        )
    if not args and not kwargs:
        raise ValueError(
            f"{call}: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
            "over a function with no inputs. The latter is unsupported."
        )
    leaves, args_spec = tree_flatten(args)
    dims = broadcast_prefix(in_dims, args_spec)
    if dims is None:
        raise ValueError(
            f"{call}: in_dims is not compatible with the structure of `inputs`. in_dims has "
            f"structure {tree_flatten(in_dims)[1]} but inputs has structure {args_spec}."
        )
    dims = [_checked_dim(call, x, d) for x, d in zip(leaves, dims, strict=True)]
    keyword_leaves, keyword_spec = tree_flatten(kwargs)
    dims += [None] * len(keyword_leaves)
    leaves = leaves + keyword_leaves
    return _batch_size(call, leaves, dims), leaves, dims, (args_spec, keyword_spec)


def _checked_dim(call: str, x: Any, dim: Any) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise ValueError(
            f"{call}: Got in_dim={dim} for an input but in_dim must be either an integer "
            "dimension or None."
        )
    if not isinstance(x, _C.Tensor):
        raise ValueError(
            f"{call}: Got in_dim={dim} for an input but the input is of type {type(x)}. We cannot "
            "vmap over non-Tensor arguments, please use None as the respective in_dim"
        )
    if dim < -x.ndim or dim >= x.ndim:
        raise ValueError(
            f"{call}: Got in_dim={dim} for some input, but that input is a Tensor of "
            f"dimensionality {x.ndim} so expected in_dim to satisfy -{x.ndim} <= in_dim < {x.ndim}."
        )
    return dim % x.ndim


def _batch_size(call: str, leaves: list[Any], dims: list[Any]) -> int:
    sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError(
            "vmap: Expected at least one Tensor to vmap over"
            if dims and all(d is None for d in dims)
            else f"{call}: at least one input must be vmapped over"
        )
    if any(s != sizes[0] for s in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def _run(
    func: Any,
    size: int,
    leaves: list[Any],
    dims: list[Any],
    spec: Any,
    out_dims: Any,
    randomness: str,
) -> Any:
    level = BatchLevel(size, randomness)
    with entered("levels", level):
        wrapped = [
            level.wrap(x, d) if d is not None else x for x, d in zip(leaves, dims, strict=True)
        ]
        count = spec[0].num_leaves
        result = func(
            *tree_unflatten(wrapped[:count], spec[0]), **tree_unflatten(wrapped[count:], spec[1])
        )
        outputs, out_spec = tree_flatten(result)
        places = _out_places(func, out_dims, outputs, out_spec)
        with level.below():
            moved = [_placed(level, o, d) for o, d in zip(outputs, places, strict=True)]
    return tree_unflatten(moved, out_spec)


def _out_places(func: Any, out_dims: Any, outputs: list[Any], spec: Any) -> list[Any]:
    call = f"vmap({_name(func)}, ..., out_dims={out_dims})"
    if isinstance(out_dims, tuple) and len(out_dims) == 1 and spec.type is None:
        out_dims = out_dims[0]
    places = broadcast_prefix(out_dims, spec)
    if places is None:
        raise ValueError(
            f"{call}: out_dims is not compatible with the structure of `outputs`. out_dims has "
            f"structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    if any(not isinstance(d, int) and d is not None for d in places):
        raise ValueError(
            f"{call}: `out_dims` must be an int, None or a python collection of ints representing "
            "where in the outputs the vmapped dimension should appear."
        )
    for o, place in zip(outputs, places, strict=True):
        if place is not None and not isinstance(o, _C.Tensor):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type "
                f"{type(o)}. Did you mean to set out_dims= to None for output?"
            )
    return places


def _placed(level: BatchLevel, output: Any, place: int | None) -> Any:
    """Return the physical output with the batch where out_dims wants it."""
    batched = isinstance(output, _C.Tensor) and level.owns(output)
    if place is None:
        if not batched:
            return output
        raise ValueError(
            "vmap: `out_dims` is None for an output that depends on the batch; give its dimension"
        )
    if not batched:
        _check_place(place, output.ndim + 1)
        return output.unsqueeze(0).expand((level.size, *output.shape)).movedim(0, place)
    record = _C.level_of(output)
    _check_place(place, record.inner.ndim)
    return (
        record.inner
        if record.dim == place % record.inner.ndim
        else record.inner.movedim(record.dim, place)
    )


def _check_place(place: int, rank: int) -> None:
    if not -rank <= place < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{place})"
        )


def _run_chunks(
    func: Any,
    size: int,
    leaves: list[Any],
    dims: list[Any],
    spec: Any,
    out_dims: Any,
    randomness: str,
    chunk: int,
) -> Any:
    pieces = []
    for start in range(0, size, chunk):
        length = min(chunk, size - start)
        part = [
            x if d is None else x.narrow(d, start, length)
            for x, d in zip(leaves, dims, strict=True)
        ]
        # What is the same for all samples is so in whichever chunk they are.
        with fork_rng(enabled=randomness == "same" and start + length < size):
            pieces.append(_run(func, length, part, dims, spec, out_dims, randomness))
    flat = [tree_flatten(p) for p in pieces]
    out_spec = flat[0][1]
    places = broadcast_prefix(
        out_dims[0] if isinstance(out_dims, tuple) and out_spec.type is None else out_dims, out_spec
    )
    cat = _C.lookup_op("cat")
    joined = [
        group[0] if place is None else cat(list(group), place % group[0].ndim)
        for place, group in zip(places or [], zip(*(f[0] for f in flat), strict=True), strict=True)
    ]
    return tree_unflatten(joined, out_spec)
