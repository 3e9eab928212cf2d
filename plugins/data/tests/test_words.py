"""Fragments of messages that programs match on, and what they reach of a loader's workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tangrad

LIBRARIES = [pytest.param(tangrad, id="tangrad"), pytest.param(torch, id="torch")]


@pytest.mark.parametrize("lib", LIBRARIES)
def test_stacked_data_sets_are_all_named_or_none(lib: Any) -> None:
    data = lib.utils.data
    rows = data.TensorDataset(lib.ones(2, 3))
    with pytest.raises(ValueError, match="Supported either"):
        data.StackDataset(rows, named=rows)
    with pytest.raises(ValueError, match="At least one dataset should be passed"):
        data.StackDataset()


@pytest.mark.parametrize("lib", LIBRARIES)
def test_workers_that_each_read_a_whole_stream_are_told_of(lib: Any) -> None:
    class Stream(lib.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Any:
            return iter(range(3))

        def __len__(self) -> int:
            return 3

    loader = lib.utils.data.DataLoader(Stream(), batch_size=None, num_workers=2)
    assert len(loader) == 3
    words = r"but [456] samples have been fetched\. For multiprocessing data-loading, this"
    with pytest.warns(UserWarning, match=words):
        assert len(list(loader)) == 6


def test_the_processes_of_a_loader_can_be_waited_for() -> None:
    loader = tangrad.utils.data.DataLoader(list(range(8)), batch_size=2, num_workers=2)
    walk: Any = iter(loader)
    next(walk)
    workers = walk._workers
    assert len(workers) == len(list(workers)) == 2
    assert all(worker.is_alive() for worker in workers)
    del walk
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
