"""Random calls of every public function: they end, with a result or an error that is meant."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import random_calls
import torch

FULL = os.environ.get("TANGRAD_TESTS") == "full"
CALLS = int(os.environ.get("TANGRAD_CALLS", 40 if FULL else 2))  # of each function
FIRST = int(os.environ.get("TANGRAD_CALLS_FROM", 0))
SHARDS = 8 if FULL else 1  # a process each: starting one costs more than a thousand calls

# What no function raises of itself: such an error is a mistake inside, unless PyTorch makes it.
MISTAKES = frozenset(
    {
        *("AssertionError", "AttributeError", "KeyError", "NameError", "UnboundLocalError"),
        *("ZeroDivisionError", "SystemError", "RecursionError", "StopIteration"),
    }
)


# Refused on purpose, as docs/deviations.md says: layouts and dtypes that are not there yet.
REFUSED = re.compile(r"\.(to_sparse\w*|to_mkldnn|chalf)$")


# Asserted by PyTorch too, which may find another argument at fault first.
ASSERTED = re.compile(r"Padding_idx must be within num_embeddings|^lobpcg: (A|X) (must|and B must)")


def reports(calls: Sequence[tuple[str, int]]) -> Iterator[dict[str, Any]]:
    """Evaluate calls in processes of their own; a process that ends early is told of."""
    done = 0
    while done < len(calls):
        started: dict[str, Any] = {}
        with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as said:
            given.write("\n".join(f"{path} {seed}" for path, seed in calls[done:]))
            given.seek(0)
            command = [sys.executable, random_calls.__file__]
            with subprocess.Popen(
                command, stdin=given, stdout=subprocess.PIPE, stderr=said, text=True
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    if not line.startswith("{"):
                        continue  # a library printed something
                    report = json.loads(line)
                    if "start" in report:
                        started = report
                    else:
                        done += 1
                        yield report
            if process.returncode != 0:
                said.seek(0)
                assert started, said.read()
                done += 1
                yield {**started, "ended": process.returncode, "stderr": said.read()[-2000:]}


def fault(report: dict[str, Any]) -> str | None:
    """Return what is wrong with the outcome of a call, or None."""
    if "ended" in report:
        # PyTorch's own crashes and hangs are not ours to judge.
        return None if report["start"] == "torch" else f"ended the process: {report['stderr']}"
    ours, theirs = report["tangrad"], report["torch"]
    if "error" not in ours:
        return None
    kinds = set(ours["error"])
    if ASSERTED.search(ours["text"]):
        return None
    if kinds & MISTAKES and not kinds & MISTAKES & set(theirs.get("error", ())):
        return f"{ours['error'][0]} at {ours['place']}: {ours['text']}"
    return None


def kind(report: dict[str, Any]) -> str:
    """Name the class of an outcome, for the tally."""
    if "ended" in report:
        return f"{report['start']} ended"
    ours, theirs = report["tangrad"].get("error"), report["torch"].get("error")
    if ours is None and theirs is None:
        return "both succeed"
    if ours is None or theirs is None:
        if theirs is not None:
            return "torch raises"
        return "refused" if REFUSED.search(report["path"]) else "tangrad raises"
    related = (set(ours) & set(theirs)) - {"Exception", "LookupError", "ArithmeticError"}
    return "both raise alike" if related else "both raise otherwise"


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[str]]:
    """Count outcomes over all shards and print them."""
    counts: Counter[str] = Counter()
    yield counts
    print(f"\n{counts.total()} random calls:", dict(counts.most_common()))


@pytest.mark.timeout(3600 if FULL else 300)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_calls_end_well(shard: int, tally: Counter[str]) -> None:
    # Some of the calls of every function each, so that one function does not decide a shard.
    calls = list(random_calls.sampled(random_calls.paths(torch), CALLS, FIRST))[shard::SHARDS]
    wrong = []
    counts: Counter[str] = Counter()
    for report in reports(calls):
        counts[kind(report)] += 1
        found = fault(report)
        if found is not None:
            wrong.append(f"{report['text']}\n    {found}")
    tally.update(counts)
    assert not wrong, f"{len(wrong)} of {counts.total()}:\n" + "\n".join(wrong[:20])
    # Where PyTorch has a result we have one, but for a few deviations; errors are of one kind.
    assert counts["tangrad raises"] <= 0.005 * counts.total(), counts
    assert counts["both raise otherwise"] <= 0.035 * counts.total(), counts


def test_a_call_is_the_same_each_time() -> None:
    for path in ("T.add", "T.nn.Linear", "T.nn.functional.relu", "T.Tensor.to"):
        assert random_calls.write(path, 3) == random_calls.write(path, 3)


def test_a_process_that_ends_is_reported() -> None:
    report = {"start": "tangrad", "ended": -11, "stderr": "", "text": "T.f()"}
    assert fault(report) is not None
    mistake = {"error": ["KeyError", "LookupError", "Exception"], "text": "", "place": ""}
    assert fault({"tangrad": mistake, "torch": {"result": []}}) is not None
    assert fault({"tangrad": mistake, "torch": mistake}) is None
