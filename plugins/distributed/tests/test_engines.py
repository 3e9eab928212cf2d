"""Every engine does all that the kit asks, with the same bits."""

import subprocess
import sys
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
import tangrad.distributed as dist
from tangrad import nn
from tangrad.distributed.optim import ZeroRedundancyOptimizer
from tangrad_distributed.communication.reductions import fold, premul_sum, reduction
from tangrad_distributed.conformance import CASES, numbers, run_all
from tangrad_distributed.engines.mpi import mpiexec
from tangrad_distributed.engines.simulated import Network

MPIEXEC = mpiexec()
# The full run has more ranks, and more fates of a network: (seed, ranks).
MORE = [pytest.param(ranks, marks=pytest.mark.slow) for ranks in (3, 4)]
SEEDS = [(seed, 3 + seed % 2) for seed in range(20)]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, premul_sum(0.3)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("op", OPS, ids=str)
def test_what_is_large_is_reduced_to_the_bits_of_its_pieces(op, ranks):
    parts = [numbers(5000, rank) for rank in range(ranks)]
    whole, pieces = tangrad.empty(5000), tangrad.empty(5000)
    fold(reduction(op, "fold"), parts, whole)
    for begin in range(0, 5000, 1000):
        cut = slice(begin, begin + 1000)
        fold(reduction(op, "fold"), [part[cut] for part in parts], pieces[cut])
    assert tangrad.equal(whole, pieces)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", sorted(CASES))
def test_ranks_that_are_threads(name, size):
    dist.run_threads(CASES[name], size, size)


@pytest.mark.parametrize("ranks", [2, *MORE])
def test_ranks_that_are_processes_of_this_machine(launch, ranks):
    done = launch("", flags=("-m",), ranks=ranks)
    assert done.returncode != 0  # without a module's name there is nothing to run
    done = subprocess.run(
        [sys.executable, "-m", "tangrad.distributed.run", f"--nproc-per-node={ranks}"]
        + ["-m", "tangrad_distributed.conformance", "gloo"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("cases passed") == ranks


def test_ranks_on_several_machines(launch):
    source = """
        import sys, tangrad.distributed as dist
        from tangrad_distributed.conformance import run_all
        from tangrad_distributed.engines.sockets import Sockets
        dist.Backend.register_backend("tcp", Sockets)
        dist.init_process_group("tcp")
        failed = run_all(dist.get_rank(), dist.get_world_size())
        print(*failed or ["all passed"])
        dist.destroy_process_group()
    """
    done = launch(source)
    assert done.stdout.count("all passed") == 2, done.stdout + done.stderr


@pytest.mark.skipif(MPIEXEC is None, reason="no MPI: pip install mpi4py mpich")
@pytest.mark.parametrize("ranks", [2, *MORE])
def test_ranks_that_mpi_started(ranks):
    command = [MPIEXEC, "-n", str(ranks), sys.executable, "-m", "tangrad_distributed.conformance"]
    done = subprocess.run([*command, "mpi"], capture_output=True, text=True, check=False)
    assert done.stdout.count("cases passed") == ranks, done.stdout + done.stderr


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from([0.0, 0.2]), size=st.integers(2, 4))
def test_a_bad_network_changes_no_bit(seed, loss, size):
    Network(seed=seed, loss=loss).register()

    def step(rank):
        tensor = numbers(20_000, rank)
        dist.all_reduce(tensor)
        return tensor

    found = dist.run_threads(step, size, backend="simulated")
    expected = dist.run_threads(step, size)
    assert all(tangrad.equal(a, b) for a, b in zip(found, expected, strict=True))


def data_parallel_steps(rank):
    """Return the parameters after two steps with several buckets, and of an optimizer in parts."""
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    with tangrad.no_grad():
        for at, parameter in enumerate(model.parameters()):
            parameter.copy_(numbers(parameter.numel(), at).reshape(parameter.shape))
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.00005)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), tangrad.optim.SGD, lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        model(numbers(12, rank + step).reshape(4, 3)).square().sum().backward()
        optimizer.step()
    return [value.clone() for value in model.state_dict().values()]


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from([0.0, 0.2]), size=st.integers(2, 3))
def test_a_step_of_data_parallelism_over_a_bad_network_changes_no_bit(seed, loss, size):
    Network(seed=seed, loss=loss).register()
    found = dist.run_threads(data_parallel_steps, size, backend="simulated")
    for mine, other in zip(found, dist.run_threads(data_parallel_steps, size), strict=True):
        assert all(tangrad.equal(a, b) for a, b in zip(mine, other, strict=True))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), rank=st.integers(0, 2), at=st.integers(0, 40))
def test_wherever_a_rank_dies_in_a_step_nobody_waits_for_it(seed, rank, at):
    Network(seed=seed, loss=0.1, death=(rank, at)).register()
    # Late deaths do not happen: fewer messages are sent.
    with suppress(dist.DistBackendError):
        dist.run_threads(data_parallel_steps, 3, backend="simulated", timeout=timedelta(seconds=60))


def test_a_seed_draws_the_same_fate_again():
    def fates():
        network = Network(seed=5, loss=0.3)
        network.register()
        dist.run_threads(data_parallel_steps, 3, backend="simulated")
        return sorted(network.log)

    assert fates() == fates()


@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from([0.0, 0.1]), ranks=st.integers(2, 3))
def test_every_collective_passes_over_any_network(seed, loss, ranks):
    Network(seed=seed, loss=loss).register()
    assert dist.run_threads(run_all, ranks, ranks, backend="simulated") == [[]] * ranks


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "ranks"), SEEDS)
def test_all_cases_pass_over_a_bad_network(seed, ranks):
    Network(seed=seed, loss=0.1).register()
    assert dist.run_threads(run_all, ranks, ranks, backend="simulated") == [[]] * ranks


def test_the_death_of_a_rank_on_the_network_is_named_by_all_others():
    Network(seed=1, death=(1, 5)).register()
    said = []

    def step(rank):
        try:
            for _ in range(10):
                dist.all_reduce(tangrad.ones(3))
        except dist.RankLostError as error:
            said.append((rank, error.rank, str(error)))
            raise

    with pytest.raises(dist.DistBackendError, match="rank 1 died, as the network was told"):
        dist.run_threads(step, 3, backend="simulated", timeout=timedelta(seconds=30))
    assert {rank for rank, _, _ in said} == {0, 2}
    # The first to see it names the dead one, the other may name the first.
    assert said[0][1] == 1
    assert all(lost in {0, 1, 2} - {rank} for rank, lost, _ in said)
    assert all("all_reduce(float32[3], op=SUM)" in text for _, _, text in said)


def test_the_same_seed_replays_the_network():
    logs = []
    for _ in range(2):
        network = Network(seed=7, loss=0.3)
        network.register()
        dist.run_threads(lambda rank: dist.all_reduce(tangrad.ones(2)), 3, backend="simulated")
        logs.append(sorted(network.log))
    assert logs[0] == logs[1]
