"""Storages in Python: the bytes of an UntypedStorage, and TypedStorage, which sees elements.

TypedStorage is what old programs and old files know; new ones use `untyped_storage`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

from tangrad import _C
from tangrad.tensor.on_storage import TYPE_NAMES, bytes_of, files, on_storage

# PyTorch's base of all untyped storages: there is one class of them here.
StorageBase = _C.UntypedStorage


def fill_new(storage: Any, data: Any, device: Any) -> None:
    """Make a storage of so many bytes, or of those of a sequence (`UntypedStorage(...)`).

    Raises:
        RuntimeError: the number is negative.
    """
    count = data if isinstance(data, int) else len(data)
    if count < 0:
        raise RuntimeError(f"UntypedStorage: the size must not be negative, got {count}")
    byte = _C.dtype_by_name("uint8")
    _C.place_storage(storage, _C.empty((0,), byte, device).untyped_storage(), count)
    if data is not count:
        from tangrad.tensor.construct import tensor

        bytes_of(storage).copy_(tensor(list(data), dtype=byte))


def map_file(filename: Any, shared: bool, nbytes: int) -> Any:
    """Return a storage whose memory is a file's (`UntypedStorage.from_file`).

    Args:
        filename: path of the file.
        shared: whether what is written to the storage is written to the file, which is then made
            or made longer where it is too short.
        nbytes: how much of it.

    Raises:
        RuntimeError: the file cannot be opened or is too short.
    """
    from tangrad.tensor.exchange import from_file

    byte = _C.dtype_by_name("uint8")
    mapped = from_file(filename, shared=shared, size=nbytes, dtype=byte)
    if not nbytes:
        return mapped.clone().untyped_storage()
    return mapped.untyped_storage()


_REVERSED = {"big": sys.byteorder == "little", "little": sys.byteorder == "big", "native": False}


def bytes_in_order(
    buffer: Any, dtype: Any, byte_order: str | None = None, count: int = -1, offset: int = 0
) -> bytearray:
    """Return a copy of elements of a buffer in this machine's byte order.

    Args:
        buffer: an object with the buffer protocol.
        dtype: of its elements; a bool is true where its byte is not 0.
        byte_order: "big", "little" or "native"; elements of one byte have none.
        count: how many elements; all behind `offset` if negative.
        offset: where the first one begins, in bytes.

    Raises:
        TypeError: `byte_order` is missing.
        ValueError: it has another value, or the buffer does not hold so many whole elements.
    """
    if byte_order is None and dtype.itemsize > 1:
        raise TypeError(f"from_buffer: elements of {dtype} need a byte_order")
    order = byte_order or "native"
    if order not in _REVERSED:
        raise ValueError(f"invalid byte_order '{order}' (expected 'big', 'little', or 'native')")
    given = memoryview(buffer).cast("B")
    if not 0 <= offset <= len(given):
        raise ValueError(
            f"offset must be non-negative and no greater than buffer length ({len(given)}), but "
            f"got {offset}"
        )
    size = dtype.itemsize
    if count < 0 and (len(given) - offset) % size:
        raise ValueError(
            f"buffer size ({len(given) - offset}) must be a multiple of element size ({size})"
        )
    count = (len(given) - offset) // size if count < 0 else count
    if count * size > len(given) - offset:
        raise ValueError(
            f"buffer has only {(len(given) - offset) // size} elements after offset {offset}, but "
            f"specified a size of {count}"
        )
    made = bytearray(given[offset : offset + count * size])
    if dtype is _C.dtype_by_name("bool"):
        return bytearray(map(bool, made))
    width = size // 2 if dtype.is_complex else size
    if _REVERSED[order]:
        read = bytes(made)
        for k in range(width):
            made[k::width] = read[width - 1 - k :: width]
    return made


def storage_of_buffer(
    buffer: Any, byte_order: str | None, count: int, offset: int, dtype: Any
) -> Any:
    """Return an untyped storage of a copy of a buffer's elements; see `bytes_in_order`.

    Args:
        buffer, byte_order, count, offset: as for `bytes_in_order`.
        dtype: of the elements.

    Raises:
        RuntimeError: `dtype` is missing.
    """
    if dtype is None:
        raise RuntimeError("from_buffer: argument 'dtype' cannot be None; torch.uint8 takes bytes")
    content = bytes_in_order(buffer, dtype, byte_order, count, offset)
    made = _C.tensor_from_bytes(content, dtype, (len(content) // dtype.itemsize,), "cpu")
    return made.untyped_storage()


def read_bytes(storage: Any, place: Any) -> Any:
    """Return one byte, or a storage of those of a slice, which shares the memory of the host.

    Raises:
        IndexError: the place is outside of the storage.
        TypeError: it is neither an int nor a slice.
        RuntimeError: the step of the slice is not 1.
    """
    if isinstance(place, slice):
        return _part(storage, place)
    return bytes_of(storage)[_checked(storage, storage.nbytes(), place)].item()


def _part(storage: Any, place: slice) -> Any:
    from tangrad.tensor.shared import on_host

    start, stop, step = place.indices(storage.nbytes())
    if step != 1:
        raise RuntimeError(
            f"Trying to slice with a step of {step}, but only a step of 1 is supported"
        )
    count = max(stop - start, 0)
    if not (count and on_host(storage)):
        return bytes_of(storage)[start : start + count].clone().untyped_storage()
    address = storage.data_ptr() + start
    byte = _C.dtype_by_name("uint8")
    seen = _C.tensor_from_pointer(address, count, storage, byte, (count,), (1,), 0, storage.device)
    return seen.untyped_storage()


def write_bytes(storage: Any, place: Any, value: Any) -> None:
    """Overwrite one byte, or those of a slice."""
    if storage.device.type == "meta":
        return
    if not isinstance(place, slice):
        place = _checked(storage, storage.nbytes(), place)
    bytes_of(storage)[place] = value


def _checked(storage: Any, length: int, place: Any) -> int:
    if storage.device.type == "meta":
        raise NotImplementedError(
            "Not available for 'meta' device type: a storage without memory has no elements to read"
        )
    if not hasattr(place, "__index__"):
        raise TypeError(f"can't index a storage with {type(place).__name__}")
    position = int(place.__index__())
    if not -length <= position < length:
        raise IndexError(f"index {position} out of range for storage of size {length}")
    return position


# Attributes of UntypedStorage that are not compiled -----------------------------------------------


def _clone(self: Any) -> Any:
    """Return a copy."""
    return bytes_of(self).clone().untyped_storage()


def _copy_(self: Any, source: Any, non_blocking: bool = False) -> Any:
    """Overwrite the bytes by those of another storage of the same size."""
    source = getattr(source, "_untyped_storage", source)
    if source.nbytes() != self.nbytes():
        raise RuntimeError(
            f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} "
            "bytes"
        )
    bytes_of(self).copy_(bytes_of(source))
    return self


def _fill_(self: Any, value: int) -> Any:
    """Overwrite every byte."""
    bytes_of(self).fill_(value)
    return self


def _byteswap(self: Any, dtype: Any) -> None:
    """Turn the bytes of each element of a dtype around; of complex numbers those of each part."""
    width = dtype.itemsize // (2 if dtype.is_complex else 1)
    whole = bytes_of(self)[: self.nbytes() // width * width].view((-1, width))
    whole.copy_(whole.flip(1))


def _to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
    """Return the storage on a device: itself if it is there."""
    moved = bytes_of(self).to(device)
    return moved.untyped_storage() if moved.device != self.device else self


def _get_device(self: Any) -> int:
    """Return the device's index, -1 on the host."""
    return -1 if self.device.index is None else self.device.index


