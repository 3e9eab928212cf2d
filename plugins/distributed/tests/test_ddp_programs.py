"""Random programs with data parallelism: each rank sees what PyTorch's ranks see."""

import json
import os
import subprocess
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import ddp_programs
import join_programs
import pytest

import tangrad
import tangrad.distributed as dist
from tangrad.nn.parallel import DistributedDataParallel

COUNT = 40 if os.environ.get("TANGRAD_TESTS") == "full" else 12


def seen_by_pytorch(programs, first, count):
    """Return, for each rank and program, what PyTorch's processes see."""
    started = Path(ddp_programs.__file__)
    command = [sys.executable, str(started), str(first), str(count), Path(programs.__file__).stem]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def seen_here(programs, program):
    """Return what each of our ranks sees, as JSON has it."""

    def work(rank):
        return programs.run_program(tangrad, DistributedDataParallel, program, rank)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(
            json.dumps(dist.run_threads(work, ddp_programs.RANKS, timeout=timedelta(seconds=60)))
        )


def difference(ours, theirs, where=""):
    """Return where two nested lists differ first, None if nowhere; numbers to 1e-9."""
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return f"{where}: {len(ours)} and {len(theirs)} entries, {ours[-1]} and {theirs[-1]}"
        for at, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            found = difference(one, other, f"{where}[{at}]")
            if found:
                return found
        return None
    numbers = isinstance(ours, int | float) and isinstance(theirs, int | float)
    alike = ours == pytest.approx(theirs, rel=1e-9, abs=1e-9) if numbers else ours == theirs
    return None if alike else f"{where}: {ours} and {theirs}"


def differences(programs, first, count):
    """Return the programs of which some rank sees something else than PyTorch's."""
    theirs = seen_by_pytorch(programs, first, count)
    found = {}
    for at in range(count):
        ours = seen_here(programs, programs.drawn(first + at))
        told = difference(ours, [rank[at] for rank in theirs])
        if told:
            found[first + at] = told
    return found


def test_ranks_of_random_programs_see_what_those_of_pytorch_see():
    assert differences(ddp_programs, 0, COUNT) == {}


def test_ranks_with_different_numbers_of_batches_see_what_those_of_pytorch_see():
    assert differences(join_programs, 0, COUNT) == {}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 2_000, 250))
def test_ranks_of_many_random_programs_see_what_those_of_pytorch_see(first):
    assert differences(ddp_programs, first, 250) == {}


def test_the_programs_meet_what_they_are_for():
    drawn = [ddp_programs.drawn(number) for number in range(1_000)]
    passes = [deed for one in drawn for deed in one["todo"] if deed["do"] == "pass"]
    kinds = {layer["kind"] for one in drawn for layer in one["layers"]}
    assert kinds == {"plain", "stopped", "checkpoint", "reentrant"}
    assert {deed["how"] for deed in passes} >= {"jointly", "one by one", "in parts", "inputs"}
    assert {deed["do"] for one in drawn for deed in one["todo"]} >= {"set", "freeze", "evaluate"}
    assert any(one["ignored"] for one in drawn)
    assert any(layer["frozen"] for one in drawn for layer in one["layers"])
    assert any(deed["heads"][0] != deed["heads"][1] for deed in passes)
