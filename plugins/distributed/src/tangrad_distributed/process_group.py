"""A group of ranks: what every collective is made of, whatever the engine.

A collective is a signature, which must be the same on all ranks, and one or two rounds of sending
and receiving. Those asked for asynchronously run in a thread of the group, one after the other;
those asked for without run at once, behind what is under way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import tangrad
from tangrad.plugin import phase
from tangrad_distributed._signal import call_site
from tangrad_distributed.communication.messages import Messages
from tangrad_distributed.communication.reductions import ReduceOp
from tangrad_distributed.communication.work import Queue, Work
from tangrad_distributed.engine import Engine, Round, Signature, Waiting, as_memory
from tangrad_distributed.errors import (
    CollectiveTimeoutError,
    DistBackendError,
    DistError,
    RankLostError,
)
from tangrad_distributed.older_names import OlderNames
from tangrad_distributed.stores.store import Store, follower_key, underlying
from tangrad_distributed.watching.recorder import Recorder


def _settle(tensors: Sequence[Any]) -> None:
    """Wait for what devices still do to tensors, in whatever stream the caller gave it.

    An engine and the thread of asynchronous collectives read them without that stream.
    """
    for device in {tensor.device for tensor in tensors if not tensor.is_cpu}:
        tangrad.accelerator.synchronize(device)


class Staged:
    """Show an engine tensors that lie on the host without gaps, and write results back."""

    def __init__(self, devices: frozenset[str]) -> None:
        self._devices = devices
        self._back: list[tuple[Any, Any]] = []

    def reads(self, tensor: Any) -> Any:
        """Return a tensor's elements for reading."""
        plain = tensor.detach()
        if plain.device.type not in self._devices:
            return plain.contiguous().cpu()
        return plain.contiguous().resolve_conj() if plain.is_complex() else plain.contiguous()

    def writes(self, tensor: Any, keep: bool = False) -> Any:
        """Return where to write a tensor's new elements; with `keep`, with the old ones."""
        plain = tensor.detach()
        here = plain.device.type in self._devices
        if here and plain.is_contiguous() and not (plain.is_complex() and plain.is_conj()):
            return plain
        made = self.reads(plain).clone() if keep else self._like(plain)
        self._back.append((plain, made))
        return made

    def _like(self, tensor: Any) -> Any:
        return tangrad.empty(tensor.shape, dtype=tensor.dtype, device="cpu")

    def done(self) -> None:
        """Copy results to where they belong."""
        for tensor, made in self._back:
            tensor.copy_(made)


