"""Save objects with their tensors to files, and load them, in PyTorch's format.

`tangrad.save` and `tangrad.load` are PyTorch's; files go both ways. A load runs no code of the
file unless asked to, checks every member's checksum, and raises nothing but `SerializationError`
for what a file holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.serialization import safetensors as safetensors
from tangrad.serialization._checksum import crc32 as crc32
from tangrad.serialization._checksum import crc32c as crc32c
from tangrad.serialization.archive import ArchiveReader
from tangrad.serialization.errors import SerializationError as SerializationError
from tangrad.serialization.errors import UnsafeContentError as UnsafeContentError
from tangrad.serialization.globals import TensorBuilder
from tangrad.serialization.globals import add_safe_globals as add_safe_globals
from tangrad.serialization.globals import clear_safe_globals as clear_safe_globals
from tangrad.serialization.globals import get_safe_globals as get_safe_globals
from tangrad.serialization.globals import safe_globals as safe_globals
from tangrad.serialization.options import LoadEndianness as LoadEndianness
from tangrad.serialization.options import get_crc32_options as get_crc32_options
from tangrad.serialization.options import get_default_load_endianness as get_default_load_endianness
from tangrad.serialization.options import get_default_mmap_options as get_default_mmap_options
from tangrad.serialization.options import set_crc32_options as set_crc32_options
from tangrad.serialization.options import set_default_load_endianness as set_default_load_endianness
from tangrad.serialization.options import set_default_mmap_options as set_default_mmap_options
from tangrad.serialization.options import skip_data as skip_data
from tangrad.serialization.placement import default_restore_location as default_restore_location
from tangrad.serialization.placement import location_tag as location_tag
from tangrad.serialization.placement import placed
from tangrad.serialization.placement import register_package as register_package
from tangrad.serialization.reading import PickleReader, read_archive, read_legacy, read_tar
from tangrad.serialization.source import Source

DEFAULT_PROTOCOL = 2
# What `map_location` may be, as annotations name it.
MAP_LOCATION = Callable[[Any, str], Any] | _C.device | str | dict[str, str] | None
# PyTorch's habits; a path of another suffix may be of a plugin's format.
SUFFIXES = {"", ".pt", ".pth", ".bin", ".ckpt", ".tar", ".pkl"}


class SourceChangeWarning(Warning):
    """What PyTorch warns with where a pickled module's source has changed; not raised here."""


def _plugin_format(f: Any) -> Any:
    """Return the format that a plugin offers for a path's suffix, or None."""
    import os

    if not isinstance(f, (str, os.PathLike)):
        return None
    suffix = os.path.splitext(os.fsdecode(f))[1]
    if suffix in SUFFIXES:
        return None
    from tangrad.discovery.hooks import offered

    return offered("tangrad_register_formats", suffix)[0]


def save(
    obj: object,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Save an object to a file, in PyTorch's zip format or that of a plugin for the path's suffix.

    Tensors that share a storage share it in the file. A path is written atomically: until the new
    file is whole, the old one stays.

    Args:
        obj: tensors, modules, dictionaries of them, whatever can be pickled.
        f: a path, or an object with `write`.
        pickle_module: ignored; the pickle is written by this package.
        pickle_protocol: pickle's.
        _use_new_zipfile_serialization: write the zip format, or the one before PyTorch 1.6.
        _disable_byteorder_record: do not tell the order of bytes.

    Raises:
        SerializationError: a tensor cannot be saved.
        OSError: the file cannot be written.
        pickle.PicklingError: something in `obj` cannot be pickled.
    """
    import io
    import os
    from pathlib import Path

    from tangrad.serialization.writing import atomically, write_archive, write_legacy, writing_to

    def write_format(obj: object, write: Any, folder: str) -> None:
        if _use_new_zipfile_serialization:
            write_archive(obj, write, folder, pickle_protocol, not _disable_byteorder_record)
        else:
            write_legacy(obj, write, pickle_protocol)

    if (format_ := _plugin_format(f)) is not None:
        with atomically(f) as file, io.BufferedWriter(file) as buffered:
            format_.save(obj, buffered)
        return
    if isinstance(f, (str, os.PathLike)):
        folder = Path(os.fspath(f)).name.rpartition(".")[0] or Path(os.fspath(f)).name
        with atomically(f) as file:
            write_format(obj, writing_to(file), folder)
        return
    if not hasattr(f, "write"):
        raise AttributeError(
            f"expected 'f' to be a path or an object with a 'write' method, got {type(f).__name__}"
        )
    write_format(obj, f.write, "archive")
    # The file may be read by its name while the caller still has it open.
    if hasattr(f, "flush"):
        f.flush()


def _trusts_all_files() -> bool:
    value = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "")
    return value.lower() in ("1", "y", "yes", "true")


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Load an object that `save`, PyTorch's or ours, wrote.

    A path of a suffix that a plugin has a format for is read by it.

    Args:
        f: a path, or an object with `read`, `seek` and `tell`.
        map_location: where the storages go: a device, a dictionary of locations, or a function
            of a storage and its location.
        pickle_module: another module in place of `pickle`; only with `weights_only=False`.
        weights_only: build tensors and plain values only (the default), or run whatever the file
            names: only for files that you trust. Where it is not given, the environment's
            `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1` means False, for programs of before that default.
        mmap: let the tensors lie on the file, read when they are used, and not checked.
        pickle_load_args: further arguments of the unpickler, `encoding` and `errors` with
            `weights_only`, too: of texts that Python 2 wrote; "bytes" leaves them bytes.

    Raises:
        SerializationError: the file is damaged, unsafe, or of an unknown kind.
        OSError: the file cannot be opened.
        RuntimeError: `pickle_module` is given with `weights_only=True`.
    """
    plain = weights_only is None or weights_only
    if weights_only is None and (pickle_module is not None or _trusts_all_files()):
        plain = False
    if plain and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if (format_ := _plugin_format(f)) is not None:
        with open(f, "rb") as file:
            return format_.load(file, map_location)
    place = placed(map_location)
    with Source(f) as source:
        mapped = source.map() if mmap else None

        def reader(load_persistent: Any) -> PickleReader:
            return PickleReader(
                plain,
                load_persistent,
                TensorBuilder(),
                source.name,
                pickle_module,
                pickle_load_args,
            )

        try:
            return _read(source, reader, place, mapped)
        except SerializationError as error:
            error.file = error.file or source.name
            raise


def _read(source: Source, reader: Any, place: Any, mapped: Any) -> Any:
    if source.size == 0:
        raise source.error("the file is empty: Ran out of input", 0)
    start = source.read(0, min(source.size, 512))
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return read_archive(ArchiveReader(source), reader, place, mapped)
    if mapped is not None:
        raise source.error("mmap=True needs a file of PyTorch's zip format")
    if start[257:262] == b"ustar" or _begins_tar(start):
        return read_tar(source, reader, place)
    return read_legacy(source, reader, place)


def _begins_tar(start: bytes) -> bool:
    names = (b"sys_info", b"pickle", b"storages", b"tensors", b"./")
    return len(start) == 512 and start.startswith(names)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """Return the names in a file of the zip format that a load of plain values would refuse.

    Args:
        f: as for `load`.

    Raises:
        SerializationError: the file is damaged.
    """
    from tangrad.serialization.inspection import describe

    found: list[str] = describe(f)["unsafe"]
    return found
