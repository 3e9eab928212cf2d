"""What programs ask about groups, backends and themselves, and what they set."""

import pytest

import tangrad
import tangrad.distributed as dist


def test_ranks_of_a_group_and_of_the_world_are_each_other_s():
    def step(rank):
        before = dist.get_pg_count()
        mine, every = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
        assert len(every) == 2
        with pytest.raises(ValueError, match="Group rank 2 is not part of group"):
            dist.get_global_rank(mine, 2)
        with pytest.raises(ValueError, match="Global rank 7 is not part of group"):
            dist.get_group_rank(mine, 7)
        ranks = [dist.get_global_rank(mine, at) for at in range(2)]
        return ranks, dist.get_group_rank(mine, rank), dist.get_pg_count() - before

    said = dist.run_threads(step, 4)
    assert said == [([0, 2], 0, 1), ([1, 3], 0, 1), ([0, 2], 1, 1), ([1, 3], 1, 1)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dist.new_subgroups(2), "must not exceed the world size"),
        (lambda: dist.new_subgroups_by_enumeration([]), "cannot be empty"),
        (lambda: dist.new_subgroups_by_enumeration([[0], [0]]), "more than one subgroup"),
        (lambda: dist.split_group(split_ranks=[[0], [0]]), "cannot have overlaps"),
        (lambda: dist.split_group(split_ranks=[[1]]), "rank 1 is not in a group of 1 ranks"),
        (lambda: dist.split_group(), "must list the ranks of each new group"),
    ],
)
def test_groups_that_cannot_be_are_refused(call, message):
    def step(rank):
        with pytest.raises(ValueError, match=message):
            call()

    dist.run_threads(step, 1)


def test_a_group_goes_on_without_ranks_that_leave():
    def step(rank):
        if rank == 1:
            with pytest.raises(dist.DistBackendError, match="this rank is to leave"):
                dist.shrink_group([1])
            return None
        x = tangrad.tensor([float(rank)])
        dist.all_reduce(x, group=dist.shrink_group([1]))
        return x.item()

    assert dist.run_threads(step, 3) == [2.0, None, 2.0]


def test_a_process_knows_its_rank_on_its_machine(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert dist.get_node_local_rank(7) == 3
    monkeypatch.delenv("LOCAL_RANK")
    assert dist.get_node_local_rank(7) == 7
    with pytest.raises(RuntimeError, match="Consider passing fallback_rank"):
        dist.get_node_local_rank()


def test_a_process_knows_whether_the_launcher_started_it(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert not dist.is_torchelastic_launched()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert dist.is_torchelastic_launched()


def test_backends_are_there_or_not():
    there = [dist.is_gloo_available(), dist.is_backend_available("GLOO")]
    absent = [dist.is_ucc_available(), dist.is_xccl_available(), dist.is_backend_available("x")]
    assert (there, absent) == ([True, True], [False, False, False])
    assert dist.get_default_backend_for_device("cpu") == "gloo"
    with pytest.raises(ValueError, match="not registered for device : nothing"):
        dist.get_default_backend_for_device("nothing")


def test_a_backend_may_be_given_for_each_device():
    config = dist.BackendConfig("cpu:gloo,cuda:nccl")
    assert repr(config) == "cpu:gloo,cuda:nccl"
    assert config.get_device_backend_map() == {"cpu": "gloo", "cuda": "nccl"}
    for text, message in (("cpu:", "Invalid device:backend"), ("cpu:a,cpu:b", "Duplicate device")):
        with pytest.raises(ValueError, match=message):
            dist.BackendConfig(text)
    assert dist.run_threads(lambda rank: dist.get_backend_config(), 1) == ["cpu:threads"]


def test_a_debug_level_is_set_by_hand_and_by_the_environment(monkeypatch):
    before = dist.get_debug_level()
    try:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        assert dist.get_debug_level() == dist.DebugLevel.DETAIL
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "info")
        dist.set_debug_level_from_env()
        assert dist.get_debug_level() == dist.DebugLevel.INFO
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "loud")
        with pytest.raises(RuntimeError, match="must be OFF, INFO or DETAIL, got 'LOUD'"):
            dist.set_debug_level_from_env()
    finally:
        dist.set_debug_level(before)


def test_a_breakpoint_stops_one_rank_while_the_others_wait(monkeypatch):
    from tangrad_distributed.watching import debugging

    stopped = []

    class Debugger:
        def set_trace(self, frame):
            stopped.append((dist.get_rank(), frame.f_code.co_name))

    monkeypatch.setattr(debugging, "_TerminalPdb", Debugger)

    def step(rank):
        dist.breakpoint(rank=1)

    dist.run_threads(step, 2)
    assert stopped == [(1, "step")]


def test_reductions_that_complex_numbers_have_are_told():
    ops = dist.ReduceOp
    kinds = {ops.SUM: True, ops.AVG: True, ops.PRODUCT: True, ops.MAX: False, ops.BOR: False}
    assert {op: dist.supports_complex(op) for op in kinds} == kinds


def test_collectives_may_be_named_for_the_profiler():
    profiler = pytest.importorskip("tangrad_profiler")
    with profiler.profile() as prof, dist.record_comm("exchange"):
        tangrad.ones(2) + 1
    assert "exchange" in [event.key for event in prof.key_averages()]


def test_what_stands_for_a_group_that_one_is_not_in():
    def step(rank):
        assert dist.GroupMember.WORLD is dist.group.WORLD
        first = dist.new_group([0])
        assert (first == dist.GroupMember.NON_GROUP_MEMBER) == (rank == 1)
        return dist.get_rank(first), dist.get_world_size(first)

    assert dist.run_threads(step, 2) == [(0, 1), (-1, -1)]


def test_options_hold_what_pytorch_s_hold():
    for kind, held in {
        dist.AllreduceOptions: {"reduceOp", "timeout"},
        dist.AllreduceCoalescedOptions: {"reduceOp", "timeout"},
        dist.ReduceOptions: {"reduceOp", "rootRank", "rootTensor", "timeout"},
        dist.ReduceScatterOptions: {"reduceOp", "timeout"},
        dist.BroadcastOptions: {"rootRank", "rootTensor", "timeout"},
        dist.GatherOptions: {"rootRank", "timeout"},
        dist.ScatterOptions: {"rootRank", "timeout"},
        dist.BarrierOptions: {"device_ids", "timeout"},
        dist.AllToAllOptions: {"timeout"},
    }.items():
        assert held <= set(dir(kind())), kind
