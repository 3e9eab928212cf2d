"""Replay what training allocates on our caching allocator and on PyTorch's algorithm, side by side.

`python benchmarks/fragmentation.py` records ResNet-50 with batches of several sizes and a GPT with
lengths that vary, on `cpu`, and prints what each allocator reserves at most for the same requests.
PyTorch's algorithm is simulated as its CUDACachingAllocator works without options: requests are
rounded to 512 bytes; up to 1 MiB they are cut from segments of 2 MiB, below 10 MiB from segments of
20 MiB, larger ones get a segment of their own, rounded to 2 MiB; the best fit is taken, cut if more
than 1 MiB (of small ones 512 bytes) remain, and joined with free neighbours when it is released.
"""

from __future__ import annotations

import argparse
import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from workloads import networks

MIB = 2**20
SMALL, SMALL_SEGMENT = MIB, 2 * MIB
MEDIUM, MEDIUM_SEGMENT, GRANULE = 10 * MIB, 20 * MIB, 2 * MIB

# What came, as (name, bytes), and what went, as (name, 0).
Trace = list[tuple[int, int]]


class Gpu:
    """Memory without end, for the raw driver of our allocator."""

    def __init__(self) -> None:
        self._next = count(2**40, 2**34)

    def allocate(self, nbytes: int) -> int:
        """Return a handle."""
        return next(self._next)

    def release(self, handle: int, nbytes: int) -> None:
        """Take it back."""


@dataclass(eq=False)
class Block:
    """A piece of a segment, between its neighbours."""

    size: int
    small: bool
    free: bool = True
    before: Block | None = None
    after: Block | None = None
    number: int = 0

    def key(self) -> tuple[int, int]:
        """Order free blocks: the smallest first, then the oldest."""
        return self.size, self.number


