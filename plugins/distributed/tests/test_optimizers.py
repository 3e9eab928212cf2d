"""Optimizers of several ranks: parts of the state, local steps, averages now and then."""

import copy
from collections import OrderedDict

import pytest

import tangrad
import tangrad.distributed as dist
from tangrad import nn
from tangrad.distributed.algorithms import Join
from tangrad.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from tangrad.distributed.algorithms.model_averaging import averagers
from tangrad.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)
from tangrad.distributed.optim import (
    DistributedOptimizer,
    PostLocalSGDOptimizer,
    ZeroRedundancyOptimizer,
)
from tangrad.nn.parallel import DistributedDataParallel

RANKS = 2
ADAM = {"lr": 0.01, "weight_decay": 0.1}


def network():
    """Return the same network in every thread: they share one generator."""
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 4))
    with tangrad.no_grad():
        for at, parameter in enumerate(model.parameters()):
            values = (tangrad.arange(parameter.numel()) * 0.7 + at).sin() * 0.4
            parameter.copy_(values.reshape(parameter.shape))
    return model


def train(model, optimizer, rank=0, steps=range(4), scheduler=None):
    for step in steps:
        x = tangrad.linspace(-1, 1, 8 * 6).reshape(8, 6) + step * 0.1 + rank
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def zero(model, **options):
    return ZeroRedundancyOptimizer(model.parameters(), tangrad.optim.AdamW, **options, **ADAM)


def assert_same_bits(found, expected):
    assert all(tangrad.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("as_views", [False, True])
def test_parts_step_to_the_bits_of_the_whole(size, as_views):
    def step(rank):
        model = DistributedDataParallel(network())
        optimizer = zero(model, parameters_as_bucket_view=as_views)
        scheduler = tangrad.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        return train(model, optimizer, rank, scheduler=scheduler)

    def whole(rank):
        model = DistributedDataParallel(network())
        optimizer = tangrad.optim.AdamW(model.parameters(), **ADAM)
        scheduler = tangrad.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        return train(model, optimizer, rank, scheduler=scheduler)

    expected = dist.run_threads(whole, size)[0]
    for found in dist.run_threads(step, size):
        assert_same_bits(found, expected)


def test_a_rank_holds_the_states_of_its_part_alone():
    def step(rank):
        model = network()
        optimizer = zero(model)
        train(model, optimizer)
        held = [state["exp_avg"].numel() for state in optimizer.optim.state.values()]
        return sum(held)

    held = dist.run_threads(step, RANKS)
    total = sum(parameter.numel() for parameter in network().parameters())
    assert sum(held) == total
    assert max(held) <= 0.6 * total


def test_a_consolidated_state_is_that_of_the_optimizer_alone():
    def step(rank):
        model = network()
        optimizer = zero(model)
        train(model, optimizer)
        optimizer.consolidate_state_dict(to=1)
        if rank == 0:
            with pytest.raises(RuntimeError, match=r"has not been consolidated .*\(to=0\)"):
                optimizer.state_dict()
            return None
        return optimizer.state_dict()

    found = dist.run_threads(step, RANKS)[1]
    model = network()
    alone = tangrad.optim.AdamW(model.parameters(), **ADAM)
    train(model, alone)
    expected = alone.state_dict()
    assert list(found["state"]) == list(expected["state"])
    for index, state in expected["state"].items():
        assert_same_bits(found["state"][index].values(), state.values())
    assert found["param_groups"] == expected["param_groups"]


@pytest.mark.parametrize("size", [1, 3])
def test_a_state_is_loaded_by_another_number_of_ranks(size):
    model = network()
    alone = tangrad.optim.AdamW(model.parameters(), **ADAM)
    train(model, alone)
    saved, at = copy.deepcopy(alone.state_dict()), copy.deepcopy(model.state_dict())
    expected = train(model, alone, steps=range(4, 8))

    def step(rank):
        model = network()
        model.load_state_dict(at)
        optimizer = zero(model)
        optimizer.load_state_dict(saved)
        return train(model, optimizer, steps=range(4, 8))

    for found in dist.run_threads(step, size):
        assert_same_bits(found, expected)


def test_groups_keep_their_options_and_can_be_added():
    def step(rank):
        model = network()
        first, second = model[0], model[2]
        optimizer = ZeroRedundancyOptimizer(first.parameters(), tangrad.optim.SGD, lr=0.1)
        optimizer.add_param_group({"params": list(second.parameters()), "lr": 0.0})
        before = second.weight.detach().clone()
        train(model, optimizer)
        return tangrad.equal(before, second.weight), not tangrad.equal(first.weight, before)

    assert dist.run_threads(step, RANKS) == [(True, True)] * RANKS


def test_parts_step_on_where_a_rank_has_no_more_batches():
    def step(rank):
        model = DistributedDataParallel(network())
        optimizer = zero(model)
        with Join([model, optimizer]):
            train(model, optimizer, steps=range(2 + 2 * rank))
        return [parameter.detach().clone() for parameter in model.parameters()]

    def alone(rank):
        model = DistributedDataParallel(network())
        optimizer = tangrad.optim.AdamW(model.parameters(), **ADAM)
        with model.join():
            train(model, optimizer, steps=range(2 + 2 * rank))
        return [parameter.detach().clone() for parameter in model.parameters()]

    expected = dist.run_threads(alone, RANKS)[1]
    for found in dist.run_threads(step, RANKS):
        assert_same_bits(found, expected)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: ZeroRedundancyOptimizer(p[0], tangrad.optim.SGD), TypeError, "got a tensor"),
        (lambda p: ZeroRedundancyOptimizer([], tangrad.optim.SGD), ValueError, "empty"),
        (
            lambda p: ZeroRedundancyOptimizer(p, tangrad.optim.SGD, overlap_with_ddp=True),
            NotImplementedError,
            "overlap_with_ddp is not supported",
        ),
        (lambda p: DistributedOptimizer(tangrad.optim.SGD, p), NotImplementedError, "rpc"),
    ],
)
def test_what_an_optimizer_cannot_do_is_told(make, error, message):
    def step(rank):
        with pytest.raises(error, match=message):
            make(list(network().parameters()))

    dist.run_threads(step, 1)


