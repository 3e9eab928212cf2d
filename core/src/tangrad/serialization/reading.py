"""Read PyTorch's files: the zip format, the one before 1.6, and the tar format before that."""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.serialization.archive import LEGACY_MAGIC, LEGACY_PROTOCOL, ArchiveReader
from tangrad.serialization.errors import SerializationError, shown
from tangrad.serialization.globals import (
    Globals,
    StorageType,
    TensorBuilder,
    as_text,
    storage_fields,
)
from tangrad.serialization.machine import SafeUnpickler
from tangrad.serialization.options import skips_data, untold_byteorder
from tangrad.serialization.placement import bytes_tensor, host_view
from tangrad.serialization.source import Source
from tangrad.tensor.exchange import dtype_named
from tangrad.tensor.on_storage import bytes_of
from tangrad.tensor.storages import TypedStorage

Place = Callable[[Any, str], Any]


class PickleReader:
    """Unpickle with or without running what a file names.

    Args:
        plain: only tensors and plain values.
        load_persistent: persistent id -> storage.
        builder: builds the tensors.
        file: the file's name.
        options: further arguments of `pickle.Unpickler`, of which `encoding` ("utf-8" if it is not
            given) and `errors` serve plain values, too; `pickle_module` is another module.
    """

    def __init__(
        self,
        plain: bool,
        load_persistent: Callable[[Any], Any],
        builder: TensorBuilder,
        file: str | None,
        pickle_module: Any = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._plain, self._load, self._file = plain, load_persistent, file
        self._module = pickle_module or pickle
        self._options: dict[str, Any] = {"encoding": "utf-8", **(options or {})}
        self._names = Globals(builder, plain)

    def read(self, content: Any, start: int = 0) -> tuple[Any, int]:
        """Return the object at `start`, and where its pickle ends.

        Raises:
            SerializationError: the pickle is damaged, or names what is not allowed.
        """
        if self._plain:
            machine = SafeUnpickler(
                content,
                self._names.find,
                self._load,
                self._names.may_call,
                self._names.may_build,
                self._file,
                self._options["encoding"],
                self._options.get("errors", "strict"),
            )
            return machine.load(start)
        stream = io.BytesIO(content)
        stream.seek(start)
        names, load = self._names, self._load

        class Unpickler(self._module.Unpickler):  # type: ignore[name-defined]
            def find_class(self, module: str, name: str) -> Any:
                return names.find(module, name)

            def persistent_load(self, key: Any) -> Any:
                return load(key)

        try:
            return Unpickler(stream, **self._options).load(), stream.tell()
        except SerializationError as error:
            error.file = error.file or self._file
            raise
        except (EOFError, pickle.UnpicklingError, struct.error, UnicodeDecodeError) as error:
            raise SerializationError(
                f"the pickle is damaged: {error}", file=self._file, offset=stream.tell()
            ) from error


def read_archive(
    archive: ArchiveReader, reader: Callable[..., PickleReader], place: Place, mapped: Any
) -> Any:
    """Return the object of a file of the zip format.

    Args:
        archive: the file.
        reader: persistent_load -> reader of pickles.
        place: (storage on the host, location) -> storage.
        mapped: the file in memory, if tensors are to lie on it.

    Raises:
        SerializationError: the file is damaged or unsafe.
    """
    if "constants.pkl" in archive.members:
        raise archive.source.error(
            "the file is a TorchScript program, not saved data; load it by jit.load"
        )
    told = "byteorder" in archive.members
    swaps = (archive.read("byteorder") if told else untold_byteorder().encode()) == b"big"
    storages: dict[str, Any] = {}
    seen: dict[tuple[str, StorageType], TypedStorage] = {}

    def load(key: Any) -> TypedStorage:
        kind, name, location, _, _ = storage_fields(key)
        found = seen.get((name, kind))
        if found is None:
            dtype = dtype_named(kind.dtype)
            if name not in storages:
                storages[name] = place(_stored(archive, name, dtype, swaps, mapped), location)
            found = TypedStorage(wrap_storage=storages[name], dtype=dtype)
            seen[name, kind] = found
        return found

    return reader(load).read(archive.read("data.pkl"))[0]


def _stored(archive: ArchiveReader, name: str, dtype: Any, swaps: bool, mapped: Any) -> Any:
    member = archive.member(f"data/{name}")
    if skips_data():
        return bytes_tensor(member.size).untyped_storage()
    if mapped is not None and member.size and not swaps:
        from tangrad.tensor.exchange import frombuffer

        start = archive.data_offset(member)
        uint8 = _C.dtype_by_name("uint8")
        return frombuffer(mapped, dtype=uint8, count=member.size, offset=start).untyped_storage()
    tensor = bytes_tensor(member.size)
    view = host_view(tensor)
    archive.read_into(member, view)
    if swaps:
        _swap_bytes(view, dtype)
    return tensor.untyped_storage()


def _swap_bytes(view: memoryview, dtype: Any) -> None:
    """Turn numbers whose first byte is the highest into ours."""
    size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    content = bytes(view)
    for byte in range(size):
        view[byte::size] = content[size - 1 - byte :: size]


# How a pickle of the magic number begins: with PROTO, or before protocol 2 with LONG.
_MAGIC_BEGINS = b"\x80L"


def read_legacy(source: Source, reader: Callable[..., PickleReader], place: Place) -> Any:
    """Return the object of a file as PyTorch wrote before 1.6: pickles, then raw storages.

    Raises:
        SerializationError: the file is damaged or unsafe.
    """
    from tangrad.serialization.inspection import end_of_pickle

    content = memoryview(source.read(0, source.size))
    if content and content[0] not in _MAGIC_BEGINS:
        raise _unknown_kind(source)
    wanted: dict[str, tuple[StorageType, str, int]] = {}
    storages: dict[str, Any] = {}
    tensors: dict[str, Any] = {}

    seen: dict[tuple[str, StorageType], TypedStorage] = {}

    def take(kind: StorageType, name: str, location: str, count: int) -> None:
        dtype = dtype_named(kind.dtype)
        if name not in wanted:
            if count * dtype.itemsize > source.size:
                raise source.error(f"a storage claims {count} elements, more than the file has")
            tensors[name] = bytes_tensor(count * dtype.itemsize)
            storages[name] = place(tensors[name].untyped_storage(), location)
            wanted[name] = (kind, location, count)
        if wanted[name][0] != kind and (count or wanted[name][2]):
            raise source.error("one storage is used with two element types", tensor=name)

    def load(key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 4 and key[0] == "module":
            return key[1]  # a class of modules, beside its source
        kind, name, location, count, view = storage_fields(key)
        take(kind, name, location, count)
        if (name, kind) not in seen:
            dtype = dtype_named(kind.dtype)
            seen[name, kind] = TypedStorage(wrap_storage=storages[name], dtype=dtype)
        if view is not None:
            _check_view(seen[name, kind], view, source)
        return seen[name, kind]

    def fill(at: int) -> None:
        keys, at = pickles.read(content, at)
        keys = [as_text(key) for key in keys] if isinstance(keys, list) else []
        if set(keys) != set(wanted):
            raise source.error("the file does not hold the storages that it names", at)
        for key in [] if skips_data() else keys:
            at = _fill_legacy(source, at, key, wanted, tensors, storages)

    pickles = reader(load)
    magic, at = pickles.read(content)
    version, at = pickles.read(content, at)
    if magic != LEGACY_MAGIC or version != LEGACY_PROTOCOL:
        raise _unknown_kind(source)
    _, at = pickles.read(content, at)
    # The storages follow the pickle of the result, but layouts look at the numbers they are given.
    end = end_of_pickle(source, content, at, take)
    if end is not None:
        fill(end)
    result, at = pickles.read(content, at)
    if end is None:
        fill(at)
    return result


def _unknown_kind(source: Source) -> SerializationError:
    return source.error(
        "Invalid magic number: this is neither a zip archive nor a file of PyTorch before 1.6; "
        "was it written by torch.save?",
        0,
    )


def _check_view(stored: TypedStorage, view: Any, source: Source) -> None:
    """Check that what is described as a part of a storage is the whole of it."""
    if not (isinstance(view, tuple) and len(view) == 3 and all(type(n) is int for n in view[1:])):
        raise source.error("the pickle describes a part of a storage wrongly")
    offset, count = view[1:]
    if offset < 0 or count < 0 or offset + count > len(stored):
        raise source.error("a part of a storage lies outside it")
    if offset == 0 and count == len(stored):
        return
    raise source.error(
        "the file holds a storage that is a part of another, as PyTorch wrote before 0.4; save "
        "it again with a later version"
    )


def _fill_legacy(
    source: Source,
    at: int,
    key: Any,
    wanted: dict[str, tuple[StorageType, str, int]],
    tensors: dict[str, Any],
    storages: dict[str, Any],
) -> int:
    """Read a storage's number of elements and content, and return where the next begins."""
    _, _, count = wanted[key]
    (written,) = struct.unpack("<q", source.read(at, 8, key))
    if written != count:
        raise source.error(f"a storage has {written} elements, but {count} are described", at, key)
    tensor = tensors[key]
    source.read_into(at + 8, host_view(tensor), None, key)
    if storages[key] is not tensor.untyped_storage():
        _copy_to(storages[key], tensor)
    return at + 8 + int(tensor.numel())


def _copy_to(storage: Any, tensor: Any) -> None:
    """Copy bytes to a storage of another device."""
    if storage.device.type == "meta":
        return
    bytes_of(storage).copy_(tensor)


def read_tar(source: Source, reader: Callable[..., PickleReader], place: Place) -> Any:
    """Return the object of a file as PyTorch wrote before 0.1.10: a tar archive.

    Raises:
        SerializationError: the file is damaged or unsafe.
    """
    import tarfile

    content = source.read(0, source.size)
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for info in archive:
                name = info.name.removeprefix("./")
                if info.isfile() and name in ("sys_info", "pickle", "storages", "tensors"):
                    if info.size > source.size:
                        raise source.error("a member claims more than the file has", tensor=name)
                    opened = archive.extractfile(info)
                    members[name] = opened.read() if opened else b""
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise source.error(f"the tar archive is damaged: {error}") from error
    missing = {"pickle", "storages", "tensors"} - set(members)
    if missing:
        raise source.error(f"the tar archive lacks {', '.join(sorted(missing))}")
    storages = _tar_storages(source, members["storages"], reader, place)
    tensors = _tar_tensors(source, members["tensors"], reader, storages)

    def load(key: Any) -> Any:
        # Protocol 0 writes the number as text.
        number = int(key) if isinstance(key, str) and key.isdigit() else key
        found = tensors.get(number) if isinstance(number, int) else None
        if found is None:
            raise source.error(f"the pickle refers to tensor {shown(key, 40)}, which is not there")
        return found

    return reader(load).read(members["pickle"])[0]


def _tar_storages(
    source: Source, content: bytes, reader: Callable[..., PickleReader], place: Place
) -> dict[Any, TypedStorage]:
    pickles = reader(_no_reference)
    count, at = pickles.read(content)
    found: dict[Any, TypedStorage] = {}
    for _ in range(_count(source, count)):
        (key, location, kind), at = _three(source, pickles, content, at)
        if not isinstance(kind, StorageType):
            raise source.error("the tar archive describes a storage wrongly")
        dtype = dtype_named(kind.dtype)
        (elements,) = _numbers(source, "<q", content, at)
        at += 8
        nbytes = elements * dtype.itemsize
        if nbytes < 0 or at + nbytes > len(content):
            raise source.error(f"a storage claims {elements} elements, more than the file has")
        tensor = bytes_tensor(nbytes)
        host_view(tensor)[:] = content[at : at + nbytes]
        at += nbytes
        storage = place(tensor.untyped_storage(), str(location))
        found[key] = TypedStorage(wrap_storage=storage, dtype=dtype)
    return found


def _tar_tensors(
    source: Source,
    content: bytes,
    reader: Callable[..., PickleReader],
    storages: dict[Any, TypedStorage],
) -> dict[Any, Any]:
    pickles = reader(_no_reference)
    count, at = pickles.read(content)
    found: dict[Any, Any] = {}
    builder = TensorBuilder()
    for _ in range(_count(source, count)):
        (key, storage, _), at = _three(source, pickles, content, at)
        if storage not in storages:
            raise source.error(f"tensor {shown(key, 40)} has no storage")
        (dims,) = _numbers(source, "<i", content, at)
        at += 8
        if not 0 <= dims <= 64:
            raise source.error(f"tensor {shown(key, 40)} has {dims} dimensions")
        numbers = _numbers(source, f"<{2 * dims + 1}q", content, at)
        at += 8 * (2 * dims + 1)
        found[key] = builder.tensor(
            storages[storage], numbers[-1], numbers[:dims], numbers[dims : 2 * dims]
        )
    return found


def _three(
    source: Source, pickles: PickleReader, content: bytes, start: int
) -> tuple[tuple[Any, Any, Any], int]:
    """Return three values pickled together, the first two of them numbers or texts."""
    values, at = pickles.read(content, start)
    if not isinstance(values, tuple) or len(values) != 3 or not _are_keys(values[:2]):
        raise source.error("the tar archive describes a storage or a tensor wrongly")
    return values, at


def _are_keys(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, (int, str)) for value in values)


def _numbers(source: Source, form: str, content: bytes, at: int) -> tuple[Any, ...]:
    try:
        return struct.unpack_from(form, content, at)
    except struct.error as error:
        raise source.error(f"a member of the tar archive is too short: {error}") from error


def _count(source: Source, count: Any) -> int:
    if type(count) is not int or not 0 <= count <= source.size:
        raise source.error("the tar archive is damaged")
    return count


def _no_reference(key: Any) -> Any:
    raise SerializationError(f"the pickle refers to something unknown: {shown(key)}")