def _is_shared(self: Any) -> bool:
    """Return whether other processes can have the memory."""
    from tangrad.tensor.shared import is_shared

    return is_shared(self)


def _share_memory_(self: Any) -> Any:
    """Move the bytes to where other processes can have them, unless they are not the host's."""
    from tangrad.tensor.shared import on_host, share

    if on_host(self):
        share(self)
    return self


_UNTYPED: dict[str, Callable[..., Any]] = {
    "clone": _clone,
    "__copy__": _clone,
    "copy_": _copy_,
    "fill_": _fill_,
    "to": _to,
    "cpu": lambda self: _to(self, device="cpu"),
    "tolist": lambda self: bytes_of(self).tolist(),
    "element_size": lambda self: 1,
    "untyped": lambda self: self,
    "is_pinned": lambda self, device=None: False,
    "pin_memory": lambda self, device=None: self,
    "is_shared": _is_shared,
    "share_memory_": _share_memory_,
    "byteswap": _byteswap,
    "get_device": _get_device,
    "type": lambda self, dtype=None, non_blocking=False: _C.shown("UntypedStorage"),
    "new": lambda self: _C.empty((0,), _C.dtype_by_name("uint8"), self.device).untyped_storage(),
}
_CASTS = {kind.lower().replace("complex", "complex_"): name for name, kind in TYPE_NAMES.items()}


def storage_attribute(storage: Any, name: str) -> Any:
    """Return an attribute of UntypedStorage that is not compiled.

    Raises:
        AttributeError: there is none of that name.
    """
    if name in _UNTYPED:
        return _UNTYPED[name].__get__(storage)
    if name in ("is_sparse", "is_sparse_csr", "is_cuda", "is_hpu"):
        return name == f"is_{storage.device.type}"
    if name == "filename":
        return files.get(storage)
    if name == "_cdata":  # what tells whether two storages are one
        return id(storage)
    raise AttributeError(f"'UntypedStorage' object has no attribute '{name}'")


