"""Data parallelism trains as one process does with the whole batch."""

import sys
from datetime import timedelta

import pytest

import tangrad
import tangrad.distributed as dist
from tangrad import nn
from tangrad.distributed.algorithms import ddp_comm_hooks
from tangrad.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
from tangrad.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from tangrad.nn.parallel import DistributedDataParallel

RANKS = 2


def network():
    """Return the same network in every thread: they share one generator."""
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 4))
    with tangrad.no_grad():
        for at, parameter in enumerate(model.parameters()):
            values = (tangrad.arange(parameter.numel()) * 0.7 + at).sin() * 0.4
            parameter.copy_(values.reshape(parameter.shape))
    return model


def batch(step):
    x = tangrad.linspace(-1, 1, 8 * 6).reshape(8, 6) + step * 0.1
    return x, (tangrad.arange(8) + step) % 4


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


def trained_alone(steps=4):
    model = network()
    optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, *batch(step)).backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def trained(rank, prepare=lambda model: None, steps=4, **options):
    model = DistributedDataParallel(network(), **options)
    prepare(model)
    optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        loss_of(model, x[rank::RANKS], y[rank::RANKS]).backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def assert_trained_alike(found, rtol=1e-5, atol=1e-6):
    first, *others = found
    for other in others:
        assert all(tangrad.equal(a, b) for a, b in zip(first, other, strict=True))
    for a, b in zip(first, trained_alone(), strict=True):
        tangrad.testing.assert_close(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket_cap_mb": 0.0001},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
    ],
)
def test_ranks_train_as_one_process_with_the_whole_batch(options):
    assert_trained_alike(dist.run_threads(lambda rank: trained(rank, **options), RANKS))


def test_ranks_begin_from_the_parameters_of_the_first():
    def step(rank):
        tangrad.manual_seed(rank)
        model = DistributedDataParallel(nn.Linear(3, 3))
        return model.module.weight.detach().clone()

    first, second = dist.run_threads(step, RANKS)
    assert tangrad.equal(first, second)


@pytest.mark.parametrize(
    ("options", "begun", "later"),
    [
        ({}, 0.0, 0.0),
        ({"forward_sync_buffers": False}, 0.0, 1.0),
        ({"broadcast_buffers": False}, 1.0, 1.0),
        ({"broadcast_buffers": False, "forward_sync_buffers": True}, 0.0, 0.0),
    ],
)
def test_buffers_are_those_of_the_first_rank_where_they_are_to_be(options, begun, later):
    def step(rank):
        module = nn.BatchNorm1d(2, momentum=1.0)
        module.running_mean.fill_(float(rank))
        model = DistributedDataParallel(module, **options)
        first = module.running_mean[0].item()
        module.running_mean.fill_(float(rank))
        model.eval()(tangrad.ones(2, 2))
        assert model.broadcast_buffers == model.forward_sync_buffers
        return first, module.running_mean[0].item()

    if "broadcast_buffers" in options:
        with pytest.warns(FutureWarning, match="`broadcast_buffers` is deprecated"):
            found = dist.run_threads(step, RANKS)
    else:
        found = dist.run_threads(step, RANKS)
    assert found == [(0.0, 0.0), (begun, later)]


def test_ranks_with_other_models_are_refused():
    def step(rank):
        with pytest.raises(RuntimeError, match="same model across all ranks: .*first difference"):
            DistributedDataParallel(nn.Linear(3, 3 + rank))

    dist.run_threads(step, RANKS)


@pytest.mark.parametrize(
    ("hook", "tolerance"),
    [
        (hooks.fp16_compress_hook, 3e-3),
        (hooks.bf16_compress_hook, 3e-2),
        (hooks.fp16_compress_wrapper(hooks.allreduce_hook), 3e-3),
        (hooks.bf16_compress_wrapper(hooks.allreduce_hook), 3e-2),
    ],
)
def test_gradients_may_travel_in_half(hook, tolerance):
    def prepare(model):
        model.register_comm_hook(None, hook)

    found = dist.run_threads(lambda rank: trained(rank, prepare), RANKS)
    assert_trained_alike(found, rtol=tolerance, atol=tolerance)


def test_power_sgd_is_exact_where_its_rank_suffices():
    def step(rank):
        model = DistributedDataParallel(nn.Linear(40, 40))
        model.register_comm_hook(power.PowerSGDState(None, 2, 2), power.powerSGD_hook)
        found = []
        for at in range(4):
            model.zero_grad()
            # One sample on each of two ranks: the mean gradient has rank two.
            x = (tangrad.arange(40) * 0.3 + rank + at).sin().reshape(1, 40)
            (model(x) * x.flip(1)).sum().backward()
            found.append(model.module.weight.grad.clone())
        return found

    first, second = dist.run_threads(step, RANKS)
    for at, (a, b) in enumerate(zip(first, second, strict=True)):
        assert tangrad.equal(a, b)
        xs = [(tangrad.arange(40) * 0.3 + rank + at).sin() for rank in range(RANKS)]
        exact = sum(tangrad.outer(x.flip(0), x) for x in xs) / RANKS
        tangrad.testing.assert_close(a, exact, rtol=1e-3, atol=1e-4)


