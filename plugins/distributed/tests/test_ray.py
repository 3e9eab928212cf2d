"""Ranks that Ray starts: the same results, and restarts. In the full run alone: Ray is large."""

import importlib.util
import os
import subprocess
import sys
import types
from datetime import timedelta
from pathlib import Path

import pytest

import tangrad.distributed as dist
from tangrad_distributed import ray
from tangrad_distributed.engines.mpi import mpiexec
from tangrad_distributed.stores.store import follower_key

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ddp_digits.py"
INSTALLED = importlib.util.find_spec("ray") is not None
MPIEXEC = mpiexec()
needs_ray = pytest.mark.skipif(not INSTALLED, reason="no Ray: pip install ray")

PROGRAM = """
import os, sys, tempfile
import tangrad, tangrad.distributed as dist, tangrad.distributed.checkpoint as dcp

def train(folder, die_at):
    import os
    dist.init_process_group("gloo")
    rank, again = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    state = {"x": tangrad.zeros(3), "step": 0}
    if os.path.exists(os.path.join(folder, ".metadata")):
        dcp.load(state, checkpoint_id=folder)
    begun = state["step"]
    while state["step"] < 6:
        if rank == 1 and again == 0 and state["step"] == die_at:
            os.kill(os.getpid(), 9)
        gradient = tangrad.full((3,), float(rank + state["step"]))
        dist.all_reduce(gradient)
        state = {"x": state["x"] + gradient, "step": state["step"] + 1}
        dcp.save(state, checkpoint_id=folder)
    dist.destroy_process_group()
    return state["x"].tolist(), begun, again

def fail():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise KeyError("mine")
    dist.barrier()

if __name__ == "__main__":
    import ray
    ray.init(include_dashboard=False, num_cpus=2)
    with tempfile.TemporaryDirectory() as folder:
        print("alone", dist.ray.run(train, 2, args=(folder, -1)))
    with tempfile.TemporaryDirectory() as folder:
        print("killed", dist.ray.run(train, 2, args=(folder, 4), max_restarts=1))
    try:
        dist.ray.run(fail, 2)
    except dist.ray.WorkerFailedError as error:
        print("failed", error, type(error.__cause__).__name__)
    try:
        dist.ray.run(fail, 3, start_timeout=__import__("datetime").timedelta(seconds=2))
    except dist.DistBackendError as error:
        print("no room", error)
"""


