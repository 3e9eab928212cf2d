"""Sizes of tensors in a recording: integers that know what they were computed by."""

from __future__ import annotations

import ast
from typing import Any

__all__ = ["TracedInt"]


class TracedInt(int):
    """An integer whose sums, products, differences, quotients and remainders are recorded.

    Whatever else is done with it sees the number alone, and the recording is told.

    Args:
        number: what it is.
        recording: told of what is computed of it.
        expr: what it is in the recorded program.
    """

    recording: Any
    expr: Any

    def __new__(cls, number: int, recording: Any, expr: Any) -> TracedInt:
        """Return the integer."""
        made = super().__new__(cls, number)
        made.recording, made.expr = recording, expr
        return made

    def __reduce__(self) -> Any:
        return int, (int.__index__(self),)

    def _computed(self, operator: ast.operator, left: Any, right: Any, number: Any) -> Any:
        if type(number) is not int or self.recording.is_over:
            return number
        return self.recording.number(operator, left, right, number)

    def __add__(self, other: Any) -> Any:
        return self._computed(ast.Add(), self, other, int.__add__(self, other))

    def __radd__(self, other: Any) -> Any:
        return self._computed(ast.Add(), other, self, int.__radd__(self, other))

    def __sub__(self, other: Any) -> Any:
        return self._computed(ast.Sub(), self, other, int.__sub__(self, other))

    def __rsub__(self, other: Any) -> Any:
        return self._computed(ast.Sub(), other, self, int.__rsub__(self, other))

    def __mul__(self, other: Any) -> Any:
        return self._computed(ast.Mult(), self, other, int.__mul__(self, other))

    def __rmul__(self, other: Any) -> Any:
        return self._computed(ast.Mult(), other, self, int.__rmul__(self, other))

    def __floordiv__(self, other: Any) -> Any:
        return self._computed(ast.FloorDiv(), self, other, int.__floordiv__(self, other))

    def __rfloordiv__(self, other: Any) -> Any:
        return self._computed(ast.FloorDiv(), other, self, int.__rfloordiv__(self, other))

    def __mod__(self, other: Any) -> Any:
        return self._computed(ast.Mod(), self, other, int.__mod__(self, other))

    def __rmod__(self, other: Any) -> Any:
        return self._computed(ast.Mod(), other, self, int.__rmod__(self, other))

    def __neg__(self) -> Any:
        return self._computed(ast.Sub(), 0, self, int.__neg__(self))

    def __eq__(self, other: object) -> Any:
        self.recording.size_is_read()
        return int.__eq__(self, other)

    def __ne__(self, other: object) -> Any:
        self.recording.size_is_read()
        return int.__ne__(self, other)

    def __lt__(self, other: Any) -> Any:
        self.recording.size_is_read()
        return int.__lt__(self, other)

    def __le__(self, other: Any) -> Any:
        self.recording.size_is_read()
        return int.__le__(self, other)

    def __gt__(self, other: Any) -> Any:
        self.recording.size_is_read()
        return int.__gt__(self, other)

    def __ge__(self, other: Any) -> Any:
        self.recording.size_is_read()
        return int.__ge__(self, other)

    def __bool__(self) -> bool:
        self.recording.size_is_read()
        return int.__bool__(self)

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __index__(self) -> int:
        self.recording.size_is_read()
        return int.__index__(self)

    def __int__(self) -> int:
        self.recording.size_is_read()
        return int.__index__(self)

    def __float__(self) -> float:
        self.recording.size_is_read()
        return int.__float__(self)

    def __truediv__(self, other: Any) -> Any:
        self.recording.size_is_read()
        return int.__truediv__(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        self.recording.size_is_read()
        return int.__rtruediv__(self, other)

    def __pow__(self, *given: Any) -> Any:
        self.recording.size_is_read()
        return int.__pow__(self, *given)

    def __rpow__(self, *given: Any) -> Any:
        self.recording.size_is_read()
        return int.__rpow__(self, *given)
