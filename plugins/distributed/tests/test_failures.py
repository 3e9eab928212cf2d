"""What goes wrong between ranks has a name: both ranks, both lines, what to do."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

import tangrad
import tangrad.distributed as dist
from tangrad_distributed import engine
from tangrad_distributed.agent import Agent, Settings
from tangrad_distributed.engines.shared_memory import process_state

HEAD = """
import os, sys, time, tangrad, tangrad.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
"""


def run(launch, body, **options):
    return launch(HEAD + body, **options)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("dist.all_reduce(x)", "dist.broadcast(x, 0)", ["all_reduce(float32[3]", "broadcast("]),
        ("dist.all_reduce(x)", "dist.all_reduce(x[:2])", ["float32[3]", "float32[2]"]),
        pytest.param(
            "dist.all_reduce(x)",
            "dist.all_reduce(x.double())",
            ["float32[3]", "float64[3]"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "dist.all_reduce(x)",
            "dist.all_reduce(x, dist.ReduceOp.MAX)",
            ["op=SUM", "op=MAX"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_ranks_that_disagree_are_told_with_both_lines(launch, first, second, said):
    body = f"x = tangrad.ones(3)\nif rank == 0:\n    {first}\nelse:\n    {second}\n"
    done = run(launch, body)
    assert done.returncode == 1
    assert "CollectiveMismatchError: ranks disagree" in done.stderr
    for words in [*said, "program.py:7", "program.py:9"]:
        assert words in done.stderr


def test_collectives_of_backward_are_told_with_the_line_of_backward(launch):
    done = run(
        launch,
        """
model = tangrad.nn.parallel.DistributedDataParallel(tangrad.nn.Linear(3, 2))
loss = model(tangrad.ones(1, 3)).sum()
if rank == 0:
    loss.backward()
else:
    dist.all_reduce(tangrad.ones(3))
""",
    )
    assert done.returncode == 1
    for words in ("CollectiveMismatchError: ranks disagree", "program.py:9", "program.py:11"):
        assert words in done.stderr


@pytest.mark.parametrize(
    ("end", "why"),
    [("os.kill(os.getpid(), 9)", "ended"), ("sys.exit(0)", "left the group")],
)
def test_a_rank_that_is_gone_is_named_long_before_the_group_s_timeout(ranks_alone, end, why):
    body = f"""
if rank == 1:
    dist.all_reduce(tangrad.ones(1))
    {end}
dist.all_reduce(tangrad.ones(1))
try:
    dist.all_reduce(tangrad.ones(2))
except dist.RankLostError as error:
    print(error)
"""
    # The launcher ends the others, too; so the ranks are started without it.
    said = ranks_alone(HEAD + body)[0]
    assert "all_reduce(float32[2], op=SUM)" in said
    assert f"waits for rank 1, which {why}" in said
    assert "last seen in all_reduce(float32[1], op=SUM)" in said


def test_a_rank_that_raises_shows_its_traceback_once_and_ends_the_others(launch):
    done = run(launch, "if rank == 1: raise KeyError('mine')\ntime.sleep(600)\n")
    assert done.returncode == 1
    assert done.stderr.count("KeyError: 'mine'") == 1
    assert "rank 1 ended with status 1; the others were ended" in done.stderr


@pytest.mark.parametrize(
    "receive",
    [
        "dist.recv(tangrad.ones(1), 1)",
        pytest.param("dist.irecv(tangrad.ones(1), 1).wait()", marks=pytest.mark.slow),
    ],
)
def test_a_rank_whose_message_does_not_come_is_not_blamed(launch, receive):
    # Rank 1 leaves the group, which rank 0 sees, and its process ends after that of rank 0.
    linger = """
import atexit, time

def linger():
    while other and not process_state(other):
        time.sleep(0.01)

other = 0
atexit.register(linger)
"""
    body = """
from tangrad_distributed.engines.shared_memory import process_state
pids = [None, None]
dist.all_gather_object(pids, os.getpid())
if rank == 1:
    other = pids[0]
    raise KeyError("mine")
"""
    done = launch(linger + HEAD + body + receive)
    assert "rank 1 ended with status 1; the others were ended" in done.stderr


def test_ranks_that_fail_are_started_again_as_often_as_asked(launch):
    body = "again = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\nprint('try', again)\n"
    body += "dist.barrier()\nif rank == 1 and again < 2: sys.exit(3)\ndist.barrier()\n"
    assert run(launch, body, flags=("--max-restarts=1",)).returncode == 3
    done = run(launch, body, flags=("--max-restarts=2",))
    assert done.returncode == 0, done.stderr
    assert "try 2" in done.stdout


def test_ranks_that_wait_for_each_other_are_told_at_once(launch):
    body = """
