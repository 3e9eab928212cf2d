"""Checkpoints: other numbers of ranks, kills at any moment, damaged files."""

import copy
import os
import subprocess
import sys
from datetime import timedelta

import pytest

import tangrad
import tangrad.distributed as dist
import tangrad.distributed.checkpoint as dcp
from tangrad import nn
from tangrad.distributed.checkpoint import format_utils
from tangrad.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_state_dict,
)
from tangrad.distributed.optim import ZeroRedundancyOptimizer
from tangrad.nn.parallel import DistributedDataParallel


def state():
    return {
        "model": {"weight": tangrad.arange(6.0).reshape(2, 3), "half": tangrad.ones(3).bfloat16()},
        "complex": tangrad.tensor([1 + 2j]),
        "none": tangrad.empty(0, 3),
        "history": [tangrad.tensor(1), {"step": tangrad.tensor([2.5])}],
        "epoch": 7,
        "names": ["a", "b"],
    }


def blank():
    made = copy.deepcopy(state())
    for tensor in (made["model"]["weight"], made["model"]["half"], made["complex"]):
        tensor.zero_()
    made["history"][1]["step"].zero_()
    made["epoch"], made["names"] = 0, None
    return made


def assert_alike(found, expected):
    flat, other = ({}, {})
    from tangrad_distributed.checkpoint.nesting import visit

    visit(found, flat.__setitem__)
    visit(expected, other.__setitem__)
    assert flat.keys() == other.keys()
    for path, value in other.items():
        if isinstance(value, tangrad.Tensor):
            assert value.dtype == flat[path].dtype
            assert tangrad.equal(value, flat[path])
        else:
            assert value == flat[path]


@pytest.mark.parametrize(("saving", "loading"), [(1, 1), (1, 3), (3, 2), (2, 4)])
def test_any_number_of_ranks_loads_what_another_saved(tmp_path, saving, loading):
    dist.run_threads(lambda rank: dcp.save(state(), checkpoint_id=tmp_path), saving)

    def load(rank):
        found = blank()
        dcp.load(found, checkpoint_id=tmp_path)
        return found

    for found in dist.run_threads(load, loading):
        assert_alike(found, state())


def test_a_process_alone_needs_no_group(tmp_path):
    dcp.save(state(), checkpoint_id=tmp_path)
    found = blank()
    dcp.load(found, checkpoint_id=tmp_path)
    assert_alike(found, state())


def test_what_ranks_have_alike_is_written_once_and_shared_out(tmp_path):
    one = {f"layer{at}": tangrad.full((1000,), float(at)) for at in range(4)}
    dist.run_threads(lambda rank: dcp.save(one, checkpoint_id=tmp_path), 2)
    sizes = [file.stat().st_size for file in sorted(tmp_path.glob("__*.distcp"))]
    assert len(sizes) == 2
    assert all(8000 <= size < 8200 for size in sizes)


@pytest.mark.parametrize("cuts", [(1, 3), (2, 3), (4, 1), (3, 2)])
def test_parts_are_cut_anew(tmp_path, cuts):
    whole = tangrad.arange(36.0).reshape(12, 3)

    def part(rank, size, tensor):
        begin, end = 12 * rank // size, 12 * (rank + 1) // size
        return dcp.LocalPart(tensor[begin:end].clone(), (begin, 0), (12, 3))

    def save(rank):
        dcp.save({"table": part(rank, cuts[0], whole)}, checkpoint_id=tmp_path)

    def load(rank):
        target = {"table": part(rank, cuts[1], tangrad.zeros(12, 3))}
        dcp.load(target, checkpoint_id=tmp_path)
        return target["table"].tensor

    dist.run_threads(save, cuts[0])
    assert tangrad.equal(tangrad.cat(dist.run_threads(load, cuts[1])), whole)
    alone = {"table": tangrad.zeros(12, 3)}
    dcp.load(alone, checkpoint_id=tmp_path)
    assert tangrad.equal(alone["table"], whole)


