"""Train on handwritten digits in several ranks: each takes its part of every batch.

    python -m tangrad.distributed.run --nproc-per-node 2 examples/ddp_digits.py

or, started by MPI, `mpiexec -n 2 python examples/ddp_digits.py --backend mpi`, or, on a cluster of
Ray's, `python examples/ddp_digits.py --ray 2`. Every way of starting the same number of ranks gives
the same bits; the last line printed is their checksum.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np

import tangrad
import tangrad.distributed as dist
from tangrad import nn
from tangrad.nn.parallel import DistributedDataParallel
from tangrad.utils.data import DataLoader, TensorDataset
from tangrad.utils.data.distributed import DistributedSampler

DATA = Path(__file__).resolve().parent / "digits" / "data" / "optdigits.tes.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo", help="gloo or mpi")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--ray", type=int, default=0, help="start so many ranks by Ray")
    options = parser.parse_args()
    if options.ray:
        lines = dist.ray.run(train, options.ray, args=(options.backend, options.epochs))[0]
    else:
        lines = train(options.backend, options.epochs)
    if lines:
        print("\n".join(lines))


def train(backend: str, epochs: int) -> list[str]:
    """Train as one of several ranks; the first one returns what there is to tell."""
    dist.init_process_group(backend)
    rank = dist.get_rank()
    tangrad.manual_seed(0)
    tangrad.set_num_threads(1)
    images, labels = digits()
    sampler: DistributedSampler = DistributedSampler(TensorDataset(images, labels), seed=1)
    loader = DataLoader(TensorDataset(images, labels), batch_size=32, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = tangrad.optim.AdamW(model.parameters(), lr=3e-3)
    lines = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        right = (model(images).argmax(1) == labels).float().mean()
        lines.append(f"epoch {epoch}: loss {loss.item():.4f}, {100 * right.item():.1f} % right")
    dist.destroy_process_group()
    return [*lines, f"parameters {checksum(model)}"] if rank == 0 else []


def digits() -> tuple[tangrad.Tensor, tangrad.Tensor]:
    """Return the images, shape (1797, 64) with values in [0, 1], and the digits."""
    table = np.loadtxt(DATA, delimiter=",", dtype=np.int64)
    pixels = tangrad.from_numpy(table[:, :64].copy()).float() / 16
    return pixels, tangrad.from_numpy(table[:, 64].copy())


def checksum(model: nn.Module) -> str:
    total = hashlib.sha256()
    for parameter in model.parameters():
        total.update(parameter.detach().numpy().tobytes())
    return total.hexdigest()[:16]


if __name__ == "__main__":
    main()