x = tangrad.ones(2)
try:
    dist.recv(x, 1 - rank)
except dist.DistBackendError as error:
    print(type(error).__name__, error)
"""
    done = run(launch, body)
    assert "WaitCycleError ranks wait for each other: rank" in done.stdout
    assert "recv(float32[2], from rank 0, tag 0)" in done.stdout


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_ranks_that_meet_in_groups_of_other_orders_are_told_at_once(launch, ranks):
    body = """
size = dist.get_world_size()
pairs = [dist.new_group([one, (one + 1) % size]) for one in range(size)]
first, second = pairs[rank], pairs[rank - 1]
dist.all_reduce(tangrad.ones(1))
x = tangrad.ones(2)
try:
    dist.all_reduce(x, group=first)
    dist.broadcast(x, 0, group=second)
except dist.DistBackendError as error:
    print(type(error).__name__, error, flush=True)
"""
    done = run(launch, body, ranks=ranks)
    assert "WaitCycleError ranks wait for each other: rank" in done.stdout, done.stderr
    for rank in range(ranks):
        waits = f"rank {rank} waits for rank {(rank + 1) % ranks} in all_reduce(float32[2], op=SUM)"
        assert f"{waits} at " in done.stdout


def test_a_rank_with_another_thread_that_may_come_is_waited_for(launch):
    body = """
import threading
first, second = dist.new_group(), dist.new_group()
if rank == 0:
    def late():
        time.sleep(1)
        dist.all_reduce(tangrad.ones(1), group=second)
    thread = threading.Thread(target=late)
    thread.start()
    dist.all_reduce(tangrad.ones(1), group=first)
    thread.join()
else:
    dist.all_reduce(tangrad.ones(1), group=second)
    dist.all_reduce(tangrad.ones(1), group=first)
print("done", flush=True)
"""
    done = run(launch, body)
    assert done.stdout.count("done") == 2, done.stderr


def dawdle(told):
    while not any("which has not come" in str(one.message) for one in told):
        time.sleep(0.01)


def test_a_rank_that_is_late_is_told_with_its_stack(monkeypatch):
    monkeypatch.setattr(engine, "LATE", 0.0)

    def step(rank, told):
        if rank == 1:
            dawdle(told)
        dist.all_reduce(tangrad.ones(1))

    late = r"for rank 1, which has not come(.|\n)*in dawdle"
    with pytest.warns(RuntimeWarning, match=late) as told:
        dist.run_threads(step, 2, told)


def test_a_rank_that_is_late_in_a_smaller_group_is_told_with_its_stack_too(launch):
    # Ranks of a process of their own tell it by the store; rank 2 is 1 in this group.
    body = """
import warnings
from tangrad_distributed import engine
from tangrad_distributed.watching import stacks
engine.LATE, stacks.PATIENCE = 0.0, 100.0
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

def show(message, *where):
    print(message, flush=True)
    store.set("shown", "yes")

def dawdle():
    while not store.check(["shown"]):
        time.sleep(0.01)

warnings.showwarning = show
group = dist.new_group([0, 2])
if rank == 2:
    dawdle()
if rank != 1:
    dist.all_reduce(tangrad.ones(1), group=group)
