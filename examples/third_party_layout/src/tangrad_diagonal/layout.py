"""The layout: what its component means, and the one kernel that makes it worth having."""

from collections.abc import Mapping
from typing import Any

from tangrad import diag, equal
from tangrad.plugin import (
    Layout,
    component,
    components,
    layout_tensor,
    register_kernel,
    register_layout,
)


class Diagonal(Layout):
    """Square matrices that are zero beside the diagonal: n numbers instead of n x n."""

    components = ("diagonal",)
    elements = ("diagonal",)

    def check(
        self, components: Mapping[str, Any], metadata: Mapping[str, Any], shape: tuple[int, ...]
    ) -> None:
        """Raise if the component is no diagonal of a matrix of the shape."""
        (length, *further) = (*components["diagonal"].shape, None)
        if shape != (length, length) or further != [None]:
            raise ValueError(
                f"a diagonal of shape {tuple(components['diagonal'].shape)} is none of a matrix "
                f"of shape {shape}"
            )

    def to_dense(self, t: Any) -> Any:
        """Return the strided matrix."""
        return diag(components(t)["diagonal"])

    def from_dense(self, dense: Any) -> Any:
        """Return the matrix in this layout; what is beside the diagonal must be zero."""
        diagonal = dense.diagonal().clone()
        if not equal(dense, diag(diagonal)):
            raise ValueError("the matrix is not zero beside its diagonal")
        return layout_tensor(DIAGONAL, {"diagonal": diagonal}, dense.shape)

    def picked(self, t: Any, dense: Any) -> Mapping[str, Any]:
        """Return the diagonal of a strided matrix, which gradients of ours are made of."""
        return {"diagonal": dense.diagonal()}


DIAGONAL = register_layout("diagonal_matrix", Diagonal())


def matmul(a: Any, b: Any) -> Any:
    """Multiply two matrices, one of which at least is diagonal: n x m products, no sums."""
    if b.layout is not DIAGONAL:
        return component(a, "diagonal")[:, None] * b
    if a.layout is not DIAGONAL:
        return a * component(b, "diagonal")
    product = component(a, "diagonal") * component(b, "diagonal")
    return layout_tensor(DIAGONAL, {"diagonal": product}, a.shape)


register_kernel("mm", matmul, layout="diagonal_matrix", records=True)
