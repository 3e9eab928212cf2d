"""The gradient of a write into a view, where function transforms act: without writing anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import _C


def split_gradient(
    g: Any, base: Any, view: Any, write: Callable[[Any], list[Any]], keep_base: bool
) -> list[Any]:
    """Return gradients of the edges of a write into a view of a base.

    Gradients may be batched by a vmap above, so nothing here is written in place.

    Args:
        g: gradient of the base after the write.
        base, view: shape, strides and offset of the base and of the written view.
        write: gives the gradients of the writer's edges for the gradient of the view.
        keep_base: whether the base's old values need a gradient.
    """
    call = _C.lookup_op
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
