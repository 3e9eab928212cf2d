"""Conversions to the layouts from any other, and from what a file of PyTorch holds."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.autograd import Function
from tangrad.plugin import components, register_conversion, to_layout
from tangrad_sparse import compressed, coo


def to_coo(
    t: Any,
    sparse_dim: Any = None,
    *,
    layout: Any = None,
    blocksize: Any = None,
    dense_dim: Any = None,
) -> Any:
    """Convert to COO (or to `layout`); what is COO already stays itself.

    Args:
        t: a tensor of any layout.
        sparse_dim: how many leading dimensions are sparse, all by default.
        layout: a layout of sparse tensors.
        blocksize: (rows, columns) of the blocks of BSR and BSC.
        dense_dim: how many last dimensions are dense.

    Raises:
        RuntimeError: an option does not go with the layout.
    """
    if isinstance(sparse_dim, tangrad.layout):
        raise TypeError("to_sparse(): give the layout by name: to_sparse(layout=...)")
    if layout is not None and layout is not coo.COO:
        return to_compressed(t, layout, blocksize, dense_dim)
    if blocksize is not None:
        raise RuntimeError("to_sparse: a blocksize is of sparse_bsr and sparse_bsc, not sparse_coo")
    if t.layout is coo.COO:
        held = components(t)["indices"].shape[0]
        if sparse_dim not in (None, held):
            raise RuntimeError(
                "to_sparse: conversion from Sparse to Sparse with sparse_dim argument "
                f"!=self.sparse_dim() is not supported: got {sparse_dim} for {held}; use "
                "to_dense().to_sparse(sparse_dim)"
            )
        return t
    if compressed.is_compressed(t):
        return coo.coalesce(compressed.to_indices(t))
    if sparse_dim is None and dense_dim is not None:
        sparse_dim = t.ndim - dense_dim
    options = {} if sparse_dim is None else {"sparse_dim": sparse_dim}
    return to_layout(t, coo.COO, **options)


def to_compressed(t: Any, layout: Any, blocksize: Any = None, dense_dim: Any = None) -> Any:
    """Convert to one of the layouts of compressed rows and columns.

    What is of the layout, and has the blocks asked for, stays itself.
    """
    given = {"blocksize": blocksize, "dense_dim": dense_dim}
    if t.layout is tangrad.strided or not hasattr(layout.definition, "by_rows"):
        return to_layout(t, layout, **{k: v for k, v in given.items() if v is not None})
    if t.layout is coo.COO:
        return compressed.from_coo(t, layout, blocksize)
    if layout is t.layout and blocksize in (None, compressed.block_of(t)):
        return t
    dtype = next(iter(components(t).values())).dtype
    return compressed.from_coo(compressed.to_indices(t), layout, blocksize, dtype)


def _register(layout: Any) -> None:
    if layout.definition.blocked:

        def convert(t: Any, blocksize: Any, dense_dim: Any = None) -> Any:
            return to_compressed(t, layout, blocksize, dense_dim)
    else:

        def convert(t: Any, dense_dim: Any = None) -> Any:
            return to_compressed(t, layout, None, dense_dim)

    convert.__doc__ = f"Convert a tensor of any layout to {layout}."
    register_conversion(f"to_{layout.name}", convert)


class _Picked(Function):
    """The elements of a COO tensor at the places of another; its gradient has these places."""

    @staticmethod
    def forward(t: Any, mask: Any) -> Any:
        """Pick the elements, 0 where the tensor has none."""
        values = mask.layout.definition.picked(mask, t.to_dense())["values"]
        return compressed.with_values(mask, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep the places."""
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Return the gradient at the places."""
        (mask,) = ctx.saved_tensors
        return to_coo(sparse_mask(g, mask)), None


def sparse_mask(t: Any, mask: Any) -> Any:
    """Return the elements of a tensor at the places of a sparse one, in its layout."""
    if not isinstance(mask, tangrad.Tensor):
        raise TypeError(f"sparse_mask(): mask must be a Tensor, not {type(mask).__name__}")
    if tuple(t.shape) != tuple(mask.shape):
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(t.shape)} but "
            f"mask has size {list(mask.shape)}"
        )
    if mask.layout is not coo.COO and not compressed.is_compressed(mask):
        raise NotImplementedError(f"sparse_mask: a mask of layout {mask.layout}")
    if t.layout is coo.COO and t.requires_grad and tangrad.is_grad_enabled():
        return _Picked.apply(t, mask)
    values = mask.layout.definition.picked(mask, t.to_dense())["values"]
    return compressed.with_values(mask, values)


def rebuilt(layout: Any, data: Any) -> Any:
    """Rebuild what a file of PyTorch holds as a tensor of a sparse layout.

    Raises:
        RuntimeError: the indices do not lie within the size.
    """
    if layout is coo.COO:
        indices, values, size, *rest = data
        coo.check_range(indices, size)
        return coo.make(indices, values, size, bool(rest and rest[0]))
    if layout in compressed.LAYOUTS.values():
        starts, others, values, size = data
        compressed.check_range(starts, others, values, size, layout)
        return compressed.make(starts, others, values, size, layout)
    raise NotImplementedError(f"a file holds a tensor of layout {layout}, which has no definition")


register_conversion("sparse_mask", sparse_mask)
coo.Coo.readers = {"torch._utils._rebuild_sparse_tensor": rebuilt}
for _name in ("to_sparse", "to_sparse_coo"):
    register_conversion(_name, to_coo)
for _layout in compressed.LAYOUTS.values():
    _register(_layout)
