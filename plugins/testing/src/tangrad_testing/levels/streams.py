"""Level 4: devices whose threads choose among streams, clocks of events, page-locked memory.

A busy machine may take a thread from the processor at any time. So what must hold always is asked
once, and what holds while work is under way must be seen once in several tries.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tangrad
from tangrad_testing.levels.check import (
    Check,
    Device,
    Mismatch,
    NotApplicable,
    collected,
    expect,
)
from tangrad_testing.levels.lifetime import in_thread, must_not_grow
from tangrad_testing.levels.memory import MEBIBYTE, block, pattern, read, write
from tangrad_testing.levels.work import (
    PIECE,
    TRIES,
    give_work,
    require_events,
    work_that_takes_a_while,
)

check, PLAIN = collected(4)

SECONDS_TO_LET_GO = 2.0


class Scene:
    """Two streams of index 0 and memory for work in them.

    Attributes:
        device: the device.
        streams: its streams.
        a, b: pieces of memory that work copies between.
        amount: how many copies take a while.
        busy, idle: two streams.
    """

    def __init__(self, device: Device, a: int, b: int) -> None:
        self.device, self.streams, self.a, self.b = device, device.driver.streams, a, b
        self.amount, self.seconds = work_that_takes_a_while(device, a, b)
        self.busy, self.idle = (self.streams.new_stream(0, 0) for _ in range(2))

    def work(self) -> None:
        """Give work to the busy stream."""
        with chosen(self.streams, self.busy):
            give_work(self.device, self.a, self.b, self.amount)

    def event(self, stream: int, event: int | None = None) -> int:
        """Return an event of all that a stream was given."""
        if event is None:
            event = self.streams.new_event(0, True, False, False)
        self.streams.record(event, stream)
        return event

    def seen(self, what: str, look: Callable[[], bool]) -> None:
        """Raise Mismatch unless something is seen while the busy stream works, once in some tries.

        Args:
            what: that which holds while work is under way.
            look: gives work, and tells whether it held.
        """
        for _ in range(TRIES):
            found = look()
            self.device.driver.synchronize(0)
            if found:
                return
        raise Mismatch(what, f"not once in {TRIES} tries", "as work was under way")


@contextmanager
def chosen(streams: Any, stream: int) -> Iterator[None]:
    """Have the calling thread give work to a stream."""
    before = streams.current_stream(streams.device_index(stream))
    streams.set_stream(stream)
    try:
        yield
    finally:
        streams.set_stream(before)


@contextmanager
def scene(device: Device) -> Iterator[Scene]:
    """Make the streams to be asked.

    Raises:
        NotApplicable: there is one stream, or work is done when a call returns.
    """
    device.require_own_memory()
    if device.driver.streams is None:
        raise NotApplicable("its threads do not choose among streams")
    with block(device, PIECE) as a, block(device, PIECE) as b:
        yield Scene(device, a, b)
        device.driver.synchronize(0)


def require_streams(device: Device) -> Any:
    """Return the streams.

    Raises:
        NotApplicable: there is one.
    """
    device.require_own_memory()
    if device.driver.streams is None:
        raise NotApplicable("its threads do not choose among streams")
    return device.driver.streams


@check
def streams_tell_their_index(device: Device) -> None:
    """Default and new streams of each index are of that index, and no two indices share one."""
    streams, count = require_streams(device), device.driver.device_count()
    defaults = [streams.default_stream(index) for index in range(count)]
    expect("distinct default streams", len(set(defaults)), count)
    least, greatest = streams.priority_range()
    expect("priority_range(): the least priority has the larger number", least >= greatest, True)
    for index in range(count):
        found = streams.device_index(defaults[index])
        expect(f"device_index of the default stream of index {index}", found, index)
        for priority in (0, greatest):
            made = streams.new_stream(index, priority)
            expect(f"device_index of a new stream of index {index}", streams.device_index(made),
                   index)  # fmt: skip
            expect("a new stream is a default one", made in defaults, False)
            expect("query_stream of a new stream", settles(streams, made), True)


def settles(streams: Any, stream: int) -> bool:
    """Tell whether a stream without work is done, now or after it was waited for."""
    if streams.query_stream(stream):
        return True
    streams.synchronize_stream(stream)
    return any(streams.query_stream(stream) for _ in range(TRIES))


@check
def threads_choose_their_stream(device: Device) -> None:
    """set_stream chooses for the calling thread and the stream's index, until the next choice."""
    streams, count = require_streams(device), device.driver.device_count()
    defaults = [streams.default_stream(index) for index in range(count)]
    for index in range(count):
        made = streams.new_stream(index, 0)
        with chosen(streams, made):
            case = f"after set_stream of a new stream of index {index}, current_stream"
            expect(f"{case}({index})", streams.current_stream(index), made)
            expect(f"the driver's, {case}({index})", device.driver.current_stream(index), made)
            for other in set(range(count)) - {index}:
                expect(f"{case}({other})", streams.current_stream(other), defaults[other])
            found = in_thread(lambda index=index: streams.current_stream(index))
            expect(f"{case}({index}) in another thread", found, defaults[index])
            with block(device, 5000, index) as a, block(device, 5000, index) as b:
                write(device, a, 0, pattern(5000, 1))
                device.driver.copy_within(b, 0, a, 0, 5000)
                expect("bytes copied in a stream", read(device, b, 0, 5000), pattern(5000, 1))
            expect(f"{case}({index}) after copies", streams.current_stream(index), made)
        expect(f"current_stream({index}) in the end", streams.current_stream(index),
               defaults[index])  # fmt: skip


