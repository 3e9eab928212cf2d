"""`sparse.FloatTensor` and its like: constructors of older programs, and types to ask for."""

from __future__ import annotations

from typing import Any

import tangrad

_DTYPES = {
    "BFloat16Tensor": tangrad.bfloat16,
    "ByteTensor": tangrad.uint8,
    "CharTensor": tangrad.int8,
    "DoubleTensor": tangrad.float64,
    "FloatTensor": tangrad.float32,
    "HalfTensor": tangrad.float16,
    "IntTensor": tangrad.int32,
    "LongTensor": tangrad.int64,
    "ShortTensor": tangrad.int16,
}


def made(name: str, dtype: Any, args: tuple[Any, ...], device: Any) -> Any:
    """Make a sparse tensor of indices, values and perhaps a size, or an empty one of a size.

    Raises:
        TypeError: the arguments are something else.
    """
    if args and isinstance(args[0], tangrad.Tensor):
        if len(args) not in (2, 3):
            raise TypeError(
                f"{name}: expected indices, values and a size, got {len(args)} arguments"
            )
        return tangrad.sparse_coo_tensor(*args, dtype=dtype, device=device)
    size = args[0] if len(args) == 1 and isinstance(args[0], tangrad.Size) else args
    if not all(isinstance(n, int) for n in size):
        raise TypeError(f"{name}: expected indices and values, or a size")
    return tangrad.sparse_coo_tensor(tuple(size) or (0,), dtype=dtype, device=device)


class _SparseType(type):
    """The type of `sparse.FloatTensor` and its like, whose instances are tensors of one dtype."""

    dtype: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        if not isinstance(instance, tangrad.Tensor):
            return False
        return instance.layout is tangrad.sparse_coo and instance.dtype == cls.dtype

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        """Make a sparse tensor of indices, values and a size, or an empty one of a size.

        Raises:
            TypeError: the arguments are something else.
        """
        return made(f"sparse.{cls.__name__}", cls.dtype, args, device)


TYPES = {
    name: _SparseType(name, (), {"dtype": dtype, "__module__": "tangrad.sparse"})
    for name, dtype in _DTYPES.items()
}
