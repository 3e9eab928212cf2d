"""Fixed shards: 1, 2, 3, ... ranks train to the same bits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tangrad
import tangrad.distributed as dist
from tangrad import nn
from tangrad_distributed.communication.reductions import ReduceOp, fold
from tangrad_distributed.training.fixed_shards import known, levels, shards_of


def network():
    model = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Tanh(), nn.Linear(10, 4))
    with tangrad.no_grad():
        for at, parameter in enumerate(model.parameters()):
            values = (tangrad.arange(parameter.numel()) * 0.7 + at).sin() * 0.4
            parameter.copy_(values.reshape(parameter.shape))
    return model


def trained(rank, shards, rows=24, cut=False, make=network):
    model = make()
    parts = dist.FixedShards(model, shards)
    optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(3):
        x = (tangrad.arange(rows * 6.0) * 0.37 + step).sin().reshape(rows, 6)
        y = (tangrad.arange(rows) + step) % 4
        batch = [part[parts.rows(rows)] for part in (x, y)] if cut else [x, y]
        loss = parts.backward(
            lambda x, y: nn.functional.cross_entropy(model(x), y),
            *batch,
            total=rows if cut else None,
        )
        optimizer.step()
        losses.append(loss)
    return [*(value.clone() for value in model.state_dict().values()), *losses]


def assert_same_bits(found, expected):
    assert all(tangrad.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("shards", [4, 6, 8])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", [24, 26])
def test_any_number_of_ranks_trains_to_the_same_bits(size, shards, rows):
    expected = trained(0, shards, rows)
    for found in dist.run_threads(trained, size, shards, rows):
        assert_same_bits(found, expected)


def test_a_rank_needs_only_its_rows():
    expected = trained(0, 6, 26)
    for found in dist.run_threads(trained, 3, 6, 26, True):
        assert_same_bits(found, expected)


def test_the_gradient_is_that_of_the_whole_batch():
    model = nn.Linear(6, 4)
    parts = dist.FixedShards(model, 5)
    x, y = (tangrad.arange(60.0) * 0.37).sin().reshape(10, 6), tangrad.arange(10) % 4
    loss = parts.backward(lambda x, y: nn.functional.cross_entropy(model(x), y), x, y)
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    whole = nn.functional.cross_entropy(model(x), y)
    whole.backward()
    for a, p in zip(found, model.parameters(), strict=True):
        tangrad.testing.assert_close(a, p.grad)
    tangrad.testing.assert_close(loss, whole.detach())


RANDOM = """
import sys, tangrad, tangrad.distributed as dist
from tangrad import nn
from tangrad_distributed.world import World
if sys.argv[1:] != ["alone"]:
    dist.init_process_group("gloo")
tangrad.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 10), nn.Dropout(0.5), nn.Linear(10, 1))
parts = dist.FixedShards(model, 4, seed=3)
optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    parts.backward(lambda x: model(x).pow(2).mean(), tangrad.linspace(-1, 1, 48).reshape(8, 6))
    optimizer.step()
print("bits", *(p.double().sum().item().hex() for p in model.parameters()))
"""


def test_random_numbers_do_not_depend_on_the_number_of_ranks(launch):
    lines = [
        [line for line in launch(RANDOM, *how, ranks=ranks).stdout.splitlines() if "bits" in line]
        for ranks, how in ((1, ["alone"]), (2, []))
    ]
    assert len(lines[0]) == 1
    assert lines[1] == lines[0] * 2


def test_parameters_begin_as_those_of_the_first_rank():
    def step(rank):
        model = nn.Linear(1, 1)
        with tangrad.no_grad():
            model.weight.fill_(float(rank))
        dist.FixedShards(model, 2)
        return model.weight.item()

    assert dist.run_threads(step, 2) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dist.FixedShards(nn.Linear(1, 1), 1), "1 shards are fewer than the 2 ranks"),
        (
            lambda: dist.FixedShards(nn.Linear(1, 1), 2).backward(
                len, tangrad.ones(2), tangrad.ones(3)
            ),
            r"parts of a batch have \[2, 3\] rows",
        ),
        (
            lambda: dist.FixedShards(nn.Linear(1, 1), 2).backward(len, tangrad.ones(3), total=4),
            "needs rows . to . of 4, got 3 rows",
        ),
    ],
)
def test_what_does_not_fit_is_told(call, message):
    def step(rank):
        with pytest.raises(ValueError, match=message):
            call()

    dist.run_threads(step, 2)


@given(shards=st.integers(1, 33), size=st.integers(1, 9))
def test_what_ranks_know_covers_each_shard_once(shards, size):
    if size > shards:
        return
    nodes = [n for rank in range(size) for n in known(shards_of(rank, size, shards), shards)]
    assert sorted(shard for a, b in nodes for shard in range(a, b)) == list(range(shards))
    assert {node for level in levels(shards) for node in level} >= set(nodes)


@given(st.integers(1, 20))
def test_the_tree_is_that_of_every_reduction(shards):
    parts = [tangrad.tensor((at * 0.7 + 0.1) ** 3) for at in range(shards)]
    into = tangrad.zeros(())
    fold(ReduceOp(ReduceOp.SUM), parts, into)
    sums = {(at, at + 1): part for at, part in enumerate(parts)}
    for level in levels(shards)[1:]:
        for a, b in level:
            pair = [node for node in sums if node[0] == a or node[1] == b]
            if (a, b) not in sums:
                first, second = sorted(n for n in pair if a <= n[0] and n[1] <= b)
                sums[a, b] = sums.pop(first) + sums.pop(second)
    assert tangrad.equal(sums[0, shards], into)
