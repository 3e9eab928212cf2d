"""Bringing data to a program: loaders, files, tensors that cross processes."""

from __future__ import annotations

import atexit
import io
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy

from workloads.workload import Cost, Prepare, Workload, inputs, integers

MEGABYTE = 2**20
ROWS, SAMPLES, BATCH = 10_000, 2_000, 32
SENT = 64 * MEGABYTE
FLOAT = 4


def rows(**options: Any) -> Prepare:
    """Return what prepares a loader of the rows of tensors, as most small examples have it."""

    def prepare(fw: Any) -> dict[str, Any]:
        x = inputs(x=(ROWS, 32))(fw)["x"]
        labels = fw.tensor(integers(10, (ROWS,)))
        return {"loader": loader(fw, fw.utils.data.TensorDataset(x, labels), **options)}

    return prepare


def workers(count: int) -> Prepare:
    """Return what prepares a loader of rows in larger batches, made by forked processes."""
    return rows(batch_size=64, num_workers=count, multiprocessing_context="fork")


def samples(make: Callable[[Any], Callable[[int], Any]]) -> Prepare:
    """Return what prepares a loader of a data set written in Python; `make` gives its samples."""

    def prepare(fw: Any) -> dict[str, Any]:
        sample = make(fw)

        class Samples(fw.utils.data.Dataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return SAMPLES

            def __getitem__(self, index: int) -> Any:
                return sample(index)

        return {"loader": loader(fw, Samples())}

    return prepare


def loader(fw: Any, dataset: Any, batch_size: int = BATCH, **options: Any) -> Any:
    return fw.utils.data.DataLoader(dataset, batch_size, shuffle=True, **options)


def vectors(fw: Any) -> Callable[[int], Any]:
    x = inputs(x=(SAMPLES, 32))(fw)["x"]
    return lambda index: (x[index], index)


def pictures(fw: Any) -> Callable[[int], Any]:
    made = numpy.ones((SAMPLES, 3, 16, 16), numpy.float32)
    return lambda index: (made[index], index % 10)


def first_batch(method: str) -> Prepare:
    """Return what prepares a function that starts four workers and takes one batch."""

    def prepare(fw: Any) -> dict[str, Any]:
        dataset = fw.utils.data.TensorDataset(fw.zeros(64, 4))

        def run() -> Any:
            started = fw.utils.data.DataLoader(
                dataset, batch_size=4, num_workers=4, multiprocessing_context=method
            )
            (batch,) = next(iter(started))
            return batch

        return {"run": run}

    return prepare


def filed(fw: Any) -> dict[str, Any]:
    """Return a state of 16 MB in 64 tensors, a path to save it to, and the same in memory."""
    values = inputs(x=(MEGABYTE // FLOAT // 4,))(fw)["x"]
    state = {f"layer{i}.weight": values.clone() for i in range(64)}
    descriptor, path = tempfile.mkstemp(suffix=".pt")
    os.close(descriptor)
    atexit.register(os.unlink, path)
    fw.save(state, path)
    with open(path, "rb") as file:
        memory = io.BytesIO(file.read())
    return {"state": state, "path": path, "memory": memory}


def answer(connection: Any) -> None:
    """Tell the size of every tensor that comes, until there are no more."""
    while (got := connection.recv()) is not None:
        connection.send(got.numel())


def sending(fresh: bool) -> Prepare:
    """Return what prepares to send 64 MB to a process, in a tensor of its own or a shared one."""

    def prepare(fw: Any) -> dict[str, Any]:
        import importlib

        processes = importlib.import_module(f"{fw.__name__}.multiprocessing").get_context("fork")
        here, there = processes.Pipe()
        child = processes.Process(target=answer, args=(there,), daemon=True)
        child.start()
        atexit.register(here.send, None)
        shared = fw.zeros(SENT // FLOAT)
        if not fresh:
            shared.share_memory_()

        def run() -> Any:
            here.send(shared.clone() if fresh else shared)
            return here.recv()

        return {"run": run}

    return prepare


WORKLOADS = [
    Workload("DataLoader, 10,000 rows b32", "sum(1 for _ in loader)", rows(), 0.4),
    Workload("DataLoader, 10,000 rows b64, 1 worker", "sum(1 for _ in loader)", workers(1), 0.15),
    Workload("DataLoader, 10,000 rows b64, 2 workers", "sum(1 for _ in loader)", workers(2), 0.15),
    Workload("DataLoader, 2,000 tensors b32", "sum(1 for _ in loader)", samples(vectors), 0.4),
    Workload("DataLoader, 2,000 arrays b32", "sum(1 for _ in loader)", samples(pictures), 0.4),
    Workload("first batch of 4 workers, fork", "run()", first_batch("fork"), 1.0),
    Workload("first batch of 4 workers, spawn", "run()", first_batch("spawn"), 0.2),
    Workload("save 16 MB", "fw.save(state, path)", filed, 0.5, cost=Cost(32 * MEGABYTE),
             checked=False),
    Workload("load 16 MB", "fw.load(path)['layer7.weight']", filed, 0.5,
             cost=Cost(32 * MEGABYTE)),
    Workload("load 16 MB from memory", "memory.seek(0); fw.load(memory)['layer7.weight']", filed,
             0.5, cost=Cost(32 * MEGABYTE)),
    Workload("64 MB to a process, fresh", "run()", sending(True), 0.3, cost=Cost(2 * SENT)),
    Workload("64 MB to a process, shared", "run()", sending(False), 1.0),
]  # fmt: skip