def test_a_whole_bucket_may_be_one_matrix_of_low_rank():
    def step(rank):
        model = DistributedDataParallel(nn.Linear(7, 7, bias=False))
        model.register_comm_hook(power.PowerSGDState(None, 1, 2), power.batched_powerSGD_hook)
        for at in range(4):
            model.zero_grad()
            model((tangrad.arange(7.0) * 0.3 + rank + at).sin().reshape(1, 7)).sum().backward()
        return model.module.weight.grad

    first, second = dist.run_threads(step, RANKS)
    assert tangrad.equal(first, second)
    mean = sum((tangrad.arange(7.0) * 0.3 + rank + 3).sin() for rank in range(RANKS)) / RANKS
    tangrad.testing.assert_close(first, mean.expand(7, 7), rtol=1e-3, atol=1e-4)


def test_hooks_are_chosen_by_name():
    kinds = ddp_comm_hooks.DDPCommHookType

    def step(rank):
        found = []
        for kind in (kinds.ALLREDUCE, kinds.NOOP, kinds.POWER_SGD_RANK2):
            model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
            ddp_comm_hooks.register_ddp_comm_hook(kind, model)
            model(tangrad.full((1, 1), 1.0 + rank)).sum().backward()
            found.append(model.module.weight.grad.item())
        return found

    assert dist.run_threads(step, RANKS) == [[1.5, 1.0, 1.5], [1.5, 2.0, 1.5]]


def test_an_argument_that_is_not_supported_is_refused():
    def step(rank):
        with pytest.raises(NotImplementedError, match="mixed_precision is not supported"):
            DistributedDataParallel(nn.Linear(1, 1), mixed_precision=object())
        with pytest.raises(RuntimeError, match="both process_group and device_mesh"):
            DistributedDataParallel(
                nn.Linear(1, 1), process_group=dist.group.WORLD, device_mesh=object()
            )

    dist.run_threads(step, 1)


def test_a_mesh_of_one_dimension_names_the_group():
    def step(rank):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        model = DistributedDataParallel(nn.Linear(1, 1, bias=False), device_mesh=mesh["columns"])
        model(tangrad.full((1, 1), float(rank))).sum().backward()
        return model.module.weight.grad.item()

    assert dist.run_threads(step, 4) == [0.5, 0.5, 2.5, 2.5]


def test_a_hook_that_returns_no_future_is_refused():
    def step(rank):
        model = DistributedDataParallel(nn.Linear(2, 2))
        model.register_comm_hook(None, lambda state, bucket: bucket.buffer())
        with pytest.raises(TypeError, match="must return a Future, got Tensor"):
            model(tangrad.ones(1, 2)).sum().backward()

    dist.run_threads(step, 1)


def test_without_synchronization_gradients_add_up_until_the_next_step():
    def step(rank):
        model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
        with model.no_sync():
            model(tangrad.full((1, 1), 1.0 + rank)).sum().backward()
        assert model.module.weight.grad.item() == 1.0 + rank
        model(tangrad.full((1, 1), 10.0 * (1 + rank))).sum().backward()
        return model.module.weight.grad.item()

    assert dist.run_threads(step, RANKS) == [(11 + 22) / 2] * 2


@pytest.mark.parametrize("looks", [False, True])
def test_a_backward_of_a_forward_without_synchronization_averages_if_it_is_prepared_for(looks):
    def step(rank):
        model = DistributedDataParallel(nn.Linear(1, 1, bias=False), find_unused_parameters=looks)
        with model.no_sync():
            first = model(tangrad.full((1, 1), 1.0 + rank)).sum()
            second = model(tangrad.full((1, 1), 10.0 * (1 + rank))).sum()
            first.backward()
        model.reducer.prepare_for_backward([])
        second.backward()
        return model.module.weight.grad.item()

    assert dist.run_threads(step, RANKS) == [(11 + 22) / 2] * 2


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.none = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x, use_right):
        return self.right(x) if use_right else self.left(x)


def test_parameters_that_no_rank_used_keep_no_gradient():
    def step(rank):
        model = DistributedDataParallel(Branches(), find_unused_parameters=True)
        model(tangrad.ones(1, 2), rank == 1).sum().backward()
        inner = model.module
        assert inner.none.weight.grad is None
        return inner.left.weight.grad, inner.right.weight.grad

    for left, right in dist.run_threads(step, RANKS):
        assert tangrad.equal(left, tangrad.full((2, 2), 0.5))
        assert tangrad.equal(right, tangrad.full((2, 2), 0.5))


