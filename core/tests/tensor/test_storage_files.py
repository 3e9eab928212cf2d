"""Storages on the memory of files, and parts of storages; PyTorch is asked for the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import tangrad


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "numbers"
    file.write_bytes(bytes(range(16)))
    return str(file)


@pytest.mark.parametrize("framework", [tangrad, torch], ids=["tangrad", "torch"])
def test_a_storage_is_a_part_of_a_file(framework: Any, path: str) -> None:
    storage = framework.UntypedStorage.from_file(path, False, 8)
    assert (storage.nbytes(), storage.tolist(), storage.filename) == (8, list(range(8)), None)
    storage.fill_(9)
    assert Path(path).read_bytes() == bytes(range(16))


@pytest.mark.parametrize("framework", [tangrad, torch], ids=["tangrad", "torch"])
def test_what_is_written_to_a_shared_one_is_written_to_the_file(framework: Any, path: str) -> None:
    storage = framework.UntypedStorage.from_file(path, shared=True, nbytes=20)
    storage[0] = 77
    assert storage.filename == path
    assert Path(path).read_bytes() == bytes([77, *range(1, 16), 0, 0, 0, 0])


@pytest.mark.parametrize("framework", [tangrad, torch], ids=["tangrad", "torch"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_tensor_of_a_shared_file_tells_its_name(framework: Any, path: str, shared: bool) -> None:
    t = framework.from_file(path, shared=shared, size=4, dtype=framework.int32)
    assert t.untyped_storage().filename == (path if shared else None)
    assert t[1:].untyped_storage().filename == (path if shared else None)


@pytest.mark.parametrize("framework", [tangrad, torch], ids=["tangrad", "torch"])
def test_a_part_of_a_storage_shares_its_memory(framework: Any, path: str) -> None:
    storage = framework.UntypedStorage.from_file(path, False, 16)
    part = storage[4:8]
    part.fill_(1)
    assert storage.tolist() == [0, 1, 2, 3, 1, 1, 1, 1, *range(8, 16)]
    del storage
    assert part.tolist() == [1] * 4
    with pytest.raises(RuntimeError, match="step of 2"):
        part[::2]


@pytest.mark.parametrize("framework", [tangrad, torch], ids=["tangrad", "torch"])
def test_a_tensor_lies_on_a_storage(framework: Any, path: str) -> None:
    storage = framework.UntypedStorage.from_file(path, False, 16)
    seen = framework.asarray(storage, dtype=framework.int32)
    assert seen.shape == (4,)
    seen[0] = -1
    assert storage.tolist()[:4] == [255] * 4


@pytest.mark.parametrize("framework", [tangrad, torch], ids=["tangrad", "torch"])
def test_a_storage_of_a_dtype_counts_elements(framework: Any, path: str) -> None:
    assert framework.ShortStorage.from_file(path, False, 2).tolist() == [256, 770]
    with pytest.raises(RuntimeError, match="derived classes"):
        framework.TypedStorage.from_file(path, False, 2)


@pytest.mark.parametrize("framework", [tangrad, torch], ids=["tangrad", "torch"])
def test_a_file_that_is_too_short_or_missing_is_refused(framework: Any, path: str) -> None:
    with pytest.raises(RuntimeError, match="smaller than the required"):
        framework.UntypedStorage.from_file(path, False, 17)
    with pytest.raises(RuntimeError, match="unable to open file"):
        framework.UntypedStorage.from_file(path + "x", False, 1)
