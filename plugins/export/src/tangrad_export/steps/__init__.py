"""What a program is made of, a kind of step in a file, and the C of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["own_kernel"]


def own_kernel(op: Any, dtype: str) -> Callable[..., Any] | None:
    """Return a kernel that keeps steps of this package, None where there is only a template."""
    from tangrad.plugin.render import KINDS
    from tangrad_export.steps.folds import fold_kernel
    from tangrad_export.steps.layers import layer_kernel
    from tangrad_export.steps.linear_algebra import matrix_kernel
    from tangrad_export.steps.loops import pointwise_kernel
    from tangrad_export.steps.optimizers import optimizer_kernel
    from tangrad_export.steps.products import product_kernel
    from tangrad_export.steps.quantized import quantized_kernel
    from tangrad_export.steps.spectral import fourier_kernel
    from tangrad_export.steps.variances import variance_kernel

    if dtype not in KINDS:
        return None
    if op.kind == "pointwise":
        return pointwise_kernel(op, dtype)
    if op.kind == "reduction":
        return fold_kernel(op, dtype)
    families = product_kernel, layer_kernel, optimizer_kernel, fourier_kernel, matrix_kernel
    for family in (*families, quantized_kernel, variance_kernel):
        made: Callable[..., Any] | None = family(op, dtype)
        if made is not None:
            return made
    return None