"""
    done = run(launch, body, ranks=3)
    assert done.returncode == 0, done.stderr
    assert "for rank 2 (1 of its group), which has not come" in done.stdout
    assert "in dawdle" in done.stdout


def test_a_rank_that_does_not_come_is_told_after_the_group_s_timeout():
    told = threading.Event()

    def step(rank):
        group = dist.new_group(timeout=timedelta(seconds=0.5))
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError, match="gave up after .* for rank 1"):
                dist.all_reduce(tangrad.ones(1), group=group)
            told.set()
        else:
            told.wait(100)

    dist.run_threads(step, 2)


def test_monitored_barrier_names_who_is_missing():
    def step(rank):
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError, match="ranks 1, 2 did not come"):
                dist.monitored_barrier(timeout=timedelta(seconds=0.3), wait_all_ranks=True)

    dist.run_threads(step, 3)


def test_a_group_that_failed_says_so_until_it_is_made_anew():
    def step(rank):
        with pytest.raises(dist.CollectiveMismatchError):
            dist.all_reduce(tangrad.ones(1 + rank))
        with pytest.raises(dist.DistBackendError, match="failed before: .*ranks disagree"):
            dist.barrier()

    dist.run_threads(step, 2)


def test_ctrl_c_ends_every_process(tmp_path):
    # Their shared memory has no name: it ends with them.
    program = tmp_path / "program.py"
    program.write_text(HEAD + "print(os.getpid(), flush=True)\ndist.barrier()\ntime.sleep(100)\n")
    command = [sys.executable, "-m", "tangrad.distributed.run", "--nproc-per-node=2", str(program)]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ranks = [int(launcher.stdout.readline()) for _ in range(2)]
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(60) == 130
    launcher.stdout.close()
    for pid in ranks:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_a_rank_started_ends_with_it(tmp_path, number):
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess, time\n"
        "print(subprocess.Popen(['sleep', '1000']).pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    command = [sys.executable, "-m", "tangrad.distributed.run", "--nproc-per-node=2", str(program)]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    started = [int(launcher.stdout.readline()) for _ in range(2)]
    launcher.send_signal(number)
    assert launcher.wait(60) == 130
    launcher.stdout.close()
    deadline = time.monotonic() + 60
    while any(process_state(pid) != "ended" for pid in started):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_rank_that_is_just_being_started_ends_with_the_launcher():
    agent = Agent(Settings([sys.executable, "-c", "import time; time.sleep(1000)"]))
    started = []

    def start(rank, environment):
        started.append(subprocess.Popen(agent.settings.command))
        for _ in range(2):  # as a terminal that closes does
            os.kill(os.getpid(), signal.SIGTERM)
        return started[-1]

    agent.start = start
    with pytest.raises(KeyboardInterrupt):
        agent.run()
    assert started[0].poll() is not None


def test_a_used_port_is_told_in_a_line(launch):
    with socket.create_server(("", 0)) as used:
        port = used.getsockname()[1]
        done = launch("", flags=(f"--master-port={port}",))
    assert done.returncode == 1
    assert done.stderr.startswith(f"tangrad: the store cannot listen at port {port}")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dist.all_reduce([1]), TypeError, "to be of type Tensor"),
        (lambda: dist.broadcast(tangrad.ones(1), 7), ValueError, "Global rank 7 is not part"),
        (lambda: dist.send(tangrad.ones(1), 0), ValueError, "cannot be both sides"),
        (lambda: dist.new_group([0, 5]), ValueError, "rank 5 is not in the world of 1 ranks"),
        (lambda: dist.new_group([0, 0]), ValueError, "listed twice"),
        (lambda: dist.all_gather([], tangrad.ones(1)), ValueError, "for each of the group's 1"),
        (lambda: dist.all_reduce(tangrad.ones(1), "sum"), TypeError, "ReduceOp.SUM, not 'sum'"),
        (
            lambda: dist.all_reduce(tangrad.ones(1), dist.ReduceOp.BOR),
            ValueError,
            "ReduceOp.BOR needs integers",
        ),
        (
            lambda: dist.all_to_all_single(tangrad.ones(3), tangrad.ones(3), [2], [3]),
            ValueError,
            "output_split_sizes must be 1 numbers that sum to the 3 rows",
        ),
        (lambda: dist.init_process_group("gloo"), ValueError, "twice"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_sent(call, error, message):
    def step(rank):
        with pytest.raises(error, match=message):
            call()

    dist.run_threads(step, 1)


def test_who_is_not_in_a_group_is_told_and_takes_no_part():
    def step(rank):
        group = dist.new_group([0])
        if rank == 1:
            with pytest.warns(UserWarning, match="all_reduce on global rank 1 which does not"):
                assert dist.all_reduce(tangrad.ones(1), group=group) is None
        with pytest.raises(TypeError, match="group must be a ProcessGroup, got 'world'"):
            dist.all_reduce(tangrad.ones(1), group="world")

    dist.run_threads(step, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rank": 3, "world_size": 2}, ValueError, "rank must be from 0 to 1, got 3"),
        ({"rank": 0, "world_size": 0}, ValueError, "world_size must be at least 1"),
    ],
)
def test_an_impossible_rank_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        dist.init_process_group("gloo", store=dist.HashStore(), **arguments)


def test_an_engine_that_is_not_installed_is_named_with_what_to_install():
    with pytest.raises(dist.DistBackendError, match="no engine 'nccl' is installed .*'gloo'"):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()
    assert not dist.is_nccl_available()


def test_mpi_without_its_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)  # as if it were not installed
    with pytest.raises(
        dist.DistBackendError, match="'mpi' needs mpi4py .*pip install mpi4py mpich"
    ):
        dist.init_process_group("mpi")
    assert not dist.is_initialized()


def test_without_a_group_everything_says_what_to_call():
    with pytest.raises(ValueError, match="please make sure to call init_process_group"):
        dist.all_reduce(tangrad.ones(1))