def network():
    model = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Tanh(), nn.Linear(10, 4))
    with tangrad.no_grad():
        for at, parameter in enumerate(model.parameters()):
            values = (tangrad.arange(parameter.numel()) * 0.7 + at).sin() * 0.4
            parameter.copy_(values.reshape(parameter.shape))
    return model


def train(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        x = tangrad.linspace(-1, 1, 8 * 6).reshape(8, 6) + step * 0.1
        model(x).pow(2).sum().backward()
        optimizer.step()


def sharded(model):
    return ZeroRedundancyOptimizer(model.parameters(), tangrad.optim.AdamW, lr=0.01)


@pytest.mark.parametrize(("saving", "loading"), [(2, 1), (2, 3), (1, 2)])
def test_training_goes_on_with_another_number_of_ranks(tmp_path, saving, loading):
    def begin(rank):
        model = DistributedDataParallel(network())
        optimizer = sharded(model)
        train(model, optimizer, range(3))
        one, other = get_state_dict(model, optimizer)
        dcp.save({"model": one, "optim": other, "step": 3}, checkpoint_id=tmp_path)

    def go_on(rank):
        model = network()
        optimizer = sharded(model)
        one, other = get_state_dict(model, optimizer)
        found = {"model": one, "optim": other, "step": 0}
        dcp.load(found, checkpoint_id=tmp_path)
        set_state_dict(
            model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optim"]
        )
        train(model, optimizer, range(found["step"], 6))
        return [p.detach().clone() for p in model.parameters()]

    model = network()
    optimizer = tangrad.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer, range(6))
    dist.run_threads(begin, saving)
    for found in dist.run_threads(go_on, loading):
        assert all(tangrad.equal(a, b) for a, b in zip(found, model.parameters(), strict=True))


def test_states_go_by_the_names_of_parameters_without_wrappers():
    def step(rank):
        model = DistributedDataParallel(network())
        optimizer = sharded(model)
        whole = StateDictOptions(full_state_dict=True)
        flat = StateDictOptions(full_state_dict=True, flatten_optimizer_state_dict=True)
        own = get_optimizer_state_dict(model, optimizer)["state"]
        every = get_optimizer_state_dict(model, optimizer, options=whole)["state"]
        keys = get_optimizer_state_dict(model, optimizer, options=flat)
        return set(get_model_state_dict(model)), set(own), set(every), set(keys)

    first, second = dist.run_threads(step, 2)
    names = set(network().state_dict())
    weights = {name for name, _ in network().named_parameters()}
    assert first[0] == names
    assert first[1] | second[1] == weights
    assert not first[1] & second[1]
    assert first[2] == weights
    assert {"state.0.weight.exp_avg", "param_groups.3.bias.lr"} <= first[3]


def test_the_first_rank_may_hand_out_the_state():
    def step(rank):
        model = network()
        optimizer = tangrad.optim.AdamW(model.parameters(), lr=0.01)
        if rank == 0:
            train(model, optimizer, range(2))
        one, other = get_state_dict(model, optimizer)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_state_dict(
            model, optimizer, model_state_dict=one, optim_state_dict=other, options=options
        )
        train(model, optimizer, range(2, 4))
        return [p.detach().clone() for p in model.parameters()]

    first, second = dist.run_threads(step, 2)
    assert all(tangrad.equal(a, b) for a, b in zip(first, second, strict=True))


def test_whatever_has_a_state_is_saved_and_loaded_by_its_methods(tmp_path):
    def step(rank):
        model = network()
        optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = tangrad.optim.lr_scheduler.StepLR(optimizer, 1)
        train(model, optimizer, range(2))
        scheduler.step()
        dcp.save({"model": model, "scheduler": scheduler}, checkpoint_id=tmp_path)
        other, again = network(), tangrad.optim.lr_scheduler.StepLR(optimizer, 1)
        dcp.load({"model": other, "scheduler": again}, checkpoint_id=tmp_path)
        assert_alike(other.state_dict(), model.state_dict())
        assert again.last_epoch == 1

    dist.run_threads(step, 2)


