"""Run the kit against faulty devices, each in a child process, until the first check that fails."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

# What costs least and finds most comes first.
ORDER = (0, 4, 2, 1, 6, 5, 7, 3)
# Seconds for one check, of a machine that has nothing else to do.
LONGEST = 40
LONGEST_LARGE = 300  # for that of copies of gigabytes
LOOK = 1.0  # seconds between two looks at how busy the machine is
GLANCE = 0.005  # seconds of work that tell it
Ask = Callable[["Mutant", Callable[[], None]], tuple[str, str]]


@dataclass(frozen=True)
class Mutant:
    """One faulty device.

    Attributes:
        name: of the fault.
        says: what is wrong.
        device: the type it stands in for.
        install: puts it in the place of the real one; called in the child.
        equivalent: why it is no fault at all, if it is none.
    """

    name: str
    says: str
    device: str
    install: Callable[[], None]
    equivalent: str = ""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        mutant: its name.
        says: what is wrong with it.
        killer: "level check" that failed first, "opening", "hang", "crash", or "" if it survived.
        message: what the check said.
        seconds: how long that took.
        equivalent: why a survivor is no fault, if it is none.
    """

    mutant: str
    says: str
    killer: str
    message: str
    seconds: float
    equivalent: str = ""


def run(mutants: Iterable[Mutant], tell: Callable[[Verdict], None]) -> list[Verdict]:
    """Try every mutant; one that survives unexplained is asked for large copies, too."""
    preload()
    verdicts = []
    for mutant in mutants:
        verdict = tried(mutant, first_failure, LONGEST)
        if not verdict.killer and not mutant.equivalent:
            large = tried(mutant, failure_of_large_copies, LONGEST_LARGE)
            verdict = replace(large, seconds=verdict.seconds + large.seconds)
        verdicts.append(verdict)
        tell(verdict)
    return verdicts


def preload() -> None:
    """Import what the children need, once; no device is opened here."""
    import numpy  # noqa: F401

    from tangrad.plugin import all_ops
    from tangrad_testing.levels.run import LEVELS

    all_ops()
    for module, _ in LEVELS.values():
        __import__(f"tangrad_testing.levels.{module}")


def tried(mutant: Mutant, ask: Ask, longest: float) -> Verdict:
    """Try one mutant in a child of this process.

    Args:
        mutant: the faulty device.
        ask: function that returns what failed first; it calls what it is given before each check.
        longest: the seconds without a sign after which it hangs, where it has a processor.
    """
    started = time.perf_counter()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            os.setpgid(0, 0)
            answer = json.dumps(ask(mutant, partial(heartbeat, writer)))
            os.write(writer, answer.encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    text, ended = read_until_end(reader, longest)
    end_group(child)
    _, status = os.waitpid(child, 0)
    seconds = time.perf_counter() - started
    if text:
        killer, message = json.loads(text)
    elif not ended:
        killer, message = "hang", f"a check gave no answer in {longest:g} s"
    else:
        killer, message = "crash", f"the process ended with status {status}"
    return Verdict(mutant.name, mutant.says, killer, message, seconds, mutant.equivalent)


def heartbeat(writer: int) -> None:
    """Tell the parent that the child is alive."""
    os.write(writer, b"\n")


def read_until_end(reader: int, longest: float) -> tuple[str, bool]:
    """Return what a child writes, and whether it came to its end: nothing for long is a hang.

    A machine that is shared by many makes a child slow: the seconds that count are those in which
    work here went on as well.
    """
    import select

    parts, silent, last = [b"\n"], 0.0, time.perf_counter()
    while parts[-1] and silent < longest:
        ready, _, _ = select.select([reader], [], [], LOOK)
        if ready:
            parts.append(os.read(reader, 65536))
            silent, last = 0.0, time.perf_counter()
        else:
            share = share_of_a_processor()
            now = time.perf_counter()
            silent, last = silent + (now - last) * share, now
    os.close(reader)
    return b"".join(parts).decode().strip(), not parts[-1]


def share_of_a_processor() -> float:
    """Return which part of the time that work here takes is spent on it: 1 on an idle machine."""
    started, worked = time.perf_counter(), time.process_time()
    while (spent := time.process_time() - worked) < GLANCE:
        pass
    return min(1.0, spent / (time.perf_counter() - started))


def end_group(child: int) -> None:
    """End what a child left running."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def first_failure(mutant: Mutant, beat: Callable[[], None]) -> tuple[str, str]:
    """Return (check, message) of the first failure of the kit on a mutant, or ("", "").

    Args:
        mutant: the faulty device.
        beat: called before each check.
    """
    from tangrad_testing.levels.run import checks_of

    def of_packages_first(device: Any) -> list[Any]:
        found = list(checks_of(device, ORDER))
        return sorted(found, key=lambda check: "::" not in check.name)

    return failure_among(mutant, False, of_packages_first, beat)


def failure_of_large_copies(mutant: Mutant, beat: Callable[[], None]) -> tuple[str, str]:
    """Return the same for what is asked of a device with `--large`."""
    from tangrad_testing.levels.contract import PLAIN, copies_of_more_than_two_gibibytes

    found = [c for c in PLAIN if c.body is copies_of_more_than_two_gibibytes]
    return failure_among(mutant, True, lambda device: found, beat)


def failure_among(
    mutant: Mutant,
    large: bool,
    checks: Callable[[Any], Iterable[Any]],
    beat: Callable[[], None],
) -> tuple[str, str]:
    """Return (check, message) of the first of some checks that fails, or ("", "")."""
    from tangrad_testing.levels import Device
    from tangrad_testing.levels.run import run_check

    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.setrecursionlimit(2000)
    try:
        mutant.install()
        device = Device(mutant.device, large=large)
        device.driver  # noqa: B018 - it opens here
    except Exception as error:
        return "opening", f"{type(error).__name__}: {error}"[:300]
    try:
        for check in checks(device):
            beat()
            outcome = run_check(check, device)
            if outcome.status == "failed":
                return f"{outcome.check.level} {outcome.check.name}", outcome.message[:300]
    except BaseException as error:
        return "crash", f"{type(error).__name__}: {error}"[:300]
    return "", ""


def by_hash(mutants: Iterable[Mutant], count: int) -> Iterator[Mutant]:
    """Choose some mutants by a hash of their names: the same in every run, no one's favourites."""
    import hashlib

    def digest(mutant: Mutant) -> bytes:
        return hashlib.blake2b(mutant.name.encode()).digest()

    yield from sorted(mutants, key=digest)[:count]
