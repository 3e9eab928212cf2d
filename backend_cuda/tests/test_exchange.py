"""Memory of GPUs goes to other libraries and comes from them."""

from __future__ import annotations


def test_tensors_go_through_dlpack_and_the_array_interface(run):
    run(
        """
import gc, tangrad
from tangrad_cuda import exchange
x = tangrad.arange(12.0, device="cuda").reshape(3, 4).T
assert x.__dlpack_device__() == (2, 0)
y = tangrad.from_dlpack(x)
assert y.device == x.device and y.cpu().equal(x.cpu()) and y.stride() == x.stride()
capsule = x.__dlpack__()
assert len(exchange._lent) == 2
del capsule, y
gc.collect()
assert not exchange._lent
side = tangrad.cuda.Stream()
with tangrad.cuda.stream(side):
    side.wait_stream(tangrad.cuda.default_stream())
    z = tangrad.from_dlpack(x * 2)
side.synchronize()
assert z.cpu().equal(x.cpu() * 2)
told = x.__cuda_array_interface__
assert told["shape"] == (4, 3) and told["strides"] == (4, 16) and told["typestr"] == "<f4"
assert told["data"] == (x.data_ptr(), False) and told["version"] == 3 and told["stream"] == 1
assert not hasattr(x.cpu(), "__cuda_array_interface__")
try:
    x.requires_grad_().__cuda_array_interface__
except RuntimeError as error:
    assert "requires grad" in str(error)
else:
    raise AssertionError
"""
    )


def test_memory_of_others_is_shared_until_the_last_tensor_on_it_is_gone(run):
    run(
        """
import gc, tangrad
class Lent:
    def __init__(self, x): self.x = x
    def __dlpack_device__(self): return (2, 0)
    def __dlpack__(self, stream): return self.x.__dlpack__(stream=stream)
x = tangrad.arange(6.0, device="cuda")
for source in (x, x.__dlpack__(), Lent(x)):
    y = tangrad.from_dlpack(source)
    y += 1
    assert y.data_ptr() == x.data_ptr()
assert x.tolist() == [3, 4, 5, 6, 7, 8]
z = tangrad.from_dlpack(x[1:].view(5)[::2])
del x, y, source
gc.collect()
assert z.tolist() == [4, 6, 8] and (z * 2).sum().item() == 36 and z.clone().tolist() == [4, 6, 8]
z.copy_(tangrad.zeros(3))
z.record_stream(tangrad.cuda.Stream())
assert z.tolist() == [0, 0, 0]
del z
gc.collect()
assert tangrad.cuda.memory_allocated() == 0
assert tangrad.from_dlpack(tangrad.ones(0, 3, device="cuda")).shape == (0, 3)
"""
    )


def test_arrays_of_the_cuda_array_interface_become_tensors(run):
    run(
        """
import gc, tangrad
x = tangrad.arange(12.0, device="cuda").reshape(3, 4).T
class Foreign:
    def __init__(self, **changes): self.__cuda_array_interface__ = {**told, **changes}
    __cuda_array_interface__ = None
told = x.__cuda_array_interface__
for make in (tangrad.as_tensor, tangrad.asarray):
    y = make(Foreign())
    assert y.data_ptr() == x.data_ptr() and y.stride() == x.stride() and y.device == x.device
assert tangrad.tensor(Foreign()).data_ptr() != x.data_ptr()
assert tangrad.as_tensor(Foreign(), device="cpu").equal(x.cpu())
y.zero_()
assert x.sum().item() == 0
side = tangrad.cuda.Stream()
with tangrad.cuda.stream(side):
    x += 1
    told = x.__cuda_array_interface__
assert tangrad.as_tensor(Foreign()).sum().item() == 12
for change, words in (
    ({"data": (told["data"][0], True)}, "read-only"), ({"mask": 1}, "masked"),
    ({"strides": (-4, 16)}, "negative"), ({"typestr": "<U4"}, "no dtype"),
    ({"stream": 0}, "ambiguous"), ({"data": (12345, False)}, "no address"),
):
    try:
        tangrad.as_tensor(Foreign(**change))
    except (TypeError, ValueError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(change)
for stream, error in ((0, AssertionError), (2, BufferError)):
    try:
        x.__dlpack__(stream=stream)
    except error:
        continue
    raise AssertionError(stream)
"""
    )


def test_a_device_is_opened_for_memory_that_others_lend(run):
    run(
        """
import tangrad
import numpy as np
from pycuda import driver, gpuarray
driver.init()
context = driver.Device(0).retain_primary_context()
context.push()
array = gpuarray.to_gpu(np.arange(6, dtype=np.float32))
class Lent:
    def __dlpack_device__(self): return (2, 0)
    def __dlpack__(self, stream): raise BufferError("asked")
try:
    tangrad.from_dlpack(Lent())
except BufferError as error:
    assert str(error) == "asked"
y = tangrad.as_tensor(array)
y += 1
tangrad.cuda.synchronize()
assert array.get().tolist() == [1, 2, 3, 4, 5, 6] and y.data_ptr() == array.ptr
del y, array
context.pop()
"""
    )
