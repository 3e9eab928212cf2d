"""Random programs in tangrad and torch: equal gradients or an error, never a silent difference."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any

import pytest
import random_programs
import torch

import tangrad

FULL = os.environ.get("TANGRAD_TESTS") == "full"
COUNT = int(os.environ.get("TANGRAD_PROGRAMS", 10_000 if FULL else 2_000))
SHARDS = 10
# A write that the history of a view cannot follow is refused wherever torch refuses it.
VIEWED = ("being modified inplace", "has been modified inplace")
CLASSES = ("same", "both raise", "tangrad raises", "torch raises", "differs")


def classify(seed: int) -> tuple[str, str, str]:
    """Run one program; return (class, kind, account)."""
    program = random_programs.write(seed, torch)
    theirs = program.outcome
    ours = random_programs.run(program.lines, tangrad)
    if ours.error is not None and theirs.error is not None and ours.line == theirs.line:
        return "both raise", kind_of(theirs.error), ""
    if ours.error is not None and (theirs.error is None or ours.line < theirs.line):
        return "tangrad raises", kind_of(ours.error), account(program, ours)
    if theirs.error is not None:
        refused = any(reason in str(theirs.error) for reason in VIEWED)
        name = "differs" if refused else "torch raises"
        return name, kind_of(theirs.error), account(program, theirs)
    found = random_programs.difference(ours, theirs)
    if found is None:
        return "same", "", ""
    return "differs", found, f"{program}\n-> {found}"


def kind_of(error: Exception) -> str:
    """Return an error's type and message without numbers."""
    return f"{type(error).__name__}: " + re.sub(r"\d+", "N", str(error).partition("\n")[0])[:110]


def account(program: Any, outcome: Any) -> str:
    """Tell which line of a program raised what."""
    return f"{program}\n-> line {outcome.line}: {outcome.error!r}"


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Any:
    """Count the classes over all shards, and print them at the end."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in CLASSES}
    yield counts
    total = sum(c.total() for c in counts.values())
    lines = [
        f"{total} random programs: " + ", ".join(f"{n} {c.total()}" for n, c in counts.items())
    ]
    for name in ("tangrad raises", "torch raises", "differs"):
        lines += [
            f"  {name}, {number} times: {kind}" for kind, number in counts[name].most_common()
        ]
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    reporter.write_line("\n" + "\n".join(lines))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_program_differs_silently(tally: Any, shard: int) -> None:
    accounts = []
    for seed in range(shard, COUNT, SHARDS):
        name, kind, text = classify(seed)
        tally[name][kind] += 1
        if name == "differs":
            accounts.append(text)
    assert not accounts, f"{len(accounts)} programs differ; the shortest:\n{min(accounts, key=len)}"


def test_at_most_one_program_in_a_hundred_raises_where_torch_does_not(tally: Any) -> None:
    total = sum(c.total() for c in tally.values())
    if total < COUNT:
        pytest.skip("needs all shards in this run")
    assert tally["tangrad raises"].total() <= COUNT / 100


def test_most_programs_run_to_their_end(tally: Any) -> None:
    """A generator whose programs mostly fail would prove little."""
    total = sum(c.total() for c in tally.values())
    if total < COUNT:
        pytest.skip("needs all shards in this run")
    assert tally["same"].total() >= COUNT / 2
