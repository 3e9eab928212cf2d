"""Level 0: how long memory lives, whose it is, and that a driver leaves everything else alone."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
    expect_error,
)
from tangrad_testing.levels.memory import (
    MEBIBYTE,
    MORE_THAN_THERE_IS,
    SIZES,
    block,
    pattern,
    read,
    write,
)
from tangrad_testing.levels.resources import grown, usage

check, PLAIN = collected(0)

LIVES = 700  # steps of allocating, writing and releasing
MOST_ALIVE = 48
MANY_ALIVE = 900
LATE = 0.05  # seconds in which what is done late has been done
LONG = 2**25 + 1
IN_ALL = 20  # pieces of 64 MiB, one after the other
GROWTH = 24


def random_lives(device: Device, seed: int, indices: range) -> None:
    """Allocate, write, copy and release at random; compare with bytes on the host all along."""
    driver, choose = device.driver, random.Random(seed)
    alive: dict[int, tuple[bytearray, int]] = {}
    try:
        for step in range(LIVES):
            if len(alive) < MOST_ALIVE and (not alive or choose.random() < 0.5):
                nbytes, index = choose.choice(SIZES[:-2]), choose.choice(indices)
                handle = driver.allocate(nbytes, index)
                expect(f"step {step}: a new handle is in use", handle in alive, False)
                alive[handle] = bytearray(pattern(nbytes, step)), index
                write(device, handle, 0, bytes(alive[handle][0]))
                continue
            handle = choose.choice(list(alive))
            image, index = alive[handle]
            case = f"step {step}: {len(image)} bytes on index {index} among {len(alive)} pieces"
            expect(case, read(device, handle, 0, len(image)), bytes(image))
            if choose.random() < 0.5:
                del alive[handle]
                driver.release(handle, len(image))
                continue
            other = choose.choice(list(alive))
            nbytes = choose.randint(0, min(len(image), len(alive[other][0])))
            to, start = len(image) - nbytes, len(alive[other][0]) - nbytes
            driver.copy_within(handle, to, other, start, nbytes)
            image[to:] = bytes(alive[other][0][start:])
            case = f"step {step}: {nbytes} bytes copied from index {alive[other][1]} to {index}"
            expect(case, read(device, handle, 0, len(image)), bytes(image))
    finally:
        for handle, (image, _) in alive.items():
            with suppress(Exception):  # what went wrong before is told
                driver.release(handle, len(image))


@check
def memory_lives_from_allocate_to_release(device: Device) -> None:
    """Pieces of all indices that come and go keep their bytes, and no one else's."""
    device.require_own_memory()
    count = device.driver.device_count()
    for seed in (1, 2):
        random_lives(device, seed, range(count))
        case = "device_count() after memory of every index was used"
        expect(case, device.driver.device_count(), count)


@check
def many_pieces_live_at_once(device: Device) -> None:
    """Hundreds of live pieces are distinct and keep their bytes."""
    device.require_own_memory()
    driver = device.driver
    held = [driver.allocate(16, 0) for _ in range(MANY_ALIVE)]
    try:
        expect(f"distinct handles of {MANY_ALIVE} live pieces", len(set(held)), MANY_ALIVE)
        for number, handle in enumerate(held):
            write(device, handle, 0, number.to_bytes(16, "big"))
        for number, handle in enumerate(held):
            case = f"piece {number} of {MANY_ALIVE}"
            expect(case, read(device, handle, 0, 16), number.to_bytes(16, "big"))
    finally:
        for handle in held:
            driver.release(handle, 16)


@check
def writes_are_over_when_they_return(device: Device) -> None:
    """Nothing is written later over what was written since, nor into memory that was released."""
    with block(device, 4000) as handle:
        write(device, handle, 0, pattern(4000, 1))
        write(device, handle, 0, pattern(4000, 2))
        short = device.driver.allocate(4000, 0)
        write(device, short, 0, pattern(4000, 3))
        device.driver.release(short, 4000)
        with block(device, 4000) as fresh:
            write(device, fresh, 0, pattern(4000, 4))
            time.sleep(LATE)
            expect("bytes written last", read(device, handle, 0, 4000), pattern(4000, 2))
            expect("bytes of a new piece", read(device, fresh, 0, 4000), pattern(4000, 4))


