"""The gradient of a write into a view, where function transforms act: without writing anything."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tangrad import _C

_CONJUGATE, _NEGATIVE = 4, 8  # flags of a view, as the compiled core has them


def split_gradient(
    g: Any, base: Any, view: Any, write: Callable[[Any], list[Any]], keep_base: bool
) -> list[Any]:
    """Return gradients of the edges of a write into a view of a base.

    Gradients may be batched by a vmap above, so nothing here is written in place.

    Args:
        g: gradient of the base after the write.
        base, view: what is known of the base and of the written view.
        write: gives the gradients of the writer's edges for the gradient of the view.
        keep_base: whether the base's old values need a gradient.
    """
    call = _C.lookup_op
    if view.dtype is not base.dtype or view.flags or base.flags:
        return _split_plainly(g, base, view, write, keep_base)
    places = positions(base, view).to(g.device)
    flat = g.reshape((-1,))
    results = write(call("index_select")(flat, 0, places.flatten()).reshape(tuple(view.shape)))
    if keep_base:
        kept = call("index_fill")(flat, 0, places.flatten(), 0)
        if results and results[0] is not None:
            kept = call("index_add")(
                kept, 0, places.flatten(), results[0].expand(tuple(view.shape)).flatten()
            )
        results[0] = kept.reshape(tuple(base.shape))
    return results


class Memory:
    """A tensor's place in memory, as numbers that are not complex, if it is to be paired."""

    dtype, flags = None, 0

    def __init__(self, meta: Any, paired: bool) -> None:
        paired = paired and meta.dtype.is_complex
        scale, last = (2, (2,)) if paired else (1, ())
        self.shape: tuple[int, ...] = (*meta.shape, *last)
        self._stride = (*(scale * step for step in meta.stride()), *(1 for _ in last))
        self.offset = scale * _offset(meta)

    def stride(self) -> tuple[int, ...]:
        """Return the strides."""
        return self._stride

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)


def _split_plainly(
    g: Any, base: Any, view: Any, write: Callable[[Any], list[Any]], keep_base: bool
) -> list[Any]:
    """Split the gradient of memory that view and base show as different numbers."""
    paired = view.dtype is not base.dtype

    def held(x: Any, meta: Any) -> Any:
        x = flipped(x, meta.flags)
        return _C.lookup_op("view_as_real")(x) if paired and meta.dtype.is_complex else x

    def shown(x: Any, meta: Any) -> Any:
        if paired and meta.dtype.is_complex:
            x = _C.lookup_op("view_as_complex")(x.contiguous())
        return flipped(x, meta.flags)

    def write_held(piece: Any) -> list[Any]:
        results = write(shown(piece, view))
        if results and results[0] is not None:
            results[0] = held(results[0].expand(tuple(view.shape)), view)
        return results

    places = Memory(base, paired), Memory(view, paired)
    results = split_gradient(held(g, base), *places, write_held, keep_base)
    if keep_base:
        results[0] = shown(results[0], base)
    return results


def flags_of(t: Any) -> int:
    """Return the flags of a tensor as a view."""
    return _CONJUGATE * t.is_conj() + _NEGATIVE * t.is_neg()


def flipped(x: Any, flags: int) -> Any:
    """Conjugate and negate values as flags of a view say, and show them without flags."""
    x = x.conj() if flags & _CONJUGATE else x
    return (-x if flags & _NEGATIVE else x).resolve_conj().resolve_neg()


def seen_as(whole: Any, view: Any, offset: int) -> Any:
    """Return the view of a tensor's memory that shows it as another view does.

    Args:
        whole: whose memory is seen.
        view: shape, strides, dtype and flags of the result.
        offset: where it starts in the storage of `whole`, in elements of the result.
    """
    call = _C.lookup_op
    shape, stride = tuple(view.shape), tuple(view.stride())
    if view.dtype is whole.dtype:
        seen = call("as_strided")(whole, shape, stride, offset)
    else:
        plain = call("_conj")(whole) if whole.is_conj() else whole
        if whole.dtype.is_complex:
            seen = call("as_strided")(call("view_as_real")(plain), shape, stride, offset)
        else:
            pairs = (*shape, 2), (*(2 * step for step in stride), 1), 2 * offset
            seen = call("view_as_complex")(call("as_strided")(plain, *pairs))
    if seen.is_conj() != bool(view.flags & _CONJUGATE):
        seen = call("_conj")(seen)
    return call("_neg_view")(seen) if seen.is_neg() != bool(view.flags & _NEGATIVE) else seen


def offset_within(base: Any, view: Any) -> int:
    """Return where a view starts after its base, in elements of the view."""
    if view.dtype is base.dtype:
        return int(view.offset - base.offset)
    return int(view.offset - base.offset * base.dtype.itemsize // view.dtype.itemsize)


def positions(base: Any, view: Any) -> Any:
    """Return the positions of a view's elements among its base's, counted in the base's order.

    Args:
        base, view: tensors of one storage, or what is known of their shapes, strides and offsets;
            what the view has outside of the base is at -1.
    """
    call = _C.lookup_op
    low = min(_offset(base), _offset(view))
    count = call("arange")(base.numel())
    memory = call("full")((max(_end(base), _end(view)) - low,), -1)
    call("as_strided")(memory, tuple(base.shape), tuple(base.stride()), _offset(base) - low).copy_(
        count.reshape(tuple(base.shape))
    )
    return call("as_strided")(memory, tuple(view.shape), tuple(view.stride()), _offset(view) - low)


def _end(t: Any) -> int:
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return int(_offset(t) + (1 + last if all(t.shape) else 0))


def _offset(x: Any) -> int:
    return x.storage_offset() if isinstance(x, _C.Tensor) else x.offset
