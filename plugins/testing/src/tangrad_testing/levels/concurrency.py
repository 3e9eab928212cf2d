"""Level 4: order of work, events that tell the truth, several threads."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import tangrad
from tangrad_testing.levels import streams
from tangrad_testing.levels.check import (
    Check,
    Device,
    Mismatch,
    NotApplicable,
    collected,
    expect,
    expect_close,
)
from tangrad_testing.levels.contract import THREADS
from tangrad_testing.levels.memory import block, pattern, read, write
from tangrad_testing.levels.work import (
    EVENTS,
    PIECE,
    TRIES,
    give_work,
    require_events,
    work_that_takes_a_while,
)

check, PLAIN = collected(4)


@check
def work_is_done_in_order(device: Device) -> None:
    """Copies see what was written before them and not what is written after them."""
    with block(device, PIECE) as a, block(device, PIECE) as b, block(device, PIECE) as c:
        first, second = pattern(PIECE, 1), pattern(PIECE, 2)
        write(device, a, 0, first)
        for turn in range(3):
            device.driver.copy_within(b, 0, a, 0, PIECE)
            write(device, a, 0, second)
            device.driver.copy_within(c, 0, b, 0, PIECE)
            write(device, b, 0, bytes(PIECE))
            expect(f"bytes copied twice, turn {turn}", read(device, c, 0, PIECE), first)
            first, second = second, first


@check
def memory_outlives_the_work_on_it(device: Device) -> None:
    """Memory that is released while copies from it are under way is not overwritten before them."""
    device.require_own_memory()
    driver = device.driver
    with block(device, PIECE) as kept:
        for turn in range(4):
            source = driver.allocate(PIECE, 0)
            write(device, source, 0, pattern(PIECE, turn))
            driver.copy_within(kept, 0, source, 0, PIECE)
            driver.release(source, PIECE)
            with block(device, PIECE) as other:
                write(device, other, 0, bytes(PIECE))
                case = f"bytes copied from memory that was released, turn {turn}"
                expect(case, read(device, kept, 0, PIECE), pattern(PIECE, turn))


@check
def events_come_together(device: Device) -> None:
    """A driver has all three methods of events or none."""
    present = [name for name in EVENTS if getattr(device.driver, name) is not None]
    expect("methods of events", present, list(EVENTS) if present else [])


@check
def events_happen(device: Device) -> None:
    """An event has happened once it was waited for, and those before it on its stream too."""
    driver = require_events(device)
    stream = driver.current_stream(0)
    with block(device, PIECE) as a, block(device, PIECE) as b:
        events = []
        for _ in range(5):
            give_work(device, a, b, 1)
            events.append(driver.record_event(stream))
        expect("events are distinct", len(set(events)), len(events))
        driver.synchronize_event(events[2])
        for number in range(3):
            case = f"query_event of event {number} after synchronize_event of event 2"
            expect(case, driver.query_event(events[number]), True)
        driver.synchronize()
        for number, event in enumerate(events):
            expect(f"query_event of event {number} in the end", driver.query_event(event), True)
            if driver.destroy_event is not None:
                driver.destroy_event(event)


@check
def events_tell_the_truth(device: Device) -> None:
    """An event does not count as happened while the work before it goes on."""
    driver = require_events(device)
    stream = driver.current_stream(0)
    with block(device, PIECE) as a, block(device, PIECE) as b:
        amount, total = work_that_takes_a_while(device, a, b)
        lies, truths = 0, 0
        while max(lies, truths) <= TRIES // 2:
            give_work(device, a, b, amount)
            event = driver.record_event(stream)
            happened = driver.query_event(event)
            started = time.perf_counter()
            driver.synchronize()
            # Nothing came after the event: if it has happened, there is nothing to wait for.
            if happened and time.perf_counter() - started > total / 4:
                lies += 1
            else:
                truths += 1
            forget(driver, event)
        if lies > truths:
            raise Mismatch(
                f"an event after {2 * amount} copies of {PIECE} bytes",
                "it counts as happened, and synchronize() still waits",
                "it happens when the copies are done",
            )


def forget(driver: Any, event: int) -> None:
    """Destroy an event, where a driver has that."""
    if driver.destroy_event is not None:
        driver.destroy_event(event)


@check
def accelerator_functions_answer(device: Device) -> None:
    """Streams, events and memory are told of by the names that programs use for any device."""
    device.require_own_memory()
    accelerator = tangrad.accelerator
    before = accelerator.memory_allocated(device.name)
    held = tangrad.empty(1000, dtype=tangrad.float32, device=device.name)
    grown = accelerator.memory_allocated(device.name) - before
    if grown < held.nbytes:
        raise Mismatch("memory_allocated() beside a new tensor", grown, f"at least {held.nbytes}")
    stream = accelerator.current_stream(device.name)
    expect("device of the current stream", stream.device.type, device.name)
    event = stream.record_event()
    event.synchronize()
    expect("query() of an event that was waited for", event.query(), True)
    accelerator.synchronize(device.name)


@check
def threads_compute_side_by_side(device: Device) -> None:
    """Chains of ops and their gradients in several threads give what one thread gives."""
    if device.driver.meta:
        raise NotApplicable("its tensors have no memory")

    def work(seed: int) -> Any:
        values = np.random.Generator(np.random.Philox(seed)).standard_normal((17, 33))
        x = device.tensor(values.astype(np.float32)).requires_grad_()
        for _ in range(3):
            loss = ((x * x + 1.0).sum(1) * x[:, 0]).mean()
            (slope,) = tangrad.autograd.grad(loss, x)
        return slope.cpu()

    expected = [work(seed) for seed in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(work, range(THREADS)))
    for seed in range(THREADS):
        expect_close(f"gradient of thread {seed}", [found[seed]], [expected[seed]])


@check
def tensors_change_threads(device: Device) -> None:
    """A tensor made in one thread is read and let go of in another."""
    if device.driver.meta:
        raise NotApplicable("its tensors have no memory")
    held = [device.tensor(np.full(1000, float(i))) for i in range(20)]
    wrong: list[int] = []

    def empty() -> None:
        while held:
            number = len(held) - 1
            if held.pop().cpu().tolist() != [float(number)] * 1000:
                wrong.append(number)
        gc.collect()

    thread = threading.Thread(target=empty)
    thread.start()
    fresh = [device.tensor(np.full(1000, -1.0)) for _ in range(20)]
    thread.join()
    expect("tensors read wrongly in another thread", wrong, [])
    expect("sums of those made meanwhile", {float(t.cpu().sum()) for t in fresh}, {-1000.0})


def checks(device: Device) -> Iterator[Check]:
    """Yield the checks of this level."""
    yield from PLAIN
    yield from streams.checks(device)
