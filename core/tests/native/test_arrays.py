"""NumPy arrays to tensors and back by NumPy's own table of functions."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import tangrad
from tangrad import _C

DTYPES = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64"
    " complex128"
).split()


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_shape_strides_and_dtype_go_both_ways(dtype: str) -> None:
    array = np.arange(6).astype(dtype).reshape(2, 3)[:, ::2]
    t = _C.tensor_of_array(array)
    back = _C.array_of_tensor(t)
    assert t.dtype == getattr(tangrad, dtype)
    assert (back.dtype, back.shape, back.strides) == (array.dtype, array.shape, array.strides)
    assert back.__array_interface__["data"] == array.__array_interface__["data"]
    assert np.array_equal(back, array)


def test_each_keeps_the_memory_alive() -> None:
    array = np.ones(3)
    before = sys.getrefcount(array)
    back = tangrad.from_numpy(array).numpy()
    gc.collect()
    assert sys.getrefcount(array) == before + 1
    del back
    assert sys.getrefcount(array) == before
    assert tangrad.ones(3).numpy().tolist() == [1, 1, 1]


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize(
    "array",
    [
        np.ones(3)[::-1],
        np.broadcast_to(np.ones(1), (3,)),
        np.ones(3, ">f8"),
        np.ones((0, 3)),
        np.ones(3).view(Subclass),
        np.array(["a"]),
        np.zeros(2, [("a", "i1"), ("b", "f4")])["b"],
        [1.0],
    ],
    ids=["negative", "readonly", "swapped", "empty", "subclass", "text", "packed", "list"],
)
def test_what_is_not_usual_is_left_to_python(array: object) -> None:
    assert _C.tensor_of_array(array) is None


@pytest.mark.parametrize(
    "t",
    [
        tangrad.ones(2, requires_grad=True),
        tangrad.ones(2, dtype=tangrad.bfloat16),
        tangrad.ones(2, dtype=tangrad.complex64).conj(),
        tangrad.ones(0),
        tangrad.ones(2, device="meta"),
    ],
    ids=["grad", "bfloat16", "conj", "empty", "meta"],
)
def test_a_tensor_that_needs_a_closer_look_is_left_to_python(t: object) -> None:
    assert _C.array_of_tensor(t) is None