class Pytorch:
    """PyTorch's caching allocator, of one stream."""

    def __init__(self) -> None:
        self.reserved = 0
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}
        self._numbers = count()

    def allocate(self, nbytes: int) -> Block:
        """Return a block of at least so many bytes."""
        size = -(-max(nbytes, 1) // 512) * 512
        small = size <= SMALL
        block = self._best_fit(size, small) or self._segment(size, small)
        rest = block.size - size
        if rest >= 512 if small else rest > SMALL:
            self._cut(block, size)
        block.free = False
        return block

    def release(self, block: Block) -> None:
        """Join a block with its free neighbours."""
        block.free = True
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._remove(other)
                block = self._joined(other, block) if other is block.before else self._joined(
                    block, other
                )  # fmt: skip
        self._insert(block)

    def _best_fit(self, size: int, small: bool) -> Block | None:
        pool = self._free[small]
        place = bisect.bisect_left(pool, (size, -1))
        return pool.pop(place)[2] if place < len(pool) else None

    def _segment(self, size: int, small: bool) -> Block:
        if small:
            whole = SMALL_SEGMENT
        else:
            whole = MEDIUM_SEGMENT if size < MEDIUM else -(-size // GRANULE) * GRANULE
        self.reserved += whole
        return Block(whole, small, number=next(self._numbers))

    def _cut(self, block: Block, size: int) -> None:
        rest = Block(block.size - size, block.small, before=block, after=block.after,
                     number=next(self._numbers))  # fmt: skip
        if rest.after is not None:
            rest.after.before = rest
        block.after, block.size = rest, size
        self._insert(rest)

    def _joined(self, first: Block, second: Block) -> Block:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        first.free = True
        return first

    def _insert(self, block: Block) -> None:
        bisect.insort(self._free[block.small], (*block.key(), block), key=lambda row: row[:2])

    def _remove(self, block: Block) -> None:
        pool = self._free[block.small]
        del pool[bisect.bisect_left(pool, block.key(), key=lambda row: row[:2])]


def recorded(step: Any, steps: int) -> Trace:
    """Return what the steps of a training allocate and release on the host, in order."""
    from tangrad_profiler.recording import Recording

    recording = Recording(memory=True, kernels=False)
    recording.begin()
    for number in range(steps):
        step(number)
    changes = recording.end().changes
    names, held, found = count(), {}, []
    rows = zip(*(changes[n].tolist() for n in ("time", "allocator", "address", "nbytes")),
               strict=True)  # fmt: skip
    for _, allocator, address, nbytes in sorted(rows, key=lambda row: row[0]):
        if nbytes > 0:
            held[allocator, address] = next(names)
            found.append((held[allocator, address], nbytes))
        elif (allocator, address) in held:
            found.append((held.pop((allocator, address)), 0))
    return found


def resnet_50(pixels: int, most: int, steps: int) -> Trace:
    """Train on batches of several sizes."""
    import tangrad

    model = networks.resnet(tangrad, 50)
    optimizer = tangrad.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(number: int) -> None:
        batch = most * (4, 4, 3, 4, 2)[number % 5] // 4
        optimizer.zero_grad()
        loss = model(tangrad.randn(batch, 3, pixels, pixels)).square().mean()
        loss.backward()
        optimizer.step()

    return recorded(step, steps)


def gpt(
    steps: int, optimizer: str = "AdamW", batches: Sequence[int] = (8,), lengths: Sequence[int] = ()
) -> Trace:
    """Train on sequences whose lengths vary, by default from 16 to 128."""
    import tangrad

    model = networks.gpt(tangrad)
    trainer = getattr(tangrad.optim, optimizer)(model.parameters(), lr=1e-3)
    lengths = lengths or [16 + 37 * number % 113 for number in range(113)]

    def step(number: int) -> None:
        shape = (batches[number % len(batches)], lengths[number % len(lengths)])
        tokens = tangrad.randint(0, networks.VOCABULARY, shape)
        trainer.zero_grad()
        logits = model(tokens).flatten(0, 1)
        tangrad.nn.functional.cross_entropy(logits, tokens.flatten()).backward()
        trainer.step()

    return recorded(step, steps)


def replay(trace: Trace) -> tuple[int, int, int]:
    """Return the bytes held at most, and what ours and PyTorch's reserve for them at most."""
    from tangrad.plugin import CachingAllocator

    ours, theirs = CachingAllocator(Gpu()), Pytorch()
    blocks: dict[int, tuple[Any, Block, int]] = {}
    held = most = 0
    for name, nbytes in trace:
        if nbytes:
            blocks[name] = ours.allocate(nbytes), theirs.allocate(nbytes), nbytes
            held += nbytes
            most = max(most, held)
            continue
        mine, other, size = blocks.pop(name)
        mine.release()
        theirs.release(other)
        held -= size
    return most, ours.memory_stats()["reserved_bytes.all.peak"], theirs.reserved


def main() -> None:
    """Print a row for each training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pixels", type=int, default=112, help="of ResNet-50's pictures")
    parser.add_argument("--batch", type=int, default=4, help="of them at most; others are smaller")
    parser.add_argument("--steps", type=int, default=20, help="of the GPT; ResNet-50 takes half")
    options = parser.parse_args()
    print(f"{'':28} {'requests':>9} {'held':>9} {'ours':>9} {'PyTorch':>9}   MiB at most")
    traces = {
        "ResNet-50, batches that vary": resnet_50(
            options.pixels, options.batch, options.steps // 2
        ),
        "GPT, lengths of 16 to 128": gpt(options.steps),
        "GPT, SGD, batches of 4 to 8": gpt(
            options.steps, "SGD", (4, 8, 6, 8), (128, 64, 96, 32, 120, 16)
        ),
    }
    for name, trace in traces.items():
        requests = sum(1 for _, nbytes in trace if nbytes)
        told = (f"{size / MIB:9.1f}" for size in replay(trace))
        print(f"{name:28} {requests:9} {' '.join(told)}")


if __name__ == "__main__":
    main()
