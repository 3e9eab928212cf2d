"""Large tensors are reduced in the ranks' own memory, or in shared memory, to the same bits."""

import pytest

HEAD = """
import errno, os, sys, tangrad, tangrad.distributed as dist
from datetime import timedelta
from tangrad_distributed.conformance import numbers
from tangrad_distributed.engines import direct
from tangrad_distributed.engines.shared_memory import _OPEN
from tangrad_distributed.communication.reductions import fold, premul_sum, reduction
dist.init_process_group("gloo", timeout=timedelta(seconds=100))
rank, size = dist.get_rank(), dist.get_world_size()
real = direct._peers

class Changed:
    def __getattr__(self, name):
        return getattr(real, name)
"""


# Three parts and a rest for each of the ranks, and fewer elements than lines of a cache.
SAME = """
direct.PART = 1 << 16
ops = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MIN, premul_sum(0.3)]
for count in (8193, 8193 + 3 * size * direct.PART // 4):
    for dtype in (tangrad.float32, tangrad.bfloat16, tangrad.float64):
        for op in ops:
            parts = [numbers(count, r).to(dtype) for r in range(size)]
            expected = tangrad.empty(count, dtype=dtype)
            fold(reduction(op, "test"), parts, expected)
            found = numbers(count, rank).to(dtype)
            dist.all_reduce(found, op)
            assert tangrad.equal(found, expected), (count, dtype, op)
print("allowed:", dist.group.WORLD.engine._direct._allowed, flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_part_is_reduced_to_the_bits_of_the_whole(launch, ranks):
    done = launch(HEAD + SAME, ranks=ranks)
    assert done.returncode == 0, done.stderr


def test_where_one_rank_may_not_read_others_all_go_through_shared_memory(launch):
    refused = """
class Refused(Changed):
    def read(self, *arguments):
        return errno.EPERM

if rank == 1:
    direct._peers = Refused()
"""
    done = launch(HEAD + refused + SAME)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("allowed: False") == 2


# What rank 0 reads and writes while rank 1 is in the same collective.
BROKEN = """
class Dies(Changed):
    def write(self, *arguments):
        os.kill(os.getpid(), 9)

class Stops(Changed):
    def read(self, *arguments):
        raise KeyboardInterrupt

class Fails(Changed):
    def write(self, *arguments):
        return errno.EFAULT

x = tangrad.ones(100_000)
dist.all_reduce(x)
if not dist.group.WORLD.engine._direct._allowed:
    print("not allowed here", flush=True)
    sys.exit()
if rank == 1:
    direct._peers = {changed}()
try:
    dist.all_reduce(x)
except BaseException as error:
    print(rank, type(error).__name__, error, flush=True)
# Closed: whoever still were on the way would not write any more.
word = dist.group.WORLD.engine.word_at(rank, _OPEN)
print(rank, "open for", real.get(word), flush=True)
"""


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("Dies", "0 RankLostError all_reduce(float32[100000], op=SUM)"),
        ("Stops", "which gave up: KeyboardInterrupt"),
        ("Fails", "1 DistBackendError all_reduce(float32[100000], op=SUM)"),
    ],
)
def test_a_rank_that_fails_on_the_way_is_named_and_its_tensor_closed(ranks_alone, changed, told):
    said = "".join(ranks_alone(HEAD + BROKEN.replace("{changed}", changed)))
    if "not allowed here" in said:
        pytest.skip("Linux does not let ranks read each other's memory here")
    assert told in said
    assert "0 open for 0" in said
    assert ("1 open for 0" in said) == (changed != "Dies")
