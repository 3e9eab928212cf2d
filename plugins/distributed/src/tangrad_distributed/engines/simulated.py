"""Ranks as threads over a network with delays, reordering, loss and death, drawn from a seed.

A message is given a number of looks after which it is there; one that is lost is sent again, and
so needs several times as many. What happens to the n-th message between two ranks depends on the
seed, the ranks and n alone, so that the same seed replays a failure.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from dataclasses import dataclass, field

from tangrad_distributed.backends import Backend
from tangrad_distributed.engine import Context, Engine, Transfer
from tangrad_distributed.errors import DistBackendError


@dataclass
class Network:
    """Say how bad the network is.

    Args:
        seed: draws everything.
        delay: the most looks that a message takes.
        loss: share of messages that have to be sent again.
        death: rank that ends at its n-th message, as (rank, n).
    """

    seed: int = 0
    delay: int = 5
    loss: float = 0.0
    death: tuple[int, int] | None = None
    log: list[tuple[int, int, int, int]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _mail: dict[tuple[str, int, int], list[_Envelope]] = field(default_factory=dict)
    _sent: dict[tuple[str, int, int], int] = field(default_factory=lambda: defaultdict(int))
    _dead: dict[int, str] = field(default_factory=dict)

    def register(self, name: str = "simulated") -> None:
        """Let `init_process_group(name)` give engines on this network."""
        Backend._creators[name] = lambda context: Simulated(context, self)

    def post(self, group: str, sender: int, receiver: int, tag: int, content: bytes) -> None:
        """Take a message."""
        with self._lock:
            key = (group, sender, receiver)
            count = self._sent[key]
            self._sent[key] += 1
            draw = random.Random(f"{self.seed}/{key}/{count}")
            looks = draw.randint(0, self.delay)
            while draw.random() < self.loss:
                looks += 4 * self.delay + 4
            self.log.append((sender, receiver, count, looks))
            self._mail.setdefault(key, []).append(_Envelope(tag, content, looks))

    def look(self, group: str, sender: int, receiver: int, tag: int) -> bytes | None:
        """Return the first message of a tag, if it has come: within a tag, order is kept."""
        with self._lock:
            waiting = self._mail.get((group, sender, receiver), [])
            for envelope in waiting:
                envelope.looks -= 1
            for at, envelope in enumerate(waiting):
                if envelope.tag == tag:
                    if envelope.looks > 0:
                        return None
                    del waiting[at]
                    return envelope.content
        return None


@dataclass
class _Envelope:
    tag: int
    content: bytes
    looks: int


class _Sent(Transfer):
    def __init__(self, peer: int) -> None:
        self.peer = peer

    def test(self) -> bool:
        return True


class _Received(Transfer):
    def __init__(self, engine: Simulated, peer: int, tag: int, into: memoryview) -> None:
        self.engine, self.peer, self.tag, self.into = engine, peer, tag, into
        self.through = False

    def test(self) -> bool:
        engine = self.engine
        senders = [self.peer] if self.peer >= 0 else range(engine.size)
        for sender in senders if not self.through else ():
            content = engine.network.look(engine.context.name, sender, engine.rank, self.tag)
            if content is not None:
                engine.fill(self.into, content, sender)
                self.peer, self.through = sender, True
                break
        return self.through


class Simulated(Engine):
    """Carry bytes over a simulated network.

    Args:
        context: this rank and its group.
        network: shared by all ranks.
    """

    name = "simulated"

    def __init__(self, context: Context, network: Network) -> None:
        super().__init__(context)
        self.network = network
        self._posts = 0

    def send(self, peer: int, tag: int, data: memoryview) -> Transfer:
        """Give a message to the network, unless this rank is to end now."""
        world_rank = self.context.world_ranks[self.rank]
        if self.network.death == (world_rank, self._posts):
            self.network._dead[world_rank] = "died"
            raise DistBackendError(f"rank {world_rank} died, as the network was told")
        self._posts += 1
        self.network.post(self.context.name, self.rank, peer, tag, bytes(data))
        return _Sent(peer)

    def receive(self, peer: int, tag: int, into: memoryview) -> Transfer:
        """Look for a message."""
        return _Received(self, peer, tag, into)

    def lost(self) -> dict[int, str]:
        """Return the ranks that died or gave up."""
        ranks = self.context.world_ranks
        return {at: self.network._dead[r] for at, r in enumerate(ranks) if r in self.network._dead}

    def fail(self, message: str) -> None:
        """Tell the others."""
        super().fail(message)
        world_rank = self.context.world_ranks[self.rank]
        self.network._dead.setdefault(world_rank, f"gave up: {message}")

    def stack_of(self, rank: int) -> str:
        """Return nothing: how long a look takes means nothing here."""
        return ""
