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


@pytest.mark.parametrize(
    "dtype", ["float32", "int64", "complex64", "bool", "uint8", "float16", "bfloat16"]
)
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


def test_a_capsule_keeps_the_memory_and_gives_it_back() -> None:
    x = tangrad.arange(3.0)
    storage = weakref.ref(x.untyped_storage())
    capsule = x.__dlpack__()
    del x
    assert storage() is not None
    back = torch.from_dlpack(capsule)
    assert back.tolist() == [0, 1, 2]
    del back, capsule
    assert storage() is None


def test_dlpack_shares_or_copies_as_asked() -> None:
    x = tangrad.arange(3)
    assert tangrad.from_dlpack(x.__dlpack__(dl_device=(1, 0))).data_ptr() == x.data_ptr()
    assert tangrad.from_dlpack(x.__dlpack__(copy=True)).data_ptr() != x.data_ptr()
    assert tangrad.from_dlpack(x).data_ptr() == x.data_ptr()
    assert tangrad.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert tangrad.from_dlpack(x, device="meta").device.type == "meta"
    with pytest.raises(ValueError, match="meta"):
        tangrad.from_dlpack(x, device="meta", copy=False)


def test_asarray_reads_dlpack() -> None:
    class Foreign:
        def __init__(self, x: torch.Tensor) -> None:
            self.__dlpack__ = x.__dlpack__
            self.__dlpack_device__ = x.__dlpack_device__

    x = torch.arange(3)
    assert tangrad.asarray(Foreign(x)).data_ptr() == x.data_ptr()


def test_a_capsule_that_nobody_takes_is_released() -> None:
    x = tangrad.arange(3.0)
    storage = weakref.ref(x.untyped_storage())
    capsule = x.__dlpack__()
    del x, capsule
    assert storage() is None


def test_memory_that_may_not_be_written_comes_in_with_a_warning() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="DLPack is not writable"):
        assert tangrad.from_dlpack(array).tolist() == [0.0, 1.0, 2.0]


def test_a_capsule_is_used_once() -> None:
    capsule = tangrad.ones(2).__dlpack__()
    tangrad.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="only once"):
        tangrad.from_dlpack(capsule)


def test_strides_empty_and_versioned_capsules_come_in() -> None:
    theirs = torch.arange(12.0).reshape(3, 4).t()[1:]
    assert tangrad.from_dlpack(theirs).tolist() == theirs.tolist()
    assert tangrad.from_dlpack(theirs).stride() == theirs.stride()
    assert tangrad.from_dlpack(torch.ones(2, 0, 3)).shape == (2, 0, 3)
    assert tangrad.from_dlpack(np.arange(6).reshape(2, 3)[:, ::2]).tolist() == [[0, 2], [3, 5]]
    with pytest.raises(ValueError, match="negative"):
        tangrad.from_dlpack(np.arange(3)[::-1])
