"""Write PyTorch's files: the zip format, and the one before 1.6."""

from __future__ import annotations

import _thread
import contextlib
import os
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from tangrad import _C
from tangrad.serialization.archive import ALIGNMENT, LEGACY_MAGIC, LEGACY_PROTOCOL, ArchiveWriter
from tangrad.serialization.errors import SerializationError
from tangrad.serialization.globals import REBUILD_OF_LAYOUT, STORAGE_OF_DTYPE, as_torch
from tangrad.serialization.leftovers import lock, name_of_begun, remove_leftovers
from tangrad.serialization.options import skips_data
from tangrad.serialization.placement import host_view, location_tag
from tangrad.tensor.on_storage import bytes_of
from tangrad.tensor.pickling import attributes_of, is_wrapper, wrapper_parts
from tangrad.tensor.qscheme import qscheme
from tangrad.tensor.storages import TypedStorage

# From here on the file that is replaced is freed by a thread.
_LARGE = 1 << 20


class _Name:
    """Something that a pickle names, though it does not exist here under this name."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.module}.{self.name} stands in a file and is not called")


class _Typed:
    """A storage, and the dtype that it is written with."""

    def __init__(self, storage: Any, dtype: str | None) -> None:
        self.storage, self.dtype = storage, dtype


_names: dict[tuple[str, str], _Name] = {}


def _named(module: str, name: str) -> _Name:
    return _names.setdefault((module, name), _Name(module, name))


_Pickler: Any = pickle._Pickler
# Neither tensors nor storages nor of ours: pickle writes them as it always does.
_PLAIN_KINDS = (str, int, float, bool, type(None), bytes, tuple, list, dict)


class TensorPickler(_Pickler):
    """Pickle objects as PyTorch does, tensors by reference to storages.

    The one of Python, because it can write names of modules that are not there.

    Args:
        file: what the pickle is written to.
        protocol: pickle's.

    Attributes:
        storages: {key: storage} in the order of their keys.
    """

    _kind_of_bytes = _named("torch.storage", "UntypedStorage")

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol=protocol)
        self.storages: dict[str, Any] = {}
        self._keys: dict[int, str] = {}
        self._dtypes: dict[str, str] = {}

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Write an object, without asking how where its kind tells: that takes most of the time."""
        known = self.memo.get(id(obj))
        write = _DIRECT.get(type(obj))
        if known is not None:
            self.framer.commit_frame()
            self.write(self.get(known[0]))
        elif write is not None:
            self.framer.commit_frame()
            write(self, obj)
        else:
            super().save(obj, save_persistent_id)

    def persistent_id(self, obj: Any) -> Any:
        """Return what stands for a storage."""
        if isinstance(obj, _C.UntypedStorage):
            return self._reference(obj, None)
        if not isinstance(obj, TypedStorage):
            return None
        dtype = obj.dtype.name
        if dtype not in STORAGE_OF_DTYPE:
            raise SerializationError(
                f"save: a storage of {dtype} has no name in PyTorch's files; save a tensor on it "
                "or its untyped() storage"
            )
        return self._reference(obj.untyped(), dtype)

    def _reference(self, storage: Any, dtype: str | None) -> tuple[Any, ...]:
        """Return what stands for a storage of elements, or of bytes."""
        seen_as = dtype or "uint8"
        key = self._keys.setdefault(id(storage), str(len(self.storages)))
        self.storages[key] = storage
        # A reader of PyTorch gives all that lies on a storage the dtype that it met first.
        first = self._dtypes.setdefault(key, seen_as)
        if first != seen_as and storage.nbytes():
            raise SerializationError(
                "Cannot save multiple tensors or storages that view the same data as different "
                f"types: {first} and {seen_as}; clone one of them"
            )
        name = _named("torch", STORAGE_OF_DTYPE[dtype]) if dtype else self._kind_of_bytes
        count = storage.nbytes() // _C.dtype_by_name(seen_as).itemsize
        return ("storage", name, key, location_tag(storage), count)

    def reducer_override(self, obj: Any) -> Any:
        """Return how an object of ours is rebuilt, by PyTorch's names."""
        if isinstance(obj, _C.Tensor):
            return NotImplemented if _reduces_itself(type(obj)) else self._tensor(obj)
        if isinstance(obj, _Name):
            return obj.name
        if isinstance(obj, _C.dtype):
            return str(obj).partition(".")[2]
        if isinstance(obj, (_C.memory_format, qscheme)):
            return obj.name
        if isinstance(obj, _C.layout):
            return _named("torch.serialization", "_get_layout"), (f"torch.{obj.name}",)
        if isinstance(obj, _C.device):
            args = (obj.type,) if obj.index is None else (obj.type, obj.index)
            return _named("torch", "device"), args
        if type(obj).__name__ == "Size" and type(obj).__module__.startswith("tangrad"):
            return _named("torch", "Size"), (tuple(obj),)
        if isinstance(obj, FunctionType) and as_torch(obj.__module__) != obj.__module__:
            return obj.__qualname__
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Write the name of something, PyTorch's if it is ours."""
        if isinstance(obj, (_C.dtype, _C.memory_format, qscheme)):
            self._write_name(obj, "torch", name or "")
        elif isinstance(obj, _Name):
            self._write_name(obj, obj.module, obj.name)
        elif as_torch(getattr(obj, "__module__", None) or "") != getattr(obj, "__module__", ""):
            self._write_name(obj, as_torch(obj.__module__), name or obj.__qualname__)
        else:
            super().save_global(obj, name)

    def _write_name(self, obj: Any, module: str, name: str) -> None:
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    def _tensor(self, x: Any) -> Any:
        attributes = attributes_of(x)
        if isinstance(x, _C.Parameter) and type(x) is _C.Parameter:
            args: tuple[Any, ...] = (x.detach(), x.requires_grad, OrderedDict())
            if not attributes:
                return _named("torch._utils", "_rebuild_parameter"), args
            return _named("torch._utils", "_rebuild_parameter_with_state"), (*args, attributes)
        function, rest = self._plain(x)
        if type(x) is _C.Tensor and not attributes:
            return function, rest
        kind = type(x) if type(x) is not _C.Tensor else _named("torch", "Tensor")
        return _named("torch._tensor", "_rebuild_from_type_v2"), (function, kind, rest, attributes)

    def _of_layout(self, x: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return how a tensor of another layout is rebuilt: as PyTorch does it, or by our form."""
        held = _C.contents_of(x)
        if held is None:
            raise SerializationError(f"a tensor of layout {x.layout} cannot be saved")
        form = held.layout.definition.file_form(x.detach())
        if form is not None:
            module, _, name = form[0].rpartition(".")
            return _named(module, name), form[1]
        parts = (held.layout.name, tuple(held.components.items()), tuple(held.metadata.items()))
        said = (tuple(x.shape), x.dtype, x.requires_grad)
        return _named(*REBUILD_OF_LAYOUT), (*parts, *said)

    def _plain(self, x: Any) -> tuple[Any, tuple[Any, ...]]:
        if is_wrapper(x):
            return _named("torch._utils", "_rebuild_wrapper_subclass"), wrapper_parts(x)
        if x.layout is not _C.strided:
            return self._of_layout(x)
        grad = x.requires_grad
        x = x.detach()
        size, stride, dtype = tuple(x.shape), tuple(x.stride()), x.dtype.name
        if x.device.type == "meta":
            function = _named("torch._utils", "_rebuild_meta_tensor_no_storage")
            return function, (x.dtype, size, stride, grad)
        storage, offset = x.untyped_storage(), x.storage_offset()
        flags = {"conj": x.is_conj(), "neg": x.is_neg()}
        metadata = {name: True for name, is_set in flags.items() if is_set}
        lazy = (metadata,) if metadata else ()
        if dtype in STORAGE_OF_DTYPE:
            arguments: tuple[Any, ...] = (_Typed(storage, dtype), offset, size, stride, grad)
            arguments += (OrderedDict(), *lazy)
            return _named("torch._utils", "_rebuild_tensor_v2"), arguments
        arguments = (_Typed(storage, None), offset, size, stride, grad, OrderedDict(), x.dtype)
        return _named("torch._utils", "_rebuild_tensor_v3"), (*arguments, *lazy)


def _reduces_itself(kind: type) -> bool:
    """Tell whether a class of tensors says itself how its objects are rebuilt."""
    ours = _C.Tensor
    return kind.__reduce_ex__ is not ours.__reduce_ex__ or kind.__reduce__ is not ours.__reduce__


def _save_tensor(pickler: TensorPickler, x: Any) -> None:
    pickler.save_reduce(*pickler._tensor(x), obj=x)


def _save_typed(pickler: TensorPickler, typed: _Typed) -> None:
    pickler.save_pers(pickler._reference(typed.storage, typed.dtype))


def _save_ordered(pickler: TensorPickler, obj: OrderedDict[Any, Any]) -> None:
    items = iter(obj.items()) if obj else None
    pickler.save_reduce(OrderedDict, (), vars(obj) or None, None, items, obj=obj)


_DIRECT: dict[type, Callable[[Any, Any], None]] = {
    **{kind: _Pickler.dispatch[kind] for kind in _PLAIN_KINDS},
    _C.Tensor: _save_tensor,
    _C.Parameter: _save_tensor,
    _Typed: _save_typed,
    OrderedDict: _save_ordered,
}


def write_archive(
    obj: Any, write: Callable[[Any], Any], folder: str, protocol: int, byteorder: bool = True
) -> None:
    """Write an object in the zip format.

    Args:
        obj: the object.
        write: takes bytes.
        folder: name of the archive's folder.
        protocol: pickle's.
        byteorder: whether to tell the order of bytes.
    """
    import io

    stream = io.BytesIO()
    pickler = TensorPickler(stream, protocol)
    pickler.dump(obj)
    archive = ArchiveWriter(write, folder)
    archive.add("data.pkl", stream.getbuffer())
    archive.add(".format_version", b"1")
    archive.add(".storage_alignment", str(ALIGNMENT).encode())
    if byteorder:
        archive.add("byteorder", b"little")
    for key, storage in pickler.storages.items():
        if skips_data():
            archive.leave(f"data/{key}", storage.nbytes())
        else:
            archive.add(f"data/{key}", _bytes_of(storage))
    archive.add("version", b"3\n")
    archive.add(".data/serialization_id", b"0" * 40)
    archive.close()


class _LegacyPickler(TensorPickler):
    """Refer to storages as the format before 1.6 does: with a view's place, which is never one.

    Attributes:
        counts: {key: number of the storage's elements}.
    """

    # The untyped class came later; PyTorch's reader of this format asks every class for its dtype.
    _kind_of_bytes = _named("torch", "ByteStorage")

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.counts: dict[str, int] = {}

    def _reference(self, storage: Any, dtype: str | None) -> tuple[Any, ...]:
        found = super()._reference(storage, dtype)
        self.counts[found[2]] = found[4]
        return (*found, None)


def write_legacy(obj: Any, write: Callable[[Any], Any], protocol: int) -> None:
    """Write an object in the format before PyTorch 1.6: pickles, then the storages.

    Args:
        obj: the object.
        write: takes bytes.
        protocol: pickle's.

    Raises:
        SerializationError: two dtypes share a storage.
        RuntimeError: data is to be left out.
    """
    import io

    if skips_data():
        raise RuntimeError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")
    stream = io.BytesIO()
    pickler = _LegacyPickler(stream, protocol)
    pickler.dump(obj)
    sizes = {"short": 2, "int": 4, "long": 4}
    system = {"protocol_version": LEGACY_PROTOCOL, "little_endian": True, "type_sizes": sizes}
    for part in (LEGACY_MAGIC, LEGACY_PROTOCOL, system):
        write(pickle.dumps(part, protocol))
    write(stream.getbuffer())
    keys = sorted(pickler.storages)
    write(pickle.dumps(keys, protocol))
    for key in keys:
        write(struct.pack("<q", pickler.counts[key]))
        write(_bytes_of(pickler.storages[key]))


def _bytes_of(storage: Any) -> Any:
    return host_view(bytes_of(storage).cpu()) if storage.nbytes() else b""


@contextlib.contextmanager
def atomically(path: Any) -> Iterator[Any]:
    """Give a binary file without a buffer, which takes its name when it is whole.

    An interruption leaves the file that was there; what a killed process had begun, the next save
    to the folder, or load from it, removes. What is no regular file (a pipe, a device) is
    written as it is.

    Raises:
        OSError: the file cannot be written; what was begun is removed.
    """
    target = Path(os.path.realpath(os.fspath(path)))
    with _naming(target):
        if target.exists() and not target.is_file():
            with open(target, "wb", buffering=0) as direct:
                yield direct
            return
        remove_leftovers(str(target.parent))
        begun = name_of_begun(target)
        try:
            with open(begun, "xb", buffering=0) as file:
                lock(file)
                yield file
            with _freed_aside(target):
                if target.exists():
                    begun.chmod(target.stat().st_mode & 0o7777)
                os.replace(begun, target)
        except BaseException:
            with contextlib.suppress(OSError):
                begun.unlink()
            raise


@contextlib.contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Have errors of the system name the file: those of a write, as of a full disk, do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(target)
        raise


@contextlib.contextmanager
def _freed_aside(target: Path) -> Iterator[None]:
    """Let a thread wait until the file that is replaced inside is gone.

    A file system writes a replacement out early, so that a power failure leaves one of the two,
    and frees a file only when what it still writes of it is written: for one that was saved
    shortly before, that is two thirds of a save (9 of 15 ms for 16 MB on ext4).
    """
    try:
        # Windows renames onto no open file.
        aside = os.name != "nt" and target.stat().st_size >= _LARGE
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC) if aside else -1
    except OSError:
        descriptor = -1
    if descriptor < 0:
        yield
        return
    try:
        yield
    finally:
        try:
            _thread.start_new_thread(os.close, (descriptor,))
        except RuntimeError:  # no thread can be started: late in the interpreter's end
            os.close(descriptor)


def writing_to(file: Any) -> Callable[[Any], None]:
    """Return a function that writes all of what it is given to a file without a buffer."""

    def write(content: Any) -> None:
        view = memoryview(content).cast("B") if memoryview(content).nbytes else memoryview(b"")
        while view.nbytes:
            view = view[file.write(view) :]

    return write
