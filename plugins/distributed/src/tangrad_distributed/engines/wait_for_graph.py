"""Find ranks of a machine that wait for each other in a cycle, in whatever groups.

A rank shows whom it waits for only where nothing but the waiting thread could go on: no other
thread of the program, no message and no collective under way. A rank that sees a cycle through
itself looks again whether its own wait is over, and if it is not, signs the cycle: its members and
the numbers of their waits. A cycle that all of its members have signed stays: each of them had
done all it does for others before it showed its wait, and each found its own wait unmet after that.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tangrad_distributed import _signal
from tangrad_distributed.errors import WaitCycleError

if TYPE_CHECKING:
    from tangrad_distributed.engine import Context, Signature

# Seconds after which a wait is shown.
PATIENCE = 0.2
_OURS = "tangrad "


class Group(Protocol):
    """What is asked of a `SharedMemory`: its ranks, its work, and the pages that all of them see.

    Attributes:
        context, rank, size, under_way, busy: as an `Engine` has them.
    """

    context: Context
    rank: int
    size: int
    under_way: int
    busy: Callable[[], bool]

    def word_at(self, rank: int, at: int) -> int:
        """Return the address of a word of a rank's control page."""

    def show_wait(self, text: str) -> None:
        """Write what this rank waits in."""

    def shown_wait(self, rank: int) -> str:
        """Return what a rank waits in."""

    def shown(self, rank: int) -> str:
        """Return how messages name a rank of the group."""

    def fail(self, message: str) -> None:
        """Tell all others that this rank gave up."""


class WaitForGraph:
    """Show whom a rank waits for, and raise where that leads back to it.

    Args:
        board: the first group of this rank, in whose pages all that have no other members show it.
        waits: where in a page it stands whom the rank waits for, plus one; 0 for nobody.
        epoch: where the number of the wait stands.
        signed: where the cycle stands that the rank has signed.
    """

    def __init__(self, board: Group, waits: int, epoch: int, signed: int) -> None:
        self._board = board
        self._waits, self._epoch, self._signed = waits, epoch, signed
        self._groups: list[Group] = []
        self._shown: tuple[int, int, str, str] | None = None

    def covers(self, group: Group) -> bool:
        """Tell whether this is the same rank's, and knows all members of the group."""
        mine, other = self._board.context, group.context
        same = mine.world_ranks[mine.rank] == other.world_ranks[other.rank]
        return same and set(other.world_ranks) <= set(mine.world_ranks)

    def join(self, group: Group) -> None:
        """Watch a group, too."""
        self._groups.append(group)

    def leave(self, group: Group) -> None:
        """Watch a group no more."""
        self._groups.remove(group)

    def clear(self) -> None:
        """Wait for nobody."""
        if self._shown is not None:
            self._shown = None
            self._post(self._waits, 0)

    def look(self, group: Group, peer: int, what: Signature, still: Callable[[], bool]) -> None:
        """Show that the rank waits for another one, and look for a cycle.

        Args:
            group: in which it waits.
            peer: for whom, in that group.
            what: the collective or message.
            still: tells whether it does.

        Raises:
            WaitCycleError: ranks wait for each other, and nothing will end that.
        """
        if not self._alone():
            self.clear()
            return
        there = self._board.context.world_ranks.index(group.context.world_ranks[peer])
        shown = (id(group), there, what.text, what.line)
        if shown != self._shown:
            self.clear()
            self._shown = shown
            self._board.show_wait(f"{what.text} at {what.line}")
            self._post(self._epoch, self._word(self._board.rank, self._epoch) + 1)
            self._post(self._waits, there + 1)
        path = self._path()
        if path is None or not still():
            self._post(self._signed, 0)
            return
        sign = self._sign(path)
        self._post(self._signed, sign)
        if all(self._word(rank, self._signed) == sign for rank, _, _ in path):
            board = self._board
            steps = [
                f"{board.shown(rank)} waits for {board.shown(next_)} in {board.shown_wait(rank)}"
                for rank, next_, _ in path
            ]
            message = "ranks wait for each other: " + "; ".join(steps)
            group.fail(message)
            raise WaitCycleError(message)

    def _alone(self) -> bool:
        """Tell whether nothing but the current thread can do anything for another rank."""
        current = threading.current_thread()
        others = (one for one in threading.enumerate() if one is not current)
        if not all(one.name.startswith(_OURS) for one in others):
            return False
        return not any(one.under_way or one.busy() for one in self._groups)

    def _path(self) -> list[tuple[int, int, int]] | None:
        """Return (rank, whom it waits for, which wait it is) around the cycle through here."""
        path, rank = [], self._board.rank
        for _ in range(self._board.size):
            epoch = self._word(rank, self._epoch)
            waits = self._word(rank, self._waits)
            if not waits:
                return None
            path.append((rank, waits - 1, epoch))
            rank = waits - 1
            if rank == self._board.rank:
                return path
        return None

    def _sign(self, path: list[tuple[int, int, int]]) -> int:
        digest = hashlib.blake2b(repr(sorted(path)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") | 1

    def _word(self, rank: int, at: int) -> int:
        return _signal.read(self._board.word_at(rank, at))

    def _post(self, at: int, value: int) -> None:
        _signal.post(self._board.word_at(self._board.rank, at), value)
