"""Ranks that `mpiexec` started: bytes go by MPI, through mpi4py."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from tangrad_distributed.engine import Context, Engine, Transfer
from tangrad_distributed.errors import DistBackendError
from tangrad_distributed.stores import frames
from tangrad_distributed.stores.store import Store
from tangrad_distributed.stores.tcp_store import TCPStore

# MPI promises tags up to this; those of collectives go round.
_TAGS = 32_767


def world() -> Any:
    """Return MPI's communicator of all ranks.

    Raises:
        DistBackendError: mpi4py, or the MPI library that it loads, is not installed.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistBackendError(
            f"the engine 'mpi' needs mpi4py and an MPI library ({error}): "
            "pip install mpi4py mpich, then start the program by mpiexec -n 2 python ..."
        ) from None
    return MPI.COMM_WORLD


def mpiexec() -> str | None:
    """Return the program that starts ranks, first that of this Python's environment."""
    own = os.path.dirname(sys.executable)
    places = os.pathsep.join([own, os.environ.get("PATH", "")])
    return shutil.which("mpiexec", path=places) if find_spec("mpi4py") is not None else None


def meet(timeout: timedelta) -> tuple[Store, int, int]:
    """Make a store in rank 0 that all ranks of MPI's world reach; return it, rank and size."""
    everyone = world()
    rank, size = everyone.Get_rank(), everyone.Get_size()
    store = None
    if rank == 0:
        os.environ.setdefault(frames.KEY_VARIABLE, frames.new_key())
        host = "localhost" if size == _on_this_machine(everyone) else _host()
        store = TCPStore(host, 0, None, True, timeout)
        everyone.bcast((host, store.port, os.environ[frames.KEY_VARIABLE]), 0)
    else:
        _on_this_machine(everyone)
        host, port, os.environ[frames.KEY_VARIABLE] = everyone.bcast(None, 0)
        store = TCPStore(host, port, None, False, timeout)
    return store, rank, size


def _on_this_machine(everyone: Any) -> int:
    from mpi4py import MPI

    here = everyone.Split_type(MPI.COMM_TYPE_SHARED)
    count = here.Get_size()
    here.Free()
    return count


def _host() -> str:
    import socket

    return socket.gethostbyname(socket.gethostname())


class _Request(Transfer):
    def __init__(self, request: Any, peer: int, kept: Any) -> None:
        # The memory has to live as long as MPI reads or writes it.
        self.request, self.peer, self.kept = request, peer, kept

    def test(self) -> bool:
        return bool(self.request.Test())


class _FromAny(Transfer):
    """Receive from whoever sends first."""

    def __init__(self, engine: Mpi, tag: int, into: memoryview) -> None:
        self.engine, self.tag, self.into, self.peer = engine, tag, into, -1
        self.request: Any = None

    def test(self) -> bool:
        from mpi4py import MPI

        if self.request is None:
            status = MPI.Status()
            if not self.engine.messages.Iprobe(MPI.ANY_SOURCE, self.tag, status):
                return False
            source = status.Get_source()
            self.request = self.engine.messages.Irecv([self.into, MPI.BYTE], source, self.tag)
            self.peer = source
        return bool(self.request.Test())


class Mpi(Engine):
    """Carry bytes by MPI."""

    name = "mpi"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        from mpi4py import MPI

        everyone = world()
        members = everyone.group.Incl(context.world_ranks)
        # Collectives and messages of programs must not be taken for each other.
        self.messages = everyone.Create_group(members)
        self.collectives = everyone.Create_group(members, 1)
        self._byte = MPI.BYTE

    def send(self, peer: int, tag: int, data: memoryview) -> Transfer:
        """Begin to send by `Isend`."""
        by, tag = self._channel(tag)
        return _Request(by.Isend([data, self._byte], peer, tag), peer, data)

    def receive(self, peer: int, tag: int, into: memoryview) -> Transfer:
        """Begin to receive by `Irecv`."""
        by, tag = self._channel(tag)
        if peer < 0:
            return _FromAny(self, tag, into)
        return _Request(by.Irecv([into, self._byte], peer, tag), peer, into)

    def _channel(self, tag: int) -> tuple[Any, int]:
        if tag >= 0:
            if tag > _TAGS:
                raise ValueError(f"MPI has tags up to {_TAGS}, got {tag}")
            return self.messages, tag
        return self.collectives, -tag % _TAGS

    def lost(self) -> dict[int, str]:
        """Return nobody: mpiexec itself ends all ranks when one dies."""
        return {}

    def close(self) -> None:
        """Free the communicators."""
        if self.failed is None:
            self.messages.Free()
            self.collectives.Free()
        super().close()