def test_saving_goes_on_beside_training_with_what_was_there(tmp_path):
    def step(rank):
        tensor = tangrad.full((1000,), 1.0)
        pending = [dcp.async_save({"x": tensor}, checkpoint_id=tmp_path / str(at)) for at in (0, 1)]
        for _ in range(20):
            tensor += 1
            dist.all_reduce(tangrad.ones(3))
        for one in pending:
            one.result(60)

    dist.run_threads(step, 2, timeout=timedelta(seconds=60))
    for folder in ("0", "1"):
        found = {"x": tangrad.zeros(1000)}
        dcp.load(found, checkpoint_id=tmp_path / folder)
        assert tangrad.equal(found["x"], tangrad.ones(1000))


def test_a_save_beside_training_tells_what_failed(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(dcp.CheckpointException, match="FileExistsError|NotADirectoryError"):
        dcp.async_save({"x": tangrad.ones(1)}, checkpoint_id=tmp_path / "file").result(60)


# Calls at which the process ends: which function, and at which of its calls.
MOMENTS = [("write", 2), ("fsync", 3), ("replace", 1), ("unlink", 1)]
MOMENTS += [
    pytest.param(*moment, marks=pytest.mark.slow)
    for moment in [("write", 1), ("write", 3), ("fsync", 1), ("fsync", 2), ("fsync", 4)]
]
KILLED = """
import os, sys, tangrad, tangrad.distributed.checkpoint as dcp
moment, count = sys.argv[1], int(sys.argv[2])
calls = [0]
def die(before):
    def call(*args, **kwargs):
        calls[0] += 1
        if calls[0] == count:
            os._exit(9)
        return before(*args, **kwargs)
    return call
import zlib, pathlib
if moment == "write":
    zlib.crc32 = die(zlib.crc32)
elif moment == "unlink":
    pathlib.Path.unlink = die(pathlib.Path.unlink)
else:
    setattr(os, moment, die(getattr(os, moment)))
new = {f"k{at}": tangrad.full((100,), 2.0) for at in range(3)}
dcp.save(new, checkpoint_id=sys.argv[3])
print("saved")
"""


@pytest.mark.parametrize(("moment", "count"), MOMENTS)
def test_a_kill_at_any_moment_leaves_a_complete_checkpoint(tmp_path, moment, count):
    keys = [f"k{at}" for at in range(3)]
    dcp.save({key: tangrad.full((100,), 1.0) for key in keys}, checkpoint_id=tmp_path)
    command = [sys.executable, "-c", KILLED, moment, str(count), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "saved" not in done.stdout
    found = {key: tangrad.zeros(100) for key in keys}
    dcp.load(found, checkpoint_id=tmp_path)
    values = {tensor.unique().item() for tensor in found.values()}
    # The rename is the moment at which the new one is there.
    renamed = moment == "unlink" or (moment, count) == ("fsync", 4)
    assert values == {2.0 if renamed else 1.0}
    dcp.save(found, checkpoint_id=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # nothing of the killed save is left


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda at: at.unlink(), "there is no checkpoint in"),
        (lambda at: at.write_bytes(at.read_bytes()[:-80]), "is damaged: its checksum"),
        (lambda at: at.write_bytes(b"\x80\x04pickle"), "is a pickle, as PyTorch's"),
    ],
)
def test_what_is_no_checkpoint_is_told(tmp_path, spoil, message):
    dcp.save({"x": tangrad.ones(4)}, checkpoint_id=tmp_path)
    spoil(tmp_path / ".metadata")
    with pytest.raises(dcp.CheckpointException, match=message):
        dcp.load({"x": tangrad.ones(4)}, checkpoint_id=tmp_path)


