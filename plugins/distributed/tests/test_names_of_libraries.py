"""What libraries import by PyTorch's paths: it is there, or it refuses when it is called."""

import importlib
import socket

import pytest

import tangrad
from tangrad.distributed.checkpoint.state_dict import _init_optim_state
from tangrad.distributed.elastic.utils.distributed import get_free_port

REFUSED = [
    "checkpoint._fsspec_filesystem.FsspecReader",
    "checkpoint._fsspec_filesystem.FsspecWriter",
    "fsdp.BackwardPrefetch",
    "fsdp.FullyShardedDataParallel",
    "fsdp.api.OptimStateDictConfig",
    "fsdp.api.StateDictConfig",
    "fsdp.fully_sharded_data_parallel.BackwardPrefetch",
    "tensor.parallel.loss.loss_parallel",
    "tensor.parallel.style.ParallelStyle",
]


@pytest.mark.parametrize("path", REFUSED)
def test_what_is_not_there_yet_serves_annotations_and_is_refused_when_it_is_called(path):
    module, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(f"tangrad.distributed.{module}"), name)
    assert not isinstance(tangrad.nn.Linear(1, 1), found)
    with pytest.raises(RuntimeError, match=name):
        found()


def test_a_choice_of_what_is_not_there_may_be_an_argument_s_default():
    from tangrad.distributed.fsdp.fully_sharded_data_parallel import BackwardPrefetch

    assert isinstance(BackwardPrefetch.BACKWARD_PRE, BackwardPrefetch)
    assert BackwardPrefetch.BACKWARD_PRE is not BackwardPrefetch.BACKWARD_POST


def test_no_module_has_the_state_of_what_is_not_there():
    from tangrad.distributed._composable_state import _get_module_state

    assert _get_module_state(tangrad.nn.Linear(1, 1)) is None


def test_a_free_port_can_be_listened_at():
    with socket.create_server(("localhost", get_free_port())) as mine:
        assert mine.getsockname()[1]


def test_an_optimizer_makes_its_states_and_changes_no_parameter():
    parameter = tangrad.nn.Parameter(tangrad.ones(3))
    optimizer = tangrad.optim.Adam([parameter], weight_decay=0.5)
    _init_optim_state(optimizer)
    assert set(optimizer.state[parameter]) == {"step", "exp_avg", "exp_avg_sq"}
    assert parameter.tolist() == [1.0] * 3
    assert parameter.grad is None


def test_operators_of_libraries_have_pytorch_s_classes():
    from tangrad._ops import OpOverload, OpOverloadPacket, _OpNamespace

    @tangrad.library.custom_op("names_of_libraries::twice", mutates_args=())
    def twice(x: tangrad.Tensor) -> tangrad.Tensor:
        return x * 2

    namespace = tangrad.ops.names_of_libraries
    assert isinstance(namespace, _OpNamespace)
    assert isinstance(namespace.twice, OpOverloadPacket)
    assert isinstance(namespace.twice.default, OpOverload)
    assert isinstance(tangrad.ops.aten.mm, OpOverloadPacket)
    assert isinstance(tangrad.ops.aten.mm.default, OpOverload)
    assert not isinstance(tangrad.relu_, OpOverloadPacket)


def test_collectives_by_their_former_names():
    def program(rank):
        dist = tangrad.distributed
        group = dist.new_group([0])
        gathered, reduced = tangrad.empty(4), tangrad.empty(2)
        dist._all_gather_base(gathered, tangrad.full((2,), float(rank)))
        work = dist._reduce_scatter_base(reduced, tangrad.arange(4.0), async_op=True)
        assert isinstance(work, dist._Work)
        work.wait()
        everyone = dist.distributed_c10d._get_default_group()
        name = dist._get_process_group_name(everyone)
        absent = [dist._rank_not_in_group(one) for one in (None, everyone, group)]
        return gathered.tolist(), reduced.tolist(), name == everyone.group_name, absent

    first, second = tangrad.distributed.run_threads(program, 2)
    assert first == ([0, 0, 1, 1], [0, 2], True, [False, False, False])
    assert second == ([0, 0, 1, 1], [4, 6], True, [False, False, True])