@check
def streams_are_asked_and_waited_for(device: Device) -> None:
    """A stream is not done while it works, and is done when it, or its device, was waited for."""
    with scene(device) as on:
        streams = on.streams

        def is_busy() -> bool:
            on.work()
            return not streams.query_stream(on.busy)

        on.seen("query_stream is False while the stream works", is_busy)
        for name, wait in (
            ("synchronize_stream", lambda: streams.synchronize_stream(on.busy)),
            ("synchronize of its device", lambda: device.driver.synchronize(0)),
        ):
            for _ in range(3):
                on.work()
                event = on.event(on.busy)
                wait()
                case = f"query_event of a stream's work after {name}"
                expect(case, streams.query_event(event), True)
                expect(f"query_stream after {name}", settles(streams, on.busy), True)
                streams.destroy_event(event)


@check
def events_are_of_their_stream(device: Device) -> None:
    """An event waits for the work of the stream that it was recorded in last, and for no other."""
    with scene(device) as on:
        streams = on.streams

        def is_pending() -> bool:
            on.work()
            with chosen(streams, on.idle):
                event = on.event(on.busy)
            pending = not streams.query_event(event)
            streams.synchronize_event(event)
            expect("query_event after synchronize_event", streams.query_event(event), True)
            return pending

        on.seen("an event in a stream that works has not happened", is_pending)

        def is_apart() -> bool:
            on.work()
            late, early = on.event(on.busy), on.event(on.idle)
            expect("two events are one", late == early, False)
            streams.synchronize_event(early)
            return not streams.query_event(late)

        on.seen("an event in an idle stream happens while another stream works", is_apart)

        def is_recorded_anew() -> bool:
            event = on.event(on.idle)
            streams.synchronize_event(event)
            on.work()
            on.event(on.busy, event)
            pending = not streams.query_event(event)
            streams.synchronize_event(event)
            expect("an event recorded again, after it was waited for", streams.query_event(event),
                   True)  # fmt: skip
            return pending

        on.seen("an event recorded again has not happened again", is_recorded_anew)


