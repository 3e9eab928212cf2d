"""Python parts of Tensor: text, indexing, construction, copies, symbolic sizes."""

from __future__ import annotations

__all__ = ["install_indexing"]


def install_indexing() -> None:
    """Give the compiled core the functions behind ``x[index]`` and ``x[index] = value``."""
    from tangrad import _C
    from tangrad.tensor.indexing import getitem, setitem

    _C.set_indexing(getitem, setitem)
