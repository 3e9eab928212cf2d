"""What carries bytes between ranks: the contract of an engine, and what follows from it.

An engine is one class in a package with an entry point in the group `tangrad.collectives`. It
must give `send` and `receive`, which move bytes between two ranks, and `lost`; collectives follow
by `round`, which an engine with faster ways (shared memory) may write itself. All numbers are
reduced in the order of ranks by `reductions.fold`, so that every engine gives the same bits.

Tensors reach an engine on the host, contiguous: a group copies those of other devices. An engine
that reads a device's memory itself names the device in `devices`; it is then called after the
group has synchronized that device, and must have the device see what it wrote before it returns.
"""

from __future__ import annotations

import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import tangrad
from tangrad_distributed._signal import SIGNATURE, Signature
from tangrad_distributed.communication.reductions import ReduceOp, fold
from tangrad_distributed.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    DistBackendError,
    RankLostError,
)
from tangrad_distributed.stores.store import Store

LATE = 10.0
# Up to this size every rank reduces everything: one meeting instead of two.
SMALL = 32 << 10


@dataclass
class Context:
    """Say which rank of which group an engine works for."""

    rank: int
    size: int
    store: Store
    timeout: float
    # Ranks of the group's members in the world, for messages.
    world_ranks: list[int]
    name: str = ""


@dataclass(slots=True)
class Round:
    """Describe what one rank sends to each and receives from each at once.

    A tensor that stands several times in `sends` goes to several ranks. With `op`, what is
    received, and the own part (`sends[rank]`), is reduced into `into` instead of being stored.
    """

    sends: Sequence[Any]
    receives: Sequence[Any]
    op: ReduceOp | None = None
    into: Any = None


@dataclass
class Waiting:
    """Tell what a rank waits for."""

    what: Signature
    timeout: float
    started: float = field(default_factory=time.monotonic)
    warned: bool = False
    next_check: float = 0.0


class Transfer(ABC):
    """A message under way."""

    peer: int

    @abstractmethod
    def test(self) -> bool:
        """Go on as far as possible without waiting, and tell whether the message is through."""


