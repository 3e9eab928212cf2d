"""Run a program for two GPUs with the CPU in their place, on PyTorch and on tangrad alike.

    python -m torch.distributed.run --nproc-per-node=2 two_accelerators.py PROGRAM ARGUMENTS
    python -m tangrad run -m torch.distributed.run --nproc-per-node=2 two_accelerators.py ...

Programs of PyTorch's examples end at once where there are not two accelerators. Here two are
counted, `.to(rank)` moves nothing, and groups are gloo's; the program itself is unchanged. With
TOLD=FOLDER each rank writes its models' parameters there, to be compared.
"""

import atexit
import functools
import os
import runpy
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import parallel

CPU = torch.device("cpu")
RANK = int(os.environ["RANK"])
MODELS = []


def placed(value):
    """Return the CPU for a device, or a device's number; anything else as it is."""
    named = isinstance(value, (str, torch.device)) and str(value).startswith(("cuda", "cpu"))
    return CPU if named or type(value) is int else value


def moves_nothing(to):
    @functools.wraps(to)
    def moved(self, *args, **kwargs):
        return to(self, *map(placed, args), **{name: placed(v) for name, v in kwargs.items()})

    return moved


def wrapped(init):
    @functools.wraps(init)
    def made(self, module, device_ids=None, output_device=None, **kwargs):
        init(self, module, **kwargs)
        MODELS.append(module)

    return made


def stand_in():
    """Have the CPU stand for two accelerators."""
    for holder in (torch.Tensor, torch.nn.Module):
        holder.to = moves_nothing(holder.to)
    torch.Tensor.pin_memory = lambda self, device=None: self
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda check_available=False: CPU
    torch.accelerator.device_count = torch.cuda.device_count = lambda: 2
    torch.accelerator.set_device_index = torch.cuda.set_device = lambda device: None
    begin, load = dist.init_process_group, torch.load
    dist.get_default_backend_for_device = lambda device: "gloo"
    dist.init_process_group = lambda backend=None, **kwargs: begin("gloo", **kwargs)
    torch.load = lambda f, map_location=None, **kwargs: load(f, map_location="cpu", **kwargs)
    model = parallel.DistributedDataParallel
    model.__init__ = wrapped(model.__init__)


def tell(folder):
    for number, model in enumerate(MODELS):
        state = {name: value.numpy() for name, value in model.state_dict().items()}
        np.savez(os.path.join(folder, f"model-{number}-rank-{RANK}.npz"), **state)


if __name__ == "__main__":
    stand_in()
    if "TOLD" in os.environ:
        atexit.register(tell, os.environ["TOLD"])
    torch.manual_seed(5 + RANK)
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
