"""Ranks with different numbers of batches, an optimizer in parts, gradients in half the bits."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class CounterJoinHook(JoinHook):
    def __init__(self, counter, sync_max_count):
        self.counter, self.sync_max_count = counter, sync_max_count

    def main_hook(self):
        dist.all_reduce(torch.zeros(1), group=self.counter.join_process_group)

    def post_hook(self, is_last_joiner):
        if self.sync_max_count:
            found = torch.tensor([self.counter.count * is_last_joiner], dtype=torch.int64)
            dist.all_reduce(found, dist.ReduceOp.MAX)
            self.counter.max_count = found


class Counter(Joinable):
    def __init__(self):
        super().__init__()
        self.count = torch.zeros(1, dtype=torch.int64)
        self.max_count = torch.zeros(1, dtype=torch.int64)

    def __call__(self):
        Join.notify_join_context(self)
        t = torch.ones(1)
        dist.all_reduce(t)
        self.count += int(t.item())

    def join_hook(self, **kwargs):
        return CounterJoinHook(self, kwargs.get("sync_max_count", False))

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return dist.group.WORLD


def uneven(rank):
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = [torch.full((2, 4), 0.1 * (at + 1)) for at in range(5 + rank)]
    with Join([model]):
        for x in inputs:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    counter = Counter()
    with Join([counter], sync_max_count=True):
        for _ in range(3 + 2 * rank):
            counter()
    weights = [p.double().norm().item() for p in model.parameters()]
    return [*weights, float(counter.max_count)]


def sharded(rank):
    torch.manual_seed(5)
    model = DDP(nn.Sequential(*[nn.Linear(6, 6) for _ in range(4)]))
    model.register_comm_hook(None, fp16_compress_hook)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01
    )
    for step in range(6):
        optimizer.zero_grad()
        x = torch.linspace(-1, 1, 24).view(4, 6) + 0.1 * step + rank
        with model.no_sync():
            model(x).pow(2).mean().backward()
        model(x.flip(0)).pow(2).mean().backward()
        optimizer.step()
    optimizer.consolidate_state_dict(to=0)
    found = [p.double().norm().item() for p in model.parameters()]
    if rank == 0:
        state = optimizer.state_dict()["state"]
        found += [state[key]["exp_avg"].double().norm().item() for key in sorted(state)]
    return found


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for found in (uneven(rank), sharded(rank)):
        if rank == 0:
            print("result", *[f"{one:.6f}" for one in found], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
