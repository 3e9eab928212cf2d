"""Programs written for PyTorch run unchanged, and agree with its gloo.

Each is what its first line says, by PyTorch's API alone. Random numbers are PyTorch's
(`TANGRAD_RNG=mt19937`), so that both begin from the same parameters.
"""

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent / "programs"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
SPAWNS = {"spawned_toy"}
WANTS_FOLDER = {"checkpointed": "", "trainer": "snapshot.pt"}
OURS = {True: ["-m", "tangrad", "run"], False: ["-m", "tangrad.distributed.run", "--as-torch"]}
THEIRS = {True: [], False: ["-m", "torch.distributed.run"]}


def results(launchers, name, folder):
    """Return the numbers that a program tells."""
    spawns = name in SPAWNS
    arguments = [str(folder / WANTS_FOLDER[name])] if name in WANTS_FOLDER else []
    if spawns:
        with socket.create_server(("localhost", 0)) as free:
            arguments = [str(free.getsockname()[1])]
    ranks = [] if spawns else ["--nproc-per-node=2"]
    with socket.create_server(("localhost", 0)) as free:
        ranks += [] if spawns else [f"--master-port={free.getsockname()[1]}"]
    command = [sys.executable, *launchers[spawns], *ranks, str(FOLDER / f"{name}.py"), *arguments]
    environment = {**os.environ, "TANGRAD_RNG": "mt19937", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.findall(r"result (.*)", done.stdout)
    return [float(word) for line in told for word in line.split()]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_written_for_pytorch_agrees_with_its_gloo(name, tmp_path):
    found = []
    for who, launchers in (("ours", OURS), ("theirs", THEIRS)):
        (tmp_path / who).mkdir()
        found.append(results(launchers, name, tmp_path / who))
    assert found[0]
    assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-4)
