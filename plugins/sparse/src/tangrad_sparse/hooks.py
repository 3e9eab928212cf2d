"""Register the layouts and ops, when a name or a file asks for one that the core does not know."""

from __future__ import annotations

from tangrad.plugin import hookimpl


@hookimpl
def tangrad_register_layouts() -> None:
    """Register the layouts `sparse_coo`, `sparse_csr` and their like with their kernels."""
    from tangrad_sparse import conversions, kernels  # noqa: F401  importing them registers


@hookimpl
def tangrad_register_ops() -> None:
    """Define `tangrad.sparse_coo_tensor` and its like."""
    from tangrad_sparse import conversions, functions, kernels  # noqa: F401  as above
