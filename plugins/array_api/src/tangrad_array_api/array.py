"""The array of the standard: a tensor that follows the standard's rules."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tangrad
from tangrad_array_api import arithmetic, dtypes


class Array:
    """An array as the Python array API standard defines it, over a tensor.

    Made by the functions of `tangrad.array_api`. `tensor` is the tensor behind it; the two share
    memory, and gradients flow through an array as they do through its tensor.
    """

    __slots__ = ("tensor",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # an operator with a NumPy array is refused instead of NumPy's own
    tensor: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Array:
        """Refuse: arrays are made by functions."""
        raise TypeError("arrays are made by functions, as tangrad.array_api.asarray")

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        """Return what makes the array again, for pickles and copies."""
        return self.__array_namespace__().asarray, (self.tensor,)

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self.tensor.dtype

    @property
    def device(self) -> Any:
        """The device that holds the elements."""
        return self.tensor.device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.tensor.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of every dimension."""
        return tuple(self.tensor.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.tensor.numel()

    @property
    def T(self) -> Array:
        """The transpose of a matrix.

        Raises:
            ValueError: If this is not a matrix.
        """
        if self.ndim != 2:
            raise ValueError(f"T: the array has {self.ndim} dimensions, not 2; use mT")
        return wrap(self.tensor.mT)

    @property
    def mT(self) -> Array:
        """The transpose of every matrix of a stack.

        Raises:
            ValueError: If there are fewer than two dimensions.
        """
        if self.ndim < 2:
            raise ValueError(f"mT: the array has {self.ndim} dimensions, fewer than 2")
        return wrap(self.tensor.mT)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"version {api_version!r} of the standard is not known; 2024.12 is")
        return sys.modules["tangrad_array_api"]

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """Return the array on a device; itself if it is there.

        Raises:
            ValueError: If a stream is given: none is taken.
        """
        if stream is not None:
            raise ValueError("to_device: takes no stream; copies are in order of the current one")
        target = tangrad.device(device)
        return self if target == self.device else wrap(self.tensor.to(target))

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return self.tensor.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self, /) -> Any:
        return self.tensor.__dlpack_device__()

    def __repr__(self) -> str:
        return "Array" + repr(self.tensor).removeprefix("tensor")

    def __len__(self) -> int:
        return len(self.tensor)

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            raise TypeError("an array without dimensions cannot be iterated over")
        return map(wrap, self.tensor)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is None:
            return self.tensor.__array__(dtype)
        return self.tensor.__array__(dtype, copy=copy)

    def _item(self, kind: str, accepted: str) -> Any:
        if self.ndim:
            raise TypeError(f"{kind}: only arrays without dimensions convert, got {self.shape}")
        dtypes.require(kind, accepted, self)
        return self.tensor.item()

    def __bool__(self, /) -> bool:
        return bool(self._item("bool", "any"))

    def __int__(self, /) -> int:
        value = self._item("int", "any")
        return int(value)

    def __float__(self, /) -> float:
        return float(self._item("float", "any"))

    def __complex__(self, /) -> complex:
        return complex(self._item("complex", "any"))

    def __index__(self, /) -> int:
        return operator.index(self._item("index", "integer"))

    def __getitem__(self, key: Any, /) -> Array:
        plain, flipped = positive_steps(self.tensor, key)
        found = self.tensor[plain]
        if flipped:
            return wrap(tangrad.flip(found, flipped))
        return wrap(found)

    def __setitem__(self, key: Any, value: Any, /) -> None:
        if isinstance(value, Array):
            if dtypes.promote(self.dtype, value.dtype) != self.dtype:
                raise TypeError(f"{value.dtype} cannot be written to {self.dtype}; use astype")
            source = value.tensor.to(self.dtype)
        elif isinstance(value, dtypes.SCALARS):
            if dtypes.scalar_dtype(value, self.dtype) != self.dtype:
                raise TypeError(f"a complex number cannot be written to {self.dtype}")
            source = tangrad.tensor(value, dtype=self.dtype, device=self.device)
        else:
            raise TypeError(f"arrays and scalars can be written, not {type(value).__name__}")
        plain, flipped = positive_steps(self.tensor, key)
        if flipped:
            source = tangrad.flip(source.expand(self.tensor[plain].shape), flipped)
        self.tensor[plain] = source

    def __abs__(self, /) -> Array:
        dtypes.require("abs", "numeric", self)
        return wrap(absolute(self.tensor))

    def __neg__(self, /) -> Array:
        dtypes.require("negative", "numeric", self)
        return wrap(tangrad.negative(self.tensor))

    def __pos__(self, /) -> Array:
        dtypes.require("positive", "numeric", self)
        return wrap(self.tensor.clone())

    def __invert__(self, /) -> Array:
        dtypes.require("bitwise_invert", "integer or boolean", self)
        return wrap(tangrad.bitwise_not(self.tensor))


