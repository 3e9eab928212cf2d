"""Pickles and copies keep values, geometry, class, attributes and what is shared."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

from tangrad.tensor.pickling import deepcopy_tensor, reduce_storage, reduce_tensor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("torch_core")


class Named(torch.Tensor):
    pass


class OwnPickler(pickle.Pickler):
    """Pickle torch's tensors and storages by tangrad's functions."""

    def reducer_override(self, obj):
        if isinstance(obj, torch.Tensor):
            return reduce_tensor(obj)
        if isinstance(obj, torch.UntypedStorage):
            return reduce_storage(obj)
        return NotImplemented


def pickled(obj):
    file = io.BytesIO()
    OwnPickler(file, protocol=4).dump(obj)
    return pickle.loads(file.getvalue())


def copied(x):
    function, arguments = reduce_tensor(x)
    return function(*arguments)


def deep(x):
    return deepcopy_tensor(x, {})


WAYS = pytest.mark.parametrize("way", [pickled, copied, deep])

TENSORS = {
    "plain": torch.arange(6.0).reshape(2, 3),
    "view": torch.arange(24).reshape(2, 3, 4)[:, 1:, ::2].permute(2, 0, 1),
    "expanded": torch.arange(3.0).expand(2, 3),
    "zero-dimensional": torch.tensor(3),
    "empty": torch.zeros(0, 2),
    "requires grad": torch.ones(2, requires_grad=True),
    "bfloat16": torch.ones(2, dtype=torch.bfloat16),
    "complex": torch.tensor([1j]),
    "conjugate": torch.tensor([1j]).conj(),
    "negative": torch.tensor([1j]).conj().imag,
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "frozen parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "subclass": torch.ones(2).as_subclass(Named),
}


@WAYS
@pytest.mark.parametrize("x", TENSORS.values(), ids=TENSORS.keys())
def test_values_geometry_and_class_are_kept(way, x):
    y = way(x)
    assert type(y) is type(x)
    assert (y.dtype, y.shape, y.stride()) == (x.dtype, x.shape, x.stride())
    assert y.requires_grad == x.requires_grad
    assert y.is_leaf
    assert torch.equal(y, x)


@WAYS
def test_a_meta_tensor_stays_one(way):
    x = torch.ones(2, 3, device="meta").t()
    y = way(x)
    assert (y.device, y.shape, y.stride()) == (x.device, x.shape, x.stride())


@WAYS
def test_attributes_are_kept(way):
    x = torch.ones(2)
    x.names_of_rows = ["a", "b"]
    assert way(x).names_of_rows == ["a", "b"]


def test_a_shallow_copy_shares_values_and_attributes():
    x = torch.ones(2)
    x.note = []
    y = copied(x)
    assert y.data_ptr() == x.data_ptr()
    assert y.note is x.note


def test_a_deep_copy_shares_nothing():
    x = torch.ones(2)
    x.note = []
    y = deep(x)
    assert y.data_ptr() != x.data_ptr()
    assert y.note is not x.note


def deep_pair(pair):
    memo: dict[int, object] = {}
    return [deepcopy_tensor(x, memo) for x in pair]


@pytest.mark.parametrize("way", [pickled, deep_pair])
def test_what_shared_memory_shares_it_again(way):
    base = torch.arange(6.0)
    a, b = way([base, base[2:]])
    a.fill_(7)
    assert b.tolist() == [7.0] * 4
    assert base.tolist() == list(range(6))


@pytest.mark.parametrize("way", [pickled, deep_pair])
def test_one_tensor_twice_is_one_tensor_twice(way):
    x = torch.ones(2)
    a, b = way([x, x])
    assert a is b


def test_deepcopy_copies_the_gradient_but_not_that_of_a_parameter():
    x, p = torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))
    x.grad, p.grad = torch.ones(2), torch.ones(2)
    assert deep(x).grad.tolist() == copy.deepcopy(x).grad.tolist()
    assert deep(x).grad is not x.grad
    assert deep(p).grad is copy.deepcopy(p).grad is None


def test_deepcopy_of_a_result_is_refused_as_in_torch():
    y = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        deep(y)
    assert not pickled(y.detach()).requires_grad


def test_pickle_of_a_result_is_a_leaf():
    y = pickled(torch.ones(2, requires_grad=True) * 2)
    assert y.is_leaf
    assert y.requires_grad


def test_hooks_are_dropped_with_a_warning():
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda grad: grad)
    with pytest.warns(UserWarning, match="hooks"):
        reduce_tensor(x)