class Engine(ABC):
    """Move bytes between the ranks of one group.

    Args:
        context: this rank and its group.
    """

    name: ClassVar[str] = ""
    # Types of devices whose memory the engine reads and writes itself.
    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})
    # Whether `round` compares signatures itself, so that `agree` need not come before it.
    rounds_agree: ClassVar[bool] = False
    # Up to how many bytes `all_reduce_small` takes the place of `round`; at most 32 KiB.
    small: ClassVar[int] = 0

    def __init__(self, context: Context) -> None:
        self.context = context
        self.rank, self.size = context.rank, context.size
        self.steps = 0
        self.failed: str | None = None
        self.under_way, self.waits_for = 0, -1
        # Whether asynchronous collectives are under way: the group says how to know.
        self.busy: Callable[[], bool] = bool
        # Transfers are moved on by the caller and by the thread of asynchronous messages.
        self.lock = threading.Lock()

    # What an engine has to give ---------------------------------------------------------------

    @abstractmethod
    def send(self, peer: int, tag: int, data: memoryview) -> Transfer:
        """Begin to send bytes to a rank of the group. Negative tags are used by collectives."""

    @abstractmethod
    def receive(self, peer: int, tag: int, into: memoryview) -> Transfer:
        """Begin to receive as many bytes as `into` has; messages of one tag come in order.

        `peer` -1 takes from whoever comes first; the transfer's `peer` then tells who it was.
        """

    @abstractmethod
    def lost(self) -> dict[int, str]:
        """Return the ranks that will not answer any more, and what became of each."""

    def fail(self, message: str) -> None:
        """Tell all others that this rank gave up, where the engine can."""
        self.failed = self.failed or message

    def close(self) -> None:
        """Let go of everything; other ranks see this one as gone."""
        self.failed = self.failed or "the engine was closed"

    def told(self, rank: int) -> str:
        """Return what a rank was last seen in, for messages."""
        return ""

    def expect(self, pending: int) -> None:
        """Be told how many asynchronous messages are under way on this rank."""
        self.under_way = pending

    # Waiting ----------------------------------------------------------------------------------

    def check(self, waiting: Waiting, missing: Callable[[], Sequence[int]]) -> None:
        """Raise where waiting longer is of no use; called every now and then by who waits.

        Raises:
            RankLostError: one of those that are waited for ended or gave up.
            CollectiveTimeoutError: the group's time is over.
        """
        now = time.monotonic()
        if now < waiting.next_check:
            return
        waiting.next_check = now + 0.05
        absent = [rank for rank in missing() if rank != self.rank]
        gone = self.lost()
        for rank in absent:
            if rank in gone:
                message = self._lost_message(waiting, rank, gone[rank])
                self.fail(message)
                raise RankLostError(message, self.context.world_ranks[rank])
        waited = now - waiting.started
        if absent and waited > waiting.timeout:
            self._give_up(CollectiveTimeoutError, self._late(waiting, absent[0], waited, "gave up"))
        if absent and waited > LATE and not waiting.warned:
            waiting.warned = True
            stack = self.stack_of(absent[0])
            shown = f"\nIt is at:\n{stack}" if stack else ""
            text = self._late(waiting, absent[0], waited, "waits") + shown
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def stack_of(self, rank: int) -> str:
        """Return the Python stack of a late rank, if it can be had."""
        from tangrad_distributed.watching.stacks import ask_for_stack

        return ask_for_stack(self.context.store, self.context.world_ranks[rank])

    def _give_up(self, kind: type[DistBackendError], message: str) -> None:
        self.fail(message)
        raise kind(message)

    def shown(self, rank: int) -> str:
        """Return how messages name a rank of the group."""
        world = self.context.world_ranks[rank]
        return f"rank {world}" if world == rank else f"rank {world} ({rank} of its group)"

    def _lost_message(self, waiting: Waiting, rank: int, reason: str) -> str:
        seen = self.told(rank)
        last = f"; it was last seen in {seen}" if seen else ""
        return (
            f"{waiting.what.text} at {waiting.what.line} on {self.shown(self.rank)} waits for "
            f"{self.shown(rank)}, which {reason}{last}"
        )

    def _late(self, waiting: Waiting, rank: int, waited: float, does: str) -> str:
        seen = self.told(rank)
        last = f", last seen in {seen}" if seen else ""
        return (
            f"{waiting.what.text} at {waiting.what.line} on {self.shown(self.rank)} {does} after "
            f"{waited:.1f} s for {self.shown(rank)}, which has not come{last}"
        )

    def fill(self, into: memoryview, content: Any, sender: int) -> None:
        """Write a message where it is received.

        Raises:
            DistBackendError: it has another length.
        """
        if len(content) != len(into):
            self._give_up(
                DistBackendError,
                f"recv of {len(into)} bytes on {self.shown(self.rank)} met a message of "
                f"{len(content)} bytes from {self.shown(sender)}: shapes and dtypes of both "
                "sides must be the same",
            )
        into[:] = content

    def finish(self, transfers: Sequence[Transfer], waiting: Waiting) -> None:
        """Wait until all messages are through."""
        left, pause, started = self.pending(transfers), 0.0, time.monotonic()
        while left:
            time.sleep(pause)
            pause = min(pause + 2e-5, 1e-3)
            left = self.pending(left)
            if left and time.monotonic() - started > 0.05:
                self.stuck(left, waiting)
        self.go_on()

    def pending(self, transfers: Sequence[Transfer]) -> list[Transfer]:
        """Move messages on and return those that are not through."""
        with self.lock:
            return [transfer for transfer in transfers if not transfer.test()]

    def stuck(self, left: Sequence[Transfer], waiting: Waiting) -> None:
        """Look, now and then, whether waiting for these messages is of any use."""
        self.check(waiting, lambda: [t.peer for t in left if t.peer >= 0])

    def go_on(self) -> None:
        """Be told that a wait is over."""
        self.waits_for = -1

    # Collectives --------------------------------------------------------------------------------

    def agree(self, what: Signature, timeout: float) -> None:
        """Meet all other ranks and see that they do the same.

        Raises:
            CollectiveMismatchError: one does something else.
        """
        self.steps += 1
        waiting = Waiting(what, timeout)
        mine = what.content + what.told
        theirs = [bytearray(len(mine)) for _ in range(self.size)]
        others = [rank for rank in range(self.size) if rank != self.rank]
        tag = -self.steps
        transfers = [self.send(rank, tag, memoryview(mine)) for rank in others]
        transfers += [self.receive(rank, tag, memoryview(theirs[rank])) for rank in others]
        self.finish(transfers, waiting)
        for rank in others:
            self.compare(what, rank, bytes(theirs[rank]))

    def compare(self, what: Signature, rank: int, packed: bytes) -> None:
        """Raise if another rank's signature is not this rank's.

        Raises:
            CollectiveMismatchError: it is not.
        """
        if packed[:SIGNATURE] == what.content:
            return
        text, _, line = packed[SIGNATURE:].rstrip(b"\0").decode("utf-8", "replace").partition("\n")
        self._give_up(
            CollectiveMismatchError,
            f"ranks disagree: {self.shown(self.rank)} is in {what.text} at {what.line}, "
            f"{self.shown(rank)} is in {text} at {line}",
        )

    def all_reduce_small(self, tensor: Any, op: ReduceOp, what: Signature, timeout: float) -> None:
        """Reduce a contiguous tensor of at most `small` bytes, in place, on all ranks.

        An engine that says how large `small` is compares signatures here; other ranks may be in
        `round` for the same collective, because their tensors have gaps or are on other devices.
        """
        raise NotImplementedError

    def all_reduce(self, tensor: Any, op: ReduceOp, what: Signature, timeout: float) -> None:
        """Reduce a contiguous tensor, in place, on all ranks.

        Each rank reduces its piece, and a second round hands the pieces out.
        """
        size, rank, count = self.size, self.rank, tensor.numel()
        if count * tensor.element_size() <= SMALL or count < size:
            every = [tensor] * size
            self.round(Round(every, every, op, tensor), what, timeout)
            return
        pieces = tensor.view(-1).tensor_split(size)
        mine = [pieces[rank]] * size
        self.round(Round(pieces, mine, op, pieces[rank]), what, timeout)
        others = [None if at == rank else piece for at, piece in enumerate(pieces)]
        self.round(Round(mine, others), what, timeout)

    def round(self, plan: Round, what: Signature, timeout: float) -> None:
        """Send and receive what a plan says; all ranks of the group take part."""
        self.steps += 1
        waiting, tag = Waiting(what, timeout), -self.steps
        transfers, staged = [], list(plan.receives)
        if plan.op is not None:
            none = plan.into is None
            staged = [None if none else tangrad.empty_like(plan.into) for _ in range(self.size)]
            staged[self.rank] = plan.sends[self.rank]
        for rank in range(self.size):
            if rank == self.rank:
                continue
            if plan.sends[rank] is not None:
                transfers.append(self.send(rank, tag, as_memory(plan.sends[rank])))
            if plan.receives[rank] is not None:
                transfers.append(self.receive(rank, tag, as_memory(staged[rank])))
        self.finish(transfers, waiting)
        if plan.op is not None and plan.into is not None:
            fold(plan.op, staged, plan.into)
        elif plan.op is None and plan.receives[self.rank] is not None:
            plan.receives[self.rank].copy_(plan.sends[self.rank])


def as_memory(tensor: Any) -> memoryview:
    """Return the bytes of a contiguous tensor on the host."""
    if tensor.numel() == 0:
        return memoryview(bytearray())
    return memoryview(tensor.detach().reshape(-1).view(tangrad.uint8).numpy())
