"""Names of types for annotations: `torch.types`."""

import builtins
import os
from collections.abc import Sequence
from typing import IO, TypeAlias

import tangrad
from tangrad import Size, SymBool, SymFloat, SymInt, Tensor, UntypedStorage

__all__ = ["Device", "FileLike", "Number", "Storage"]

_int: TypeAlias = builtins.int
_float: TypeAlias = builtins.float
_bool: TypeAlias = builtins.bool
_complex: TypeAlias = builtins.complex
_device: TypeAlias = tangrad.device
_dtype: TypeAlias = tangrad.dtype
_symint: TypeAlias = SymInt
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_dispatchkey: TypeAlias = str

Device: TypeAlias = _device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Number: TypeAlias = int | float | bool
Storage: TypeAlias = UntypedStorage
PySymType: TypeAlias = SymInt | SymFloat | SymBool
IntLikeType: TypeAlias = int | SymInt
FloatLikeType: TypeAlias = float | SymFloat
BoolLikeType: TypeAlias = bool | SymBool
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
py_sym_types = (SymInt, SymFloat, SymBool)