@pytest.mark.slow
@needs_ray
def test_a_rank_that_dies_goes_on_from_the_last_checkpoint(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    sums = [float(sum(2 * step + 1 for step in range(6)))] * 3
    assert told["alone"] == str([(sums, 0, 0)] * 2), done.stderr
    assert told["killed"] == str([(sums, 4, 1)] * 2)
    assert "rank 1 on" in done.stderr
    assert told["failed"].startswith("rank 1 on")
    assert "raised KeyError: 'mine'" in told["failed"]
    assert "the cluster has no room for 3 workers with {'CPU': 1.0} each" in done.stdout


KIT = """
import sys
import tangrad.distributed as dist

def kit():
    from tangrad_distributed.conformance import run_all
    dist.init_process_group("gloo")
    failed = run_all(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
    return failed

if __name__ == "__main__":
    import ray
    ray.init(include_dashboard=False, num_cpus=3)
    for ranks in (2, 3):
        print(ranks, dist.ray.run(kit, ranks))
"""


@pytest.mark.slow
@needs_ray
def test_the_kit_passes_in_ranks_of_ray(tmp_path):
    (tmp_path / "program.py").write_text(KIT)
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 [[], []]\n3 [[], [], []]\n" in done.stdout


# A second raylet stands for a machine: its death takes what runs there with it. The head is not
# for work, since the store and the caller are there.
MACHINES = """
import os, sys, tempfile, time
import tangrad, tangrad.distributed as dist, tangrad.distributed.checkpoint as dcp

def train(folder, survives):
    dist.init_process_group("gloo")
    rank, again = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    state = {"x": tangrad.zeros(3), "step": 0}
    if os.path.exists(os.path.join(folder, ".metadata")):
        dcp.load(state, checkpoint_id=folder)
    begun = state["step"]
    while state["step"] < 6:
        if rank == 1 and again == 0 and state["step"] == 4:
            os.kill(os.getppid(), 9)
            if survives:  # until it sees that its machine is gone
                time.sleep(600)
            os.kill(os.getpid(), 9)
        gradient = tangrad.full((3,), float(rank + state["step"]))
        dist.all_reduce(gradient)
        state = {"x": state["x"] + gradient, "step": state["step"] + 1}
        dcp.save(state, checkpoint_id=folder)
    dist.destroy_process_group()
    return state["x"].tolist(), begun, again, os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"]

if __name__ == "__main__":
    import ray
    from ray.cluster_utils import Cluster
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        for _ in range(4):
            cluster.add_node(num_cpus=1)
        ray.init(cluster.address)
        for survives in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                given = {"args": (folder, survives), "max_restarts": 1}
                print(survives, dist.ray.run(train, 2, placement="STRICT_SPREAD", **given))
    finally:
        ray.shutdown()
        cluster.shutdown()
"""


@pytest.mark.slow
@needs_ray
def test_a_machine_that_dies_is_replaced_and_ranks_go_on_from_the_last_checkpoint(tmp_path):
    (tmp_path / "program.py").write_text(MACHINES)
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    sums = [float(sum(2 * step + 1 for step in range(6)))] * 3
    expected = str([(sums, 4, 1, "0", "0"), (sums, 4, 1, "1", "0")])
    assert (told.get("False"), told.get("True")) == (expected, expected), done.stderr
    assert done.stderr.count("; starting again") == 2
    assert done.stderr.count("tangrad: rank 1 on ") == 2


@pytest.mark.slow
@needs_ray
def test_the_example_gives_the_same_bits_by_ray():
    single = {**os.environ, "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, "-m", "tangrad.distributed.run", "--nproc-per-node=2"]
    ways = [[*launcher, str(EXAMPLE)], [sys.executable, str(EXAMPLE), "--ray=2"]]
    if MPIEXEC is not None:
        ways.append([MPIEXEC, "-n", "2", sys.executable, str(EXAMPLE), "--backend=mpi"])
    said = [
        subprocess.run([*way, "--epochs=1"], capture_output=True, text=True, env=single, check=True)
        for way in ways
    ]
    lines = [
        [line for line in one.stdout.splitlines() if line.startswith(("epoch", "parameters"))]
        for one in said
    ]
    assert all(one == lines[0] for one in lines)
    assert len(lines[0]) == 2


def test_without_workers_there_is_nothing_to_run():
    with pytest.raises(ValueError, match="num_workers must be at least 1, got 0"):
        dist.ray.run(print, 0)


def test_a_ray_that_does_not_start_is_told(monkeypatch):
    def fail(**options):
        raise Exception("The current node timed out during startup.")

    stand_in = types.SimpleNamespace(is_initialized=lambda: False, init=fail)
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    with pytest.raises(dist.DistBackendError, match="did not start .*timed out.*ray start --head"):
        dist.ray.run(print, 1)


class _SlowToTell:
    """Be a Ray that sees one rank fail, and not yet the one that took it along."""

    class exceptions:
        class RayError(Exception):
            pass

    def wait(self, calls, timeout):
        return [call for call in calls if call == 0], [call for call in calls if call]

    def get(self, call):
        raise self.exceptions.RayError("rank 0 raised RankLostError")


@pytest.mark.parametrize(
    ("followers", "blamed"), [({0: "2", 2: "1"}, 1), ({0: "1", 1: "0"}, 0), ({0: "-1"}, 0)]
)
def test_a_rank_that_ray_has_not_seen_die_is_blamed_by_those_that_have(
    monkeypatch, followers, blamed
):
    monkeypatch.setattr(ray, "_BLAME", 0.0)
    run = ray._Run(_SlowToTell(), 3, {}, "PACK", timedelta(seconds=1))
    run._store, run._places = dist.HashStore(), [("", f"host{rank}", 7) for rank in range(3)]
    for rank, lost in followers.items():
        run._store.set(follower_key(rank, 4), lost)
    with pytest.raises(ray.WorkerFailedError, match=rf"rank {blamed} on host{blamed} died"):
        run._wait([0, 1, 2], 4)


@pytest.mark.skipif(INSTALLED, reason="tells what is said without Ray")
def test_without_ray_it_says_what_to_install():
    with pytest.raises(dist.DistBackendError, match="pip install 'tangrad-distributed"):
        dist.ray.run(print, 1)
