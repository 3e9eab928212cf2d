"""The layouts of compressed rows and columns: CSR, CSC, and of blocks BSR and BSC.

Where each row begins, the columns of its elements, their values; or the same by columns. What
BSR and BSC compress is a matrix of blocks. Batches stand before a matrix, dense dimensions behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tangrad
from tangrad.plugin import (
    Layout,
    component,
    components,
    layout_tensor,
    register_layout,
    to_layout,
)
from tangrad_sparse import coo


class Compressed(Layout):
    """Tensors (*batch, r, c, *dense) of one of the four layouts, n elements in each matrix.

    The components are where rows (or columns) begin, (*batch, r + 1), the columns (or rows),
    (*batch, n), and values, (*batch, n, *dense). Of blocks of (p, q), r and c count these, and
    values are (*batch, n, p, q, *dense).

    Attributes:
        by_rows: rows are compressed; else columns.
        blocked: the elements are blocks.
    """

    elements = ("values",)

    def __init__(self, by_rows: bool, blocked: bool) -> None:
        self.by_rows, self.blocked = by_rows, blocked
        rows, columns = ("crow_indices", "col_indices"), ("ccol_indices", "row_indices")
        self.components = (*(rows if by_rows else columns), "values")
        starts, others, _ = self.components
        self.methods = {
            "to_dense": coo.to_dense,
            starts: lambda t: components(t)[starts],
            others: lambda t: components(t)[others],
            "values": lambda t: component(t, "values"),
            "_nnz": lambda t: int(components(t)[others].shape[-1]),
            "sparse_dim": lambda t: 2,
            "dense_dim": dense_dim,
        }
        if by_rows and not blocked:
            self.methods["is_sparse_csr"] = True

    def check(
        self, components: Mapping[str, Any], metadata: Mapping[str, Any], shape: tuple[int, ...]
    ) -> None:
        """Raise unless the components and the shape fit each other."""
        names, (starts, others, values) = self.components, components.values()
        batch, blocks = starts.ndim - 1, 2 * self.blocked
        dense = values.ndim - 1 - batch - blocks
        whole = batch >= 0 <= dense and len(shape) == batch + 2 + dense
        heads = {tuple(c.shape[:batch]) for c in (starts, others, values)} | {shape[:batch]}
        if not whole or len(heads) > 1 or others.ndim != starts.ndim:
            raise RuntimeError(
                f"{_name(self)}: a matrix of {names[0]}, {names[1]} and values is expected, "
                f"batches before it and dense dimensions behind; got shape {list(shape)}, "
                f"{names[0]} {list(starts.shape)}, {names[1]} {list(others.shape)} and values "
                f"{list(values.shape)}"
            )
        for name, given in ((names[0], starts), (names[1], others)):
            if given.dtype not in (tangrad.int64, tangrad.int32):
                raise RuntimeError(f"{name} must be an int32 or int64 type, but got {given.dtype}")
        if starts.dtype is not others.dtype:
            raise RuntimeError(
                f"{names[0]} and {names[1]} must have the same dtype, but got {starts.dtype} and "
                f"{others.dtype}"
            )
        count = others.shape[-1]
        if tuple(values.shape[batch + 1 + blocks :]) != shape[batch + 2 :]:
            raise RuntimeError(
                f"{_name(self)}: values of shape {list(values.shape)} have not the dense "
                f"dimensions {list(shape[batch + 2 :])} of the shape {list(shape)}"
            )
        if values.shape[batch] != count:
            raise RuntimeError(
                f"{names[1]} and values must have the same nnz, got {count} and "
                f"{values.shape[batch]}"
            )
        block = tuple(values.shape[batch + 1 : batch + 1 + blocks]) or (1, 1)
        if any(not b or n % b for n, b in zip(shape[batch : batch + 2], block, strict=True)):
            raise RuntimeError(
                f"{_name(self)}: a matrix of {list(shape[batch : batch + 2])} cannot be divided "
                f"into blocks of {list(block)}"
            )
        size = shape[batch + (not self.by_rows)] // block[not self.by_rows]
        if starts.shape[-1] != size + 1:
            what = "nrows" if self.by_rows else "ncols"
            raise RuntimeError(
                f"{names[0]}.shape[-1] must be equal to the number of {what} + 1 = {size + 1}, but "
                f"got {starts.shape[-1]}"
            )

    def to_dense(self, t: Any) -> Any:
        """Return the strided tensor."""
        return coo.COO.definition.to_dense(to_indices(t))

    def from_dense(self, dense: Any, *, blocksize: Any = None, dense_dim: Any = None) -> Any:
        """Return the elements, or the blocks, that are not zero."""
        sparse = dense.ndim - (dense_dim or 0)
        if sparse < 2 or sparse > dense.ndim:
            raise RuntimeError(
                f"to_{_name(self)}: expected a matrix before dense_dim={dense_dim or 0} dense "
                f"dimensions, got shape {list(dense.shape)}"
            )
        made = to_layout(dense, coo.COO, sparse_dim=sparse)
        return from_coo(made, LAYOUTS[_name(self)], blocksize)

    def options(self, t: Any) -> dict[str, Any]:
        """Return the size of the blocks, and how many dimensions are dense."""
        return {"blocksize": block_of(t), "dense_dim": dense_dim(t)}

    def empty(self, size: tuple[int, ...], dtype: Any, device: Any) -> Any:
        """Return a matrix, or a batch of them, that holds no element.

        Raises:
            RuntimeError: the size is of no matrix, or that of its blocks would be unknown.
        """
        if self.blocked:
            raise RuntimeError(
                f"{_name(self)}: a size alone does not tell that of the blocks; use "
                f"{_name(self)}_tensor(...)"
            )
        if len(size) < 2:
            raise RuntimeError(f"{_name(self)}: expected the size of a matrix, got {list(size)}")
        *batch, rows, columns = size
        groups = rows if self.by_rows else columns
        starts = tangrad.zeros((*batch, groups + 1), dtype=tangrad.int64, device=device)
        values = tangrad.zeros((*batch, 0), dtype=dtype, device=device)
        return make(starts, starts[..., :0], values, size, LAYOUTS[_name(self)])

    def converted(self, t: Any, dtype: Any, device: Any) -> Any:
        """Return a copy of another dtype or device; on "meta" it holds no element."""
        emptied = device is not None and tangrad.device(device).type == "meta"
        return super().converted(without_elements(t) if emptied else t, dtype, device)

    def picked(self, t: Any, dense: Any) -> Mapping[str, Any]:
        """Return the elements of a dense tensor at the places."""
        indices = components(to_indices(t.detach()))["indices"]
        return {"values": dense[tuple(indices)].reshape(components(t)["values"].shape)}

    def remarks(self, t: Any) -> list[str]:
        """Return what PyTorch prints behind the components."""
        _, others, _ = components(t).values()
        return [f"size={tuple(t.shape)}", f"nnz={others.shape[-1]}"]

    def file_form(self, t: Any) -> tuple[str, tuple[Any, ...]]:
        """Return what rebuilds it in PyTorch's files."""
        data = (*components(t).values(), t.shape)
        return "torch._utils._rebuild_sparse_tensor", (t.layout, data)