@check
def long_copies_are_whole(device: Device) -> None:
    """Copies of tens of mebibytes move every byte, and far offsets are counted in full."""
    wrote = pattern(LONG, 5)
    with block(device, LONG) as a, block(device, LONG) as b:
        write(device, a, 0, wrote)
        device.driver.copy_within(b, 0, a, 0, LONG)
        expect(f"{LONG} bytes copied and read", read(device, b, 0, LONG), wrote)
        image = bytearray(wrote)
        for offset in (65537, 2**20 + 3, 2**22 + 1, 2**24 + 5, LONG - 100):
            image[offset : offset + 100] = pattern(100, offset)
            write(device, a, offset, pattern(100, offset))
            case = f"100 bytes at offset {offset}"
            expect(case, read(device, a, offset, 100), pattern(100, offset))
        expect("all bytes after writes at far offsets", read(device, a, 0, LONG), bytes(image))


def in_thread(action: Callable[[], Any]) -> Any:
    """Return what a call gives in another thread, or raise what it raised there."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.extend((action(), None))
        except BaseException as error:  # told in the thread that asks
            outcome.extend((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


@check
def threads_see_each_others_memory(device: Device) -> None:
    """What one thread allocates and writes, another reads, writes and releases."""
    device.require_own_memory()
    driver = device.driver
    handle = in_thread(lambda: driver.allocate(5000, 0))
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        for turn in range(4):
            first, second = pattern(5000, 2 * turn), pattern(5000, 2 * turn + 1)
            write(device, handle, 0, first)
            found = reader.submit(read, device, handle, 0, 5000).result()
            expect(f"bytes written here, read in another thread, turn {turn}", found, first)
            writer.submit(write, device, handle, 0, second).result()
            found = reader.submit(read, device, handle, 0, 5000).result()
            expect(f"bytes written in one thread, read in another, turn {turn}", found, second)
            found = read(device, handle, 0, 5000)
            expect(f"bytes written in another thread, read here, turn {turn}", found, second)
    driver.release(handle, 5000)

    def elsewhere(count: int) -> None:
        content = bytes(MEBIBYTE)
        for _ in range(count):
            made = driver.allocate(MEBIBYTE, 0)
            write(device, made, 0, content)
            in_thread(lambda made=made: driver.release(made, MEBIBYTE))

    must_not_grow(device, "memory released in another thread", elsewhere, MEBIBYTE)


def must_not_grow(
    device: Device, what: str, rounds: Callable[[int], None], nbytes: int, least: int = 0
) -> None:
    """Raise Mismatch if doing something over and over takes more memory or files than once."""
    rounds(2)
    before = usage(device.driver)
    rounds(GROWTH)
    for kind, (extra, unit) in grown(before, usage(device.driver)).items():
        limit = max(GROWTH * nbytes // 2, least) if unit == "bytes" else GROWTH // 2
        if extra > limit:
            raise Mismatch(f"{kind} after {GROWTH} times {what}", f"{extra} {unit} more",
                           f"at most {limit} more")  # fmt: skip


@check
def copies_leave_nothing_behind(device: Device) -> None:
    """Copies over and over, and allocations that fail, take no more memory or files than once."""
    driver = device.driver
    with block(device, MEBIBYTE) as a, block(device, MEBIBYTE) as b:
        content, target = memoryview(bytes(MEBIBYTE)), memoryview(bytearray(MEBIBYTE))
        moves: dict[str, Callable[[], Any]] = {
            "copy_from_host": lambda: driver.copy_from_host(a, 0, content),
            "copy_within": lambda: driver.copy_within(b, 0, a, 0, MEBIBYTE),
            "copy_to_host": lambda: driver.copy_to_host(b, 0, target),
        }
        for name, move in moves.items():
            must_not_grow(
                device, f"{name} of {MEBIBYTE} bytes", lambda n, m=move: repeat(n, m), MEBIBYTE
            )

    def fail() -> None:
        with suppress(MemoryError):
            driver.allocate(MORE_THAN_THERE_IS, 0)

    case = f"allocate({MORE_THAN_THERE_IS}, 0), which fails"
    must_not_grow(device, case, lambda n: repeat(n, fail), MEBIBYTE // 4)


def repeat(count: int, action: Callable[[], Any]) -> None:
    """Do something several times."""
    for _ in range(count):
        action()


@check
def what_it_tells_of_memory_can_be(device: Device) -> None:
    """Of total and free memory no more is free than there is, on any index."""
    for index in range(device.driver.device_count()):
        facts = dict(device.driver.properties(index))
        total, free = facts.get("total_memory"), facts.get("free_memory")
        for name, amount in (("total_memory", total), ("free_memory", free)):
            known = amount is None or (isinstance(amount, int) and amount >= 0)
            expect(f"properties({index})['{name}'] is an int, not negative", known, True)
        if total is not None and free is not None:
            expect(f"properties({index}): free_memory <= total_memory", free <= total, True)


# --- several indices


def indices_of(device: Device) -> range:
    """Return the indices of a device that has several.

    Raises:
        NotApplicable: it has one.
    """
    device.require_own_memory()
    if device.driver.device_count() < 2:
        raise NotApplicable("there is one device of this type")
    return range(device.driver.device_count())


@check
def every_index_keeps_its_bytes(device: Device) -> None:
    """Memory of each index has its own handles and all its bytes, at every offset."""
    held = {index: device.driver.allocate(70_000, index) for index in indices_of(device)}
    try:
        expect("distinct handles of all indices", len(set(held.values())), len(held))
        for index, handle in held.items():
            write(device, handle, 0, pattern(70_000, index))
        for index, handle in held.items():
            wrote = pattern(70_000, index)
            expect(f"70000 bytes on index {index}", read(device, handle, 0, 70_000), wrote)
            expect(f"7 bytes at 60001 on index {index}", read(device, handle, 60_001, 7),
                   wrote[60_001:60_008])  # fmt: skip
            with block(device, 70_000, index) as other:
                device.driver.copy_within(other, 1, handle, 3, 66_000)
                expect(f"66000 bytes copied within index {index}",
                       read(device, other, 1, 66_000), wrote[3:66_003])  # fmt: skip
        first, last = held[0], held[max(held)]
        device.driver.copy_within(last, 100, first, 7, 69_000)
        expect("69000 bytes copied to the last index", read(device, last, 100, 69_000),
               pattern(70_000, 0)[7:69_007])  # fmt: skip
    finally:
        for handle in held.values():
            device.driver.release(handle, 70_000)


@check
def memory_is_taken_from_its_index(device: Device) -> None:
    """An index that tells its free memory has less of it after allocate, and no other has."""
    driver, nbytes = device.driver, 32 * MEBIBYTE
    indices = indices_of(device)

    def free() -> list[Any]:
        return [dict(driver.properties(index)).get("free_memory") for index in indices]

    if None in free():
        raise NotApplicable("it does not tell how much memory is free")
    for index in indices:
        before = free()
        with block(device, nbytes, index):
            taken = [b - a for b, a in zip(before, free(), strict=True)]
        if any(t >= nbytes for t in taken):
            for other in indices:
                case = f"memory of index {other} taken by allocate({nbytes}, {index})"
                expect(case, taken[other] >= nbytes, other == index)


@check
def an_index_that_has_no_memory_harms_no_other(device: Device) -> None:
    """After an index ran out of memory, all indices give memory."""
    for index in indices_of(device):
        expect_error(f"allocate({MORE_THAN_THERE_IS}, {index})", MemoryError,
                     lambda i=index: device.driver.allocate(MORE_THAN_THERE_IS, i))  # fmt: skip
        for other in indices_of(device):
            with block(device, 1000, other) as handle:
                write(device, handle, 0, pattern(1000, other))
                case = f"bytes on index {other} after index {index} had no memory"
                expect(case, read(device, handle, 0, 1000), pattern(1000, other))


@check
def the_current_index_stays(device: Device) -> None:
    """No call but set_device changes the index, or the stream, that a thread is on."""
    driver = device.driver
    count, streams = driver.device_count(), []
    for index in range(count):
        streams.append(driver.current_stream(index))

    def unchanged(after: str) -> None:
        expect(f"current_device() after {after}", driver.current_device(), started)
        expect(f"device_count() after {after}", driver.device_count(), count)
        for index in range(count):
            case = f"current_stream({index}) after {after}"
            expect(case, driver.current_stream(index), streams[index])

    started = driver.current_device()
    for index in range(count):
        driver.synchronize(index)
        unchanged(f"synchronize({index})")
        driver.properties(index)
        unchanged(f"properties({index})")
        if driver.host or driver.meta:
            continue
        with block(device, 100, index) as a, block(device, 100, 0) as b:
            unchanged(f"allocate(100, {index})")
            write(device, a, 0, bytes(100))
            unchanged(f"copy_from_host to index {index}")
            driver.copy_within(b, 0, a, 0, 100)
            unchanged(f"copy_within from index {index}")
            read(device, a, 0, 100)
            unchanged(f"copy_to_host from index {index}")
        unchanged(f"release on index {index}")
        tangrad.ones(3, device=f"{device.name}:{index}").add_(1)
        unchanged(f"an op on index {index}")


@check
def threads_choose_their_index(device: Device) -> None:
    """set_device chooses for the calling thread alone, and refuses an index that is not there."""
    from tangrad.plugin import DeviceDriver

    driver, indices = device.driver, indices_of(device)
    beyond = len(indices) + 90
    expect_error(f"set_device({beyond})", RuntimeError, lambda: driver.set_device(beyond))
    expect_error("set_device(-2)", RuntimeError, lambda: driver.set_device(-2))
    if type(driver).set_device is DeviceDriver.set_device:
        raise NotApplicable("its driver leaves the choice of an index to the program")
    started = driver.current_device()
    try:
        for index in indices:
            driver.set_device(index)
            expect(f"current_device() after set_device({index})", driver.current_device(), index)
            found = in_thread(driver.current_device)
            expect(f"current_device() of another thread after set_device({index})", found, started)
            with block(device, 100, 0) as a, block(device, 100, len(indices) - 1) as b:
                write(device, a, 0, pattern(100, 1))
                write(device, b, 0, pattern(100, 2))
                expect(f"bytes of index 0 while {index} is chosen", read(device, a, 0, 100),
                       pattern(100, 1))  # fmt: skip
            memory_is_taken_from_its_index_if_told(device)
    finally:
        driver.set_device(started)


def memory_is_taken_from_its_index_if_told(device: Device) -> None:
    """Ask for the same while an index is chosen."""
    with suppress(NotApplicable):
        memory_is_taken_from_its_index(device)


@check
def threads_get_the_index_they_ask_for(device: Device) -> None:
    """Threads that allocate on several indices at once get memory where they asked for it."""
    driver, indices = device.driver, indices_of(device)

    def free() -> list[Any]:
        return [dict(driver.properties(index)).get("free_memory") for index in indices]

    if None in free():
        raise NotApplicable("it does not tell how much memory is free")
    before, held = free(), dict[int, list[int]]()

    def take(index: int) -> None:
        held[index] = [driver.allocate(MEBIBYTE, index) for _ in range(16)]

    threads = [threading.Thread(target=take, args=(index,)) for index in indices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [b - a for b, a in zip(before, free(), strict=True)]
    for handle in (h for handles in held.values() for h in handles):
        driver.release(handle, MEBIBYTE)
    if any(taken):
        expect("memory of each index after 16 pieces in a thread each", len(set(taken)), 1)


# --- everything else


def state_of_the_host() -> dict[str, Any]:
    """Return what programs share and no driver changes."""
    numpy = np.random.get_state()
    return {
        "Python's random numbers": hash(random.getstate()),
        "NumPy's random numbers": (numpy[0], numpy[1].tobytes(), *numpy[2:]),
        "the working directory": os.getcwd(),
        "the environment": dict(os.environ),
        "sys.path": list(sys.path),
        "the switch interval": sys.getswitchinterval(),
    }


class Listener:
    """Hear of changes of folder and environment, also of those to what they were already.

    Attributes:
        heard: the events since `listen`; None while nobody listens.
    """

    EVENTS = ("os.chdir", "os.fchdir", "os.putenv", "os.unsetenv")
    heard: list[str] | None = None
    installed = False

    @classmethod
    def hear(cls, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an event; Python calls this."""
        if cls.heard is not None and event in cls.EVENTS:
            cls.heard.append(event)

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[None]:
        """Listen in a block."""
        if not cls.installed:
            cls.installed = True
            sys.addaudithook(cls.hear)  # which stays for good
        cls.heard = []
        try:
            yield
        finally:
            cls.heard = None