# Elements ----------------------------------------------------------------------------------------


class TypedStorage:
    """See the bytes of a storage as elements of a dtype.

    Args:
        args: the number of elements, or a sequence of them.
        wrap_storage: an UntypedStorage to see instead of new memory.
        dtype: of the elements; default: the default dtype.
        device: of new memory.

    Raises:
        TypeError: the arguments fit no form.
    """

    dtype: Any = None
    _dtype: Any = None

    def __init__(
        self,
        *args: Any,
        wrap_storage: Any = None,
        dtype: Any = None,
        device: Any = None,
        _internal: bool = False,
    ) -> None:
        fixed = type(self).dtype
        if fixed is not None and dtype not in (None, fixed):
            raise TypeError(f"{type(self).__name__} holds {fixed}, not {dtype}")
        self.dtype = self._dtype = dtype or fixed or _C.get_default_dtype()
        if wrap_storage is not None:
            if args or not isinstance(wrap_storage, _C.UntypedStorage):
                raise TypeError(
                    "TypedStorage(wrap_storage=...) takes an UntypedStorage and no data, got "
                    f"{type(wrap_storage).__name__} and {len(args)} positional argument(s)"
                )
            self._untyped_storage = wrap_storage
        else:
            self._untyped_storage = _new_elements(args, self.dtype, device)

    def _elements(self) -> Any:
        return on_storage(self._untyped_storage, _held(self.dtype))

    def untyped(self) -> Any:
        """Return the storage of bytes."""
        return self._untyped_storage

    @property
    def device(self) -> Any:
        """Return the device."""
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        """Return whether the memory is on a device of that type."""
        return bool(self._untyped_storage.is_cuda)

    is_sparse = False

    @property
    def filename(self) -> str | None:
        """Return the path of the file whose memory this is and that sees what is written."""
        return files.get(self._untyped_storage)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """Return a storage of so many elements whose memory is a file's; see `map_file`.

        Raises:
            RuntimeError: the class has no dtype; the file cannot be opened or is too short.
        """
        if cls.dtype is None:
            raise RuntimeError("from_file can only be called on derived classes")
        untyped = map_file(filename, shared, size * cls.dtype.itemsize)
        return TypedStorage(wrap_storage=untyped, dtype=cls.dtype)

    @classmethod
    def from_buffer(cls, buffer: Any, *args: Any, **kwargs: Any) -> TypedStorage:
        """Return a storage of a copy of a buffer's elements.

        Args:
            buffer: an object with the buffer protocol.
            args, kwargs: see `bytes_in_order`; `dtype` for `TypedStorage` itself, which takes the
                default dtype otherwise.
        """
        given = kwargs.pop("dtype", None)
        dtype = cls.dtype or given or _C.get_default_dtype()
        untyped = _C.UntypedStorage.from_buffer(buffer, *args, dtype=dtype, **kwargs)
        return cls(wrap_storage=untyped, dtype=dtype)

    def __sizeof__(self) -> int:
        return super().__sizeof__() + self.nbytes()

    def __len__(self) -> int:
        return int(self._untyped_storage.nbytes() // self.element_size())

    def size(self) -> int:
        """Return the number of elements."""
        return len(self)

    def nbytes(self) -> int:
        """Return the size in bytes."""
        return int(self._untyped_storage.nbytes())

    def element_size(self) -> int:
        """Return the size of an element in bytes."""
        return int(self.dtype.itemsize)

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self._untyped_storage.data_ptr())

    def resizable(self) -> bool:
        """Return whether `resize_` is allowed."""
        return bool(self._untyped_storage.resizable())

    def resize_(self, size: int) -> TypedStorage:
        """Change the number of elements, keeping the common prefix."""
        self._untyped_storage.resize_(size * self.element_size())
        return self

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._elements()[_checked(self, len(self), place)].item()

    def __setitem__(self, place: Any, value: Any) -> None:
        if self.device.type == "meta":
            return
        if not isinstance(place, slice):
            place = _checked(self, len(self), place)
        self._elements()[place] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """Return the elements."""
        listed: list[Any] = self._elements().tolist()
        return listed

    def fill_(self, value: Any) -> TypedStorage:
        """Overwrite every element."""
        self._elements().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> TypedStorage:
        """Overwrite the elements by those of another storage, converted."""
        if isinstance(source, TypedStorage):
            self._elements().copy_(source._elements())
        else:
            self._untyped_storage.copy_(source)
        return self

    def clone(self) -> TypedStorage:
        """Return a copy."""
        return self._again(self._untyped_storage.clone())

    def cpu(self) -> TypedStorage:
        """Return the storage on the host device."""
        return self.to(device="cpu")

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """Return the storage on a device."""
        return self._again(self._untyped_storage.to(device=device))

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """Return the type's name, or the storage converted to a dtype."""
        if dtype is None:
            return _C.shown(class_of(self.dtype).__name__)
        return self._converted(dtype)

    def is_pinned(self, device: Any = None) -> bool:
        """Return whether the memory is page-locked (never, on host devices)."""
        return False

    def pin_memory(self, device: Any = None) -> TypedStorage:
        """Return the storage in page-locked memory: itself where no device asks for it."""
        return self

    def is_shared(self) -> bool:
        """Return whether other processes can have the memory."""
        return _is_shared(self._untyped_storage)

    def share_memory_(self) -> TypedStorage:
        """Move the elements to where other processes can have them; return self."""
        _share_memory_(self._untyped_storage)
        return self

    def get_device(self) -> int:
        """Return the device's index, -1 on the host."""
        return _get_device(self._untyped_storage)

    def pickle_storage_type(self) -> str:
        """Return the name of the class of storages of the dtype."""
        return class_of(self.dtype).__name__

    def _again(self, untyped: Any) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype)

    def _converted(self, dtype: Any) -> TypedStorage:
        made = self._elements().to(dtype)
        return TypedStorage(wrap_storage=made.untyped_storage(), dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        if name in _CASTS:
            return lambda: self._converted(_C.dtype_by_name(_CASTS[name]))
        if name == "_cdata":
            return id(self._untyped_storage)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self.tolist() == other.tolist()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        body = "".join(f" {value}\n" for value in self.tolist())
        kind = f"dtype={self.dtype}, device={self.device}"
        return f"{body}[{_C.shown('storage')}.TypedStorage({kind}) of size {len(self)}]"


def _held(dtype: Any) -> Any:
    """Return the dtype of what stands in memory: of quantized numbers whole ones."""
    return _C.dtype_by_name(_WHOLE.get(dtype.name, dtype.name))


def _new_elements(args: tuple[Any, ...], dtype: Any, device: Any) -> Any:
    dtype = _held(dtype)
    if len(args) > 1:
        raise TypeError(f"TypedStorage() takes at most one positional argument, got {len(args)}")
    if not args or isinstance(args[0], Integral):
        return _C.empty((int(args[0]) if args else 0,), dtype, device).untyped_storage()
    if not hasattr(args[0], "__len__"):
        raise TypeError(f"TypedStorage() takes a size or a sequence, not {type(args[0]).__name__}")
    from tangrad.tensor.construct import tensor

    return tensor(list(args[0]), dtype=dtype, device=device).untyped_storage()


# What holds the whole numbers of quantized elements; of the smaller ones a byte holds several.
_WHOLE = {
    "qint8": "int8",
    "quint8": "uint8",
    "qint32": "int32",
    "quint4x2": "uint8",
    "quint2x4": "uint8",
}
_QUANTIZED = ("QInt8", "QUInt8", "QInt32", "QUInt4x2", "QUInt2x4")
# The dtype of the elements of each class of typed storages.
DTYPES = {f"{kind}Storage": name for name, kind in TYPE_NAMES.items()}
QUANTIZED_DTYPES = {
    f"{kind}Storage": name
    for kind, name in zip(_QUANTIZED, map(str.lower, _QUANTIZED), strict=True)
}
# What the class of the default dtype is called, too.
ALIASES = ("Storage",)
_classes: dict[str, type] = {}


def legacy_class(name: str) -> type:
    """Return the class of storages of one dtype, such as FloatStorage.

    Raises:
        AttributeError: there is none of that name.
    """
    name = f"{TYPE_NAMES[_C.get_default_dtype().name]}Storage" if name in ALIASES else name
    if name not in DTYPES and name not in QUANTIZED_DTYPES:
        raise AttributeError(f"there is no storage class '{name}'")
    if name not in _classes:
        dtype = dtype_of_class(name)
        if dtype is None:
            raise AttributeError(f"'{name}' needs a package that brings its dtype")
        _classes[name] = type(
            name,
            (TypedStorage,),
            {
                "dtype": dtype,
                "_dtype": dtype,
                "__module__": "tangrad",
                "__doc__": f"Hold elements of {dtype}.",
            },
        )
    return _classes[name]


def dtype_of_class(name: str) -> Any:
    """Return the dtype of a class of storages; None where the package is missing that brings it."""
    if name in DTYPES:
        return _C.dtype_by_name(DTYPES[name])
    from tangrad.tensor.foreign import find_registered

    return find_registered(QUANTIZED_DTYPES[name])


def class_of(dtype: Any) -> type:
    """Return the class of storages of a dtype; TypedStorage where it has none of its own."""
    for name, own in (DTYPES | QUANTIZED_DTYPES).items():
        if own == dtype.name:
            return legacy_class(name)
    return TypedStorage
