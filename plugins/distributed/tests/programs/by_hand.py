"""Distributed training from its parts: messages, collectives, gradients averaged by hand."""

import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim


class Partition:
    def __init__(self, data, index):
        self.data, self.index = data, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, index):
        return self.data[self.index[index]]


class DataPartitioner:
    def __init__(self, data, sizes, seed=1234):
        self.data, self.partitions = data, []
        rng = random.Random()
        rng.seed(seed)
        indexes = list(range(len(data)))
        rng.shuffle(indexes)
        for frac in sizes:
            part_len = int(frac * len(data))
            self.partitions.append(indexes[:part_len])
            indexes = indexes[part_len:]

    def use(self, partition):
        return Partition(self.data, self.partitions[partition])


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def ring_allreduce(send):
    """Add up by passing buffers around."""
    rank, size = dist.get_rank(), dist.get_world_size()
    send_buff, accum = send.clone(), send.clone()
    recv_buff = torch.zeros_like(send)
    left, right = (rank - 1 + size) % size, (rank + 1) % size
    for i in range(size - 1):
        if i % 2 == 0:
            req = dist.isend(send_buff, right)
            dist.recv(recv_buff, left)
            accum += recv_buff
        else:
            req = dist.isend(recv_buff, right)
            dist.recv(send_buff, left)
            accum += send_buff
        req.wait()
    return accum


def collectives():
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(4.0) + 10 * rank
    found = [ring_allreduce(mine).sum().item()]
    parts = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(parts, mine)
    found.append(torch.stack(parts).prod(0).sum().item())
    out = torch.zeros(2)
    given = [torch.full((2,), float(at)) for at in range(size)] if rank == 0 else None
    dist.scatter(out, given, src=0)
    dist.reduce(out, dst=0, op=dist.ReduceOp.MAX)
    found.append(out.sum().item())
    pieces = [torch.full((1,), float(rank * size + at)) for at in range(size)]
    taken = [torch.zeros(1) for _ in range(size)]
    dist.all_to_all(taken, pieces)
    found.append(torch.cat(taken).sum().item())
    group = dist.new_group([0, 1])
    tensor = torch.ones(1)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
    found.append(tensor.item())
    told = [None] * size
    dist.all_gather_object(told, {"rank": rank})
    found.append(float(sum(one["rank"] for one in told)))
    return found


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1234)
    rank, size = dist.get_rank(), dist.get_world_size()
    data = [(torch.randn(6), torch.tensor(at % 3)) for at in range(60)]
    mine = DataPartitioner(data, [1.0 / size] * size).use(rank)
    loader = torch.utils.data.DataLoader(mine, batch_size=10 // size, shuffle=False)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    for epoch in range(3):
        epoch_loss = 0.0
        for inputs, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(F.log_softmax(model(inputs), dim=1), target)
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        total = torch.tensor(epoch_loss / len(loader))
        dist.all_reduce(total)
        if rank == 0:
            print(f"result {epoch} {total.item() / size:.6f}", flush=True)
    found = collectives()
    if rank == 0:
        print("result", *[f"{one:.4f}" for one in found], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
