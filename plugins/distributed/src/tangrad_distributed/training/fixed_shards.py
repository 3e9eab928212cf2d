"""Training whose bits do not depend on the number of ranks.

A global batch is cut into a fixed number of shards. Each is run by itself, on whatever rank; their
gradients are added in one tree over the shards: neighbours, then neighbours of those. Which rank
adds what changes, what is added to what does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_distributed.communication.reductions import ReduceOp
from tangrad_distributed.world import default_group, is_initialized

# A node of the tree: the shards from the first number up to the second.
Node = tuple[int, int]


def levels(shards: int) -> list[list[Node]]:
    """Return the nodes of the tree, level by level; an odd one goes up as it is."""
    found = [[(at, at + 1) for at in range(shards)]]
    while len(found[-1]) > 1:
        below = found[-1]
        pairs = zip(below[0::2], below[1::2], strict=False)
        found.append([(a[0], b[1]) for a, b in pairs] + below[len(below) - len(below) % 2 :])
    return found


def children(shards: int) -> dict[Node, tuple[Node, Node]]:
    """Return the two nodes that each inner node of the tree adds."""
    made = {}
    for below in levels(shards):
        for a, b in zip(below[0::2], below[1::2], strict=False):
            made[a[0], b[1]] = (a, b)
    return made


def shards_of(rank: int, size: int, shards: int) -> range:
    """Return which shards a rank runs: neighbours, as many as the others or one more."""
    return range(shards * rank // size, shards * (rank + 1) // size)


def known(shards: range, count: int) -> list[Node]:
    """Return the largest nodes that somebody with some neighbouring shards of `count` can add."""
    sums = _Sums(count)
    for shard in shards:
        sums.add((shard, shard + 1), [])
    return list(sums.held)


class _Sums:
    """Add vectors of nodes as soon as both of a pair are there."""

    def __init__(self, shards: int) -> None:
        made = children(shards)
        self._above = {child: (node, pair) for node, pair in made.items() for child in pair}
        self.held: dict[Node, list[Any]] = {}

    def add(self, node: Node, vectors: list[Any]) -> None:
        """Take the sum of a node."""
        self.held[node] = vectors
        while node in self._above:
            node, (first, second) = self._above[node]
            if first not in self.held or second not in self.held:
                return
            pairs = zip(self.held.pop(first), self.held.pop(second), strict=True)
            self.held[node] = [a + b for a, b in pairs]


class FixedShards:
    """Give a module the gradients of a global batch, to the same bits with 1, 2, 3, ... ranks.

    Parameters begin as those of rank 0. Running statistics (buffers of floating-point numbers)
    become the mean of what each shard makes of those before the step; other buffers are those of
    the first shard. Random numbers are drawn anew for each shard, from `seed`, the step and the
    shard's number.

    The bits depend on `shards`. Ranks exchange least where it is the number of ranks times a power
    of two: then as much as for data parallelism.

    Args:
        module: the same on all ranks, not wrapped.
        shards: into how many parts a batch is cut; at least the number of ranks.
        process_group: None for all ranks, or for this process if it is alone.
        seed: of the random numbers.

    Raises:
        ValueError: there are fewer shards than ranks.
    """

    def __init__(self, module: Any, shards: int, process_group: Any = None, seed: int = 0) -> None:
        if process_group is None and is_initialized():
            process_group = default_group("FixedShards")
        self.module, self.shards, self.group, self.seed = module, shards, process_group, seed
        self._rank = 0 if process_group is None else process_group.rank()
        self._size = 1 if process_group is None else process_group.size()
        if shards < self._size:
            raise ValueError(
                f"FixedShards: {shards} shards are fewer than the {self._size} ranks of the group"
            )
        self.step = 0
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._floats = [b for b in module.buffers() if b.is_floating_point()]
        self._others = [b for b in module.buffers() if not b.is_floating_point()]
        state = [*module.parameters(), *module.buffers()]
        if process_group is not None:
            process_group.broadcast(state, 0)

    @property
    def own(self) -> range:
        """Return which shards this rank runs."""
        return shards_of(self._rank, self._size, self.shards)

    def rows(self, total: int) -> slice:
        """Return which rows of a global batch of `total` rows this rank needs."""
        return slice(self._first(self.own.start, total), self._first(self.own.stop, total))

    def _first(self, shard: int, total: int) -> int:
        return total * shard // self.shards

    def backward(self, loss_of: Callable[..., Any], *batch: Any, total: int | None = None) -> Any:
        """Write the gradients of the mean loss of a global batch into the parameters.

        Args:
            loss_of: is given a shard of each part of the batch, and returns its mean loss.
            *batch: tensors with a row for each sample: the global batch, the same on all ranks.
            total: with it, the batch holds only `rows(total)` of a global batch of `total` rows.

        Returns:
            The mean loss, the same on all ranks.

        Raises:
            ValueError: tensors have different numbers of rows, or not those that were said.
        """
        count, begin = self._counted(batch, total)
        sums, before = _Sums(self.shards), _copies([*self._floats, *self._others])
        random, others = tangrad.get_rng_state(), None
        for shard in self.own:
            first, last = self._first(shard, count), self._first(shard + 1, count)
            parts = [part[first - begin : last - begin] for part in batch]
            vectors = self._run(shard, loss_of, parts, (last - first) / count)
            others = _copies(self._others) if others is None else others
            _write([*self._floats, *self._others], before)
            sums.add((shard, shard + 1), vectors)
        tangrad.set_rng_state(random)
        self.step += 1
        _write(self._others, others or [])
        if self.group is not None:
            self._exchange(sums)
            self.group.broadcast(self._others, 0)
        return self._hand_out(sums.held[0, self.shards])

    def _counted(self, batch: tuple[Any, ...], total: int | None) -> tuple[int, int]:
        """Return how many rows the global batch has, and which of them is the first given one."""
        lengths = {len(part) for part in batch}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(f"FixedShards: parts of a batch have {sorted(lengths)} rows")
        (length,) = lengths
        if total is None:
            return length, 0
        mine = self.rows(total)
        if length != mine.stop - mine.start:
            raise ValueError(
                f"FixedShards: this rank needs rows {mine.start} to {mine.stop} of {total}, "
                f"got {length} rows"
            )
        return total, mine.start

    def _run(self, shard: int, loss_of: Any, parts: list[Any], weight: float) -> list[Any]:
        """Return a shard's part of the gradients, running statistics and loss, by dtype."""
        text = f"{self.seed}/{self.step}/{shard}".encode()
        tangrad.manual_seed(int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big"))
        for parameter in self._parameters:
            parameter.grad = None
        loss = tangrad.zeros((), dtype=tangrad.float64)
        if weight:
            weighed = loss_of(*parts) * weight
            weighed.backward()
            loss = weighed.detach().to(tangrad.float64)
        found = [tangrad.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        found += [buffer / self.shards for buffer in self._floats]
        return _packed([*(one.detach() for one in found), loss])

    def _exchange(self, sums: _Sums) -> None:
        """Bring all ranks the sum of all shards."""
        own = self.shards // self._size
        if self.shards % self._size == 0 and own & (own - 1) == 0:
            # One node of each rank; above them the tree is that of every reduction of ranks.
            (vectors,) = sums.held.values()
            self.group.all_reduce(vectors, ReduceOp(ReduceOp.SUM))
            sums.held = {(0, self.shards): vectors}
            return
        like = next(iter(sums.held.values()))
        received = []
        for rank in range(self._size):
            for node in known(shards_of(rank, self._size, self.shards), self.shards):
                mine = rank == self._rank
                vectors = sums.held[node] if mine else [tangrad.empty_like(one) for one in like]
                self.group.broadcast(vectors, rank)
                received += [] if mine else [(node, vectors)]
        for node, vectors in received:
            sums.add(node, vectors)

    def _hand_out(self, whole: list[Any]) -> Any:
        """Give parameters their gradients and buffers their means; return the loss."""
        loss = tangrad.zeros((), dtype=tangrad.float64)
        parts = _unpacked(whole, [*self._parameters, *self._floats, loss])
        for parameter, gradient in zip(self._parameters, parts, strict=False):
            parameter.grad = gradient
        _write(self._floats, parts[len(self._parameters) : -1])
        return parts[-1].to(tangrad.get_default_dtype())


def _copies(tensors: list[Any]) -> list[Any]:
    return [tensor.detach().clone() for tensor in tensors]


def _write(tensors: list[Any], values: list[Any]) -> None:
    with tangrad.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


def _kinds(tensors: list[Any]) -> dict[tuple[Any, Any], list[int]]:
    """Return which of the tensors have one dtype and device."""
    kinds: dict[tuple[Any, Any], list[int]] = {}
    for at, tensor in enumerate(tensors):
        kinds.setdefault((tensor.dtype, tensor.device), []).append(at)
    return kinds


def _packed(tensors: list[Any]) -> list[Any]:
    """Return the elements of tensors as one vector for each dtype and device."""
    return [
        tangrad.cat([tensors[at].reshape(-1) for at in places])
        for places in _kinds(tensors).values()
    ]


def _unpacked(vectors: list[Any], like: list[Any]) -> list[Any]:
    """Return what was packed, in the shapes of `like`."""
    found: list[Any] = [None] * len(like)
    for vector, places in zip(vectors, _kinds(like).values(), strict=True):
        parts = vector.split([like[at].numel() for at in places])
        for at, part in zip(places, parts, strict=True):
            found[at] = part.view_as(like[at])
    return found
