"""What every engine has to do: the cases that a package with an engine runs.

Each case is called on every rank of a group, `case(rank, size)`, and raises AssertionError where
the engine does not conform. `run_all` runs them; `python -m tangrad_distributed.conformance NAME`
does so in ranks that a launcher started, for the engine of that name.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_distributed import world
from tangrad_distributed.communication import collectives as c
from tangrad_distributed.communication import objects, point_to_point
from tangrad_distributed.communication.reductions import ReduceOp, fold, premul_sum, reduction

CASES: dict[str, Callable[[int, int], None]] = {}
SIZES = (0, 1, 3, 64, 8191, 70_001, 600_000)
DTYPES = "float32 float64 float16 bfloat16 int8 uint8 int16 int32 int64 bool complex64".split()


def case(function: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Add a case under its function's name."""
    CASES[function.__name__] = function
    return function


def numbers(size: int, rank: int, dtype: Any = tangrad.float32) -> Any:
    """Return numbers that differ between ranks and places."""
    values = (tangrad.arange(size, dtype=tangrad.float64) * (rank + 2) + rank) * 0.37
    values = values.sin() * 3
    if dtype == tangrad.bool:
        return values > 0
    if dtype.is_complex:
        return tangrad.complex(values, values.cos()).to(dtype)
    return values.abs().to(dtype) if dtype == tangrad.uint8 else values.to(dtype)


def same(found: Any, expected: Any, what: str) -> None:
    """Raise unless two tensors have the same bits.

    Raises:
        AssertionError: they have not.
    """
    if not tangrad.equal(found, expected):
        raise AssertionError(f"{what}: got {found}, expected {expected}")


def reduced(op: Any, size: int, world_size: int, dtype: Any) -> Any:
    """Return what ranks reduce to, in the order that every engine has to keep."""
    parts = [numbers(size, rank, dtype) for rank in range(world_size)]
    result = tangrad.empty_like(parts[0])
    fold(reduction(op, "reduced"), parts, result)
    return result


@case
def all_reduce_of_every_size(rank: int, size: int) -> None:
    """Small ones in one meeting, large ones in pieces."""
    for count in SIZES:
        tensor = numbers(count, rank)
        c.all_reduce(tensor)
        same(tensor, reduced(ReduceOp.SUM, count, size, tangrad.float32), f"all_reduce of {count}")


@case
def all_reduce_of_every_dtype(rank: int, size: int) -> None:
    """Sums and products of all, the order of those that have one."""
    for name in DTYPES:
        dtype = getattr(tangrad, name)
        ops = [ReduceOp.SUM, ReduceOp.PRODUCT]
        ops += [] if dtype.is_complex else [ReduceOp.MIN, ReduceOp.MAX]
        for op in ops:
            tensor = numbers(17, rank, dtype)
            c.all_reduce(tensor, op)
            same(tensor, reduced(op, 17, size, dtype), f"all_reduce {op!r} of {name}")


@case
def all_reduce_in_pieces_of_several_dtypes(rank: int, size: int) -> None:
    """What is large takes another way: no rank's piece may be left out, or be reduced twice."""
    for name in ("float64", "bfloat16", "int8", "bool", "complex64"):
        dtype = getattr(tangrad, name)
        tensor = numbers(150_001, rank, dtype)
        c.all_reduce(tensor)
        same(tensor, reduced(ReduceOp.SUM, 150_001, size, dtype), f"all_reduce of much {name}")
    for op in (ReduceOp.AVG, ReduceOp.MAX, premul_sum(0.5)):
        tensor = numbers(70_001, rank)
        c.all_reduce(tensor, op)
        expected = reduced(op, 70_001, size, tangrad.float32)
        same(tensor, expected, f"all_reduce {op!r} of much")


@case
def ranks_with_gaps_meet_ranks_without(rank: int, size: int) -> None:
    """Only shapes have to agree, whichever way each rank's tensor takes."""
    plain = numbers(15, rank).view(3, 5)
    tensor = plain if rank == 0 else plain.t().contiguous().t()
    c.all_reduce(tensor)
    expected = reduced(ReduceOp.SUM, 15, size, tangrad.float32).view(3, 5)
    same(tensor, expected, "all_reduce of one tensor with gaps")


@case
def reductions_of_bits_means_and_factors(rank: int, size: int) -> None:
    """The less usual reductions."""
    for op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
        tensor = numbers(9, rank, tangrad.int32)
        c.all_reduce(tensor, op)
        same(tensor, reduced(op, 9, size, tangrad.int32), f"all_reduce {op!r}")
    for chosen in (ReduceOp.AVG, premul_sum(0.5)):
        tensor = numbers(9, rank)
        c.all_reduce(tensor, chosen)
        same(tensor, reduced(chosen, 9, size, tangrad.float32), f"all_reduce {chosen!r}")


