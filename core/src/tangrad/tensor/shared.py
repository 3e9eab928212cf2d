"""Memory that processes share: files without a name, passed on by descriptor.

Such a file exists as long as a process maps it or holds a descriptor of it, so however a process
ends, nothing stays behind.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from typing import Any
from weakref import WeakValueDictionary

from tangrad import _C
from tangrad.tensor.on_storage import bytes_of

__all__ = [
    "SharedMemory",
    "host_bytes",
    "is_shared",
    "new_file",
    "on_file",
    "on_host",
    "share",
    "write_at",
]

_WRITE_AT_MOST = 1 << 30  # systems take no more than two gigabytes at once


def new_file(nbytes: int) -> int:
    """Return the descriptor of a new file without a name, of a size in bytes.

    Raises:
        OSError: there is no memory or no descriptor left.
    """
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("tangrad", os.MFD_CLOEXEC)
    else:
        file, path = tempfile.mkstemp(prefix="tangrad-")
        os.unlink(path)
    try:
        os.ftruncate(file, nbytes)
    except BaseException:
        os.close(file)
        raise
    return file


def write_at(file: int, offset: int, content: memoryview) -> None:
    """Write bytes to a file, whose pages a mapping would have to clear first.

    Raises:
        OSError: there is no memory left.
    """
    while content.nbytes:
        written = os.pwrite(file, content[:_WRITE_AT_MOST], offset)
        content, offset = content[written:], offset + written


class SharedMemory:
    """A mapped file of which storages are parts; it owns their memory.

    Args:
        file: a descriptor of at least one byte.
        nbytes: size of the mapping.
        keep: own the descriptor, so that the memory can be passed on; otherwise it remains the
            caller's.
    """

    __slots__ = ("_base", "address", "file", "memory", "nbytes")

    def __init__(self, file: int, nbytes: int, *, keep: bool) -> None:
        # A mapping keeps a descriptor of its own, for growing, unless told otherwise.
        options: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        self.file: int | None = None
        self.memory = mmap.mmap(file, nbytes, **options)
        self.nbytes = nbytes
        uint8 = _C.dtype_by_name("uint8")
        self._base = _C.tensor_from_buffer(self.memory, uint8, (nbytes,), (1,))
        self.address = self._base.data_ptr()
        if keep:
            self.file = file

    def storage(self, offset: int, nbytes: int, device: Any = None) -> Any:
        """Return the storage of a part."""
        vector = _C.tensor_from_pointer(
            self.address + offset,
            nbytes,
            self,
            _C.dtype_by_name("uint8"),
            (nbytes,),
            (1,),
            0,
            device,
        )
        return vector.untyped_storage()

    def __del__(self) -> None:
        if self.file is not None:
            os.close(self.file)


# The storages that are whole files, by what identifies the file: what comes back from another
# process is the storage that went there.
_storages: WeakValueDictionary[tuple[int, int], Any] = WeakValueDictionary()


def _identity(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def is_shared(storage: Any) -> bool:
    """Return whether other processes can have the memory of a storage."""
    return isinstance(_C.storage_owner(storage), SharedMemory)


def on_host(storage: Any) -> bool:
    """Return whether the host can reach the memory of a storage."""
    host: bool = _C.register_device_type(storage.device.type).host
    return host


def host_bytes(storage: Any) -> memoryview:
    """Return the bytes of a storage on the host."""
    return memoryview(_C.host_buffer(bytes_of(storage)))


def share(storage: Any) -> int | None:
    """Move a storage into a file of its own, unless it is in one, and return the descriptor.

    All tensors on the storage follow; None stands for an empty storage, which needs no file.

    Raises:
        RuntimeError: the memory is not the host's, or there is none left.
    """
    nbytes = storage.nbytes()
    if not nbytes:
        return None
    memory = _C.storage_owner(storage)
    if isinstance(memory, SharedMemory) and memory.file is not None and memory.nbytes == nbytes:
        return memory.file
    if not on_host(storage):
        raise RuntimeError(
            f"share: only memory of the host is shared between processes, and this storage is on "
            f"{storage.device}; copy the tensor with .cpu() first"
        )
    file = new_file(nbytes)
    try:
        write_at(file, 0, host_bytes(storage))
        made = SharedMemory(file, nbytes, keep=True)
    except BaseException:
        os.close(file)
        raise
    _C.rebase_storage(storage, made.storage(0, nbytes, storage.device))
    _storages[_identity(file)] = storage
    return file


def on_file(file: int, nbytes: int, device: Any = None) -> Any:
    """Return the storage on a file that another process shares; the descriptor is taken over."""
    try:
        key = _identity(file)
        known = _storages.get(key)
        if known is not None:
            os.close(file)
            return known
        memory = SharedMemory(file, nbytes, keep=True)
    except BaseException:
        os.close(file)
        raise
    made = memory.storage(0, nbytes, device)
    _storages[key] = made
    return made
