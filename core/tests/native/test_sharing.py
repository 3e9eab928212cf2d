"""Memory shared with NumPy, by the buffer protocol and by DLPack."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

import tangrad


def test_from_numpy_shares_memory_both_ways() -> None:
    a = np.arange(4.0)
    x = tangrad.from_numpy(a)
    x[0] = 7
    a[1] = 8
    assert (a[0], x[1].item()) == (7.0, 8.0)


def test_numpy_shares_memory_and_keeps_the_tensor_alive() -> None:
    x = tangrad.arange(4.0)
    a = x.numpy()
    del x
    gc.collect()
    noise = [tangrad.full((4,), 9.0) for _ in range(50)]
    assert a.tolist() == [0, 1, 2, 3]
    assert len(noise) == 50


def test_an_array_lives_as_long_as_its_tensors() -> None:
    class Array(np.ndarray):
        pass

    a = np.arange(4.0).view(Array)
    gone = weakref.ref(a)
    view = tangrad.from_numpy(a)[1:]
    del a
    gc.collect()
    assert gone() is not None
    assert view.tolist() == [1, 2, 3]
    del view
    gc.collect()
    assert gone() is None


def test_transposed_and_sliced_arrays_keep_their_strides() -> None:
    a = np.arange(12.0).reshape(3, 4).T[1:, ::2]
    x = tangrad.from_numpy(a)
    assert x.tolist() == a.tolist()
    assert x.stride() == tuple(s // 8 for s in a.strides)


def test_negative_strides_are_refused_with_advice() -> None:
    with pytest.raises(ValueError, match="negative.*copy|copy.*negative"):
        tangrad.from_numpy(np.arange(3.0)[::-1])


def test_a_tensor_that_requires_grad_is_no_array() -> None:
    x = tangrad.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="detach"):
        x.numpy()
    assert x.detach().numpy().tolist() == [1, 1]


def test_numpy_functions_accept_tensors() -> None:
    x = tangrad.arange(3.0)
    assert np.asarray(x).tolist() == [0, 1, 2]
    assert float(np.sum(np.asarray(x))) == 3.0


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64", "bool", "uint8", "float16"])
def test_dlpack_shares_memory_with_torch_both_ways(dtype: str) -> None:
    theirs = torch.ones(3, dtype=getattr(torch, dtype))
    ours = tangrad.from_dlpack(theirs)
    ours[0] = 0
    assert theirs[0].item() == 0
    back = torch.from_dlpack(ours)
    back[1] = 0
    assert ours[1].item() == 0
    assert str(ours.dtype).rpartition(".")[2] == dtype


def test_frombuffer_reads_in_place() -> None:
    data = bytearray(b"\x01\x00\x02\x00")
    x = tangrad.frombuffer(data, dtype=tangrad.int16)
    data[0] = 5
    assert x.tolist() == [5, 2]


def test_numpy_of_what_requires_grad_only_where_nothing_is_recorded(agree):
    def program(f):
        x = f.ones(2, requires_grad=True)
        with f.no_grad():
            inside = x.numpy().tolist()
        try:
            x.numpy()
        except RuntimeError as error:
            return inside, str(error)
        return inside, None

    agree(program)