@check
def streams_wait_for_events(device: Device) -> None:
    """wait_event holds back what a stream is given later: not the host, not other streams."""
    with scene(device) as on, block(device, 5000) as x, block(device, 5000) as y:
        streams, driver = on.streams, device.driver
        for turn in range(TRIES):
            write(device, x, 0, bytes(5000))
            write(device, y, 0, pattern(5000, turn))
            on.work()
            with chosen(streams, on.busy):
                driver.copy_within(x, 0, y, 0, 5000)
            first = on.event(on.busy)
            streams.wait_event(on.idle, first)
            last = on.event(on.idle)
            streams.synchronize_event(last)
            case = "the event that a stream waits for, when the stream has gone on"
            expect(case, streams.query_event(first), True)
            with chosen(streams, on.idle):
                case = "bytes that one stream wrote, read in one that waited for it"
                expect(case, read(device, x, 0, 5000), pattern(5000, turn))

        def host_goes_on() -> bool:
            on.work()
            event = on.event(on.busy)
            streams.wait_event(on.idle, event)
            return not streams.query_event(event)

        on.seen("the host goes on while a stream waits", host_goes_on)

        def others_go_on() -> bool:
            on.work()
            event = on.event(on.busy)
            streams.wait_event(on.idle, event)
            streams.synchronize_event(on.event(streams.default_stream(0)))
            return not streams.query_event(event)

        on.seen("the default stream goes on while another waits", others_go_on)


@check
def copies_take_the_current_stream(device: Device) -> None:
    """Copies of all kinds are done in the thread's stream, after what it was given before."""
    with scene(device) as on, block(device, 5000) as x, block(device, 5000) as y:
        streams, driver = on.streams, device.driver

        def is_pending() -> bool:
            on.work()
            event = on.event(on.busy)
            return not streams.query_event(event)

        on.seen("copy_within is work of the thread's stream", is_pending)
        for turn in range(3):
            first, second = pattern(5000, 2 * turn), pattern(5000, 2 * turn + 1)
            write(device, x, 0, first)
            write(device, y, 0, bytes(5000))
            on.work()
            with chosen(streams, on.busy):
                driver.copy_within(y, 0, x, 0, 5000)
                expect("bytes copied in a stream, read in it", read(device, y, 0, 5000), first)
                give_work(device, on.a, on.b, on.amount)
                driver.copy_within(y, 0, x, 0, 5000)
                write(device, x, 0, second)
                expect("bytes copied before their source was written in the same stream",
                       read(device, y, 0, 5000), first)  # fmt: skip


@check
def copies_across_wait_for_both(device: Device) -> None:
    """A copy to another index comes after what the streams of both were given."""
    with scene(device) as on:
        driver, last = device.driver, device.driver.device_count() - 1
        if not last:
            raise NotApplicable("there is one device of this type")
        with block(device, 5000) as x, block(device, 5000) as y, block(device, 5000, last) as far:
            for turn in range(3):
                write(device, y, 0, pattern(5000, turn))
                write(device, x, 0, bytes(5000))
                give_work(device, on.a, on.b, on.amount)
                driver.copy_within(x, 0, y, 0, 5000)
                driver.copy_within(far, 0, x, 0, 5000)
                case = "bytes copied to another index behind work of their stream"
                expect(case, read(device, far, 0, 5000), pattern(5000, turn))


class Owner:
    """What keeps memory of the host alive, and can be watched."""

    def __init__(self, nbytes: int) -> None:
        self.memory = bytearray(nbytes)


@check
def copies_under_way_keep_their_order(device: Device) -> None:
    """Copies that are started in a stream come after its work, and hold what they need, no more."""
    with scene(device) as on, block(device, 5000) as x, block(device, 5000) as y:
        streams, driver = on.streams, device.driver
        write(device, y, 0, pattern(5000, 1))
        for turn in range(3):
            wrote, target = pattern(5000, 10 + turn), bytearray(5000)
            source = Owner(5000)
            source.memory[:] = wrote
            on.work()
            with chosen(streams, on.busy):
                driver.copy_within(x, 0, y, 0, 5000)
            streams.copy_to_host(x, 0, memoryview(target), on.busy, target)
            view = memoryview(source.memory)
            streams.copy_from_host(x, 0, view, on.busy, source)
            watched, event = weakref.ref(source), on.event(on.busy)
            del source, view
            gc.collect()
            gone = watched() is None
            if gone and not streams.query_event(event):
                raise Mismatch("the owner of a source, before it was copied", "gone", "kept")
            streams.synchronize_stream(on.busy)
            case = "bytes read behind a copy in the same stream"
            expect(case, bytes(target), pattern(5000, 1))
            with chosen(streams, on.busy):
                case = "bytes written behind a copy in the same stream"
                expect(case, read(device, x, 0, 5000), wrote)
            must_be_let_go(device, "the owner of a source after the copy", watched)
            held = Owner(5000)
            streams.copy_to_host(x, 0, memoryview(held.memory), on.busy, held)
            watched = weakref.ref(held)
            del held
            streams.synchronize_stream(on.busy)
            must_be_let_go(device, "the owner of a target after the copy", watched)


