"""Level 0: what the core asks of a driver, asked directly and hard."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import tangrad
from tangrad_testing.levels import lifetime
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

THREADS = 4
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
LARGE = 2**31 + 4096  # more than 31 bits count, and than Linux reads or writes in one call
SECONDS_FOR_A_CHILD = 20  # on a busy machine, as below
SECONDS_FOR_A_PROCESS = 120


@check
def tells_what_it_is(device: Device) -> None:
    """count, current index, properties, seed and threads are of the types the core relies on."""
    driver = device.driver
    count = driver.device_count()
    expect("device_count() is a positive int", type(count) is int and count > 0, True)
    current = driver.current_device()
    expect("current_device() is an index", type(current) is int and 0 <= current < count, True)
    for index in range(count):
        facts = driver.properties(index)
        expect(f"properties({index}) is a dict with 'name'", "name" in dict(facts), True)
        expect(f"initial_seed({index}) is an int", type(driver.initial_seed(index)), int)
        expect(f"current_stream({index}) is an int", type(driver.current_stream(index)), int)
    expect("get_num_threads() is positive", driver.get_num_threads() >= 1, True)
    expect("probe() of an open device", driver.probe(), True)
    expect("its name", driver.name, device.name)
    driver.synchronize()
    for index in range(count):
        driver.synchronize(index)


@check
def probing_leaves_no_trace(device: Device) -> None:
    """A second instance is probed quickly while the first one works, and disturbs nothing."""
    kept = tangrad.arange(5.0).to(device.name)
    expect("probe() of another instance", type(device.driver)(device.name).probe(), True)
    expect("a tensor from before", kept.cpu().tolist(), [0.0, 1.0, 2.0, 3.0, 4.0])


@check
def handles_are_distinct_integers(device: Device) -> None:
    """Live pieces of memory have distinct handles, which fit 64 unsigned bits."""
    device.require_own_memory()
    driver = device.driver
    held = [(driver.allocate(n, 0), n) for n in SIZES]
    try:
        for handle, nbytes in held:
            fits = isinstance(handle, int) and 0 <= handle < 2**64
            expect(f"allocate({nbytes}, 0) fits 64 unsigned bits", fits, True)
        expect("distinct handles of live memory", len({h for h, _ in held}), len(held))
    finally:
        for handle, nbytes in held:
            driver.release(handle, nbytes)


@check
def bytes_come_back(device: Device) -> None:
    """What was written is read, for sizes around registers, thread blocks and pages."""
    for nbytes in SIZES:
        with block(device, nbytes) as handle:
            for seed in (1, 2):
                wrote = pattern(nbytes, seed)
                write(device, handle, 0, wrote)
                expect(f"{nbytes} bytes written and read", read(device, handle, 0, nbytes), wrote)


@check
def memory_is_writable_from_the_host(device: Device) -> None:
    """copy_from_host takes writable and read-only buffers; copy_to_host fills all of its target."""
    with block(device, 100) as handle:
        write(device, handle, 0, bytes(100))
        device.driver.copy_from_host(handle, 0, memoryview(bytearray(b"\x07" * 100)))
        expect("from a writable buffer", read(device, handle, 0, 100), b"\x07" * 100)
        array = np.arange(100, dtype=np.uint8)
        device.driver.copy_from_host(handle, 0, memoryview(array))
        found = np.full(100, 255, np.uint8)
        device.driver.copy_to_host(handle, 0, memoryview(found))
        expect("into an array's memory", found.tobytes(), array.tobytes())


@check
def offsets_are_in_bytes(device: Device) -> None:
    """A write at an offset changes those bytes and no others; a read at an offset sees them."""
    size = 4099
    with block(device, size) as handle:
        for offset, nbytes in ((0, 1), (1, 1), (3, 64), (4095, 4), (17, 4000), (size - 1, 1)):
            image = bytearray(pattern(size, 3))
            write(device, handle, 0, bytes(image))
            piece = pattern(nbytes, 4)
            write(device, handle, offset, piece)
            image[offset : offset + nbytes] = piece
            case = f"{nbytes} bytes written at offset {offset} of {size}"
            expect(case, read(device, handle, 0, size), bytes(image))
            expect(f"{case}, read there", read(device, handle, offset, nbytes), piece)


@check
def no_bytes_are_copied_without_harm(device: Device) -> None:
    """Copies of zero bytes do nothing, also at the end of a piece of memory."""
    with block(device, 64) as a, block(device, 64) as b:
        write(device, a, 0, pattern(64, 5))
        for offset in (0, 64):
            write(device, a, offset, b"")
            expect(f"no bytes read at {offset}", read(device, a, offset, 0), b"")
            device.driver.copy_within(a, offset, b, offset, 0)
        expect("bytes after empty copies", read(device, a, 0, 64), pattern(64, 5))


@check
def pieces_do_not_share_memory(device: Device) -> None:
    """Live pieces of memory keep their bytes when others are written and released."""
    device.require_own_memory()
    driver = device.driver
    held: dict[int, tuple[int, bytes]] = {}
    for seed, nbytes in enumerate([*SIZES, *SIZES[::-1]]):
        handle = driver.allocate(nbytes, 0)
        held[handle] = (nbytes, pattern(nbytes, seed))
        write(device, handle, 0, held[handle][1])
    for position, handle in enumerate(list(held)):
        if position % 2:
            driver.release(handle, held.pop(handle)[0])
    extra = driver.allocate(5000, 0)
    write(device, extra, 0, b"\xff" * 5000)
    try:
        for handle, (nbytes, wrote) in held.items():
            expect(f"{nbytes} bytes beside others", read(device, handle, 0, nbytes), wrote)
    finally:
        driver.release(extra, 5000)
        for handle, (nbytes, _) in held.items():
            driver.release(handle, nbytes)


@check
def copies_within_the_device(device: Device) -> None:
    """copy_within moves the bytes asked for, from and to any offset, and nothing else."""
    size = 9001
    with block(device, size) as a, block(device, size) as b:
        for to, start, nbytes in ((0, 0, size), (1, 4096, 63), (4097, 3, 4904), (8999, 0, 2)):
            source, image = pattern(size, 6), bytearray(pattern(size, 7))
            write(device, a, 0, source)
            write(device, b, 0, bytes(image))
            device.driver.copy_within(b, to, a, start, nbytes)
            image[to : to + nbytes] = source[start : start + nbytes]
            case = f"{nbytes} bytes copied from offset {start} to {to} of another piece"
            expect(case, read(device, b, 0, size), bytes(image))
            expect(f"{case}, the source", read(device, a, 0, size), source)


@check
def copies_may_overlap(device: Device) -> None:
    """copy_within moves overlapping bytes as if through a copy, in both directions."""
    size = 70_000
    with block(device, size) as handle:
        for nbytes in (300, 5000, 65537):
            for shift in (0, 1, 7, 64, 250, 4096):
                for start, to in ((10, 10 + shift), (10 + shift, 10)):
                    if to + nbytes > size or start + nbytes > size:
                        continue
                    image = bytearray(pattern(size, 8))
                    write(device, handle, 0, bytes(image))
                    device.driver.copy_within(handle, to, handle, start, nbytes)
                    image[to : to + nbytes] = bytes(image[start : start + nbytes])
                    case = f"{nbytes} overlapping bytes copied from offset {start} to {to}"
                    expect(case, read(device, handle, 0, size), bytes(image))


@check
def copies_cross_indices(device: Device) -> None:
    """Memory of one index is copied to another, by the driver and by Tensor.to."""
    device.require_own_memory()
    count = device.driver.device_count()
    if count < 2:
        raise NotApplicable("there is one device of this type")
    wrote = pattern(5000, 9)
    with block(device, 5000, 0) as a, block(device, 5000, 1) as b:
        write(device, a, 0, wrote)
        write(device, b, 0, bytes(5000))
        device.driver.copy_within(b, 0, a, 0, 5000)
        expect("bytes copied from index 0 to 1", read(device, b, 0, 5000), wrote)
        write(device, b, 0, wrote[::-1])
        device.driver.copy_within(a, 100, b, 200, 4000)
        expected = wrote[:100] + wrote[::-1][200:4200] + wrote[4100:]
        expect("bytes copied from index 1 to 0", read(device, a, 0, 5000), expected)
    expect("device_count() after memory of index 1 was used", device.driver.device_count(), count)
    there = tangrad.arange(1000.0).to(f"{device.name}:1")
    expect("index of a tensor on the second device", there.device.index, 1)
    back = there.to(f"{device.name}:0")
    expect("index of its copy", back.device.index, 0)
    expect("its values", back.cpu().tolist(), list(map(float, range(1000))))
    rows = tangrad.arange(12.0).reshape(3, 4).to(device.name)
    for name, view in (("transposed", rows.t()), ("an inner block", rows[1:, 1:3])):
        for dtype in (tangrad.float32, tangrad.int64):
            moved = view.to(f"{device.name}:1", dtype).cpu().tolist()
            expect(f"{name}, to {dtype} on the second device", moved, view.cpu().tolist())


@check
def copies_of_more_than_two_gibibytes(device: Device) -> None:
    """One call copies more bytes than 31 bits count: to the device, within it, and back."""
    device.require_own_memory()
    if not device.large:
        raise NotApplicable("it takes some 6 GiB of memory: --large asks for it")
    try:
        handle = device.driver.allocate(LARGE, 0)
    except MemoryError as error:
        raise NotApplicable(f"there is no memory for it: {error}") from error
    marks = [0, 2**31 - 4101, 2**31 - 5, LARGE - 11]  # on either side of where counts overflow
    try:
        # Private: then pages that nobody writes to take no memory.
        source, target = (mmap.mmap(-1, LARGE, PRIVATE) for _ in range(2))
        for mark in marks:
            source[mark : mark + 11] = pattern(11, 12 + mark % 7)
        device.driver.copy_from_host(handle, 0, memoryview(source))
        device.driver.copy_within(handle, 0, handle, 1, LARGE - 1)
        device.driver.copy_to_host(handle, 0, memoryview(target))
    finally:
        device.driver.release(handle, LARGE)
    for mark in marks:
        got, expected = target[mark : mark + 10], source[mark + 1 : mark + 11]
        expect(f"{LARGE} bytes copied there, by one to the front, and back, from byte {mark}",
               got, expected)  # fmt: skip


@check
def host_memory_is_free_when_a_copy_returns(device: Device) -> None:
    """A source may change, and a target is complete and let go of, when a copy has returned."""
    nbytes = 65537
    with block(device, nbytes) as handle:
        source = bytearray(pattern(nbytes, 10))
        device.driver.copy_from_host(handle, 0, memoryview(source))
        source[:] = bytes(nbytes)
        target = bytearray(nbytes)
        device.driver.copy_to_host(handle, 0, memoryview(target))
        expect("bytes of a source that changed afterwards", bytes(target), pattern(nbytes, 10))
        write(device, handle, 0, bytes(nbytes))
        expect("a target after later writes", bytes(target), pattern(nbytes, 10))
        for name, buffer in (("source", source), ("target", target)):
            try:
                buffer.clear()
            except BufferError as error:
                raise Mismatch(f"the {name} after the copy", str(error), "let go of") from error


@check
def released_memory_comes_back(device: Device) -> None:
    """Allocating and releasing over and over takes no more memory or files than once."""
    device.require_own_memory()
    driver = device.driver

    def rounds(count: int, nbytes: int) -> None:
        content = bytes(nbytes)
        for _ in range(count):
            handle = driver.allocate(nbytes, 0)
            write(device, handle, 0, content)
            driver.release(handle, nbytes)

    for count, nbytes in ((16, 8 * MEBIBYTE), (800, MEBIBYTE // 8)):
        rounds(2, nbytes)
        before = usage(driver)
        rounds(count, nbytes)
        for what, (extra, unit) in grown(before, usage(driver)).items():
            limit = count * nbytes // 2 if unit == "bytes" else count // 2
            if extra > limit:
                case = f"{what} after {count} times allocate and release of {nbytes} bytes"
                raise Mismatch(case, f"{extra} {unit} more", f"at most {limit} more")


@check
def more_memory_than_there_is(device: Device) -> None:
    """Allocate raises MemoryError when there is not enough, and works afterwards."""
    device.require_own_memory()
    driver = device.driver
    total = dict(driver.properties(0)).get("total_memory")
    for nbytes in (MORE_THAN_THERE_IS, *([int(total) + 4096] if total else [])):
        expect_error(f"allocate({nbytes}, 0)", MemoryError, lambda n=nbytes: driver.allocate(n, 0))
        with block(device, 1000) as handle:
            write(device, handle, 0, pattern(1000, 11))
            case = "bytes in memory allocated after that"
            expect(case, read(device, handle, 0, 1000), pattern(1000, 11))


@check
def misuse_is_refused(device: Device) -> None:
    """A driver that promises to be strict refuses foreign handles and bytes outside."""
    device.require_own_memory()
    driver = device.driver
    if not driver.strict:
        raise NotApplicable("its driver does not promise to be strict")
    image = pattern(64, 12)
    with block(device, 64) as handle, block(device, 64) as other:
        write(device, handle, 0, image)
        for case, action in misuses(driver, handle, other):
            expect_error(case, Exception, action)
            expect(f"bytes after {case}", read(device, handle, 0, 64), image)
    expect_error("release() twice", Exception, lambda: driver.release(handle, 64))
    expect_error("reading what was released", Exception, lambda: read(device, handle, 0, 1))


def misuses(driver: Any, handle: int, other: int) -> list[tuple[str, Callable[[], Any]]]:
    """List calls that no driver can fulfil; both pieces have 64 bytes."""
    eight, foreign = memoryview(bytearray(8)), handle ^ (1 << 40)
    return [
        ("a write past the end", lambda: driver.copy_from_host(handle, 57, eight)),
        ("a write before the start", lambda: driver.copy_from_host(handle, -8, eight)),
        ("a read past the end", lambda: driver.copy_to_host(handle, 57, eight)),
        ("a read before the start", lambda: driver.copy_to_host(handle, -8, eight)),
        ("a copy to past the end", lambda: driver.copy_within(handle, 57, other, 0, 8)),
        ("a copy to before the start", lambda: driver.copy_within(handle, -1, other, 0, 8)),
        ("a copy from past the end", lambda: driver.copy_within(handle, 0, other, 57, 8)),
        ("a copy between past the ends", lambda: driver.copy_within(handle, 57, other, 57, 8)),
        ("a copy from before the start", lambda: driver.copy_within(handle, 0, other, -1, 8)),
        ("a write to a foreign handle", lambda: driver.copy_from_host(foreign, 0, eight)),
        ("a read of a foreign handle", lambda: driver.copy_to_host(foreign, 0, eight)),
        ("a copy from a foreign handle", lambda: driver.copy_within(handle, 0, foreign, 0, 8)),
        ("release() of a foreign handle", lambda: driver.release(foreign, 64)),
        ("release() of another size", lambda: driver.release(handle, 63)),
    ]


@check
def threads_may_use_it_at_once(device: Device) -> None:
    """Allocation and copies in several threads at once keep every thread's bytes."""
    device.require_own_memory()

    def work(thread: int) -> None:
        for turn in range(25):
            nbytes = SIZES[(7 * thread + turn) % len(SIZES)] + 64
            with block(device, nbytes) as a, block(device, nbytes) as b:
                wrote = pattern(nbytes, 1000 * thread + turn)
                write(device, a, 0, wrote)
                device.driver.copy_within(b, 0, a, 0, nbytes)
                case = f"{nbytes} bytes of one of {THREADS} threads"
                expect(case, read(device, b, 0, nbytes), wrote)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
    finally:
        sys.setswitchinterval(interval)