def wrap(tensor: Any) -> Array:
    """Return the array over a tensor."""
    made = object.__new__(Array)
    made.tensor = tensor
    return made


def absolute(tensor: Any) -> Any:
    """Return magnitudes; unsigned integers are theirs."""
    return tensor.clone() if dtypes.kind_of(tensor.dtype) == "unsigned" else tangrad.abs(tensor)


def positive_steps(tensor: Any, key: Any) -> tuple[Any, list[int]]:
    """Return an index without negative steps, and the dimensions of its result to be reversed.

    Tensors have no negative strides, so a slice that runs down is one that runs up, reversed.

    Raises:
        IndexError: If there are more indices than dimensions.
    """
    key = whole_mask(tensor, key)
    parts = key if isinstance(key, tuple) else (key,)
    if not any(isinstance(part, slice) and (part.step or 1) < 0 for part in parts):
        return tuple(map(bare, parts)) if isinstance(key, tuple) else bare(key), []
    used = 0
    for part in parts:
        if isinstance(part, Array) and part.dtype == tangrad.bool:
            used += part.ndim
        elif part is not None and part is not Ellipsis:
            used += 1
    if used > tensor.ndim:
        raise IndexError(f"too many indices: {used} for an array of {tensor.ndim} dimensions")
    if any(isinstance(part, Array) for part in parts):
        raise IndexError("arrays and slices of negative step do not combine in one index")
    plain: list[Any] = []
    flipped: list[int] = []
    source = result = 0
    for part in parts:
        if part is Ellipsis:
            source, result = source + tensor.ndim - used, result + tensor.ndim - used
        elif part is None:
            result += 1
        elif isinstance(part, slice):
            start, stop, step = part.indices(tensor.shape[source])
            if step < 0:
                picked = range(start, stop, step)
                part = slice(picked[-1], picked[0] + 1, -step) if picked else slice(0, 0)
                flipped.append(result)
            source, result = source + 1, result + 1
        else:
            source += 1
        plain.append(bare(part))
    return tuple(plain), flipped


def whole_mask(tensor: Any, key: Any) -> Any:
    """Return a mask without elements, whose dimensions may be 0 for any size, as one of False."""
    if not isinstance(key, Array) or key.dtype != tangrad.bool or 0 not in key.shape:
        return key
    covered = tensor.shape[: key.ndim]
    if len(covered) < key.ndim:
        return key
    if any(n not in (0, m) for n, m in zip(key.shape, covered, strict=True)):
        return key
    return wrap(tangrad.zeros(tuple(covered), dtype=tangrad.bool, device=tensor.device))


def bare(part: Any) -> Any:
    """Return one part of an index as tensors take it."""
    if isinstance(part, Array):
        if part.dtype != tangrad.bool:
            dtypes.require("indexing", "integer", part)
            if part.dtype != tangrad.uint8 and dtypes.kind_of(part.dtype) == "signed":
                return part.tensor
            return part.tensor.to(tangrad.int64)
        return part.tensor
    if isinstance(part, slice):
        if part.step == 0:
            raise ValueError("slice step cannot be zero")
        return part
    return part