def must_stay(before: dict[str, Any], after: str) -> None:
    """Raise Mismatch if something of the host has changed, or has been set anew."""
    expect(f"changes of folder and environment after {after}", Listener.heard or [], [])
    for what, value in state_of_the_host().items():
        if value != before[what]:
            raise Mismatch(f"{what} after {after}", "changed", "unchanged")


@check
def the_host_is_left_alone(device: Device) -> None:
    """No method changes random numbers, folder, environment or paths of the process."""
    folder, drawn = os.getcwd(), (random.getstate(), np.random.get_state())
    random.random(), np.random.random()  # who has seeded them already is seen to do so again
    before = state_of_the_host()
    try:
        with Listener.listening():
            left_alone(device, before)
    finally:
        os.chdir(folder)
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])


def left_alone(device: Device, before: dict[str, Any]) -> None:
    """Call every method once, and look at the host after each."""
    driver = device.driver
    if not driver.host and not driver.meta:
        handle = driver.allocate(100, 0)
        must_stay(before, "allocate()")
        write(device, handle, 0, bytes(100))
        must_stay(before, "copy_from_host()")
        driver.copy_within(handle, 0, handle, 50, 50)
        must_stay(before, "copy_within()")
        read(device, handle, 0, 100)
        must_stay(before, "copy_to_host()")
        driver.release(handle, 100)
        must_stay(before, "release()")
    driver.synchronize()
    must_stay(before, "synchronize()")
    x = tangrad.ones(5, 5).to(device.name)
    y = (x * x + x).sum(0).exp() @ x
    must_stay(before, "ops")
    if not driver.meta:
        y.cpu()
    must_stay(before, "copies of tensors")


