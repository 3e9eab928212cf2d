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


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_new_makes_tensors_of_the_dtype_and_layout():
    def program(f):
        x = f.sparse_coo_tensor([[0, 2]], f.ones(2, dtype=f.float64), (3,))
        made = [x.new(x._indices(), x._values() * 2, x.size()), x.new(x._indices(), x._values())]
        made += [x.new(2, 3), x.new(f.Size([2, 3])), x.new()]
        return [(str(m.layout)[-3:], str(m.dtype)[-7:], m.to_dense().tolist()) for m in made]

    assert program(tangrad) == program(torch)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_optimizers_that_need_dense_gradients_refuse_sparse_ones():
    names = "Adam AdamW Adamax NAdam RAdam RMSprop Rprop ASGD Adadelta Adafactor Muon".split()
    for name in names:
        told = []
        for f in (torch, tangrad):
            parameter = f.nn.Parameter(f.ones(3, 2))
            parameter.grad = f.sparse_coo_tensor([[0, 2]], f.ones(2, 2), (3, 2))
            with pytest.raises(RuntimeError) as caught:
                getattr(f.optim, name)([parameter]).step()
            told.append(str(caught.value))
            assert parameter.detach().tolist() == [[1, 1], [1, 1], [1, 1]]
        assert told[0] == told[1]


@pytest.mark.filterwarnings("ignore:'addc", "ignore:Sparse:UserWarning")
def test_adagrad_steps_along_sparse_gradients():
    def program(f):
        parameter = f.nn.Parameter(f.arange(6.0).reshape(3, 2))
        optimizer = f.optim.Adagrad([parameter], lr=0.1, lr_decay=0.01)
        for k in range(3):
            values = f.arange(6.0).reshape(3, 2) - k
            parameter.grad = f.sparse_coo_tensor([[0, 2, 2]], values, (3, 2))
            optimizer.step()
        return parameter.detach().flatten().tolist()

    assert program(tangrad) == pytest.approx(program(torch), rel=1e-6)
