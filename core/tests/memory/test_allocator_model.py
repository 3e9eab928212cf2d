"""The caching allocator against a model, on a fake device whose every call may fail."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

KIB = 1024
CAPACITY = 512 * KIB
STREAMS = st.sampled_from([0, 1, 2])
# With segments of 16 and 64 KiB every path is met: bins, cuts, shared and own segments, no memory.
SIZES = st.one_of(
    st.integers(1, 300),
    st.sampled_from([64, 512, 4 * KIB]),
    st.integers(1, 16 * KIB),
    st.integers(16 * KIB, 32 * KIB),
    st.integers(32 * KIB, 200 * KIB),
)


class Held:
    """A live block, and what the model knows of it."""

    def __init__(self, block: Any, requested: int, stream: int) -> None:
        self.block, self.requested, self.stream = block, requested, stream
        self.handle, self.start = block.handle, block.offset
        self.nbytes, self.stop = block.nbytes, block.offset + block.nbytes
        self.uses: set[int] = set()

    def overlaps(self, other: Held) -> bool:
        same = self.handle == other.handle
        return same and self.start < other.stop and other.start < self.stop


class AllocatorMachine(RuleBasedStateMachine):
    def __init__(self, native: Any, new_driver: Any) -> None:
        super().__init__()
        self.driver = new_driver(CAPACITY)
        self.driver.on_release = self.segment_released
        self.limit = CAPACITY
        self.max_cached = 1 << 62
        self.native = native
        self.out_of_memory = native._out_of_memory_error
        self.live: list[Held] = []
        self.waiting: list[tuple[Held, dict[int, int]]] = []
        self.home: dict[int, int] = {}
        self.allocations = self.allocated_bytes = self.peak = self.ooms = 0

    @initialize(
        alignment=st.sampled_from([64, 64, 4096]),
        max_split=st.sampled_from([None, 64 * KIB, 128 * KIB]),
    )
    def open_allocator(self, alignment: int, max_split: int | None) -> None:
        self.alignment = alignment
        self.allocator = self.native.CachingAllocator(
            self.driver,
            alignment=alignment,
            small_segment=16 * KIB,
            large_segment=64 * KIB,
            limit=self.limit,
            max_split=max_split,
        )

    # ---- what must hold ----

    def safe(self, position: dict[int, int]) -> bool:
        return all(self.driver.passed[stream] >= work for stream, work in position.items())

    def segment_released(self, handle: int) -> None:
        self.home.pop(handle, None)
        if any(held.handle == handle for held in self.live):
            self.driver.violations.append(f"segment {handle} released under a live block")
        for held, position in self.waiting:
            if held.handle == handle and not self.safe(position):
                self.driver.violations.append(f"segment {handle} released under work of a stream")
        self.waiting = [entry for entry in self.waiting if entry[0].handle != handle]

    def check_new(self, new: Held) -> None:
        assert new.nbytes >= new.requested
        assert new.start % self.alignment == 0
        assert new.stop <= self.driver.segments[new.handle]
        assert self.home.setdefault(new.handle, new.stream) == new.stream
        assert not any(new.overlaps(held) for held in self.live)
        assert all(self.safe(position) for held, position in self.waiting if new.overlaps(held))

    def check_memory_was_short(self, nbytes: int) -> None:
        assert not self.idle_segments()
        assert self.reserved() + nbytes + 4 * KIB > min(self.limit, CAPACITY)

    def reserved(self) -> int:
        return sum(self.driver.segments.values())

    def idle_segments(self) -> list[dict]:
        return [segment for segment in self.allocator.snapshot() if not segment["active_size"]]

    # ---- what can happen ----

    @rule(nbytes=SIZES, stream=STREAMS)
    def allocate(self, nbytes: int, stream: int) -> None:
        failures, segments = self.driver.failures, set(self.driver.segments)
        try:
            block = self.allocator.allocate(nbytes, stream)
        except self.out_of_memory:
            self.ooms += 1
            if self.driver.failures == failures:
                self.check_memory_was_short(nbytes)
            return
        except RuntimeError:
            assert self.driver.failures > failures
            return
        held = Held(block, nbytes, stream)
        self.check_new(held)
        assert held.handle in segments or self.reserved() <= self.limit
        self.live.append(held)
        self.allocations += 1
        self.allocated_bytes += held.nbytes
        self.peak = max(self.peak, sum(held.nbytes for held in self.live))

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if not self.live:
            return
        held = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        if held.uses:
            position = {stream: self.driver.submitted[stream] for stream in held.uses}
            self.waiting.append((held, position))
        failures = self.driver.failures
        try:
            held.block.release()
        except RuntimeError:
            assert self.driver.failures > failures

    @rule(data=st.data(), stream=STREAMS)
    def record_stream(self, data: st.DataObject, stream: int) -> None:
        if not self.live:
            return
        held = self.live[data.draw(st.integers(0, len(self.live) - 1))]
        held.block.record_stream(stream)
        if stream != held.stream:
            held.uses.add(stream)

    @rule(stream=STREAMS)
    def submit_work(self, stream: int) -> None:
        self.driver.submitted[stream] += 1

    @rule(stream=STREAMS)
    def finish_work(self, stream: int) -> None:
        self.driver.passed[stream] = self.driver.submitted[stream]

    @rule(countdown=st.integers(0, 6), out_of_memory=st.booleans())
    def arm_failure(self, countdown: int, out_of_memory: bool) -> None:
        failure = {"failure": MemoryError} if out_of_memory else {}
        self.driver.fail_at_call(countdown, **failure)

    @rule()
    def empty_cache(self) -> None:
        failures = self.driver.failures
        try:
            self.allocator.empty_cache()
        except (RuntimeError, MemoryError):
            assert self.driver.failures > failures
        else:
            assert not self.driver.events
        assert not self.idle_segments()

    @rule(limit=st.integers(0, CAPACITY))
    def set_limit(self, limit: int) -> None:
        self.limit = limit
        self.allocator.set_limit(limit)
        assert self.reserved() <= limit or not self.idle_segments()

    @rule(max_cached=st.sampled_from([0, 8 * KIB, 100 * KIB, 1 << 62]))
    def set_max_cached(self, max_cached: int) -> None:
        self.max_cached = max_cached
        self.allocator.set_max_cached(max_cached)

    @rule()
    def reset_peak(self) -> None:
        self.allocator.reset_peak_memory_stats()
        self.peak = sum(held.nbytes for held in self.live)

    # ---- what holds at all times ----

    @invariant()
    def nothing_went_wrong_in_the_driver(self) -> None:
        assert not self.driver.violations

    @invariant()
    def statistics_agree_with_the_model(self) -> None:
        stats = self.allocator.memory_stats()
        current = sum(held.nbytes for held in self.live)
        assert stats["allocated_bytes.all.current"] == current
        assert stats["allocated_bytes.all.peak"] == self.peak
        assert stats["allocated_bytes.all.allocated"] == self.allocated_bytes
        assert stats["allocated_bytes.all.freed"] == self.allocated_bytes - current
        assert stats["allocation.all.current"] == len(self.live)
        assert stats["allocation.all.allocated"] == self.allocations
        assert stats["requested_bytes.all.current"] == sum(held.requested for held in self.live)
        assert stats["reserved_bytes.all.current"] == self.reserved()
        assert stats["segment.all.current"] == len(self.driver.segments)
        assert stats["num_ooms"] == self.ooms
        for name in ("allocated_bytes", "active", "reserved_bytes"):
            assert stats[f"{name}.all.current"] == sum(
                stats[f"{name}.{pool}.current"] for pool in ("small_pool", "large_pool")
            )

    @invariant()
    def blocks_tile_their_segments(self) -> None:
        live, waiting = set(), 0
        for segment in self.allocator.snapshot():
            assert self.driver.segments[segment["address"]] == segment["total_size"]
            end = 0
            for block in segment["blocks"]:
                assert block["offset"] == end
                end += block["size"]
                waiting += block["state"] == "active_awaiting_free"
                if block["state"] == "active_allocated":
                    live.add((segment["address"], block["offset"], block["size"]))
            assert end == segment["total_size"]
        stats = self.allocator.memory_stats()
        assert waiting == stats["active.all.current"] - len(self.live)
        assert live == {(held.handle, held.start, held.nbytes) for held in self.live}

    @invariant()
    def the_cache_keeps_its_bound(self) -> None:
        stats = self.allocator.memory_stats()
        cached = stats["reserved_bytes.all.current"] - stats["active_bytes.all.current"]
        assert cached <= self.max_cached or not self.idle_segments()

    def teardown(self) -> None:
        """Let every reference go, the allocator's before the blocks', and look at the driver."""
        self.driver.fail_at_call(0)
        self.allocator = None
        while self.live:
            self.live.pop().block.release()
        assert not self.driver.violations
        assert not self.driver.segments
        assert not self.driver.events


def test_the_allocator_agrees_with_its_model_whatever_call_fails(native: Any, new_driver: Any):
    run_state_machine_as_test(
        functools.partial(AllocatorMachine, native, new_driver),
        settings=settings(max_examples=150, stateful_step_count=40, deadline=None),
    )