def _name(definition: Compressed) -> str:
    last = "r" if definition.by_rows else "c"
    return f"sparse_{'b' if definition.blocked else 'c'}s{last}"


def is_compressed(t: Any) -> bool:
    """Return whether a tensor is of one of the four layouts."""
    return isinstance(t.layout.definition, Compressed)


def dense_dim(t: Any) -> int:
    """Return how many dimensions of a compressed tensor are dense."""
    starts, _, values = components(t).values()
    return int(values.ndim - starts.ndim - 2 * t.layout.definition.blocked)


def block_of(t: Any) -> tuple[int, int] | None:
    """Return the size of the blocks of a tensor; None if its elements are numbers."""
    if not t.layout.definition.blocked:
        return None
    starts, _, values = components(t).values()
    rows, columns = values.shape[starts.ndim : starts.ndim + 2]
    return int(rows), int(columns)


def make(starts: Any, others: Any, values: Any, shape: Any, layout: Any = None) -> Any:
    """Make a tensor, CSR by default, of components that fit; `values` keep their history."""
    layout = layout or CSR
    held = dict(zip(layout.definition.components, (starts, others, values), strict=True))
    return layout_tensor(layout, held, shape, dtype=values.dtype)


def with_values(t: Any, values: Any) -> Any:
    """Return a sparse tensor of other values at the places of t, in its layout."""
    if t.layout is coo.COO:
        return coo.make(components(t)["indices"], values, t.shape, coo.is_coalesced(t))
    starts, others, _ = components(t).values()
    return make(starts, others, values, t.shape, t.layout)


