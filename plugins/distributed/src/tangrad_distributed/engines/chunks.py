"""All ranks of a machine reduce a large tensor, chunk by chunk, through memory that they map.

Of a chunk each rank reduces one part. In one step a rank writes the parts of others of the next
chunk and what it has reduced of the last one; after the meeting it reduces its part of the one and
copies the others' results of the other. Each rank's tensor thus is read once and written once,
while the chunk is in its caches, and a chunk costs one meeting.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from tangrad_distributed.communication.reductions import ReduceOp, fold
from tangrad_distributed.engine import Signature, Waiting

# Large enough that a meeting is little beside it, small enough to stay in the caches: measured.
CHUNK = 1 << 19
_LINE = 64


class _Places(NamedTuple):
    """Hold views into all ranks' windows for one parity of steps."""

    # Where this rank writes each part, and where others wrote the one that it reduces.
    outgoing: Sequence[Any]
    incoming: Sequence[Any]
    # Where each rank writes what it has reduced: behind the parts, for chunks differ in size.
    results: Sequence[Any]


class Chunks:
    """Reduce tensors chunk by chunk.

    Args:
        engine: the `SharedMemory` whose windows are used.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._known: dict[Any, _Places] = {}

    def all_reduce(self, flat: Any, op: ReduceOp, what: Signature, timeout: float) -> None:
        """Reduce a vector, in place, on all ranks."""
        engine, waiting = self._engine, Waiting(what, timeout)
        rank, others = engine.rank, [r for r in range(engine.size) if r != engine.rank]
        done: Sequence[Any] | None = None
        sizes: list[int] = []
        for chunk in flat.split(CHUNK // flat.element_size()):
            before, sizes = sizes, self._sizes(chunk)
            parts = chunk.split(sizes)
            engine.steps += 1
            places = self._places(sizes, flat.dtype)
            for other in others:
                places.outgoing[other].copy_(parts[other])
            if done is not None:
                results = self._places(before, flat.dtype).results
                results[rank].copy_(done[rank])
            engine.meet(what, waiting)
            level = list(places.incoming)
            level[rank] = parts[rank]
            fold(op, level, parts[rank])
            if done is not None:
                for other in others:
                    done[other].copy_(results[other])
            done = parts
        assert done is not None
        engine.steps += 1
        results = self._places(sizes, flat.dtype).results
        results[rank].copy_(done[rank])
        engine.meet(what, waiting)
        for other in others:
            done[other].copy_(results[other])

    def _sizes(self, chunk: Any) -> list[int]:
        """Return how many elements of a chunk each rank reduces: whole lines, but for the last."""
        size, count = self._engine.size, chunk.numel()
        line = max(1, _LINE // chunk.element_size())
        share = -(-count // (size * line)) * line
        bounds = [min(count, share * rank) for rank in range(size + 1)]
        return [end - begin for begin, end in itertools.pairwise(bounds)]

    def _places(self, sizes: list[int], dtype: Any) -> _Places:
        """Return where the parts of a chunk stand in the windows of the current step."""
        engine = self._engine
        key = (engine.steps & 1, tuple(sizes), dtype)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 256:
                self._known.clear()
            found = self._known[key] = self._made(sizes, dtype)
        return found

    def _made(self, sizes: list[int], dtype: Any) -> _Places:
        engine, rank = self._engine, self._engine.rank
        nbytes = sum(sizes) * dtype.itemsize
        begins = [engine.content_of(r, engine.steps) for r in range(engine.size)]
        windows = [engine.view(begin, nbytes, dtype).split(sizes) for begin in begins]
        behind = [engine.view(begin + CHUNK, nbytes, dtype).split(sizes) for begin in begins]
        return _Places(
            outgoing=windows[rank],
            incoming=[window[rank] for window in windows],
            results=[window[r] for r, window in enumerate(behind)],
        )
