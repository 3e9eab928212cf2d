"""Methods and properties of Tensor that are written in Python, open to `__torch_function__`."""

from __future__ import annotations

from functools import update_wrapper
from types import FunctionType
from typing import Any

from tangrad import _C


def offered(member: Any, method: bool = False) -> Any:
    """Let classes with `__torch_function__`, and modes, take over a method or property.

    Of a property they get `Tensor.name.__get__` or `__set__`, as of PyTorch's.

    Args:
        member: a function, a property, or anything else.
        method: whether the function takes nothing but a tensor at the first place.

    Returns:
        What is to be put on the type; ops, which offer themselves, and all else as it is.
    """
    if type(member) is FunctionType:
        return update_wrapper(_C.Overridable(member, method=method), member)
    if type(member) is not property:
        return member
    read = _C.Overridable(member.fget)
    write = None if member.fset is None else _C.Overridable(member.fset)
    made = property(read, write, doc=member.__doc__)
    read.shown = made.__get__
    if write is not None:
        write.shown = made.__set__
    return made