def test_a_damaged_piece_is_told_on_all_ranks(tmp_path):
    one = {"x": tangrad.ones(400), "y": tangrad.ones(4)}
    dist.run_threads(lambda rank: dcp.save(one, checkpoint_id=tmp_path), 2)
    file = max(tmp_path.glob("__*.distcp"), key=lambda file: file.stat().st_size)
    content = bytearray(file.read_bytes())
    content[17] ^= 1
    file.write_bytes(content)

    def load(rank):
        mine = {"x": tangrad.zeros(400)} if rank == 0 else {"y": tangrad.zeros(4)}
        with pytest.raises(dcp.CheckpointException, match=r"ranks: \[0\].* read") as caught:
            dcp.load(mine, checkpoint_id=tmp_path)
        assert "is damaged where it holds 'x'" in str(caught.value)

    dist.run_threads(load, 2)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"y": tangrad.ones(1)}, "Missing key in checkpoint state_dict: y"),
        ({"x": tangrad.ones(5)}, r"Size mismatch between saved \[4\] and current: \[5\] for x"),
        ({"x": 1}, r"has a tensor \[4\] under 'x', the state to load has int"),
    ],
)
def test_what_does_not_fit_is_told(tmp_path, target, message):
    dcp.save({"x": tangrad.ones(4)}, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match=message):
        dcp.load(target, checkpoint_id=tmp_path)


def test_ranks_that_save_other_things_under_one_key_are_told(tmp_path):
    def step(rank):
        with pytest.raises(dcp.CheckpointException, match="different tensors under the key 'x'"):
            dcp.save({"x": tangrad.ones(1 + rank)}, checkpoint_id=tmp_path)
        part = dcp.LocalPart(tangrad.ones(2), (rank,), (4,))
        with pytest.raises(dcp.CheckpointException, match="parts of 'x' overlap"):
            dcp.save({"x": part}, checkpoint_id=tmp_path)

    dist.run_threads(step, 2)


def test_what_is_missing_may_stay_as_it_is(tmp_path):
    dcp.save({"x": tangrad.ones(1)}, checkpoint_id=tmp_path)
    found = {"x": tangrad.zeros(1), "y": tangrad.full((1,), 5.0)}
    dcp.load(found, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert (found["x"].item(), found["y"].item()) == (1.0, 5.0)


def test_a_checkpoint_that_must_stay_is_not_written_over(tmp_path):
    dcp.save({"x": tangrad.ones(1)}, checkpoint_id=tmp_path)
    writer = dcp.FileSystemWriter(tmp_path, overwrite=False)
    with pytest.raises(dcp.CheckpointException, match="overwrite is False"):
        dcp.save({"x": tangrad.zeros(1)}, storage_writer=writer)


def test_a_checkpoint_becomes_one_file_and_back(tmp_path):
    dcp.save(state(), checkpoint_id=tmp_path / "many")
    format_utils.dcp_to_torch_save(tmp_path / "many", tmp_path / "one.pt")
    assert_alike(tangrad.load(tmp_path / "one.pt"), state())
    format_utils.torch_save_to_dcp(tmp_path / "one.pt", tmp_path / "again")
    found = blank()
    dcp.load(found, checkpoint_id=tmp_path / "again")
    assert_alike(found, state())


def test_nothing_of_a_checkpoint_is_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, ("touch evil",)

    dcp.save({"x": Evil()}, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match="read"):
        dcp.load({"x": None}, checkpoint_id=tmp_path)
    assert not os.path.exists("evil")


def test_a_rank_that_dies_while_all_save_leaves_the_checkpoint_before(launch, tmp_path):
    source = """
        import os, sys, tangrad, tangrad.distributed as dist, tangrad.distributed.checkpoint as dcp
        dist.init_process_group("gloo")
        state = {f"k{at}": tangrad.full((100,), 1.0) for at in range(4)}
        dcp.save(state, checkpoint_id=sys.argv[1])
        if dist.get_rank() == 1:
            os.fsync = lambda file: os.kill(os.getpid(), 9)
        dcp.save({key: value * 2 for key, value in state.items()}, checkpoint_id=sys.argv[1])
    """
    done = launch(source, str(tmp_path / "saved"))
    assert done.returncode == 128 + 9, done.stderr
    found = {f"k{at}": tangrad.zeros(100) for at in range(4)}
    dcp.load(found, checkpoint_id=tmp_path / "saved")
    assert all(tangrad.equal(value, tangrad.ones(100)) for value in found.values())