def must_be_let_go(device: Device, what: str, watched: Any) -> None:
    """Raise Mismatch if an object stays although the device is done with it."""
    deadline = time.perf_counter() + SECONDS_TO_LET_GO
    while watched() is not None:
        device.driver.synchronize(0)
        gc.collect()
        if time.perf_counter() > deadline:
            raise Mismatch(what, "still held", "let go of")
        time.sleep(1e-3)


@check
def clocks_tell_the_time_of_work(device: Device) -> None:
    """elapsed_time is in milliseconds of the work between two events, and refuses pending ones."""
    driver = require_events(device)
    if driver.elapsed_time is None:
        raise NotApplicable("its events do not tell when they happened")
    record = driver.record_timed_event or driver.record_event
    stream = driver.current_stream(0)
    with block(device, PIECE) as a, block(device, PIECE) as b:
        amount, _ = work_that_takes_a_while(device, a, b)
        enough, told = False, []
        for _ in range(TRIES):
            driver.synchronize(0)
            started = time.perf_counter()
            first = record(stream)
            driver.synchronize_event(first)
            given = time.perf_counter()
            give_work(device, a, b, amount)
            last = record(stream)
            must_refuse_pending(driver, first, last)
            driver.synchronize_event(last)
            ended = time.perf_counter()
            found, whole = driver.elapsed_time(first, last), 1000 * (ended - started)
            expect("elapsed_time of an event and itself", driver.elapsed_time(last, last), 0.0)
            if not 0 <= found <= 1.2 * whole + 1:
                raise Mismatch("elapsed_time around copies", f"{found} ms",
                               f"0 to {whole:.1f} ms, as the host's clock has it")  # fmt: skip
            enough = enough or found >= 500 * (ended - given)
            told.append(found)
        if not enough:
            raise Mismatch("elapsed_time around copies", f"{told} ms",
                           "about the time that the host waited for them")  # fmt: skip


def must_refuse_pending(driver: Any, first: int, last: int) -> None:
    """Raise Mismatch if a time is told while an event is pending."""
    try:
        found = driver.elapsed_time(first, last)
    except RuntimeError:
        return
    if not driver.query_event(last):
        raise Mismatch("elapsed_time of an event that has not happened", f"{found} ms",
                       "RuntimeError")  # fmt: skip


@check
def events_may_be_destroyed_early(device: Device) -> None:
    """An event that is destroyed before it happens takes no work along, and events are let go."""
    driver = require_events(device)
    if driver.destroy_event is None:
        raise NotApplicable("its events are not destroyed")
    stream = driver.current_stream(0)
    with block(device, PIECE) as a, block(device, PIECE) as b, block(device, PIECE) as c:
        for turn in range(3):
            write(device, a, 0, pattern(PIECE, turn))
            give_work(device, a, b, 8)
            event = driver.record_event(stream)
            driver.copy_within(c, 0, b, 0, PIECE)
            driver.destroy_event(event)
            case = "bytes copied around an event that was destroyed early"
            expect(case, read(device, c, 0, PIECE), pattern(PIECE, turn))

    def rounds(count: int) -> None:
        for _ in range(count * 400):
            driver.destroy_event(driver.record_event(stream))
        driver.synchronize()

    must_not_grow(device, "400 events recorded and destroyed", rounds, 400 * 700, 2 * MEBIBYTE)


@check
def events_cross_threads(device: Device) -> None:
    """An event that one thread recorded, and work that it gave, another asks and waits for."""
    driver = require_events(device)
    with block(device, PIECE) as a, block(device, PIECE) as b:
        stream = driver.current_stream(0)
        for waits in (driver.synchronize, lambda: driver.synchronize(0)):
            for _ in range(3):
                give_work(device, a, b, 16)
                event = driver.record_event(stream)
                in_thread(waits)
                case = "an event of one thread, after another waited for the device"
                expect(case, in_thread(lambda event=event: driver.query_event(event)), True)
                in_thread(lambda event=event: driver.synchronize_event(event))
                if driver.destroy_event is not None:
                    in_thread(lambda event=event: driver.destroy_event(event))