@case
def what_has_gaps_is_reduced_in_place(rank: int, size: int) -> None:
    """Transposed and strided tensors keep what lies between."""
    base = numbers(60, rank).view(6, 10)
    before = base.clone()
    c.all_reduce(base[::2, 1:7].T)
    whole = tangrad.stack([numbers(60, other).view(6, 10) for other in range(size)])
    result = tangrad.empty(3, 6)
    fold(reduction(ReduceOp.SUM, ""), [part[::2, 1:7] for part in whole], result)
    same(base[::2, 1:7], result, "all_reduce of a strided view")
    same(base[1::2], before[1::2], "rows between")


@case
def broadcast_from_each_rank(rank: int, size: int) -> None:
    """Every rank may be the source."""
    for root in range(size):
        for count in (1, 200_000):
            tensor = numbers(count, rank)
            c.broadcast(tensor, root)
            same(tensor, numbers(count, root), f"broadcast from {root}")


@case
def gathers(rank: int, size: int) -> None:
    """To all, into one tensor, to one."""
    for count in (3, 300_000):
        mine = numbers(count, rank)
        parts = [tangrad.empty(count) for _ in range(size)]
        c.all_gather(parts, mine)
        whole = tangrad.empty(size, count)
        c.all_gather_into_tensor(whole, mine)
        for other in range(size):
            same(parts[other], numbers(count, other), f"all_gather of rank {other}")
            same(whole[other], numbers(count, other), f"all_gather_into_tensor of rank {other}")
        root = size - 1
        parts = [tangrad.empty(count) for _ in range(size)]
        c.gather(mine, parts if rank == root else None, root)
        if rank == root:
            for other in range(size):
                same(parts[other], numbers(count, other), f"gather of rank {other}")


@case
def scatters(rank: int, size: int) -> None:
    """A list, and sums of lists, to their places."""
    parts = [numbers(5, 10 + other) for other in range(size)]
    mine = tangrad.empty(5)
    c.scatter(mine, parts if rank == 0 else None, 0)
    same(mine, numbers(5, 10 + rank), "scatter")
    lists = [[numbers(40_000, r * size + p) for p in range(size)] for r in range(size)]
    expected = tangrad.empty(40_000)
    fold(reduction(ReduceOp.SUM, ""), [lists[r][rank] for r in range(size)], expected)
    found = tangrad.empty(40_000)
    c.reduce_scatter(found, lists[rank])
    same(found, expected, "reduce_scatter")
    c.reduce_scatter_tensor(found, tangrad.cat(lists[rank]))
    same(found, expected, "reduce_scatter_tensor")


@case
def reduce_to_each_rank(rank: int, size: int) -> None:
    """Only the destination is written."""
    for root in range(size):
        tensor = numbers(50, rank)
        c.reduce(tensor, root)
        expected = reduced(ReduceOp.SUM, 50, size, tangrad.float32)
        same(tensor, expected if rank == root else numbers(50, rank), f"reduce to {root}")


@case
def every_dtype_travels(rank: int, size: int) -> None:
    """What is not reduced is bytes, whatever they mean."""
    for name in DTYPES:
        dtype = getattr(tangrad, name)
        every = tangrad.stack([numbers(6, other, dtype) for other in range(size)])
        mine = numbers(6, rank, dtype)
        whole = tangrad.empty_like(every)
        c.all_gather_into_tensor(whole, mine)
        same(whole, every, f"all_gather_into_tensor of {name}")
        c.broadcast(mine, size - 1)
        same(mine, every[-1], f"broadcast of {name}")
        c.scatter(mine, list(every) if rank == 0 else None, 0)
        same(mine, every[rank], f"scatter of {name}")
        found = tangrad.empty_like(every)
        c.all_to_all_single(found, mine.repeat(size, 1))
        same(found, every, f"all_to_all_single of {name}")


@case
def several_tensors_at_once(rank: int, size: int) -> None:
    """Coalesced: tensors of any shapes in one collective."""
    counts = (3, 0, 50_000)
    tensors = [numbers(count, rank) for count in counts]
    c.all_reduce_coalesced(tensors, ReduceOp.MAX)
    for count, tensor in zip(counts, tensors, strict=True):
        expected = reduced(ReduceOp.MAX, count, size, tangrad.float32)
        same(tensor, expected, f"all_reduce_coalesced of {count}")
    found = [[tangrad.empty(2), tangrad.empty(70)] for _ in range(size)]
    c.all_gather_coalesced(found, [numbers(2, rank), numbers(70, rank)])
    for other, (short, long) in enumerate(found):
        same(short, numbers(2, other), f"all_gather_coalesced of rank {other}")
        same(long, numbers(70, other), f"all_gather_coalesced of rank {other}")


