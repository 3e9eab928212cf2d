"""`Size`: the shape of a tensor."""

from __future__ import annotations

from operator import index as as_int

from tangrad import _C

# Loaded with the core, so without the typing and collections modules.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, SupportsIndex, overload

__all__ = ["Size"]


class Size(tuple[int, ...]):
    """Hold a shape: a tuple of integers whose slices and sums are shapes again.

    Args:
        sizes: integers, or anything that counts as one.

    Raises:
        TypeError: an item is not an integer.
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        """Make a shape of integers."""
        return tuple.__new__(cls, [_checked(i, size) for i, size in enumerate(sizes)])

    def numel(self) -> int:
        """Return the number of elements of a tensor of this shape."""
        count = 1
        for size in self:
            count *= size
        return count

    if TYPE_CHECKING:  # native/size.h has it

        @overload
        def __getitem__(self, key: SupportsIndex) -> int: ...
        @overload
        def __getitem__(self, key: slice) -> Size: ...
        def __getitem__(self, key: Any) -> Any: ...

    def __add__(self, other: tuple[int, ...]) -> Size:  # type: ignore[override]
        if not isinstance(other, tuple):
            # Asked first, as by a tuple of the interpreter: arrays add the sizes up.
            reflected = getattr(type(other), "__radd__", None)
            found = NotImplemented if reflected is None else reflected(other, self)
            if found is not NotImplemented:
                return found
            name = type(other).__name__
            raise TypeError(f"can only concatenate tuple (not {name}) to {_C.shown('Size')}")
        items = tuple.__add__(self, other)
        return tuple.__new__(Size, items) if type(other) is Size else Size(items)

    def __radd__(self, other: Any) -> Any:
        return Size(other) + self if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Any:
        if getattr(times, "ndim", 0) and not isinstance(times, _C.Tensor):
            return NotImplemented  # arrays multiply the sizes
        repeated = tuple.__mul__(self, times)
        return repeated if repeated is NotImplemented else tuple.__new__(Size, repeated)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"{_C.shown('Size')}({list(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)


def _checked(position: int, size: Any) -> Any:
    if type(size) is int or hasattr(size, "__sym_int__"):
        return size
    try:
        return as_int(size)
    except TypeError:
        raise TypeError(
            f"tangrad.Size() takes an iterable of 'int' (item {position} is "
            f"'{type(size).__name__}')"
        ) from None
