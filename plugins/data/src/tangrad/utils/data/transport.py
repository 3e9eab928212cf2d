"""Messages between a loader and its workers: pickled objects, tensors beside them in one file.

A message is a header, the pickled object, and the descriptor of a file without a name that holds
the bytes of all tensors. So a batch costs one descriptor and two copies, and nothing remains of a
message that nobody receives.
"""

from __future__ import annotations

import io
import os
import pickle
import socket
import struct
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any

import tangrad
from tangrad.plugin import Parameter
from tangrad.plugin.sharing import (
    SharedMemory,
    host_bytes,
    new_file,
    on_host,
    reduce_storage,
    reduce_tensor,
    refuse_history,
    write_at,
)

_HEADER = struct.Struct("<QQ")  # sizes of the pickled object and of the file
_ALIGNMENT = 64
_state = threading.local()


class _Packer(ForkingPickler):
    """Pickle an object, leaving the bytes of its tensors to a file."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self.parts: list[tuple[int, Any]] = []
        self.size = 0
        own = {
            tangrad.Tensor: self._reduce_tensor,
            Parameter: self._reduce_tensor,
            tangrad.UntypedStorage: self._reduce_storage,
        }
        self.dispatch_table = {**self.dispatch_table, **own}  # of this pickler only

    def _reduce_tensor(self, x: Any) -> tuple[Any, ...]:
        refuse_history(x)
        if x.device.type == "meta":
            return reduce_tensor(x)
        # Of a view of more, such as a row of a whole data set, only what it shows is sent.
        if x.untyped_storage().nbytes() > x.numel() * x.element_size():
            compact = x.detach().clone().requires_grad_(x.requires_grad)
            if type(x) is tangrad.Tensor:
                return reduce_tensor(compact)
        return reduce_tensor(x)

    def _reduce_storage(self, storage: Any) -> tuple[Any, ...]:
        nbytes = storage.nbytes()
        if not nbytes or not on_host(storage):
            return reduce_storage(storage)
        offset = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        self.parts.append((offset, host_bytes(storage)))
        self.size = offset + nbytes
        return _storage, (offset, nbytes, str(storage.device))


def _storage(offset: int, nbytes: int, device: str) -> Any:
    return _state.memory.storage(offset, nbytes, device)


class Message:
    """An object ready to be sent.

    Args:
        value: the object.

    Raises:
        RuntimeError: a tensor in it has a history.
        Exception: whatever pickle raises.
    """

    def __init__(self, value: Any) -> None:
        out = io.BytesIO()
        packer = _Packer(out)
        packer.dump(value)
        self.pickled = out.getbuffer()
        self.parts, self.size = packer.parts, packer.size

    def _file(self) -> int:
        file = new_file(self.size)
        try:
            for offset, buffer in self.parts:
                write_at(file, offset, buffer)
        except BaseException:
            os.close(file)
            raise
        return file

    def framed(self) -> bytes:
        """Return all there is to send of a message without tensors in a file."""
        return _HEADER.pack(len(self.pickled), 0) + self.pickled

    def send(self, channel: socket.socket) -> None:
        """Send the message.

        Raises:
            OSError: the receiver is gone, or there is no memory for the tensors.
        """
        # At once: the receiver, woken by the header, would have to wait for what follows it.
        parts: list[Any] = [_HEADER.pack(len(self.pickled), self.size), self.pickled]
        if self.size:
            file = self._file()
            try:
                sent = socket.send_fds(channel, parts, [file])
            finally:
                os.close(file)
        else:
            sent = channel.sendmsg(parts)
        for part in parts:
            if sent < len(part):
                channel.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))


def receive(channel: socket.socket) -> Any:
    """Wait for a message and return its object, tensors in memory that is shared.

    Raises:
        EOFError: the sender is gone.
    """
    files: list[int] = []
    try:
        header = b""
        while len(header) < _HEADER.size:
            block, more, _, _ = socket.recv_fds(channel, _HEADER.size - len(header), 1)
            files += more
            if not block:
                raise EOFError
            header += block
        length, size = _HEADER.unpack(header)
        pickled = _exactly(channel, length)
        _state.memory = SharedMemory(files[0], size, keep=False) if size else None
        return pickle.loads(pickled)
    except ConnectionError as error:
        raise EOFError from error
    finally:
        _state.memory = None
        for file in files:
            os.close(file)


def _exactly(channel: socket.socket, length: int) -> bytearray:
    content = bytearray(length)
    rest = memoryview(content)
    while rest:
        count = channel.recv_into(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return content