@case
def all_to_all_of_any_sizes(rank: int, size: int) -> None:
    """Each rank sends another number of rows to each."""
    outgoing = [rank + 2 * other for other in range(size)]
    incoming = [other + 2 * rank for other in range(size)]
    mine = tangrad.cat([numbers(n * 2, rank * size + at) for at, n in enumerate(outgoing)])
    found = tangrad.empty(sum(incoming), 2)
    c.all_to_all_single(found, mine.view(-1, 2), incoming, outgoing)
    expected = [numbers(n * 2, other * size + rank) for other, n in enumerate(incoming)]
    same(found.view(-1), tangrad.cat(expected), "all_to_all_single")
    outputs = [tangrad.empty(other + 1) for other in range(size)]
    c.all_to_all(outputs, [numbers(rank + 1, rank + at) for at in range(size)])
    for other in range(size):
        same(outputs[other], numbers(other + 1, other + rank), f"all_to_all from {other}")


@case
def asynchronous_collectives_keep_their_order(rank: int, size: int) -> None:
    """Many under way at once, waited for in any order."""
    tensors = [numbers(100 * at + 1, rank) for at in range(8)]
    works = [c.all_reduce(tensor, async_op=True) for tensor in tensors]
    for at in reversed(range(8)):
        work = works[at]
        assert work is not None
        work.wait()
        expected = reduced(ReduceOp.SUM, 100 * at + 1, size, tangrad.float32)
        same(tensors[at], expected, f"the {at}th asynchronous all_reduce")


@case
def messages_between_two_ranks(rank: int, size: int) -> None:
    """By tag, of any length, blocking and not, from anybody."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (1, 400_000):
        came = tangrad.empty(count)
        works = point_to_point.batch_isend_irecv(
            [
                point_to_point.P2POp(point_to_point.isend, numbers(count, rank), right),
                point_to_point.P2POp(point_to_point.irecv, came, left),
            ]
        )
        for work in works:
            work.wait()
        same(came, numbers(count, left), f"a message of {count} around the ring")
    if rank == 0:
        for tag in (2, 1):
            point_to_point.send(numbers(4, tag), 1, tag=tag)
        found = tangrad.empty(2)
        senders = {point_to_point.recv(found) for _ in range(size - 1)}
        assert senders == set(range(1, size)), senders
    else:
        if rank == 1:
            for tag in (1, 2):
                came = tangrad.empty(4)
                assert point_to_point.recv(came, 0, tag=tag) == 0
                same(came, numbers(4, tag), f"the message of tag {tag}")
        point_to_point.send(numbers(2, rank), 0)


@case
def objects_travel(rank: int, size: int) -> None:
    """Lists of objects of any size."""
    everyone: list[Any] = [None] * size
    objects.all_gather_object(everyone, {"rank": rank, "text": "x" * rank * 100})
    assert [one["rank"] for one in everyone] == list(range(size)), everyone
    listed: list[Any] = ["a", 2, None] if rank == 0 else [0, 0, 0]
    objects.broadcast_object_list(listed, 0)
    assert listed == ["a", 2, None], listed
    found: list[Any] = [None]
    objects.scatter_object_list(found, [f"for {r}" for r in range(size)] if rank == 0 else None)
    assert found == [f"for {rank}"], found
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    objects.gather_object(rank * rank, gathered)
    assert gathered is None or gathered == [r * r for r in range(size)], gathered
    if rank == 0:
        objects.send_object_list(["to one", {"of": 2}], 1)
    elif rank == 1:
        received: list[Any] = [None, None]
        assert objects.recv_object_list(received, 0) == 0
        assert received == ["to one", {"of": 2}], received


@case
def groups_of_some_ranks(rank: int, size: int) -> None:
    """Members are numbered within; others get what stands for no group."""
    group = world.new_group(list(range(1, size)))
    if rank == 0:
        assert world.get_rank(group) == -1
    else:
        assert world.get_rank(group) == rank - 1
        tensor = tangrad.ones(3)
        c.all_reduce(tensor, group=group)
        same(tensor, tangrad.full((3,), float(size - 1)), "all_reduce in a group")
        world.destroy_process_group(group)
    c.barrier()


@case
def barriers_meet(rank: int, size: int) -> None:
    """Plain and monitored."""
    for _ in range(3):
        c.barrier()
    c.monitored_barrier()


def run_all(rank: int, size: int) -> list[str]:
    """Run all cases and return what failed.

    A failure leaves ranks at different places, so the cases after it are not run.
    """
    for name, check in CASES.items():
        try:
            check(rank, size)
        except Exception:
            return [f"rank {rank}, {name}: {traceback.format_exc()}"]
    return []


def main(backend: str) -> int:
    """Run all cases in the ranks that a launcher started; return the exit status."""
    world.init_process_group(backend)
    failed = run_all(world.get_rank(), world.get_world_size())
    print("\n".join(failed) or f"{backend}: {len(CASES)} cases passed", flush=True)
    if not failed:
        world.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