def test_ranks_step_alone_between_averages():
    def step(rank):
        weight = nn.Parameter(tangrad.full((1,), float(rank)))
        averager = averagers.PeriodicModelAverager(period=2, warmup_steps=1)
        inner = tangrad.optim.SGD([weight], lr=1.0)
        optimizer, seen = PostLocalSGDOptimizer(inner, averager), []
        for _ in range(3):
            weight.grad = tangrad.full((1,), 1.0 + rank)
            optimizer.step()
            seen.append(weight.item())
        assert optimizer.state_dict()["step"] == 3
        return seen

    # The second and every other step after it averages.
    assert dist.run_threads(step, RANKS) == [[-1.0, -2.5, -3.5], [-1.0, -2.5, -4.5]]


def test_averages_among_many_are_rarer_than_among_few():
    def step(rank):
        averager = HierarchicalModelAverager(OrderedDict([(1, 2), (2, 4)]))
        weight, seen = nn.Parameter(tangrad.full((1,), float(rank))), []
        for _ in range(2):
            with tangrad.no_grad():
                weight.fill_(float(rank))
            weight.grad = tangrad.zeros(1)
            averager.average_parameters([weight])
            seen.append(weight.item())
        return seen

    assert dist.run_threads(step, 4) == [[1.5, 0.5], [1.5, 0.5], [1.5, 2.5], [1.5, 2.5]]


def test_gradients_are_averaged_in_all_ranks_first_and_then_in_the_subgroup():
    def step(rank):
        mine, _ = dist.new_subgroups(2)
        model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
        model.register_comm_hook(PostLocalSGDState(None, mine, 1), post_localSGD_hook)
        seen = []
        for _ in range(2):
            model.zero_grad()
            model(tangrad.full((1, 1), float(rank))).sum().backward()
            seen.append(model.module.weight.grad.item())
        return seen

    assert dist.run_threads(step, 4) == [[1.5, 0.5], [1.5, 0.5], [1.5, 2.5], [1.5, 2.5]]


@pytest.mark.parametrize(
    "wrap",
    [
        zero,
        lambda model: PostLocalSGDOptimizer(
            tangrad.optim.AdamW(model.parameters(), **ADAM),
            averagers.PeriodicModelAverager(period=2, warmup_steps=0),
        ),
    ],
)
def test_a_state_that_was_given_to_load_stays_as_it_is(wrap):
    def program(rank):
        model = network()
        source = wrap(model)
        train(model, source)
        if isinstance(source, ZeroRedundancyOptimizer):
            source.consolidate_state_dict()
        given = source.state_dict()
        before = copy.deepcopy(given)
        other = network()
        target = wrap(other)
        target.load_state_dict(given)
        train(other, target)
        assert repr(given) == repr(before)

    dist.run_threads(program, 1)
