"""A stand-in for the compiled core, made of torch.

The Python parts of Tensor use only PyTorch's public methods and four primitives of the core, so
torch's tensors serve to test them, and torch itself is the oracle.
"""

from __future__ import annotations

import types

import pytest


class TorchCore(types.ModuleType):
    """The primitives of `tangrad._C`, on torch's tensors."""

    def __init__(self, torch):
        super().__init__("tangrad._C")
        self._torch = torch

    def tensor_from_bytes(self, buffer, dtype, shape, device):
        raw = bytearray(bytes(memoryview(buffer)))
        if not raw:
            return self._torch.empty(shape, dtype=dtype, device=device)
        return self._torch.frombuffer(raw, dtype=dtype).reshape(shape).to(device or "cpu")

    def tensor_from_buffer(self, view, dtype, shape, strides, offset, readonly):
        import numpy as np

        assert readonly == view.readonly
        assert offset == 0
        array = np.asarray(view)
        if view.format == "B" and len(shape) == 1:
            array = array.view(str(dtype).removeprefix("torch."))
        x = self._torch.from_numpy(array if not readonly else array.copy())
        assert readonly or x.numel() < 2 or x.stride() == strides
        assert (x.dtype, tuple(x.shape)) == (dtype, tuple(shape))
        return x

    def host_memoryview(self, x):
        flat = self._torch.empty(0, dtype=self._torch.uint8).set_(x.untyped_storage())
        return memoryview(flat.numpy())

    def dlpack_export(self, x, stream):
        return x.__dlpack__()

    def dlpack_import(self, capsule):
        return self._torch.utils.dlpack.from_dlpack(capsule)


@pytest.fixture
def torch_core(monkeypatch):
    """Let tangrad.tensor work on torch's tensors."""
    torch = pytest.importorskip("torch")
    import tangrad
    from tangrad.tensor import construct, exchange, pickling

    monkeypatch.setattr(tangrad, "_C", TorchCore(torch), raising=False)
    for module in (exchange, pickling):
        monkeypatch.setattr(module, "dtype_named", lambda name: getattr(torch, name))
    monkeypatch.setattr(construct, "_default_dtype", torch.get_default_dtype)
    monkeypatch.setattr(
        construct,
        "_promote",
        lambda a, b: exchange.name_of(torch.promote_types(getattr(torch, a), getattr(torch, b))),
    )
    monkeypatch.setattr(
        pickling,
        "_empty",
        lambda size, dtype, device: torch.empty((size,), dtype=dtype, device=device),
    )
    return torch
