"""The flight recorder, groups and meshes, and the example."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tangrad
import tangrad.distributed as dist
from tangrad_distributed.engines.mpi import mpiexec
from tangrad_distributed.engines.threads import Threads
from tangrad_distributed.watching.recorder import KEPT, Recorder

MPIEXEC = mpiexec()
MPI_INSTALLED = importlib.util.find_spec("mpi4py")
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ddp_digits.py"


def test_a_failure_leaves_the_last_collectives_of_each_rank(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TANGRAD_DISTRIBUTED_DUMP", str(tmp_path))

    def step(rank):
        dist.barrier()
        with pytest.raises(dist.CollectiveMismatchError):
            dist.all_reduce(tangrad.ones(2 + rank))

    dist.run_threads(step, 2)
    first = json.loads((tmp_path / "collectives-world-0.json").read_text())
    assert [entry["collective"] for entry in first["entries"]] == [
        "barrier()",
        "all_reduce(float32[2], op=SUM)",
    ]
    assert "ranks disagree" in first["entries"][-1]["error"]
    done = subprocess.run(
        [sys.executable, "-m", "tangrad.distributed", "inspect", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "all_reduce(float32[3], o failed" in done.stdout


def test_ranks_write_before_they_are_ended_for_one_that_was_killed(launch, tmp_path, monkeypatch):
    monkeypatch.setenv("TANGRAD_DISTRIBUTED_DUMP", str(tmp_path / "records"))
    launch(
        "import os, tangrad, tangrad.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.barrier()\n"
        "if dist.get_rank() == 1:\n"
        "    os.kill(os.getpid(), 9)\n"
        "dist.all_reduce(tangrad.ones(3))\n"
    )
    record = json.loads((tmp_path / "records" / "collectives-world-0.json").read_text())
    assert record["entries"][-1]["collective"] == "all_reduce(float32[3], op=SUM)"
    assert record["entries"][-1]["line"].endswith("program.py:6")


def test_a_full_recorder_forgets_the_oldest():
    recorder = Recorder("", 0)
    first = recorder.begin("barrier", (), "", None, -1)
    for at in range(KEPT):
        what = recorder.begin("broadcast", ((at % 7, 2),), tangrad.float32, None, at % 3)
        recorder.end(what, f"error {at}" if at % 2 else None)
    recorder.end(first, "too late")
    sequences, texts, lines, started, ended, errors = zip(*recorder.entries, strict=True)
    assert sequences == tuple(range(1, KEPT + 1))
    for at in (0, 1, KEPT - 1):
        assert texts[at] == f"broadcast(float32[{at % 7}, 2], root={at % 3})"
        assert errors[at] == (f"error {at}" if at % 2 else "")
    (line,) = set(lines)
    assert line.startswith(f"{__file__}:")
    assert all(begun <= over for begun, over in zip(started, ended, strict=True))


def test_signatures_are_alike_where_arguments_are_and_only_there():
    recorder, plain = Recorder("", 0), ("all_reduce", ((2, 3),), tangrad.float32, None, -1)
    others = [
        ("reduce", *plain[1:]),
        (plain[0], ((3, 2),), *plain[2:]),
        (plain[0], ((2, 3), (2, 3)), *plain[2:]),
        (*plain[:2], tangrad.float64, *plain[3:]),
        (*plain[:3], dist.ReduceOp.SUM, -1),
        (*plain[:4], 0),
    ]
    # Behind the sequence number, eight bytes.
    content = [recorder.begin(*one).content[8:] for one in [plain, *others]]
    assert len(set(content)) == len(content)
    shape = tangrad.empty(2, 3).shape
    for alike in (plain, (plain[0], (shape,), *plain[2:]), (plain[0], shape, *plain[2:])):
        assert recorder.begin(*alike).content[8:] == content[0]


def test_running_ranks_tell_what_they_did_last_when_they_are_asked(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time, tangrad, tangrad.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(tangrad.ones(5))\n"
        "print('ready', flush=True)\n"
        "time.sleep(100)\n"
    )
    dump = str(tmp_path / "dump")
    command = [sys.executable, "-m", "tangrad.distributed.run", "--nproc-per-node=2", str(program)]
    environment = {**os.environ, "TANGRAD_DISTRIBUTED_DUMP": dump}
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    for _ in range(2):
        assert launcher.stdout.readline() == "ready\n"
    inspect = [sys.executable, "-m", "tangrad.distributed", "inspect", dump]
    for _ in range(60):  # the machine may be busy
        done = subprocess.run([*inspect, "--ask"], capture_output=True, text=True, check=False)
        if done.stdout.count("all_reduce(float32[5]") == 2:
            break
    launcher.send_signal(signal.SIGINT)
    launcher.communicate()
    assert done.stdout.count("all_reduce(float32[5]") == 2, done.stdout + done.stderr


def test_inspecting_an_empty_folder_says_so(tmp_path):
    command = [sys.executable, "-m", "tangrad.distributed", "inspect", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no rank wrote a recorder" in done.stderr


def test_a_mesh_has_a_group_for_each_line():
    def step(rank):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        x = tangrad.tensor([float(rank)])
        dist.all_reduce(x, group=mesh.get_group("columns"))
        y = tangrad.tensor([float(rank)])
        dist.all_reduce(y, group=mesh["rows"].get_group())
        return mesh.get_coordinate(), mesh.get_local_rank("rows"), x.item(), y.item()

    assert dist.run_threads(step, 4) == [
        ((0, 0), 0, 1.0, 2.0),
        ((0, 1), 0, 1.0, 4.0),
        ((1, 0), 1, 5.0, 2.0),
        ((1, 1), 1, 5.0, 4.0),
    ]


def test_a_mesh_that_does_not_fit_the_world_is_refused():
    def step(rank):
        with pytest.raises(RuntimeError, match=r"a mesh of \(3,\) needs 3 ranks, the world has 2"):
            dist.init_device_mesh("cpu", (3,))

    dist.run_threads(step, 2)


def test_the_lines_of_a_mesh_may_have_a_backend_of_their_own():
    class Other(Threads):
        name = "other"

    dist.Backend.register_backend("lines", Other)

    def step(rank):
        override = {"rows": "lines", 1: ("threads", None)}
        mesh = dist.init_device_mesh(
            "cpu", (2, 1), mesh_dim_names=("rows", "columns"), backend_override=override
        )
        for wrong, told in (
            ({"rows": "lines", 0: "threads"}, "redundant dim index 0 and name rows"),
            ({"depth": "lines"}, r"invalid keys .*\['depth'\], .* range \[0, 2\) or one of"),
        ):
            with pytest.raises(RuntimeError, match=told):
                dist.init_device_mesh(
                    "cpu", (2, 1), mesh_dim_names=("rows", "columns"), backend_override=wrong
                )
        return [type(mesh.get_group(name).engine).name for name in ("rows", "columns")]

    try:
        assert dist.run_threads(step, 2) == [["other", "threads"]] * 2
    finally:
        del dist.Backend._creators["lines"]


def test_a_world_is_cut_into_groups_of_neighbours():
    def step(rank):
        mine, groups = dist.new_subgroups(2)
        split = dist.split_group(split_ranks=[[0, 3], [1, 2]])
        return len(groups), dist.get_process_group_ranks(mine), split.world_ranks

    assert dist.run_threads(step, 4) == [
        (2, [0, 1], [0, 3]),
        (2, [0, 1], [1, 2]),
        (2, [2, 3], [1, 2]),
        (2, [2, 3], [0, 3]),
    ]


def test_a_world_can_be_made_again(tmp_path):
    for _ in range(2):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        x = tangrad.ones(2)
        dist.all_reduce(x)
        assert dist.get_backend() == "gloo"
        dist.destroy_process_group()
    assert not dist.is_initialized()


def test_a_collective_reaches_tensors_of_other_devices():
    def step(rank):
        x = tangrad.full((3,), rank + 1.0, device="reference")
        dist.all_reduce(x)
        return x.device.type, x.tolist()

    assert dist.run_threads(step, 2) == [("reference", [3.0] * 3)] * 2


def test_a_group_has_pytorch_s_own_names():
    def step(rank):
        group = dist.group.WORLD
        x = tangrad.tensor([rank + 1.0])
        group.allreduce([x], dist.AllreduceOptions(reduceOp=dist.ReduceOp.MAX)).wait()
        parts = [tangrad.zeros(1) for _ in range(2)]
        group.allgather([parts], [tangrad.tensor([float(rank)])]).wait()
        rows = tangrad.zeros(2)
        group.alltoall_base(rows, tangrad.tensor([rank * 2.0, rank * 2.0 + 1])).wait()
        return x.item(), [part.item() for part in parts], rows.tolist()

    assert dist.run_threads(step, 2) == [
        (2.0, [0.0, 1.0], [0.0, 2.0]),
        (2.0, [0.0, 1.0], [1.0, 3.0]),
    ]


def test_reductions_have_their_first_name_too():
    def step(rank):
        x = tangrad.tensor([rank + 1.0])
        with pytest.warns(FutureWarning, match=r"reduce_op` is deprecated, please use .*ReduceOp`"):
            dist.all_reduce(x, op=dist.reduce_op.PRODUCT)
        return x.item()

    assert dist.run_threads(step, 1) == [1.0]
    with pytest.raises(AttributeError, match="NONE"):
        _ = dist.reduce_op.NONE


def test_a_group_s_own_monitored_barrier_needs_no_arguments():
    dist.run_threads(lambda rank: dist.group.WORLD.monitored_barrier(), 2)


def test_mpi_is_available_only_to_those_that_it_started(monkeypatch):
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert not dist.is_mpi_available()
    monkeypatch.setenv("PMI_RANK", "0")
    assert dist.is_mpi_available() == (MPI_INSTALLED is not None)


@pytest.mark.skipif(MPIEXEC is None, reason="no MPI: pip install mpi4py mpich")
def test_the_example_gives_the_same_bits_however_it_is_started():
    single = {**os.environ, "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, "-m", "tangrad.distributed.run", "--nproc-per-node=2"]
    ways = [[*launcher, str(EXAMPLE)], [MPIEXEC, "-n", "2", sys.executable, str(EXAMPLE)]]
    ways[1] += ["--backend", "mpi"]
    said = [
        subprocess.run([*way, "--epochs=1"], capture_output=True, text=True, env=single, check=True)
        for way in ways
    ]
    assert said[0].stdout == said[1].stdout
    assert "parameters" in said[0].stdout
