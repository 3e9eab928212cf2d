"""Random programs of dual numbers in tangrad and torch: equal tangents or an error."""

from __future__ import annotations

import os
from collections import Counter

import pytest
import random_dual_programs
import torch

import tangrad

FULL = os.environ.get("TANGRAD_TESTS") == "full"
COUNT = int(os.environ.get("TANGRAD_PROGRAMS", 10_000 if FULL else 500))
SHARDS = 5


def classify(seed: int) -> tuple[str, str]:
    """Run one program; return (class, account)."""
    program, theirs = random_dual_programs.write(seed, torch)
    outcome, ours = random_dual_programs.run(program.lines, tangrad)
    failed, expected = outcome.error is not None, program.outcome.error is not None
    if failed or expected:
        same = failed and expected and outcome.line == program.outcome.line
        return "both raise" if same else "one raises", ""
    found = random_dual_programs.difference(ours, theirs)
    return ("same", "") if found is None else ("differs", f"{program}\n-> {found}")


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_tangent_differs_and_most_programs_run(shard: int) -> None:
    counts: Counter[str] = Counter()
    accounts = []
    for seed in range(shard, COUNT, SHARDS):
        name, text = classify(seed)
        counts[name] += 1
        accounts += [text] if text else []
    assert not accounts, f"{len(accounts)} programs differ; the shortest:\n{min(accounts, key=len)}"
    assert counts["same"] >= counts.total() / 2
    assert counts["one raises"] <= counts.total() / 30
