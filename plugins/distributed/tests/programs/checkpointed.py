"""A model and its optimizer saved and loaded by torch.distributed.checkpoint."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.nn.parallel import DistributedDataParallel


class AppState(Stateful):
    def __init__(self, model, optimizer=None):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model_state_dict, optimizer_state_dict = get_state_dict(self.model, self.optimizer)
        return {"model": model_state_dict, "optim": optimizer_state_dict}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optim"],
        )


def built(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 2))
    model = DistributedDataParallel(model)
    return model, torch.optim.AdamW(model.parameters(), lr=0.02)


def train(model, optimizer, rank, steps):
    for step in steps:
        optimizer.zero_grad()
        x = torch.linspace(-1, 1, 40).view(8, 5).sin() * (step + 1 + rank)
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def main(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model, optimizer = built(0)
    losses = [train(model, optimizer, rank, range(3))]
    dcp.save({"app": AppState(model, optimizer)}, checkpoint_id=os.path.join(folder, "first"))
    losses.append(train(model, optimizer, rank, range(3, 6)))
    model, optimizer = built(1)
    dcp.load({"app": AppState(model, optimizer)}, checkpoint_id=os.path.join(folder, "first"))
    losses.append(train(model, optimizer, rank, range(3, 6)))
    pending = dcp.async_save(
        {"app": AppState(model, optimizer)}, checkpoint_id=os.path.join(folder, "second")
    )
    pending.result()
    if rank == 0:
        print("result", *[f"{loss:.6f}" for loss in losses], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
