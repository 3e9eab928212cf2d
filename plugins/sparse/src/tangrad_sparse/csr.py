"""The layout `tangrad.sparse_csr`: matrices by rows; where each begins, its columns, its values."""

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


def make(crow: Any, col: Any, values: Any, shape: Any) -> Any:
    """Make a CSR matrix of components that fit; `values` keep their history."""
    held = {"crow_indices": crow, "col_indices": col, "values": values}
    return layout_tensor(CSR, held, shape, dtype=values.dtype)


def check_range(crow: Any, col: Any, shape: Any) -> None:
    """Raise unless the rows follow each other and every column lies within the size.

    Raises:
        RuntimeError: they do not.
    """
    if crow.device.type == "meta" or crow.ndim != 1:
        return
    starts = crow.tolist()
    if starts[:1] != [0] or starts[-1] != col.shape[0] or starts != sorted(starts):
        raise RuntimeError(
            f"crow_indices must rise from 0 to the number of elements, {col.shape[0]}, but got "
            f"{starts[:8]}{' ...' if len(starts) > 8 else ''}"
        )
    coo.check_range(col.unsqueeze(0), shape[1:])


def rows_of(crow: Any, count: int) -> Any:
    """Return the row of each of `count` elements, given where the rows begin."""
    return tangrad.repeat_interleave(
        tangrad.arange(crow.shape[0] - 1, device=crow.device), crow.diff(), output_size=count
    )


class Csr(Layout):
    """Matrices (r, c) of crow_indices (r + 1,), col_indices (n,) and values (n,)."""

    components = ("crow_indices", "col_indices", "values")
    elements = ("values",)

    def check(
        self, components: Mapping[str, Any], metadata: Mapping[str, Any], shape: tuple[int, ...]
    ) -> None:
        """Raise unless the components and the shape fit each other."""
        crow, col, values = (components[name] for name in self.components)
        if len(shape) != 2 or not crow.ndim == col.ndim == values.ndim == 1:
            raise RuntimeError(
                "sparse_csr: a matrix of vectors of row starts, columns and values is expected, "
                f"got shape {list(shape)}, crow_indices {list(crow.shape)}, col_indices "
                f"{list(col.shape)} and values {list(values.shape)}"
            )
        for name, given in (("crow_indices", crow), ("col_indices", col)):
            if given.dtype not in (tangrad.int64, tangrad.int32):
                raise RuntimeError(f"{name} must be an int32 or int64 type, but got {given.dtype}")
        if crow.shape[0] != shape[0] + 1:
            raise RuntimeError(
                f"crow_indices.shape[-1] must be equal to nrows + 1 = {shape[0] + 1}, but got "
                f"{crow.shape[0]}"
            )
        if col.shape != values.shape:
            raise RuntimeError(
                f"col_indices and values must have the same nnz, got {col.shape[0]} and "
                f"{values.shape[0]}"
            )

    def to_dense(self, t: Any) -> Any:
        """Return the strided matrix."""
        return coo.COO.definition.to_dense(to_indices(t))

    def from_dense(self, dense: Any) -> Any:
        """Return the elements that are not zero."""
        if dense.ndim != 2:
            raise RuntimeError(f"sparse_csr: expected a matrix, got {dense.ndim} dimensions")
        return from_coo(to_layout(dense, coo.COO))

    def picked(self, t: Any, dense: Any) -> Mapping[str, Any]:
        """Return the elements of a dense matrix at the places."""
        crow, col, _ = components(t).values()
        return {"values": dense[rows_of(crow, col.shape[0]), col]}

    def remarks(self, t: Any) -> list[str]:
        """Return what PyTorch prints behind the components."""
        return [f"size={tuple(t.shape)}", f"nnz={components(t)['values'].shape[0]}"]

    def file_form(self, t: Any) -> tuple[str, tuple[Any, ...]]:
        """Return what rebuilds it in PyTorch's files."""
        return "torch._utils._rebuild_sparse_tensor", (
            t.layout,
            (*components(t).values(), t.shape),
        )


def to_indices(t: Any) -> Any:
    """Convert a CSR matrix to COO, its values with their derivative."""
    crow, col, _ = components(t).values()
    values = component(t, "values")
    rows = rows_of(crow, col.shape[0])
    pairs = tangrad.stack((rows, col.to(rows.dtype))).to(tangrad.int64)
    return coo.make(pairs, values, t.shape, False)


def from_coo(t: Any) -> Any:
    """Convert a COO matrix to CSR, its values with their derivative."""
    t = coo.coalesce(t)
    indices, values = coo.parts(t)
    if indices.shape[0] != 2 or values.ndim != 1:
        raise RuntimeError(f"sparse_csr: expected a matrix of numbers, got {list(t.shape)}")
    counts = tangrad.bincount(indices[0], minlength=t.shape[0])
    crow = tangrad.cat((counts.new_zeros((1,)), counts.cumsum(0)))
    return make(crow, indices[1], values, t.shape)


Csr.methods = {
    "is_sparse_csr": True,
    "to_dense": coo.to_dense,
    "crow_indices": lambda t: components(t)["crow_indices"],
    "col_indices": lambda t: components(t)["col_indices"],
    "values": lambda t: component(t, "values"),
    "_nnz": lambda t: int(components(t)["values"].shape[0]),
    "sparse_dim": lambda t: 2,
    "dense_dim": lambda t: 0,
}
CSR = register_layout("sparse_csr", Csr())
