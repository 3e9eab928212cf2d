"""Python parts of Tensor: text, indexing, construction, copies, symbolic sizes."""

from __future__ import annotations


def install_indexing() -> None:
    """Give the compiled tensor its general indexing."""
    from tangrad import _C
    from tangrad.tensor.indexing import getitem, setitem

    _C.set_indexing(getitem, setitem)