@check
def asking_does_not_wait(device: Device) -> None:
    """query_event answers at once, also that an event has not happened."""
    driver = require_events(device)
    stream = driver.current_stream(0)
    with block(device, PIECE) as a, block(device, PIECE) as b:
        amount, _ = work_that_takes_a_while(device, a, b)
        for _ in range(TRIES):
            give_work(device, a, b, amount)
            pending = not driver.query_event(driver.record_event(stream))
            driver.synchronize()
            if pending:
                return
    raise Mismatch("query_event right after work was given", f"True in {TRIES} of {TRIES} tries",
                   "False, as work was under way")  # fmt: skip


# --- page-locked memory


def require_pinned(device: Device) -> Any:
    """Return the page-locked memory.

    Raises:
        NotApplicable: there is none.
    """
    if device.driver.pinned is None:
        raise NotApplicable("it has no page-locked memory")
    return device.driver.pinned


def address_of(memory: Any) -> int:
    """Return where a buffer begins."""
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


@check
def pinned_memory_is_writable_and_known(device: Device) -> None:
    """Page-locked memory is as much as was asked for, writable, and known from other memory."""
    pinned = require_pinned(device)
    held: list[tuple[Any, int]] = []
    for seed, nbytes in enumerate((1, 4096, 4097, 70_001, 70_001, MEBIBYTE + 1)):
        memory = pinned.allocate(nbytes)
        view = memoryview(memory).cast("B")
        expect(f"allocate({nbytes}) is writable", view.readonly, False)
        expect(f"allocate({nbytes}) has that many bytes", view.nbytes >= nbytes, True)
        view[:nbytes] = pattern(nbytes, seed)
        held.append((memory, nbytes))
        start = address_of(memory)
        for place in (0, nbytes // 2, nbytes - 1):
            expect(f"holds() of byte {place} of {nbytes}", pinned.holds(start + place), True)
    for seed, (memory, nbytes) in enumerate(held):
        expect(f"{nbytes} bytes beside other pieces", bytes(memoryview(memory).cast("B")[:nbytes]),
               pattern(nbytes, seed))  # fmt: skip
    for other in (np.zeros(MEBIBYTE, np.uint8), np.zeros(64, np.uint8)):
        expect("holds() of memory of NumPy's", pinned.holds(address_of(other)), False)


@check
def pinned_memory_comes_back(device: Device) -> None:
    """Page-locked memory that nobody uses is used again, or goes back by empty_cache."""
    pinned = require_pinned(device)

    def rounds(count: int) -> None:
        for _ in range(count):
            np.frombuffer(pinned.allocate(MEBIBYTE), np.uint8)[:] = 1
        gc.collect()
        device.driver.synchronize()
        pinned.empty_cache()

    must_not_grow(device, f"allocate({MEBIBYTE}) of page-locked memory", rounds, MEBIBYTE)


@check
def copies_without_waiting_are_right(device: Device) -> None:
    """non_blocking copies of page-locked and of ordinary memory have the values of their call."""
    device.require_own_memory()
    array = np.arange(100_000, dtype=np.float32)
    for name, host in (("ordinary", tangrad.from_numpy(array.copy())),
                       ("pinned", tangrad.from_numpy(array.copy()).pin_memory())):  # fmt: skip
        there = host.to(device.name, non_blocking=True)
        if name == "pinned":
            tangrad.accelerator.synchronize(device.name)
        host.fill_(-1.0)  # what is copied of ordinary memory is copied when the call returns
        expect(f"values copied from {name} memory", there.cpu().numpy(), array)
        back = there.to("cpu", non_blocking=True)
        tangrad.accelerator.synchronize(device.name)
        expect("values copied back", back.numpy(), array)


def checks(device: Device) -> Iterator[Check]:
    """Yield the checks of this part of the level."""
    yield from PLAIN