def test_ranks_may_have_different_numbers_of_batches():
    def step(rank):
        model = DistributedDataParallel(nn.Linear(2, 1))
        optimizer = tangrad.optim.SGD(model.parameters(), lr=0.1)
        with model.join():
            for at in range(3 + 2 * rank):
                optimizer.zero_grad()
                model(tangrad.full((1, 2), float(at))).sum().backward()
                optimizer.step()
        return model.module.weight.detach().clone()

    first, second = dist.run_threads(step, RANKS, timeout=timedelta(seconds=60))
    assert tangrad.equal(first, second)


def test_a_rank_without_batches_may_end_all():
    def step(rank):
        model = DistributedDataParallel(nn.Linear(2, 1))

        def train():
            with model.join(throw_on_early_termination=True):
                for _ in range(1 + rank):
                    model(tangrad.ones(1, 2)).sum().backward()

        with pytest.raises(RuntimeError, match="exhausted inputs: 0"):
            train()

    dist.run_threads(step, RANKS)


def test_what_needs_no_gradients_is_refused():
    def step(rank):
        with pytest.raises(RuntimeError, match="doesn't have any parameter that"):
            DistributedDataParallel(nn.ReLU())

    dist.run_threads(step, 1)


def test_batch_normalization_over_all_ranks_is_that_of_the_whole_batch():
    x = (tangrad.arange(8 * 3 * 2).reshape(8, 3, 2) * 0.7).sin()

    def step(rank):
        layer = nn.SyncBatchNorm(3)
        mine = x[:3] if rank == 0 else x[3:]
        mine = mine.clone().requires_grad_()
        result = layer(mine)
        (result * result * result).sum().backward()
        return result.detach(), mine.grad, layer.running_mean, layer.running_var

    found = dist.run_threads(step, RANKS)
    whole = x.clone().requires_grad_()
    layer = nn.BatchNorm1d(3)
    result = layer(whole)
    (result * result * result).sum().backward()
    close = tangrad.testing.assert_close
    close(tangrad.cat([found[0][0], found[1][0]]), result.detach(), rtol=1e-4, atol=1e-5)
    close(tangrad.cat([found[0][1], found[1][1]]), whole.grad, rtol=1e-3, atol=1e-4)
    close(found[1][2], layer.running_mean, rtol=1e-5, atol=1e-6)
    close(found[1][3], layer.running_var, rtol=1e-5, atol=1e-6)


def test_gradients_flow_through_collectives():
    def step(rank):
        x = tangrad.full((2,), rank + 1.0, requires_grad=True)
        from tangrad_distributed.nn import functional as F

        total = F.all_reduce(x * x)
        gathered = F.all_gather(x * 3)
        (total.sum() * (rank + 1) + gathered[1].sum()).backward()
        return x.grad

    first, second = dist.run_threads(step, RANKS)
    # The sum reaches both ranks, weighed 1 and 2; the second part only the second rank.
    assert first.tolist() == [2.0 * 3] * 2
    assert second.tolist() == [4.0 * 3 + 2 * 3] * 2


PROGRAM = """
import sys
if sys.argv[1] == "torch":
    import torch as t
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
else:
    import tangrad as t
    import tangrad.distributed as dist
    from tangrad.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
model = t.nn.Sequential(t.nn.Linear(6, 10), t.nn.BatchNorm1d(10), t.nn.ReLU(), t.nn.Linear(10, 4))
with t.no_grad():
    for k, p in enumerate(model.parameters()):
        p.copy_((t.arange(p.numel(), dtype=t.float32) * 0.7 + k).sin().reshape(p.shape) * 0.3)
model = DDP(model)
optimizer = t.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
x = (t.arange(96, dtype=t.float32) * 0.3).sin().reshape(16, 6)
for step in range(10):
    optimizer.zero_grad()
    loss = t.nn.functional.cross_entropy(model(x[rank::2] + step * 0.1), t.arange(8) % 4)
    loss.backward()
    optimizer.step()
if rank == 0:
    print("sums", *[f"{float(p.detach().double().sum()):.5f}" for p in model.parameters()])
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_program_of_pytorch_s_agrees_with_its_gloo(launch, tmp_path):
    import subprocess

    ours = launch(PROGRAM, "tangrad")
    program = tmp_path / "program.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(program)]
    theirs = subprocess.run([*command, "torch"], capture_output=True, text=True, check=False)
    numbers = [
        [float(word) for word in done.stdout.partition("sums ")[2].split()]
        for done in (ours, theirs)
    ]
    assert numbers[0], ours.stderr
    assert numbers[0] == pytest.approx(numbers[1], abs=2e-4)