def without_elements(t: Any) -> Any:
    """Return a tensor of t's layout, shape and blocks that holds no element."""
    starts, others, values = components(t).values()
    batch = starts.ndim - 1
    others, values = others.narrow(batch, 0, 0), values.narrow(batch, 0, 0)
    return make(tangrad.zeros_like(starts), others, values, t.shape, t.layout)


def check_range(starts: Any, others: Any, values: Any, shape: Any, layout: Any) -> None:
    """Raise unless the starts follow each other and the others lie within the size.

    Raises:
        RuntimeError: they do not.
    """
    definition = layout.definition
    definition.check(
        dict(zip(definition.components, (starts, others, values), strict=True)), {}, tuple(shape)
    )
    if starts.device.type == "meta" or not starts.numel():
        return
    names, count = definition.components, others.shape[-1]
    first, last = starts[..., 0] != 0, starts[..., -1] != count
    if bool(first.any()) or bool(last.any()) or bool((starts.diff() < 0).any()):
        shown = starts.flatten()[:8].tolist()
        raise RuntimeError(
            f"{layout.name}_tensor: {names[0]} must rise from 0 to the number of elements, "
            f"{count}, and never fall, but got {shown}{' ...' if starts.numel() > 8 else ''}"
        )
    batch, by_rows = starts.ndim - 1, definition.by_rows
    size = shape[batch + by_rows]
    if definition.blocked:
        size //= values.shape[batch + 1 + by_rows]
    if others.numel() and (int(others.min()) < 0 or int(others.max()) >= size):
        raise RuntimeError(
            f"{layout.name}_tensor: size is inconsistent with indices: {names[1]} must lie "
            f"within 0 and {size - 1}, but got {int(others.min())} to {int(others.max())}"
        )


