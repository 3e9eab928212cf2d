"""Writes by masks and indices into tensors whose elements share memory: done, with a warning."""

import warnings

import pytest
import torch

import tangrad


def _expanded(t, **kwargs):
    return t.arange(3.0, **kwargs).reshape(3, 1).expand(3, 4)


WRITES = {
    "masked_fill_": lambda t, x: x.masked_fill_(t.tensor([True, False, False, True]), 7.0),
    "masked_fill_ of a tensor": lambda t, x: x.masked_fill_(t.arange(4) == 2, t.tensor(5.0)),
    "masked_fill_ of rows": lambda t, x: x.masked_fill_(t.arange(3).reshape(3, 1) == 1, 9.0),
    "masked_fill_ of nothing": lambda t, x: x.masked_fill_(t.zeros(4, dtype=t.bool), 7.0),
    "index_fill_": lambda t, x: x.index_fill_(1, t.tensor([0, 2]), 3.0),
    "index_fill_ of a tensor": lambda t, x: x.index_fill_(0, t.tensor([2]), t.tensor(4.0)),
    "index_put_": lambda t, x: x.index_put_((t.tensor([0, 1]), t.tensor([3, 0])), t.tensor(6.0)),
    "index_put_ that adds": lambda t, x: x.index_put_(
        (t.tensor([0, 0, 1]), t.tensor([3, 0, 1])), t.tensor([1.0, 2.0, 4.0]), accumulate=True
    ),
    "a mask in brackets": lambda t, x: x.__setitem__(x > 1, 8.0),
    "indices in brackets": lambda t, x: x.__setitem__((slice(None), t.tensor([1, 2])), 8.0),
}


@pytest.mark.parametrize("name", WRITES)
def test_each_place_that_is_meant_is_written(name):
    def written(t):
        x = _expanded(t)
        with pytest.warns(UserWarning, match="on expanded tensors is deprecated. Please clone"):
            WRITES[name](t, x)
        return x.tolist()

    assert written(tangrad) == written(torch)


def test_a_gradient_passes_such_a_write():
    x = _expanded(tangrad).contiguous().requires_grad_()
    y = (x[:, :1] * 2).expand(3, 4)
    with pytest.warns(UserWarning, match="expanded"):
        y.masked_fill_(tangrad.arange(3).reshape(3, 1) == 1, 0.0)
    y.sum().backward()
    assert x.grad[:, 0].tolist() == [8, 0, 8]


def test_wrong_arguments_are_refused_there_too():
    x = _expanded(tangrad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(IndexError):
            x.index_fill_(1, tangrad.tensor([4]), 1.0)
        with pytest.raises(IndexError):
            x[tangrad.tensor([3])] = 1.0
        with pytest.raises(RuntimeError, match="boolean masks"):
            x.masked_fill_(tangrad.ones(4), 1.0)
        with pytest.raises(RuntimeError, match="expand"):
            x.masked_fill_(tangrad.ones(5, dtype=tangrad.bool), 1.0)
    assert x.tolist() == _expanded(tangrad).tolist()


def test_other_writes_stay_refused():
    with pytest.raises(RuntimeError, match="more than one element"):
        _expanded(tangrad).add_(1)
