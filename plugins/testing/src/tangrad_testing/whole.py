"""Run the whole conformance kit on a slow device: in pieces, resumable, whatever crashes or hangs.

``python -m tangrad_testing.whole --device cuda --record cuda.jsonl`` runs all ops, some in each
process, and writes a line for each test. Stopped and started again it goes on where it was. Ops
come in the order of a hash of their names, so that what has run so far is a fair sample.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from tangrad_testing.recording import (
    INTERRUPTED,
    STARTED,
    VARIABLE,
    last_line,
    lines_of,
    outcomes,
    write,
)

# Statuses of pytest after which all tests of a process have an outcome: passed, failed, none.
ENDED = (0, 1, 5)
# How many times a test's limit a process may take to find its tests.
PATIENCE = 10
KIT = "tangrad_testing.conformance"
OP = "--tangrad-op="
GOOD = ("passed", "skipped", "xfailed")


def main() -> int:
    """Run what has no outcome yet, then print the counts; return 1 if anything failed."""
    options = _options()
    if not options.report:
        run(
            options.device,
            options.record,
            options.ops,
            options.limit,
            options.pytest,
            first=options.first,
        )
    print(report(options.record))
    found = outcomes(options.record).values()
    return int(any(line["outcome"] not in GOOD for line in found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tangrad_testing.whole")
    add = parser.add_argument
    add("--device", required=True, metavar="NAME")
    add("--record", required=True, type=Path, metavar="FILE", help="a line for each test")
    add("--ops", type=int, default=32, metavar="N", help="ops of one process (%(default)s)")
    add("--first", type=int, default=0, metavar="N", help="leave out the first N ops of the order")
    add("--limit", type=float, default=600, metavar="S", help="seconds of a test (%(default)s)")
    add("--report", action="store_true", help="run nothing, print the counts")
    add("pytest", nargs="*", help="arguments of pytest, after --")
    return parser.parse_args()


def run(
    device: str,
    record: Path,
    ops_each: int,
    limit: float,
    arguments: Sequence[str] = (),
    *,
    first: int = 0,
) -> None:
    """Run every piece of the kit that has not ended yet.

    Args:
        device: what is tested.
        record: file that gets a line for each test; what is in it is not run again.
        ops_each: how many ops a process tests; a crash costs the process.
        limit: seconds after which a test that has not ended is stopped.
        arguments: more of pytest's, such as ``-k float32``.
        first: how many ops of the order are left out, because they have run elsewhere; what asks
            no op is left out with them.

    Raises:
        RuntimeError: a process ended before its first test.
    """
    record.touch()
    for test in _running(record):
        write(record, test=test, outcome=INTERRUPTED)
    ended = [line["piece"] for line in lines_of(record) if "piece" in line]
    # What a process imports and collects takes seconds: ops that have ended are not asked again.
    known = {a for piece in ended if piece == [*piece[:1], *_ops(piece), *arguments] for a in piece}
    for piece in pieces(ops_each, known, first):
        told = [*piece, *arguments]
        if told in ended:
            continue
        while not run_piece(device, record, told, limit):
            pass
        write(record, piece=told)


def pieces(ops_each: int, known: Collection[str] = (), first: int = 0) -> list[list[str]]:
    """Return pytest's arguments for each piece of the kit: what asks no op, then the ops.

    Args:
        ops_each: how many ops a piece has.
        known: arguments of ops that are left out.
        first: how many ops of the order are left out, and what asks no op with them.
    """
    from tangrad_testing.cases import op_names

    ops = sorted(op_names(), key=lambda name: hashlib.blake2b(name.encode()).digest())
    asked = [OP + op for op in ops[first:] if OP + op not in known]
    chosen = [asked[i : i + ops_each] for i in range(0, len(asked), ops_each)]
    plain = [] if first else [[f"{KIT}.test_levels", f"{KIT}.test_plugins"]]
    return [*plain, *([KIT, *some] for some in chosen)]


def _ops(piece: Sequence[str]) -> list[str]:
    return [argument for argument in piece if argument.startswith(OP)]


def run_piece(device: str, record: Path, arguments: Sequence[str], limit: float) -> bool:
    """Run one process; return False if a test took it along, so that others wait for another.

    Raises:
        RuntimeError: it ended before its first test.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no"]
    command += ["-p", "tangrad_testing.recording", f"--tangrad-device={device}", "--pyargs"]
    process = subprocess.Popen(
        [*command, *arguments],
        env={**os.environ, VARIABLE: str(record.resolve()), "TANGRAD_TESTS": "full"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    hung, said = _wait(process, record, limit)
    running = _running(record)
    for test in running:
        outcome = "hung" if hung else "crashed"
        write(
            record, test=test, outcome=outcome, says=f"status {process.returncode}: {said[-600:]}"
        )
    # A program that cannot even import pytest has the status of one whose tests failed.
    if last_line(record).get("ended") not in ENDED and not running:
        raise RuntimeError(f"{' '.join(command)} ended before its first test:\n{said[-2000:]}")
    return not running


def _running(record: Path) -> list[str]:
    return [test for test, line in outcomes(record).items() if line["outcome"] == STARTED]


def _wait(process: subprocess.Popen[str], record: Path, limit: float) -> tuple[bool, str]:
    """Return whether a process was stopped because a test took too long, and what it printed."""
    start = time.time()
    while True:
        try:
            return False, process.communicate(timeout=1)[0]
        except subprocess.TimeoutExpired:
            waited = time.time() - max(start, record.stat().st_mtime)
            if waited > (limit if _is_in_a_test(record) else PATIENCE * limit):
                process.kill()
                return True, process.communicate()[0]


def _is_in_a_test(record: Path) -> bool:
    return last_line(record).get("outcome") == STARTED


def report(record: Path) -> str:
    """Return the counts of a record by body and by dtype, and what failed."""
    found = outcomes(record)
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for test, line in found.items():
        for key in _keys(test):
            by[key][line["outcome"]] += 1
    rows = [f"{key:70} {_counts(by[key])}" for key in sorted(by)]
    failed = [
        f"{line['outcome']} {test}: {line.get('says', '')}"
        for test, line in sorted(found.items())
        if line["outcome"] not in GOOD
    ]
    total = Counter(line["outcome"] for line in found.values())
    return "\n".join([*failed, *rows, f"{'all':70} {_counts(total)}"])


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))


def _keys(test: str) -> list[str]:
    body, _, case = test.partition("[")
    dtype = re.search(r"-([a-z]+\d+|bool)-", case)
    return [body, f"dtype {dtype[1]}"] if dtype else [body]


if __name__ == "__main__":
    sys.exit(main())
