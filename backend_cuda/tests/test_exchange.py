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
assert len(exchange._lent) == 1
del capsule
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
