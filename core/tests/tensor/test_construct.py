"""`tensor`, `as_tensor` and `asarray` copy and share as torch's do."""

from __future__ import annotations

import warnings
from array import array

import numpy as np
import pytest

from tangrad.tensor import construct

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("torch_core")


def outcome(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function()
        except (ValueError, TypeError, RuntimeError) as error:
            return type(error)


def assert_as_torch(name, *args, **kwargs):
    ours = outcome(lambda: getattr(construct, name)(*args, **kwargs))
    theirs = outcome(lambda: getattr(torch, name)(*args, **kwargs))
    if isinstance(theirs, type):
        assert ours == theirs
        return
    assert (ours.dtype, ours.shape, ours.device) == (theirs.dtype, theirs.shape, theirs.device)
    assert ours.requires_grad == theirs.requires_grad
    assert ours.stride() == theirs.stride()
    if ours.device.type != "meta":
        assert torch.equal(ours, theirs)


DATA = {
    "number": 3,
    "list": [[1, 2], [3, 4.5]],
    "empty": [],
    "truths": [True, False],
    "array": np.arange(6, dtype=np.int16).reshape(2, 3),
    "transposed array": np.arange(6.0).reshape(2, 3).T,
    "numpy number": np.float64(2),
    "tensor": torch.arange(6.0).reshape(2, 3),
    "transposed tensor": torch.arange(6.0).reshape(2, 3).t(),
    "expanded tensor": torch.arange(3.0).expand(2, 3),
    "reversed array": np.arange(3)[::-1],
    "array of text": np.array(["a"]),
    "text": "ab",
    "ragged": [[1], [2, 3]],
}
DTYPES = [None, torch.float64, torch.int8, torch.bool, torch.complex64, torch.bfloat16, float, int]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
@pytest.mark.parametrize("name", ["tensor", "as_tensor", "asarray"])
def test_dtype_shape_and_values_are_torchs(name, data, dtype):
    if name == "asarray" and isinstance(dtype, type):
        dtype = None
    assert_as_torch(name, data, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64], ids=str)
def test_gradients_are_for_floating_point_and_complex_only(dtype):
    assert_as_torch("tensor", [1], dtype=dtype, requires_grad=True)


def test_the_device_may_be_chosen():
    assert_as_torch("tensor", [1.0, 2.0], device="meta")
    assert_as_torch("as_tensor", torch.ones(2), device="meta")


@pytest.mark.parametrize("dtype", ["f", 3, str])
def test_a_dtype_must_be_one(dtype):
    with pytest.raises(TypeError, match="must be a dtype"):
        construct.tensor([1], dtype=dtype)


def test_tensor_of_a_tensor_is_a_copy_without_history_and_warns():
    x = torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="clone"):
        y = construct.tensor(x)
    assert not y.requires_grad
    assert y.data_ptr() != x.data_ptr()


def test_tensor_of_an_array_is_a_copy_without_a_warning():
    a = np.ones(2)
    a.flags.writeable = False
    y = construct.tensor(a)
    y.fill_(5)
    assert a.tolist() == [1, 1]


def test_as_tensor_shares_what_it_can():
    x, a = torch.ones(2, requires_grad=True), np.ones(2)
    assert construct.as_tensor(x) is x
    construct.as_tensor(a).fill_(7)
    assert a.tolist() == [7, 7]
    construct.as_tensor(a, dtype=torch.float32).fill_(8)
    assert a.tolist() == [7, 7]


def test_asarray_shares_unless_told_to_copy():
    a = np.ones(2)
    construct.asarray(a).fill_(2)
    assert a.tolist() == [2, 2]
    construct.asarray(a, copy=True).fill_(3)
    assert a.tolist() == [2, 2]
    construct.asarray(a, copy=False).fill_(4)
    assert a.tolist() == [4, 4]


def test_asarray_that_must_not_copy_says_why_it_would():
    with pytest.raises(ValueError, match="arbitrary sequence"):
        construct.asarray([1], copy=False)
    with pytest.raises(RuntimeError, match="can't alias NumPy scalars"):
        construct.asarray(np.float64(0.5), copy=False)
    with pytest.raises(ValueError, match="torch.float32.*torch.float64"):
        construct.asarray(torch.ones(1), dtype=torch.float64, copy=False)


def test_asarray_reads_buffers():
    assert_as_torch("asarray", array("i", [1, 2]), dtype=torch.int32)
    assert_as_torch("asarray", bytearray(b"abcd"))


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("had_grad", [True, False])
def test_asarray_sets_requires_grad(had_grad, requires_grad):
    x = torch.ones(2, requires_grad=had_grad)
    y = construct.asarray(x, requires_grad=requires_grad)
    assert y.requires_grad == requires_grad
    assert x.requires_grad == had_grad
    assert y.data_ptr() == x.data_ptr()


def test_pinned_memory_is_asked_of_the_tensor():
    with pytest.raises(RuntimeError):
        construct.tensor([1.0], pin_memory=True)


def test_an_unknown_dtype_is_reached_by_its_own_cast(monkeypatch):
    monkeypatch.setattr(construct, "is_packable", lambda name: name != "int16")
    assert construct.tensor([1, 2], dtype=torch.int16).dtype == torch.int16