@check
def probing_changes_nothing(device: Device) -> None:
    """probe() says True or why not, and starts no thread, opens no file and changes nothing."""
    kind = type(device.driver)
    kind(device.name).probe()
    before, threads, files = state_of_the_host(), threading.active_count(), usage(device.driver)
    with Listener.listening():
        for _ in range(GROWTH):
            answer = kind(device.name).probe()
        expect("probe() is True or a text", answer is True or type(answer) is str, True)
        must_stay(before, "probe()")
    expect("threads after probe()", threading.active_count() <= threads, True)
    for what, (extra, unit) in grown(files, usage(device.driver)).items():
        if unit == "files":
            expect(f"{what} after {GROWTH} times probe(): {extra} more", extra < GROWTH // 2, True)


@check
def autocast_computes_in_what_exists(device: Device) -> None:
    """The dtypes of autocast exist and hold fractions, and ops under it have the first of them."""
    driver = device.driver
    for name in driver.amp_dtypes:
        dtype = getattr(tangrad, name, None)
        known = isinstance(dtype, tangrad.dtype)
        expect(f"amp_dtypes: '{name}' is a dtype", known, True)
        expect(f"amp_dtypes: '{name}' is floating-point", dtype.is_floating_point, True)
    if not driver.amp_dtypes:
        raise NotApplicable("it has no dtypes for autocast")
    x = tangrad.ones(3, 3).to(device.name)
    with tangrad.autocast(device.name):
        found = (x @ x).dtype
    expect("dtype of a product under autocast", str(found), f"tangrad.{driver.amp_dtypes[0]}")


@check
def composites_are_of_ops(device: Device) -> None:
    """What the driver computes by ops of its own has the name of an op."""
    from tangrad.plugin import all_ops

    known = all_ops()
    for name in device.driver.composites:
        expect(f"composites: '{name}' is an op", name in known, True)


@check
def released_memory_counts_as_free(device: Device) -> None:
    """More memory is given in all than a budget that forgets releases would have."""
    device.require_own_memory()
    total = dict(device.driver.properties(0)).get("total_memory")
    nbytes = 64 * MEBIBYTE
    if isinstance(total, int):
        nbytes = min(nbytes, total // 4)
    for turn in range(IN_ALL):
        try:
            device.driver.release(device.driver.allocate(nbytes, 0), nbytes)
        except MemoryError as error:
            got = f"{type(error).__name__}: {error}"
            raise Mismatch(f"allocate({nbytes}, 0) after {turn} such were released", got,
                           "memory") from error  # fmt: skip


def checks(device: Device) -> Iterator[Check]:
    """Yield the checks of this part of the level."""
    yield from PLAIN