@check
def a_forked_child_works_or_is_refused(device: Device) -> None:
    """After fork a child computes rightly or gets an error, and the parent goes on as before."""
    if not hasattr(os, "fork"):
        raise NotApplicable("this system does not fork")
    if device.driver.meta:
        raise NotApplicable("its tensors have no memory")
    here = tangrad.arange(1000.0).to(device.name)
    answer = in_forked_child(lambda: here.cpu().tolist() == list(map(float, range(1000))))
    if answer not in ("right", "refused"):
        raise Mismatch("a child that reads a tensor after fork", answer, "right values or an error")
    more = tangrad.arange(1000.0, 2000.0).to(device.name)
    expect("the parent's tensor", here.cpu().tolist(), list(map(float, range(1000))))
    expect("the parent's next tensor", more.cpu().tolist(), list(map(float, range(1000, 2000))))


def in_forked_child(question: Callable[[], bool]) -> str:
    """Return "right", "wrong values", "refused", or how a forked child ended."""
    import signal
    import warnings

    answers = {0: "right", 1: "wrong values", 2: "refused"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads in the parent
        child = os.fork()
    if child == 0:
        code = 2
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS_FOR_A_CHILD)
            code = 0 if question() else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        hung = os.WTERMSIG(status) == signal.SIGALRM
        return "no answer" if hung else f"killed by signal {os.WTERMSIG(status)}"
    return answers.get(os.WEXITSTATUS(status), f"exit status {os.WEXITSTATUS(status)}")


@check
def another_process_opens_it(device: Device) -> None:
    """A new process opens the device while this one uses it, and ends without complaint."""
    kept = tangrad.arange(5.0).to(device.name)
    program = "import sys, tangrad; print(tangrad.arange(3.0).to(sys.argv[1]).cpu().tolist())"
    outcome = subprocess.run(
        [sys.executable, "-c", program, device.name],
        capture_output=True,
        text=True,
        timeout=SECONDS_FOR_A_PROCESS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    expect("exit status of a process that uses it", outcome.returncode, 0)
    expect("what it prints", outcome.stdout.strip(), "[0.0, 1.0, 2.0]")
    expect("what it complains of", outcome.stderr.strip(), "")
    expect("a tensor here", kept.cpu().tolist(), [0.0, 1.0, 2.0, 3.0, 4.0])


def checks(device: Device) -> Iterator[Check]:
    """Yield the checks of this level."""
    yield from PLAIN
    yield from lifetime.checks(device)