def operands(name: str, accepted: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Return both as tensors of the dtype they promote to.

    Raises:
        TypeError: If neither is an array, or the dtypes are not those of the function.
    """
    if isinstance(x, Array):
        first = x.dtype
        second = y.dtype if isinstance(y, Array) else dtypes.scalar_dtype(y, first)
    elif isinstance(y, Array):
        second = y.dtype
        first = dtypes.scalar_dtype(x, second)
    else:
        raise TypeError(f"{name}: at least one operand is an array, got {x!r} and {y!r}")
    common = dtypes.promote(first, second)
    dtypes.require(name, accepted, common)
    device = x.device if isinstance(x, Array) else y.device
    return as_operand(x, common, device), as_operand(y, common, device)


def as_operand(x: Any, dtype: Any, device: Any) -> Any:
    """Return an array's tensor, or a scalar's, in a dtype."""
    if isinstance(x, Array):
        return x.tensor if x.dtype == dtype else x.tensor.to(dtype)
    return tangrad.tensor(x, dtype=dtype, device=device)


# The binary operators: name of the function, its special methods' name, dtypes, and what computes.
BINARY: dict[str, tuple[str | None, str, Callable[[Any, Any], Any]]] = {
    "add": ("add", "numeric", lambda x, y: tangrad.add(x, y)),
    "subtract": ("sub", "numeric", lambda x, y: tangrad.sub(x, y)),
    "multiply": ("mul", "numeric", lambda x, y: tangrad.mul(x, y)),
    "divide": ("truediv", "floating", lambda x, y: tangrad.true_divide(x, y)),
    "floor_divide": ("floordiv", "real numeric", arithmetic.floor_divide),
    "remainder": ("mod", "real numeric", arithmetic.remainder),
    "pow": ("pow", "numeric", lambda x, y: tangrad.pow(x, y)),
    "bitwise_and": ("and", "integer or boolean", lambda x, y: tangrad.bitwise_and(x, y)),
    "bitwise_or": ("or", "integer or boolean", lambda x, y: tangrad.bitwise_or(x, y)),
    "bitwise_xor": ("xor", "integer or boolean", lambda x, y: tangrad.bitwise_xor(x, y)),
    "bitwise_left_shift": (
        "lshift",
        "integer",
        lambda x, y: tangrad.bitwise_left_shift(x, y),
    ),
    "bitwise_right_shift": (
        "rshift",
        "integer",
        lambda x, y: tangrad.bitwise_right_shift(x, y),
    ),
    "matmul": ("matmul", "numeric", arithmetic.matmul),
    "equal": ("eq", "any", lambda x, y: tangrad.eq(x, y)),
    "not_equal": ("ne", "any", lambda x, y: tangrad.ne(x, y)),
    "less": ("lt", "real numeric", lambda x, y: tangrad.lt(x, y)),
    "less_equal": ("le", "real numeric", lambda x, y: tangrad.le(x, y)),
    "greater": ("gt", "real numeric", lambda x, y: tangrad.gt(x, y)),
    "greater_equal": ("ge", "real numeric", lambda x, y: tangrad.ge(x, y)),
    "atan2": (None, "real floating", lambda x, y: tangrad.atan2(x, y)),
    "copysign": (None, "real floating", lambda x, y: tangrad.copysign(x, y)),
    "hypot": (None, "real floating", lambda x, y: tangrad.hypot(x, y)),
    "logaddexp": (None, "real floating", lambda x, y: tangrad.logaddexp(x, y)),
    "logical_and": (None, "boolean", lambda x, y: tangrad.logical_and(x, y)),
    "logical_or": (None, "boolean", lambda x, y: tangrad.logical_or(x, y)),
    "logical_xor": (None, "boolean", lambda x, y: tangrad.logical_xor(x, y)),
    "maximum": (None, "real numeric", lambda x, y: tangrad.maximum(x, y)),
    "minimum": (None, "real numeric", lambda x, y: tangrad.minimum(x, y)),
    "nextafter": (None, "real floating", lambda x, y: tangrad.nextafter(x, y)),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def special_methods(
    name: str, accepted: str, compute: Callable[[Any, Any], Any]
) -> tuple[Any, Any, Any]:
    """Return the operator of a function, its reflected and its in-place form."""

    def forward(self: Array, other: Any, /) -> Any:
        if not isinstance(other, (Array, *dtypes.SCALARS)):
            return NotImplemented
        return wrap(compute(*operands(name, accepted, self, other)))

    def reflected(self: Array, other: Any, /) -> Any:
        if not isinstance(other, (Array, *dtypes.SCALARS)):
            return NotImplemented
        return wrap(compute(*operands(name, accepted, other, self)))

    def in_place(self: Array, other: Any, /) -> Any:
        if not isinstance(other, (Array, *dtypes.SCALARS)):
            return NotImplemented
        x, y = operands(name, accepted, self, other)
        if x.dtype != self.dtype:
            raise TypeError(f"{name}: the result, {x.dtype}, cannot be kept in {self.dtype}")
        found = compute(x, y)
        if found.shape != self.tensor.shape:
            raise ValueError(
                f"{name}: the result of shape {tuple(found.shape)} cannot be kept in {self.shape}"
            )
        self.tensor.copy_(found)
        return self

    return forward, reflected, in_place


def _give_operators() -> None:
    for name, (method, accepted, compute) in BINARY.items():
        if method is None:
            continue
        forms = special_methods(name, accepted, compute)
        prefixes = ("",) if method in COMPARISONS else ("", "r", "i")
        for prefix, form in zip(prefixes, forms, strict=False):
            form.__name__ = f"__{prefix}{method}__"
            form.__qualname__ = f"Array.{form.__name__}"
            setattr(Array, form.__name__, form)


_give_operators()
