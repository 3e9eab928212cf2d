"""The caching allocator: reuse, limits, streams, failures, threads, fork and what it reports."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
def allocator(native: Any, driver: Any) -> Any:
    return native.CachingAllocator(driver)


def address(block: Any) -> tuple[int, int]:
    return block.handle, block.offset


def reserved(allocator: Any) -> int:
    return allocator.memory_stats()["reserved_bytes.all.current"]


# ---- reuse ----


@pytest.mark.parametrize("nbytes", [1, 64, 5000, 100 * KIB, MIB, 3 * MIB, 200 * MIB])
def test_a_released_block_serves_the_next_request_of_its_size(allocator, driver, nbytes):
    first = allocator.allocate(nbytes)
    where = address(first)
    first.release()
    assert address(allocator.allocate(nbytes)) == where
    assert driver.calls == ["allocate"]


def test_a_collected_block_is_released(allocator):
    block = allocator.allocate(100)
    del block
    gc.collect()
    assert allocator.memory_stats()["allocation.all.current"] == 0


def test_small_blocks_coalesce_into_a_larger_one(native, driver):
    allocator = native.CachingAllocator(driver, small_segment=64 * KIB)
    blocks = [allocator.allocate(KIB) for _ in range(64)]
    for block in random.Random(0).sample(blocks, len(blocks)):
        block.release()
    assert allocator.allocate(64 * KIB).offset == 0
    assert driver.calls == ["allocate"]


def test_the_smallest_sufficient_block_is_cut(allocator):
    large, _kept, medium, _also = (allocator.allocate(size * MIB) for size in (8, 2, 5, 2))
    place = address(medium)
    large.release()
    medium.release()
    assert address(allocator.allocate(4 * MIB)) == place


def test_segments_for_several_blocks_grow_with_what_is_held(native, driver):
    allocator = native.CachingAllocator(driver)
    held = [allocator.allocate(2 * MIB)]
    assert reserved(allocator) == 4 * MIB
    held.append(allocator.allocate(156 * MIB))
    held += [allocator.allocate(2 * MIB) for _ in range(2)]
    assert reserved(allocator) == (4 + 156 + 20) * MIB
    held.append(allocator.allocate(1000 * MIB))
    held.append(allocator.allocate(16 * MIB))
    held.append(allocator.allocate(16 * MIB))
    assert reserved(allocator) == (4 + 156 + 20 + 1000 + 32) * MIB
    assert len(held) == 7


def test_no_bytes_share_a_block_that_costs_nothing(allocator, driver):
    first, second = allocator.allocate(0), allocator.allocate(0)
    assert address(first) == address(second)
    assert first.nbytes == 0
    first.release()
    second.release()
    assert driver.calls == []


@pytest.mark.parametrize("alignment", [64, 512, 4096, 32768])
def test_host_memory_is_aligned(native, alignment):
    allocator = native.CachingAllocator(alignment=alignment)
    blocks = [allocator.allocate(size) for size in (1, 100, 70_000, 3 * MIB, 40 * MIB)]
    assert all((block.handle + block.offset) % alignment == 0 for block in blocks)


def test_host_memory_keeps_what_is_written(native):
    allocator = native.CachingAllocator()
    blocks = [allocator.allocate(size) for size in (64, 1000, 2 * MIB, 50 * MIB)]
    for value, block in enumerate(blocks, 1):
        ctypes.memset(block.handle + block.offset, value, block.nbytes)
    for value, block in enumerate(blocks, 1):
        start = block.handle + block.offset
        assert ctypes.string_at(start, block.nbytes) == bytes([value]) * block.nbytes


def is_huge(address: int) -> bool:
    """Return whether huge pages were asked for in the mapping that an address lies in."""
    head = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ", re.MULTILINE)
    text = Path("/proc/self/smaps").read_text()
    found = list(head.finditer(text))
    for this, after in zip(found, [*found[1:], None], strict=True):
        if int(this[1], 16) <= address < int(this[2], 16):
            return " hg" in text[this.start() : after.start() if after else len(text)]
    return False


def tells_of_huge_pages() -> bool:
    """Return whether this system has them, and tells for which memory they were asked for."""
    maps = Path("/proc/self/smaps")
    has = Path("/sys/kernel/mm/transparent_hugepage").exists()
    return has and maps.exists() and "VmFlags:" in maps.read_text()


@pytest.mark.skipif(not tells_of_huge_pages(), reason="nobody tells of huge pages here")
def test_huge_pages_are_asked_for_and_given_back(native):
    allocator = native.CachingAllocator(max_cached=80 * MIB)
    first, second = allocator.allocate(64 * MIB), allocator.allocate(64 * MIB)
    places = [block.handle for block in (first, second)]
    assert all(place % (2 * MIB) == 0 and is_huge(place) for place in places)
    first.release()
    assert is_huge(places[0])
    second.release()  # above the limit: what has been idle for longest goes
    assert [is_huge(place) for place in places] == [False, True]
    allocator.empty_cache()
    assert not is_huge(places[1])


# ---- life ----


def test_a_block_outlives_its_allocator(native, driver):
    allocator = native.CachingAllocator(driver)
    block = allocator.allocate(100)
    del allocator
    assert driver.segments
    block.release()
    assert not driver.segments


def test_a_second_release_is_an_error(allocator):
    block = allocator.allocate(100)
    block.release()
    with pytest.raises(RuntimeError, match="released before"):
        block.release()
    with pytest.raises(RuntimeError, match="released before"):
        block.record_stream(1)


def test_a_block_may_be_released_by_the_collector_inside_the_driver(native, new_driver):
    class Collecting(new_driver):
        def allocate(self, nbytes):
            held.clear()
            return super().allocate(nbytes)

    driver = Collecting()
    allocator = native.CachingAllocator(driver)
    held: list[Any] = []
    held.append(allocator.allocate(100))
    allocator.allocate(50 * MIB)
    assert not held


# ---- limits ----


def test_the_limit_bounds_what_is_reserved(native, driver):
    allocator = native.CachingAllocator(driver, limit=13 * MIB)
    blocks = [allocator.allocate(3 * MIB) for _ in range(3)]
    with pytest.raises(native._out_of_memory_error):
        allocator.allocate(3 * MIB)
    assert reserved(allocator) <= 13 * MIB
    blocks.pop().release()
    assert allocator.allocate(3 * MIB).nbytes == 3 * MIB


def test_a_lower_limit_gives_cached_memory_back(allocator):
    allocator.allocate(40 * MIB).release()
    allocator.set_limit(MIB)
    assert reserved(allocator) == 0
    allocator.set_limit(None)
    assert allocator.allocate(40 * MIB).nbytes == 40 * MIB


def test_no_more_than_max_cached_stays(native, driver):
    allocator = native.CachingAllocator(driver, max_cached=100 * MIB)
    blocks = [allocator.allocate(40 * MIB) for _ in range(4)]
    for block in blocks:
        block.release()
    assert reserved(allocator) == 80 * MIB


def test_empty_cache_keeps_what_is_held(allocator, driver):
    held = allocator.allocate(40 * MIB)
    allocator.allocate(60 * MIB).release()
    allocator.empty_cache()
    assert list(driver.segments) == [held.handle]


# ---- streams ----


def test_streams_do_not_share_blocks(allocator):
    allocator.allocate(100, stream=1).release()
    other = allocator.allocate(100, stream=2)
    mine = allocator.allocate(100, stream=1)
    assert other.handle != mine.handle


def test_a_block_used_on_another_stream_waits_for_it(allocator, driver):
    block = allocator.allocate(100)
    place = address(block)
    driver.submitted[7] += 1
    block.record_stream(7)
    block.release()
    assert allocator.memory_stats()["active.all.current"] == 1
    early = allocator.allocate(100)
    assert address(early) != place
    driver.passed[7] += 1
    places = {address(allocator.allocate(size)) for size in (200, 300)} | {
        address(kept) for kept in [allocator.allocate(100)]
    }
    assert place in places


def test_a_block_used_on_two_streams_waits_for_both(allocator, driver):
    block = allocator.allocate(4 * MIB)
    place = address(block)
    for stream in (7, 8):
        driver.submitted[stream] += 1
        block.record_stream(stream)
    block.release()
    driver.passed[7] += 1
    assert address(allocator.allocate(3 * MIB)) != place
    assert allocator.memory_stats()["active.all.current"] == 1
    driver.passed[8] += 1
    assert address(allocator.allocate(4 * MIB)) == place


def test_streams_need_a_driver_with_events(native):
    block = native.CachingAllocator().allocate(100)
    with pytest.raises(RuntimeError, match="no streams"):
        block.record_stream(3)


def test_a_driver_with_half_of_the_event_methods_is_refused(native, new_driver):
    class Half(new_driver):
        query_event = None

    with pytest.raises(TypeError, match="query_event"):
        native.CachingAllocator(Half())


# ---- running out ----


def test_memory_that_waits_for_a_stream_is_waited_for_before_giving_up(native, new_driver):
    driver = new_driver(capacity=40 * MIB)
    allocator = native.CachingAllocator(driver)
    block = allocator.allocate(30 * MIB)
    driver.submitted[7] += 1
    block.record_stream(7)
    block.release()
    assert allocator.allocate(30 * MIB).nbytes == 30 * MIB
    assert "synchronize_event" in driver.calls
    assert allocator.memory_stats()["num_alloc_retries"] == 1


def test_cached_memory_of_another_size_makes_room(native, new_driver):
    allocator = native.CachingAllocator(new_driver(capacity=100 * MIB))
    for _ in range(3):
        allocator.allocate(20 * MIB).release()
    kept = allocator.allocate(90 * MIB)
    assert kept.nbytes >= 90 * MIB


def test_a_small_device_need_not_hold_a_whole_segment(native, new_driver):
    allocator = native.CachingAllocator(new_driver(capacity=100 * KIB))
    assert allocator.allocate(50 * KIB).nbytes >= 50 * KIB


def test_running_out_says_who_holds_what(native, new_driver):
    allocator = native.CachingAllocator(new_driver(capacity=100 * MIB), limit=200 * MIB)
    held = [allocator.allocate(20 * MIB) for _ in range(3)]
    with pytest.raises(native._out_of_memory_error) as caught:
        allocator.allocate(50 * MIB)
    text = str(caught.value)
    assert "tried to allocate 50.00 MiB" in text
    assert "60.00 MiB allocated in 3 blocks" in text
    assert "limit 200.00 MiB" in text
    assert "3 blocks of 20.00 MiB" in text
    assert isinstance(caught.value.__cause__, MemoryError)
    assert len(held) == 3
    assert allocator.memory_stats()["num_ooms"] == 1


@pytest.mark.parametrize("nbytes", [2**62, 2**63, 2**64 - 1])
def test_absurd_sizes_run_out_of_memory(native, nbytes):
    allocator = native.CachingAllocator()
    with pytest.raises(native._out_of_memory_error):
        allocator.allocate(nbytes)


@pytest.mark.parametrize("nbytes", [-1, 2**64])
def test_sizes_that_are_none_are_refused(allocator, nbytes):
    with pytest.raises(ValueError, match=str(nbytes)):
        allocator.allocate(nbytes)


@pytest.mark.parametrize(
    "options",
    [{"alignment": 3}, {"alignment": 32}, {"small_segment": 0}, {"max_split": 10}, {"limit": -1}],
)
def test_options_out_of_range_are_refused(native, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        native.CachingAllocator(**options)


# ---- a failing driver ----


def test_what_the_driver_raised_is_the_cause(allocator, driver, driver_failure):
    driver.fail_at_call(1)
    with pytest.raises(RuntimeError, match="allocate") as caught:
        allocator.allocate(100)
    assert isinstance(caught.value.__cause__, driver_failure)
    assert allocator.allocate(100).nbytes >= 100


def test_an_interrupt_in_the_driver_stays_an_interrupt(allocator, driver):
    driver.fail_at_call(1, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        allocator.allocate(100)


def test_a_block_whose_event_failed_returns_later(allocator, driver):
    block = allocator.allocate(100)
    place = address(block)
    block.record_stream(7)
    driver.fail_at_call(1)
    with pytest.raises(RuntimeError, match="release"):
        block.release()
    assert allocator.memory_stats()["allocation.all.current"] == 0
    assert allocator.memory_stats()["active.all.current"] == 1
    allocator.empty_cache()
    assert allocator.memory_stats()["active.all.current"] == 0
    assert place[0] not in driver.segments


def test_a_failing_query_is_told_and_tried_again(allocator, driver):
    block = allocator.allocate(100)
    block.record_stream(7)
    block.release()
    driver.fail_at_call(1)
    with pytest.raises(RuntimeError, match="driver failed"):
        allocator.allocate(100)
    assert allocator.allocate(100).nbytes >= 100
    assert allocator.memory_stats()["active.all.current"] == 0


def use_every_driver_call(allocator: Any, driver: Any) -> None:
    """Run out, recover, wait for a stream, and empty the cache; go on after every error."""
    blocks: list[Any] = []
    steps = [
        *[lambda: blocks.append(allocator.allocate(3 * MIB))] * 8,
        lambda: blocks[0].record_stream(7),
        *[lambda: blocks.pop(0).release()] * 3,
        lambda: blocks.append(allocator.allocate(9 * MIB)),
        lambda: driver.passed.update({7: 1}),
        lambda: blocks.append(allocator.allocate(100)),
        allocator.empty_cache,
    ]
    driver.submitted[7] = 1
    for step in steps:
        with contextlib.suppress(RuntimeError, MemoryError, IndexError):
            step()


@pytest.mark.parametrize("failure", [None, MemoryError])
@pytest.mark.parametrize("call", range(1, 17))
def test_nothing_leaks_whichever_call_fails(native, new_driver, driver_failure, call, failure):
    driver = new_driver(capacity=32 * MIB)
    allocator = native.CachingAllocator(driver, small_segment=4 * MIB, large_segment=4 * MIB)
    driver.fail_at_call(call, failure or driver_failure)
    use_every_driver_call(allocator, driver)
    assert driver.failures == 1
    allocator.empty_cache()
    assert allocator.memory_stats()["reserved_bytes.all.current"] == 0
    assert not driver.segments
    assert not driver.events
    assert not driver.violations


def test_an_exception_on_its_way_survives_the_driver(native, driver):
    def lose_a_block():
        allocator = native.CachingAllocator(driver, max_cached=0)
        block = allocator.allocate(40 * MIB)
        raise KeyError(block.nbytes)

    with pytest.raises(KeyError):
        lose_a_block()
    gc.collect()
    assert not driver.segments


# ---- reports ----


def test_statistics_have_the_keys_of_pytorch(allocator):
    block = allocator.allocate(100)
    stats = allocator.memory_stats()
    assert list(stats) == sorted(stats)
    assert stats["allocated_bytes.small_pool.current"] == block.nbytes == 128
    assert stats["requested_bytes.all.current"] == 100
    assert stats["inactive_split_bytes.all.current"] == reserved(allocator) - 128
    assert stats["max_split_size"] == -1


def test_the_peak_is_kept_until_it_is_reset(allocator):
    allocator.allocate(3 * MIB).release()
    assert allocator.memory_stats()["allocated_bytes.all.peak"] == 3 * MIB
    allocator.reset_peak_memory_stats()
    assert allocator.memory_stats()["allocated_bytes.all.peak"] == 0


def test_a_snapshot_shows_segments_and_their_blocks(allocator):
    kept = allocator.allocate(100, stream=5)
    (segment,) = allocator.snapshot()
    first, rest = segment["blocks"]
    assert (segment["stream"], segment["segment_type"]) == (5, "small")
    assert (first["state"], first["requested_size"]) == ("active_allocated", 100)
    assert (rest["state"], rest["offset"]) == ("inactive", kept.nbytes)


def test_the_summary_names_totals_and_holders(allocator):
    held = allocator.allocate(3 * MIB)
    summary = allocator.memory_summary()
    assert "allocated_bytes" in summary
    assert "1 block of 3.00 MiB" in summary
    assert held.nbytes == 3 * MIB


# ---- threads and processes ----


def churn(allocator: Any, seed: int, rounds: int) -> None:
    """Allocate, mark and release at random; a block that changed hands while held is an error."""
    draw = random.Random(seed)
    held: list[tuple[Any, bytes]] = []
    for _ in range(rounds):
        if held and draw.random() < 0.5:
            block, mark = held.pop(draw.randrange(len(held)))
            assert ctypes.string_at(block.handle + block.offset, len(mark)) == mark
            block.release()
        else:
            block = allocator.allocate(draw.randrange(8, 1 << draw.randrange(4, 22)), seed % 2)
            mark = draw.randbytes(8)
            ctypes.memmove(block.handle + block.offset, mark, len(mark))
            held.append((block, mark))


def test_threads_never_share_a_block(native):
    allocator = native.CachingAllocator(max_cached=16 * MIB)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            churn(allocator, seed, 2000)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert allocator.memory_stats()["allocated_bytes.all.current"] == 0


def test_threads_and_a_driver_in_python_do_not_deadlock(native, driver):
    allocator = native.CachingAllocator(driver, max_cached=0, small_segment=4 * KIB)

    def work() -> None:
        for _ in range(500):
            allocator.allocate(1000).release()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not driver.violations
    assert not driver.segments


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_fork_can_allocate_whatever_other_threads_do(native):
    allocator = native.CachingAllocator(max_cached=MIB)
    stop = threading.Event()

    def keep_allocating() -> None:
        while not stop.is_set():
            allocator.allocate(3 * MIB).release()
            allocator.allocate(100).release()

    thread = threading.Thread(target=keep_allocating)
    thread.start()
    try:
        statuses = [fork_and_allocate(allocator) for _ in range(20)]
    finally:
        stop.set()
        thread.join()
    assert statuses == [0] * 20


def fork_and_allocate(allocator: Any) -> int:
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    signal.alarm(20)
    try:
        churn(allocator, 1, 50)
        allocator.empty_cache()
    except BaseException:
        os._exit(1)
    os._exit(0)
