"""Add the layout `tangrad.diagonal_matrix`; tangrad finds this module by its entry point."""

from typing import Any

from tangrad.plugin import hookimpl

API = 1


@hookimpl
def tangrad_register_layouts() -> None:
    """Register the layout, when a name or a file asks for one that tangrad does not know."""
    from tangrad_diagonal import layout  # noqa: F401  importing it registers it


def from_diagonal(numbers: Any, *, requires_grad: bool = False) -> Any:
    """Make the square matrix with these numbers on its diagonal and nothing beside it.

    Args:
        numbers: a vector (n,), which is kept and not copied; its gradient flows to it.
        requires_grad: make the matrix a leaf that records.

    Returns:
        A tensor (n, n) of layout `tangrad.diagonal_matrix`.

    Raises:
        ValueError: it is no vector.
    """
    from tangrad.plugin import layout_tensor
    from tangrad_diagonal.layout import DIAGONAL

    size = (len(numbers),) * 2 if numbers.ndim else ()
    return layout_tensor(DIAGONAL, {"diagonal": numbers}, size, requires_grad=requires_grad)