def to_indices(t: Any) -> Any:
    """Convert a compressed tensor to COO, its values with their derivative."""
    definition = t.layout.definition
    starts, others, _ = components(t).values()
    batch, count = tuple(starts.shape[:-1]), others.shape[-1]
    groups = starts.shape[-1] - 1
    compressed = tangrad.repeat_interleave(
        tangrad.arange(starts.diff().numel(), device=starts.device),
        starts.diff().flatten().to(tangrad.int64),
        output_size=others.numel(),
    )
    pair = [compressed % max(groups, 1), others.flatten().to(tangrad.int64)]
    pair = pair if definition.by_rows else pair[::-1]
    places = list(coo.from_numbers(compressed // max(groups, 1), batch))
    values = component(t, "values")
    values = values.reshape((others.numel(), *values.shape[len(batch) + 1 :]))
    block = block_of(t)
    if block is not None:
        within = [tangrad.arange(b, device=starts.device) for b in block]
        whole = (others.numel(), *block)
        pair[0] = (pair[0] * block[0]).reshape((-1, 1, 1)) + within[0].unsqueeze(1)
        pair[1] = (pair[1] * block[1]).reshape((-1, 1, 1)) + within[1]
        pair = [p.expand(whole).flatten() for p in pair]
        places = [p.reshape((-1, 1, 1)).expand(whole).flatten() for p in places]
        values = values.flatten(0, 2)
    ordered = definition.by_rows and block is None and count < 2
    return coo.make(tangrad.stack([*places, *pair]), values, t.shape, ordered)


def from_coo(t: Any, layout: Any = None, blocksize: Any = None, dtype: Any = None) -> Any:
    """Convert a COO tensor to a compressed one, CSR by default; values with their derivative.

    Args:
        t: a COO tensor; what stands before its last two sparse dimensions are batches.
        layout: one of the four.
        blocksize: (rows, columns) of the blocks of BSR and BSC.
        dtype: of the indices, int64 by default.

    Raises:
        RuntimeError: it has less than two sparse dimensions, its matrices differ in how many
            elements they have, or they cannot be divided into the blocks.
    """
    layout = layout or CSR
    definition = layout.definition
    t = coo.coalesce(t)
    indices, values = coo.parts(t)
    batch = indices.shape[0] - 2
    if batch < 0:
        raise RuntimeError(
            f"to_{layout.name}: expected two sparse dimensions, got {batch + 2} of a tensor of "
            f"shape {list(t.shape)}"
        )
    block = _checked_block(t, layout, blocksize, batch)
    heads, size = (
        tuple(t.shape[:batch]),
        [n // b for n, b in zip(t.shape[batch : batch + 2], block, strict=True)],
    )
    pair = [indices[batch] // block[0], indices[batch + 1] // block[1]]
    if not definition.by_rows:
        size, pair = size[::-1], pair[::-1]
    numbers = coo.flat_numbers(tangrad.stack([*indices[:batch], *pair]), (*heads, *size))
    if definition.blocked:
        numbers, place = tangrad.unique(numbers, return_inverse=True)
        within = place * block[0] * block[1]
        within = within + indices[batch] % block[0] * block[1] + indices[batch + 1] % block[1]
        flat = values.new_zeros((numbers.shape[0] * block[0] * block[1], *values.shape[1:]))
        values = flat.index_put((within,), values)
        values = values.reshape((numbers.shape[0], *block, *values.shape[1:]))
    elif not definition.by_rows:
        numbers, order = numbers.sort()
        values = values.index_select(0, order)
    matrices = 1
    for n in heads:
        matrices *= n
    if not matrices:
        raise RuntimeError(f"to_{layout.name}: no matrices in batches of {list(heads)}")
    compressed = numbers // max(size[1], 1)
    counts = tangrad.bincount(compressed, minlength=matrices * size[0]).reshape((matrices, size[0]))
    totals = counts.sum(1)
    if matrices > 1 and bool((totals != totals[0]).any()):
        raise RuntimeError(
            f"to_{layout.name}: Expect the same number of specified elements per batch, got "
            f"{totals[:8].tolist()}"
        )
    starts = tangrad.cat((counts.new_zeros((matrices, 1)), counts.cumsum(1)), 1)
    each = numbers.shape[0] // matrices
    dtype = dtype or tangrad.int64
    return make(
        starts.reshape((*heads, size[0] + 1)).to(dtype),
        (numbers % max(size[1], 1)).reshape((*heads, each)).to(dtype),
        values.reshape((*heads, each, *values.shape[1:])),
        t.shape,
        layout,
    )


def _checked_block(t: Any, layout: Any, blocksize: Any, batch: int) -> tuple[int, int]:
    if not layout.definition.blocked:
        if blocksize is not None:
            raise RuntimeError(f"to_{layout.name}: a blocksize is of sparse_bsr and sparse_bsc")
        return 1, 1
    blocksize = (blocksize,) * 2 if isinstance(blocksize, int) else blocksize
    block = tuple(blocksize) if isinstance(blocksize, (tuple, list)) else ()
    size = t.shape[batch : batch + 2]
    if len(block) != 2 or min(block) < 1 or any(n % b for n, b in zip(size, block, strict=True)):
        raise RuntimeError(
            f"to_{layout.name}: blocksize must be two numbers that divide the sizes of "
            f"the matrix, {list(size)}; got {blocksize}"
        )
    return block[0], block[1]


def like(t: Any, made: Any) -> Any:
    """Return a COO tensor in the layout of t, with its blocks and the dtype of its indices."""
    return from_coo(made, t.layout, block_of(t), next(iter(components(t).values())).dtype)


def transposed(t: Any) -> Any:
    """Exchange rows and columns: what was compressed by rows is by columns then.

    Raises:
        RuntimeError: the tensor has dense dimensions.
    """
    definition = t.layout.definition
    if dense_dim(t):
        raise RuntimeError(
            f"transpose(): a tensor of layout {t.layout} with dense dimensions "
            f"({list(t.shape)}) has no transpose; call to_dense()"
        )
    starts, others, _ = components(t).values()
    values = component(t, "values")
    values = values.transpose(-1, -2) if definition.blocked else values
    name = _name(Compressed(not definition.by_rows, definition.blocked))
    shape = (*t.shape[:-2], t.shape[-1], t.shape[-2])
    return make(starts, others, values, shape, LAYOUTS[name])


LAYOUTS = {
    _name(definition): register_layout(_name(definition), definition)
    for definition in (Compressed(r, b) for b in (False, True) for r in (True, False))
}
CSR, CSC, BSR, BSC = LAYOUTS.values()
