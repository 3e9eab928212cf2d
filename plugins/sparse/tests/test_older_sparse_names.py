"""Older names of sparse products and constructors mean what they mean in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tangrad


def made(lib: Any) -> Any:
    """Return a sparse matrix of a library, by the older constructor."""
    indices = lib.tensor([[0, 1, 1], [2, 0, 2]])
    return lib.sparse.FloatTensor(indices, lib.tensor([3.0, 4.0, 5.0]), lib.Size([2, 3]))


@pytest.mark.filterwarnings("ignore:torch.sparse.SparseTensor")  # PyTorch's, of its constructors
@pytest.mark.parametrize("name", ["dsmm", "spmm", "hsmm", "hspmm"])
def test_products_are_those_of_pytorch(name: str) -> None:
    found = [
        getattr(lib, name)(made(lib), lib.arange(6.0).view(3, 2)).to_dense().tolist()
        for lib in (tangrad, torch)
    ]
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:torch.sparse.SparseTensor")
def test_constructors_are_types_to_ask_for() -> None:
    for lib in (tangrad, torch):
        matrix = made(lib)
        assert isinstance(matrix, lib.sparse.FloatTensor)
        assert not isinstance(matrix, lib.sparse.DoubleTensor)
        assert not isinstance(matrix.to_dense(), lib.sparse.FloatTensor)
    empty = tangrad.sparse.LongTensor(2, 3)
    assert (empty.dtype, tuple(empty.shape)) == (tangrad.int64, (2, 3))


def test_other_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="expected indices and values, or a size"):
        tangrad.sparse.FloatTensor("a")
    with pytest.raises(TypeError, match="got 1 arguments"):
        tangrad.sparse.FloatTensor(tangrad.ones(1))
