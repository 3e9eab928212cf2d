"""A stand-in for the compiled core, made of torch.

The Python parts of Tensor use only PyTorch's public methods and four primitives of the core, so
torch's tensors serve to test them, and torch itself is the oracle.
"""

from __future__ import annotations

import types
import warnings

import pytest


class TorchCore(types.ModuleType):
    """The primitives of `tangrad._C`, on torch's tensors."""

    def __init__(self, torch):
        super().__init__("tangrad._C")
        self._torch = torch
        self.Tensor = torch.Tensor
        self.UntypedStorage = torch.UntypedStorage

    def tensor_from_bytes(self, buffer, dtype, shape, device):
        raw = bytearray(bytes(memoryview(buffer)))
        if not raw:
            return self._torch.empty(shape, dtype=dtype, device=device)
        return self._torch.frombuffer(raw, dtype=dtype).reshape(shape).to(device or "cpu")

    def tensor_of_numbers(self, numbers, alone=False):
        return None

    def dtype_of_type(self, kind):
        named = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
        return getattr(self._torch, named[kind]) if kind in tuple(named) else None

    def tensor_from_buffer(self, view, dtype, shape, strides):
        assert strides == (1,)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._torch.frombuffer(view, dtype=dtype).reshape(shape)

    def tensor_from_pointer(self, address, nbytes, owner, dtype, shape, strides, offset, where):
        assert (offset, where) == (0, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = self._torch.from_numpy(owner)
        assert x.numel() == 0 or x.data_ptr() == address
        reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1
        assert nbytes == (reach * x.itemsize if x.numel() else 0)
        assert (x.dtype, x.shape, x.stride()) == (dtype, shape, strides) or x.numel() < 2
        return x

    def tensor_of_array(self, array):
        return None

    def host_buffer(self, x):
        x = x.detach()
        return x.view(self._torch.int16).numpy() if str(x.dtype) == "torch.bfloat16" else x.numpy()

    def get_intercept(self):
        return None

    def is_grad_enabled(self):
        return self._torch.is_grad_enabled()

    def dtype_by_name(self, name):
        return getattr(self._torch, name)

    def device(self, name):
        return self._torch.device(name)

    def empty(self, shape, dtype, device):
        return self._torch.empty(shape, dtype=dtype, device=device)

    def set_flags(self, x, conj, neg):
        self._torch._C._set_conj(x, conj)
        self._torch._C._set_neg(x, neg)

    def set_storage(self, x, storage, offset, shape, stride):
        return x.set_(storage, offset, shape, stride)


@pytest.fixture
def torch_core(monkeypatch):
    """Let tangrad.tensor work on torch's tensors."""
    torch = pytest.importorskip("torch")
    import tangrad
    from tangrad.tensor import construct, exchange, on_storage

    core = TorchCore(torch)
    known = set(vars(tangrad))
    monkeypatch.setattr(tangrad, "_C", core, raising=False)
    for module in (construct, exchange, on_storage):
        monkeypatch.setattr(module, "_C", core)
    monkeypatch.setattr(construct, "_default_dtype", torch.get_default_dtype)
    monkeypatch.setattr(
        construct,
        "_promote",
        lambda a, b: exchange.name_of(torch.promote_types(getattr(torch, a), getattr(torch, b))),
    )
    yield torch
    # The package keeps what it has looked up, and here it has looked up torch's dtypes.
    for name in set(vars(tangrad)) - known:
        delattr(tangrad, name)
