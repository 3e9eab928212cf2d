"""What tensors with gradients were before they were tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tangrad import _C

__all__ = ["Variable", "VariableMeta"]


class ImperativeEngine:
    """What walks backward, under PyTorch's name."""

    @staticmethod
    def queue_callback(callback: Callable[[], Any]) -> None:
        """Call a function when the outermost backward pass that runs has ended.

        Raises:
            RuntimeError: no backward pass runs.
        """
        _C.queue_callback(callback)


class VariableMeta(type):
    """Makes every tensor an instance of `Variable`."""

    _execution_engine = ImperativeEngine()

    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, _C.Tensor)


class Variable(metaclass=VariableMeta):
    """Make a tensor that shares its memory with another and begins a graph of its own.

    Args:
        data: the other; an empty tensor by default.
        requires_grad: whether to record what is computed of it.
        volatile: ignored, with a warning if set.

    Raises:
        TypeError: `data` is no tensor.
        RuntimeError: gradients are required of a tensor of integers or bools.
    """

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        """Return the tensor: there is no instance of this class itself."""
        if volatile:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with no_grad():` instead.",
                UserWarning,
                stacklevel=2,
            )
        if data is None:
            data = _C.lookup_op("empty")((0,))
        if not isinstance(data, _C.Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return _C.requiring_grad(data.detach(), requires_grad)
