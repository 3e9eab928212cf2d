"""Conversions to the layouts from any other, and from what a file of PyTorch holds."""

from __future__ import annotations

from typing import Any

from tangrad.plugin import register_conversion, to_layout
from tangrad_sparse import coo, csr


def to_coo(t: Any, sparse_dim: Any = None, *, layout: Any = None, **options: Any) -> Any:
    """Convert to COO (or to `layout`); what is COO already stays itself.

    Args:
        t: a tensor of any layout.
        sparse_dim: how many leading dimensions are sparse, all by default.
        layout: `sparse_coo` or `sparse_csr`.

    Raises:
        NotImplementedError: for another layout.
    """
    if layout is not None and layout is not coo.COO:
        return to_layout(t, layout)
    if t.layout is coo.COO:
        return t
    if t.layout.name == "sparse_csr":
        return csr.to_indices(t)
    options = {} if sparse_dim is None else {"sparse_dim": sparse_dim}
    return to_layout(t, coo.COO, **options)


def to_csr(t: Any, dense_dim: Any = None) -> Any:
    """Convert a matrix of any layout to CSR; what is CSR already stays itself."""
    if t.layout is coo.COO:
        return csr.from_coo(t)
    return to_layout(t, csr.CSR)


def rebuilt(layout: Any, data: Any) -> Any:
    """Rebuild what a file of PyTorch holds as COO or CSR.

    Raises:
        RuntimeError: the indices do not lie within the size.
    """
    if layout is coo.COO:
        indices, values, size, *rest = data
        coo.check_range(indices, size)
        return coo.make(indices, values, size, bool(rest and rest[0]))
    if layout is csr.CSR:
        csr.check_range(*data[:2], data[3])
        return csr.make(*data[:3], data[3])
    raise NotImplementedError(f"a file holds a tensor of layout {layout}, which has no definition")


coo.Coo.readers = {"torch._utils._rebuild_sparse_tensor": rebuilt}
for _name in ("to_sparse", "to_sparse_coo"):
    register_conversion(_name, to_coo)
register_conversion("to_sparse_csr", to_csr)