class ProcessGroup(OlderNames):
    """Do collectives with the ranks of one group.

    Args:
        engine: what carries their bytes.
        store: the group's part of the store.
        timeout: how long a collective may take.
        backend: the name that it was asked for by.
        description: what it is for.
    """

    def __init__(
        self, engine: Engine, store: Store, timeout: timedelta, backend: str, description: str = ""
    ) -> None:
        self.engine, self.store, self.backend = engine, store, backend
        self.group_name, self.group_desc = engine.context.name, description
        self.world_ranks = engine.context.world_ranks
        self._timeout = timeout.total_seconds()
        self._queue = queue = Queue(f"tangrad collectives {self.group_name}")
        engine.busy = lambda: queue.busy
        self._messages = Messages(engine, self._follow)
        self.recorder = Recorder(self.group_name, self.world_ranks[engine.rank])
        self._begin, self._end = self.recorder.begin, self.recorder.end
        self._closed = False
        self._shown_at_once = f"{backend}:all_reduce"

    def rank(self) -> int:
        """Return this process's rank in the group."""
        return self.engine.rank

    def size(self) -> int:
        """Return how many ranks there are."""
        return self.engine.size

    def name(self) -> str:
        """Return the backend's name."""
        return self.backend

    def get_group_store(self) -> Store:
        """Return the group's part of the store."""
        return self.store

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long a collective may take."""
        self._timeout = timeout.total_seconds()

    def __repr__(self) -> str:
        ranks = f"ranks={self.world_ranks}, rank={self.rank()}"
        return f"ProcessGroup({self.backend}, {ranks}, name={self.group_name!r})"

    # Running ----------------------------------------------------------------------------------

    def run(
        self,
        kind: str,
        tensors: Sequence[Any],
        body: Callable[[Signature, float], None],
        *,
        async_op: bool = False,
        result: Sequence[Any] = (),
        op: ReduceOp | None = None,
        root: int = -1,
        shapes: bool = True,
        timeout: timedelta | None = None,
    ) -> Work | None:
        """Run one collective.

        Args:
            kind: its name.
            tensors: whose dtype, and shape, must be the same on all ranks.
            body: does it, given the signature and the seconds that it may take.
            async_op: return at once, with a `Work`.
            result: the tensors that it writes.
            op: its reduction.
            root: its first or last rank.
            shapes: whether shapes have to agree.
            timeout: in place of the group's.

        Raises:
            DistBackendError: the group was closed or failed, or this collective does.
        """
        self._require_open(kind)
        _settle([*tensors, *result])
        sizes = tuple([tensor.shape for tensor in tensors]) if shapes else ()
        dtype = tensors[0].dtype if tensors else ""
        what = self._begin(kind, sizes, dtype, None if op is None else op.op, root)
        limit = self._timeout if timeout is None else timeout.total_seconds()
        shown = f"{self.backend}:{kind}"

        def execute() -> None:
            try:
                with phase(shown):
                    if not self.engine.rounds_agree:
                        self.engine.agree(what, limit)
                    body(what, limit)
            except BaseException as error:
                self._failed(what, error)
                raise
            self._end(what)

        if not async_op and not self._queue.busy:
            execute()
            return None
        work = Work(list(result), shown)
        self._queue.put(execute, work)
        if async_op:
            return work
        work.wait()
        return None

    def _failed(self, what: Signature, error: BaseException) -> None:
        self._end(what, f"{type(error).__name__}: {error}")
        if isinstance(error, RankLostError):
            self._follow(error.rank)
        self.engine.fail(f"{type(error).__name__}: {error}")
        self.recorder.write_where_asked()

    def _follow(self, lost: int) -> None:
        """Tell the launcher, if there is one, which other rank failed before this one."""
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        with suppress(DistError, OSError):
            key = follower_key(self.world_ranks[self.rank()], attempt)
            underlying(self.store).set(key, str(lost))

    def _require_open(self, kind: str) -> None:
        if self._closed:
            raise DistBackendError(f"{kind}: the group {self.group_name!r} was destroyed")
        if self.engine.failed is not None:
            raise DistBackendError(
                f"{kind}: the group {self.group_name!r} failed before: {self.engine.failed}. "
                "Destroy it and make a new one, or restart the ranks."
            )

    def _round(self, what: Signature, limit: float, *plan: Any) -> None:
        self.engine.round(Round(*plan), what, limit)

    def _staged(self) -> Staged:
        return Staged(self.engine.devices)

    # Collectives --------------------------------------------------------------------------------

    def all_reduce(self, tensors: Sequence[Any], op: ReduceOp, **options: Any) -> Work | None:
        """Reduce each tensor over all ranks, on all ranks."""
        plain = len(tensors) == 1 and not (options and any(options.values()))
        if plain and self.reduce_at_once(tensors[0], op):
            return None

        def body(what: Signature, limit: float) -> None:
            staged = self._staged()
            for tensor in tensors:
                self.engine.all_reduce(staged.writes(tensor, keep=True), op, what, limit)
            staged.done()

        return self.run("all_reduce", tensors, body, op=op, result=tensors, **options)

    def reduce_at_once(self, tensor: Any, op: ReduceOp) -> bool:
        """Reduce a small tensor on all ranks by the engine's shorter way, if it has one."""
        engine, nbytes = self.engine, tensor.numel() * tensor.element_size()
        if not 0 < nbytes <= engine.small or self._queue.busy or self._closed:
            return False
        if engine.failed is not None or tensor.device.type not in engine.devices:
            return False
        if not tensor.is_contiguous() or tensor.dtype.is_complex:
            return False
        what = self._begin("all_reduce", tensor.shape, tensor.dtype, op.op, -1)
        try:
            with phase(self._shown_at_once):
                engine.all_reduce_small(tensor.detach(), op, what, self._timeout)
        except BaseException as error:
            self._failed(what, error)
            raise
        self._end(what)
        return True

    def reduce(self, tensor: Any, root: int, op: ReduceOp, **options: Any) -> Work | None:
        """Reduce a tensor over all ranks, on one."""

        def body(what: Signature, limit: float) -> None:
            staged = self._staged()
            at_root = self.rank() == root
            mine = staged.writes(tensor, keep=True) if at_root else staged.reads(tensor)
            sends = [mine if rank == root else None for rank in range(self.size())]
            receives = [mine if at_root else None] * self.size()
            self._round(what, limit, sends, receives, op, mine if at_root else None)
            staged.done()

        return self.run("reduce", [tensor], body, op=op, root=root, result=[tensor], **options)

    def broadcast(self, tensors: Sequence[Any], root: int, **options: Any) -> Work | None:
        """Copy one rank's tensors to all."""

        def body(what: Signature, limit: float) -> None:
            staged = self._staged()
            none = [None] * self.size()
            for tensor in tensors:
                if self.rank() == root:
                    # The sender needs nothing from itself.
                    self._round(what, limit, [staged.reads(tensor)] * self.size(), none)
                else:
                    receives: list[Any] = list(none)
                    receives[root] = staged.writes(tensor)
                    self._round(what, limit, none, receives)
            staged.done()

        return self.run("broadcast", tensors, body, root=root, result=tensors, **options)

    def all_gather(
        self, outputs: Sequence[Sequence[Any]], tensors: Sequence[Any], **options: Any
    ) -> Work | None:
        """Copy every rank's tensors to all."""

        def body(what: Signature, limit: float) -> None:
            staged = self._staged()
            for parts, tensor in zip(outputs, tensors, strict=True):
                receives = [staged.writes(part) for part in parts]
                self._round(what, limit, [staged.reads(tensor)] * self.size(), receives)
            staged.done()

        written = [part for parts in outputs for part in parts]
        return self.run("all_gather", tensors, body, result=written, **options)

    def gather(self, parts: Sequence[Any], tensor: Any, root: int, **options: Any) -> Work | None:
        """Copy every rank's tensor to one."""

        def body(what: Signature, limit: float) -> None:
            staged = self._staged()
            mine = staged.reads(tensor)
            sends = [mine if rank == root else None for rank in range(self.size())]
            receives = [staged.writes(part) for part in parts] or [None] * self.size()
            self._round(what, limit, sends, receives)
            staged.done()

        return self.run("gather", [tensor], body, root=root, result=parts, **options)

    def scatter(self, tensor: Any, parts: Sequence[Any], root: int, **options: Any) -> Work | None:
        """Give each rank one of the tensors that one rank has."""

        def body(what: Signature, limit: float) -> None:
            staged = self._staged()
            sends = [staged.reads(part) for part in parts] or [None] * self.size()
            receives: list[Any] = [None] * self.size()
            receives[root] = staged.writes(tensor)
            self._round(what, limit, sends, receives)
            staged.done()

        return self.run("scatter", [tensor], body, root=root, result=[tensor], **options)

    def reduce_scatter(
        self, outputs: Sequence[Any], parts: Sequence[Sequence[Any]], op: ReduceOp, **options: Any
    ) -> Work | None:
        """Reduce lists of tensors over all ranks, and give each rank its place's result."""

        def body(what: Signature, limit: float) -> None:
            staged = self._staged()
            for output, mine in zip(outputs, parts, strict=True):
                sends = [staged.reads(part) for part in mine]
                into = staged.writes(output)
                self._round(what, limit, sends, [into] * self.size(), op, into)
            staged.done()

        # Places may differ in shape, so the lists are compared, not this rank's output.
        listed = [part for mine in parts for part in mine]
        return self.run("reduce_scatter", listed, body, op=op, result=outputs, **options)

    def all_to_all(
        self, outputs: Sequence[Any], inputs: Sequence[Any], kind: str, **options: Any
    ) -> Work | None:
        """Give each rank one of this rank's tensors."""

        def body(what: Signature, limit: float) -> None:
            staged = self._staged()
            receives = [staged.writes(output) for output in outputs]
            self._round(what, limit, [staged.reads(part) for part in inputs], receives)
            staged.done()

        alike = [*inputs[:1], *outputs[:1]][:1]
        return self.run(kind, alike, body, result=outputs, shapes=False, **options)

    def barrier(self, **options: Any) -> Work | None:
        """Wait until all ranks have come."""

        def body(what: Signature, limit: float) -> None:
            if self.engine.rounds_agree:
                self.engine.agree(what, limit)

        return self.run("barrier", [], body, **options)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Have rank 0 wait for all others, and name those that do not come.

        Raises:
            CollectiveTimeoutError: some do not.
        """
        self._require_open("monitored_barrier")
        limit = self._timeout if timeout is None else timeout.total_seconds()
        what = Signature(b"", "monitored_barrier()", call_site())
        engine, word = self.engine, bytearray(1)
        engine.steps += 2
        came, go = -engine.steps, -engine.steps + 1
        if self.rank() != 0:
            self._messages.finish([engine.send(0, came, memoryview(b"\1"))], what, limit)
            self._messages.finish([engine.receive(0, go, memoryview(word))], what, limit)
            return
        others = range(1, self.size())
        left = [engine.receive(rank, came, memoryview(bytearray(1))) for rank in others]
        deadline = time.monotonic() + limit
        while left and time.monotonic() < deadline:
            left = engine.pending(left)
            time.sleep(0.001)
        if left:
            late = [self.world_ranks[transfer.peer] for transfer in left]
            shown = ", ".join(map(str, late if wait_all_ranks else late[:1]))
            message = f"monitored_barrier: ranks {shown} did not come within {limit:g} s"
            engine.fail(message)
            raise CollectiveTimeoutError(message)
        sends = [engine.send(rank, go, memoryview(b"\1")) for rank in others]
        self._messages.finish(sends, what, limit)

    # Messages -----------------------------------------------------------------------------------

    def send(self, tensor: Any, peer: int, tag: int, async_op: bool) -> Work | None:
        """Send a tensor to one rank."""
        self._require_open("send")
        data = as_memory(self._staged().reads(tensor))
        what = self._message("send", "to", tensor, peer, tag)
        transfer = self._messages.begin(lambda: self.engine.send(peer, tag, data))
        return self._messages.go(transfer, what, self._timeout, [tensor], async_op)

    def recv(self, tensor: Any, peer: int, tag: int, async_op: bool) -> Any:
        """Receive a tensor from one rank; -1 takes from any. Without `async_op` return who sent."""
        self._require_open("recv")
        staged = self._staged()
        into = as_memory(staged.writes(tensor))
        what = self._message("recv", "from", tensor, peer, tag)
        transfer = self._messages.begin(lambda: self.engine.receive(peer, tag, into))
        work = self._messages.go(transfer, what, self._timeout, [tensor], async_op, staged.done)
        return work if async_op else transfer.peer

    def _message(self, kind: str, way: str, tensor: Any, peer: int, tag: int) -> Signature:
        whom = self.engine.shown(peer) if peer >= 0 else "any rank"
        shown = f"{tensor.dtype.name}{list(tensor.shape)}"
        return Signature(b"", f"{kind}({shown}, {way} {whom}, tag {tag})", call_site())

    def waiting(self, what: Signature) -> Waiting:
        """Return what is told about who waits in this group."""
        return Waiting(what, self._timeout)

    # The end ------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Have all ranks that wait for this one fail."""
        self.engine.fail("abort() was called")

    def shutdown(self) -> None:
        """Leave the group."""
        if not self._closed:
            self._closed = True
            self._queue.stop()
            self._messages.stop()
            self.engine.close()
