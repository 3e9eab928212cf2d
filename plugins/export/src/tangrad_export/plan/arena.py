"""Places in the arena: values that are never alive at once may share bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tangrad_export.program.buffers import Buffer
from tangrad_export.steps.base import Step, itemsize
from tangrad_export.steps.control_flow import loops_of
from tangrad_export.steps.loops import Loop

__all__ = ["POOLS", "Arena", "Life", "lives_of", "place"]

# Kinds of elements that share memory, with the type of C that it is declared with: what is written
# as one type is never read as another, as compilers assume.
POOLS = {
    "float": "float",
    "double": "double",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "bytes": "uint8_t",
}
_KINDS = {"float32": "float", "complex64": "float", "float64": "double", "complex128": "double"}
_BY_SIZE = {8: "int64", 4: "int32", 2: "int16", 1: "bytes"}
_ALIGN = {"float": 16, "double": 16, "int64": 8, "int32": 16, "int16": 8, "bytes": 8}
# Bytes from which a value begins at a multiple of 64: 64 are little beside it then.
_LARGE = 8192


class Life(NamedTuple):
    """When a buffer is in use, by the numbers of steps.

    Attributes:
        first, last: steps.
    """

    first: int
    last: int


class Arena:
    """Where the buffers lie.

    Attributes:
        places: {number of a buffer: (pool, offset in bytes)}.
        sizes: {pool: bytes}.
        largest: the largest number of bytes that is in use at once.
        at: the step at which it is.
        in_use: bytes in use at each step.
    """

    def __init__(self) -> None:
        self.places: dict[int, tuple[str, int]] = {}
        self.sizes: dict[str, int] = {}
        self.largest, self.at = 0, 0
        self.in_use: list[int] = []

    @property
    def nbytes(self) -> int:
        """All bytes of the arena."""
        return sum(self.sizes.values())


def pool_of(dtypes: Iterable[str]) -> str:
    """Return the pool of a buffer whose elements are of some dtypes."""
    kinds = [d for d in dtypes if itemsize(d) > 1]
    if not kinds:
        return "bytes"
    widest = max(kinds, key=lambda d: itemsize(d) // (2 if d.startswith("complex") else 1))
    return _KINDS.get(widest) or _BY_SIZE[itemsize(widest)]


def lives_of(steps: Sequence[Step]) -> dict[Buffer, Life]:
    """Return when each buffer of the arena is in use."""
    found: dict[Buffer, Life] = {}
    for k, step in enumerate(steps):
        for buffer in step.buffers():
            if buffer.kind == "arena":
                first = found[buffer].first if buffer in found else k
                found[buffer] = Life(first, k)
    # What a loop uses from before it is used by each round.
    for begin, end in loops_of(steps):
        for step in steps[begin : end + 1]:
            for buffer in step.buffers():
                life = found.get(buffer)
                if life is not None and life.first < begin:
                    found[buffer] = Life(life.first, max(life.last, end))
    return found


def place(steps: Sequence[Step], sizes: dict[int, int] | None = None) -> Arena:
    """Return places for the buffers of a program.

    Args:
        steps: in their order.
        sizes: {number of a buffer: bytes} of the largest sizes that may come.
    """
    arena, lives = Arena(), lives_of(steps)
    dtypes: dict[Buffer, set[str]] = {}
    for step in steps:
        for ref in step.refs:
            if ref is not None and ref.buffer.kind == "arena":
                dtypes.setdefault(ref.buffer, set()).add(ref.dtype)
    nbytes = {b: (sizes or {}).get(b.number, b.nbytes) for b in lives}
    same = _shared(steps, lives, nbytes, dtypes)
    groups: dict[Buffer, list[Buffer]] = {}
    for buffer in lives:
        groups.setdefault(same(buffer), []).append(buffer)
    spans = {
        root: Life(min(lives[b].first for b in g), max(lives[b].last for b in g))
        for root, g in groups.items()
    }
    for pool in POOLS:
        roots = [r for r in groups if pool_of(set().union(*(dtypes[b] for b in groups[r]))) == pool]
        _place_pool(arena, pool, roots, groups, spans, nbytes)
    changes = [0] * (len(steps) + 1)
    for root, span in spans.items():
        size = max(nbytes[b] for b in groups[root])
        changes[span.first] += size
        changes[span.last + 1] -= size
    total = 0
    for k, change in enumerate(changes[:-1]):
        total += change
        arena.in_use.append(total)
        if total > arena.largest:
            arena.largest, arena.at = total, k
    return arena


def _place_pool(
    arena: Arena, pool: str, roots: list[Buffer], groups: Any, spans: Any, nbytes: Any
) -> None:
    sizes = {root: max(nbytes[b] for b in groups[root]) for root in roots}
    best: tuple[int, dict[Buffer, int]] | None = None
    orders = (
        lambda r: (-sizes[r], spans[r].first),
        lambda r: (spans[r].first, -sizes[r]),
        lambda r: (-(spans[r].last - spans[r].first), -sizes[r]),
    )
    for order in orders:
        found = _placed(sorted(roots, key=order), sizes, spans, _ALIGN[pool])
        end = max((at + sizes[r] for r, at in found.items()), default=0)
        if best is None or end < best[0]:
            best = end, found
    if best is None:
        return
    for root, at in best[1].items():
        for buffer in groups[root]:
            arena.places[buffer.number] = pool, at
    unit = {"float": 4, "double": 8, "int64": 8, "int32": 4, "int16": 2, "bytes": 1}[pool]
    if best[0]:
        arena.sizes[pool] = -(-best[0] // unit) * unit


def _placed(
    roots: list[Buffer], sizes: dict[Buffer, int], spans: dict[Buffer, Life], align: int
) -> dict[Buffer, int]:
    found: dict[Buffer, int] = {}
    for root in roots:
        mine = spans[root]
        taken = sorted(
            (at, at + sizes[other])
            for other, at in found.items()
            if spans[other].first <= mine.last and mine.first <= spans[other].last
        )
        at, least, room = 0, None, None
        for begin, end in taken:
            gap = begin - at
            if gap >= sizes[root] and (room is None or gap < room):
                least, room = at, gap
            step = 64 if sizes[root] >= _LARGE else align
            at = max(at, -(-end // step) * step)
        found[root] = at if least is None else least
    return found


def _shared(steps: Sequence[Step], lives: Any, nbytes: Any, dtypes: Any) -> Any:
    """Return which buffers lie at one place: results of loops, where an operand dies."""
    parent: dict[Buffer, Buffer] = {}

    def root(buffer: Buffer) -> Buffer:
        while buffer in parent:
            buffer = parent[buffer]
        return buffer

    for k, step in enumerate(steps):
        if not isinstance(step, Loop):
            continue
        for access, _, _ in step.stores:
            out = access.ref.buffer
            if out.kind != "arena" or lives[out].first != k or out in parent:
                continue
            for load in step.body.loads:
                given = load.ref.buffer
                if (
                    given.kind == "arena"
                    and lives[given].last == k
                    and nbytes[given] == nbytes[out]
                    and load.strides == access.strides
                    and load.ref.offset == access.ref.offset
                    and pool_of(dtypes[given]) == pool_of(dtypes[out])
                    and itemsize(load.ref.dtype) == itemsize(access.ref.dtype)
                    and not any(
                        other is not load and other.ref.buffer is given for other in step.body.loads
                    )
                    and not any(parent.get(s[0].ref.buffer) is given for s in step.stores)
                ):
                    parent[out] = given
                    break
    return root
