"""Run the kit against faulty devices, each in a child process, until the first check that fails."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

# What costs least and finds most comes first.
ORDER = (0, 4, 2, 1, 6, 5, 7, 3)
LONGEST = 40


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
    """Try every mutant."""
    preload()
    verdicts = []
    for mutant in mutants:
        verdicts.append(tried(mutant))
        tell(verdicts[-1])
    return verdicts


def preload() -> None:
    """Import what the children need, once; no device is opened here."""
    import numpy  # noqa: F401

    from tangrad.plugin import all_ops
    from tangrad_testing.levels.run import LEVELS

    all_ops()
    for module, _ in LEVELS.values():
        __import__(f"tangrad_testing.levels.{module}")


def tried(mutant: Mutant) -> Verdict:
    """Try one mutant in a child of this process."""
    started = time.perf_counter()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            os.setpgid(0, 0)
            answer = json.dumps(first_failure(mutant))
            os.write(writer, answer.encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    text = read_until_end(reader, child, started + LONGEST)
    end_group(child)
    _, status = os.waitpid(child, 0)
    seconds = time.perf_counter() - started
    if text:
        killer, message = json.loads(text)
    elif seconds >= LONGEST:
        killer, message = "hang", f"no answer in {LONGEST} s"
    else:
        killer, message = "crash", f"the process ended with status {status}"
    return Verdict(mutant.name, mutant.says, killer, message, seconds, mutant.equivalent)


def read_until_end(reader: int, child: int, deadline: float) -> str:
    """Return what the child writes before it ends or the deadline passes."""
    import select

    parts = []
    while (left := deadline - time.perf_counter()) > 0:
        ready, _, _ = select.select([reader], [], [], left)
        part = os.read(reader, 65536) if ready else b""
        parts.append(part)
        if not part:
            break
    os.close(reader)
    return b"".join(parts).decode()


def end_group(child: int) -> None:
    """End what a child left running."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def first_failure(mutant: Mutant) -> tuple[str, str]:
    """Return (check, message) of the first failure of the kit on a mutant, or ("", "")."""
    from tangrad_testing.levels import Device
    from tangrad_testing.levels.run import run as run_checks

    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.setrecursionlimit(2000)
    try:
        mutant.install()
        device = Device(mutant.device)
        device.driver  # noqa: B018 - it opens here
    except Exception as error:
        return "opening", f"{type(error).__name__}: {error}"[:300]
    try:
        for outcome in run_checks(device, ORDER):
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
