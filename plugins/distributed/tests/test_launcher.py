"""The launcher: flags, functions as ranks, programs of PyTorch."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

import tangrad
from tangrad.distributed import run
from tangrad.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from tangrad.distributed.launcher import LaunchConfig, elastic_launch

PROGRAM = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(2)
dist.all_reduce(x)
print("rank", dist.get_rank(), "has", x.tolist(), sys.argv[1:])
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "launcher",
    [
        ["-m", "tangrad", "run", "-m", "torch.distributed.run"],
        pytest.param(["-m", "tangrad.distributed.run", "--as-torch"], marks=pytest.mark.slow),
    ],
)
def test_programs_of_pytorch_are_started_with_tangrad_in_its_place(tmp_path, launcher):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, *launcher, "--nproc-per-node", "2", str(tmp_path / "program.py")]
    done = subprocess.run([*command, "-x"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert f"rank {rank} has [2.0, 2.0] ['-x']" in done.stdout


@pytest.mark.parametrize(
    ("ranks", "variable", "threads"), [(2, None, "1"), (2, "2", "2"), (1, None, "2")]
)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
@pytest.mark.skipif(not find_spec("tangrad_cpu"), reason="the reference has one thread")
def test_ranks_that_share_a_machine_have_a_thread_each(launch, ranks, variable, threads):
    affinity = "os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])"
    source = f"import os, tangrad; {affinity}; print('threads:', tangrad.get_num_threads())"
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment |= {} if variable is None else {"OMP_NUM_THREADS": variable}
    done = launch(source, ranks=ranks, environment=environment)
    assert done.stdout.count(f"threads: {threads}\n") == ranks, done.stderr


def told(rank):
    return rank, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def fail(again):
    if int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < again and os.environ["RANK"] == "1":
        raise KeyError("mine")
    return os.environ["TORCHELASTIC_RESTART_COUNT"]


def config(**options):
    return LaunchConfig(1, 1, nproc_per_node=2, start_method="fork", **options)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_function_runs_in_several_ranks():
    assert elastic_launch(config(), told)(7) == {0: (7, 0, 2), 1: (7, 1, 2)}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_function_that_fails_is_called_again_as_often_as_asked(capfd):
    assert elastic_launch(config(max_restarts=1), fail)(1) == {0: "1", 1: "1"}
    assert capfd.readouterr().err.count("KeyError: 'mine'") == 1
    with pytest.raises(ChildFailedError, match="fail FAILED: rank 1 .* ended with status 1"):
        elastic_launch(config(max_restarts=0), fail)(1)


def test_what_a_rank_raises_is_written_where_it_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))

    @record
    def main():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        main()
    assert "ValueError: mine" in (tmp_path / "error.json").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--nproc-per-node=0"], "must be a positive number or auto, got '0'"),
        (["--nproc-per-node=gpu"], "ranks here work on the host"),
        (["--nnodes=x"], "--nnodes must be a positive number, got 'x'"),
        (["--nnodes=2"], "several machines need --master-port"),
        (["--nnodes=2", "--node-rank=2"], "--node-rank must be from 0 to 1, got 2"),
        (["--rdzv-endpoint=host:port"], "an endpoint is HOST:PORT, got 'host:port'"),
        (["--max-restarts=-1"], "--max-restarts must not be negative"),
    ],
)
def test_flags_that_make_no_sense_are_told(flags, message, capsys):
    with pytest.raises(ValueError, match=re.escape(message)):
        run.main([*flags, "program.py"])
    assert run.command([*flags, "program.py"]) == 2
    assert message in capsys.readouterr().err


FAILS = """
import os, signal, sys
if os.environ["RANK"] == "1":
    if sys.argv[1] == "raise":
        raise KeyError("mine")
    if sys.argv[1] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("how", "exitcode", "status", "told"),
    [
        ("raise", 1, 1, "rank 1 ended with status 1"),
        ("7", 7, 7, "rank 1 ended with status 7"),
        ("die", -9, 137, "rank 1 ended by signal SIGKILL"),
    ],
)
def test_a_rank_that_fails_raises_in_programs_and_is_the_status_of_the_command(
    tmp_path, capfd, how, exitcode, status, told
):
    (tmp_path / "program.py").write_text(FAILS)
    arguments = ["--nproc-per-node=2", str(tmp_path / "program.py"), how]
    with pytest.raises(ChildFailedError, match="program.py FAILED: rank 1 ") as caught:
        run.main(arguments)
    rank, failure = caught.value.get_first_failure()
    assert (rank, failure.local_rank, failure.exitcode) == (1, 1, exitcode)
    assert run.main(["--nproc-per-node=1", *arguments[1:]]) is None
    capfd.readouterr()
    assert run.command(arguments) == status
    shown = capfd.readouterr().err
    assert f"tangrad: {told}; the others were ended" in shown
    assert shown.count("Traceback") == (how == "raise")


def test_a_program_that_starts_the_launcher_by_its_name_in_pytorch_fails_with_its_ranks(tmp_path):
    (tmp_path / "program.py").write_text(FAILS)
    (tmp_path / "cli.py").write_text(
        "import sys, torch.distributed.run as torchrun\ntorchrun.main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-m", "tangrad", "run", str(tmp_path / "cli.py")]
    command += ["--nproc-per-node=2", str(tmp_path / "program.py"), "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ChildFailedError: " in done.stderr


def test_flags_of_torchrun_are_taken():
    flags = "--standalone --nproc_per_node=3 --rdzv-id=a --tee 3 --local-addr=h --log-dir=l x.py -y"
    found = run.settings(run.get_args_parser().parse_args(flags.split()))
    assert (found.processes, found.nodes, found.log_folder) == (3, 1, "l")
    assert found.command[-2:] == ["x.py", "-y"]


THREADS = """
import os
print("rank", os.environ["RANK"], "may take", os.environ.get("OMP_NUM_THREADS"))
"""


@pytest.mark.parametrize(
    ("ranks", "set_to", "seen", "message"),
    [(2, None, "1", True), (2, "3", "3", False), (1, None, "None", False)],
)
def test_several_ranks_take_one_thread_each_unless_a_number_is_set(
    launch, ranks, set_to, seen, message
):
    environment = {key: one for key, one in os.environ.items() if key != "OMP_NUM_THREADS"}
    if set_to is not None:
        environment["OMP_NUM_THREADS"] = set_to
    done = launch(THREADS, ranks=ranks, environment=environment)
    assert done.returncode == 0, done.stderr
    for rank in range(ranks):
        assert f"rank {rank} may take {seen}" in done.stdout
    assert ("OMP_NUM_THREADS is 1 for each of the 2 ranks" in done.stderr) is message


def threads():
    return os.environ.get("OMP_NUM_THREADS"), tangrad.get_num_threads()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_functions_as_ranks_take_one_thread_though_their_process_has_begun(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert elastic_launch(config(), threads)() == {0: ("1", 1), 1: ("1", 1)}
