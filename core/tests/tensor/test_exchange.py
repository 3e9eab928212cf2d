"""Memory is shared with NumPy, buffers and DLPack as torch shares it."""

from __future__ import annotations

import warnings
from array import array

import numpy as np
import pytest

import tangrad
from tangrad.discovery import discovery
from tangrad.tensor import exchange

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("torch_core")

DTYPES = [
    getattr(torch, name)
    for name in (
        "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 "
        "complex64 complex128"
    ).split()
]


def error_of(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function()
        except Exception as error:
            return type(error)
    return None


ARRAYS = {
    "list": [1],
    "number": np.float32(1),
    "negative stride": np.arange(3)[::-1],
    "odd stride": np.ndarray((2,), "i2", bytearray(8), strides=(3,)),
    "text": np.array(["a"]),
    "objects": np.array([None]),
    "foreign order": np.arange(3, dtype=">i4"),
    "record": np.ones(3, dtype=[("a", "i4")]),
    "long double": np.ones(2, np.longdouble),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "complex": np.array([1j]),
    "zero-dimensional": np.array(3.0),
    "transposed": np.ones((2, 3)).T,
    "strided": np.arange(10)[2::3],
    "empty": np.ones((0, 2)),
    "halves": np.ones(2, np.float16),
}


@pytest.mark.parametrize("array_", ARRAYS.values(), ids=ARRAYS.keys())
def test_from_numpy_takes_what_torch_takes(array_):
    expected = error_of(lambda: torch.from_numpy(array_))
    assert error_of(lambda: exchange.from_numpy(array_)) == expected
    if expected is None:
        assert torch.equal(exchange.from_numpy(array_), torch.from_numpy(array_))


def test_from_numpy_shares():
    a = np.zeros((2, 3))
    exchange.from_numpy(a.T).fill_(4)
    assert a.tolist() == [[4] * 3] * 2


def test_a_read_only_array_warns():
    with pytest.warns(UserWarning, match="NumPy array is not writable"):
        exchange.from_numpy(np.broadcast_to(np.ones(1), (3,)))


BUFFERS = [
    (bytearray(b"abcd"), {"dtype": torch.int32}),
    (bytearray(b"abcde"), {"dtype": torch.int32}),
    (bytearray(b"abcde"), {"dtype": torch.int32, "count": 1}),
    (bytearray(b"abcde"), {"dtype": torch.int16, "offset": 1}),
    (bytearray(b"abcde"), {"dtype": torch.int16, "offset": 9}),
    (bytearray(b"abcde"), {"dtype": torch.int16, "count": 9}),
    (bytearray(b""), {"dtype": torch.int16}),
    (bytearray(b"ab"), {"dtype": torch.int16, "offset": -1}),
    (bytearray(b"ab"), {"dtype": torch.int16, "count": 0}),
    (bytearray(b"abcd"), {"dtype": torch.uint8, "offset": 4}),
    (bytearray(b"abcd"), {"dtype": torch.float32, "requires_grad": True}),
    (bytearray(b"abcd"), {"dtype": torch.bool}),
    (b"abcd", {"dtype": torch.uint8}),
    (array("d", [1, 2]), {"dtype": torch.float64}),
    (3, {"dtype": torch.int16}),
]


@pytest.mark.parametrize(("buffer", "arguments"), BUFFERS)
def test_frombuffer_reads_what_torch_reads(buffer, arguments):
    expected = error_of(lambda: torch.frombuffer(buffer, **arguments))
    assert error_of(lambda: exchange.frombuffer(buffer, **arguments)) == expected
    if expected is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours, theirs = (m.frombuffer(buffer, **arguments) for m in (exchange, torch))
        assert torch.equal(ours, theirs)
        assert ours.requires_grad == theirs.requires_grad


def test_frombuffer_shares():
    raw = bytearray(b"abcd")
    exchange.frombuffer(raw, dtype=torch.uint8, offset=2).fill_(0)
    assert raw == b"ab\0\0"


def test_a_read_only_buffer_warns():
    with pytest.warns(UserWarning, match="not writable"):
        exchange.frombuffer(b"abcd", dtype=torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numpy_shares_whatever_the_geometry(dtype):
    x = torch.arange(24).to(dtype).reshape(2, 3, 4)
    for view in (x, x[1], x[:, 1:, ::2], x.permute(2, 0, 1), x[0, 0, 0], x[:, :0]):
        a = exchange.numpy(view)
        assert np.array_equal(a, view.numpy())
        assert a.dtype == view.numpy().dtype
        assert a.strides == view.numpy().strides or not a.size
    exchange.numpy(x)[...] = 1
    assert (x == 1).all()


UNFIT = {
    "requires grad": torch.ones(1, requires_grad=True),
    "conjugate": torch.tensor([1j]).conj(),
    "negative": torch.tensor([1j]).conj().imag,
    "bfloat16": torch.ones(1, dtype=torch.bfloat16),
    "meta": torch.ones(1, device="meta"),
    "sparse": torch.ones(1).to_sparse(),
}


@pytest.mark.parametrize("x", UNFIT.values(), ids=UNFIT.keys())
def test_numpy_refuses_what_torch_refuses(x):
    assert error_of(lambda: exchange.numpy(x)) == error_of(lambda: x.numpy())


def test_numpy_by_force():
    for name in ("requires grad", "conjugate", "negative"):
        x = UNFIT[name]
        assert np.array_equal(exchange.numpy(x, force=True), x.numpy(force=True))


def test_the_array_protocol_casts_and_copies():
    x = torch.arange(3)
    assert exchange.array_protocol(x, np.float32).dtype == np.float32
    assert np.shares_memory(exchange.array_protocol(x), x.numpy())
    assert not np.shares_memory(exchange.array_protocol(x, copy=True), x.numpy())
    assert np.shares_memory(exchange.array_protocol(x, np.int64, copy=False), x.numpy())
    with pytest.raises(ValueError, match="avoid copy"):
        exchange.array_protocol(x, np.float32, copy=False)


@pytest.mark.parametrize("name", ["requires grad", "conjugate", "negative", "meta"])
def test_dlpack_refuses_with_a_buffer_error(name):
    with pytest.raises(BufferError):
        exchange.dlpack(UNFIT[name])


def test_dlpack_names_the_device():
    assert exchange.dlpack_device(torch.ones(1)) == tuple(torch.ones(1).__dlpack_device__())
    with pytest.raises(BufferError, match=r"device \(2, 0\)"):
        exchange.dlpack(torch.ones(1), dl_device=(2, 0))


def test_dlpack_on_the_cpu_has_no_streams():
    with pytest.raises(AssertionError, match="stream"):
        exchange.dlpack(torch.ones(1), stream=3)
    with pytest.raises(TypeError, match="stream must be an int or None, got object"):
        exchange.dlpack(torch.ones(1), stream=object())


def test_a_device_package_states_how_its_memory_is_exchanged(monkeypatch):
    class Foreign:
        def __dlpack__(self):
            raise AssertionError("the device's own function takes it")

        def __dlpack_device__(self):
            return (14, 0)

    # Those that are installed would be opened by the real core.
    monkeypatch.setattr(discovery, "names", lambda group: ())
    with pytest.raises(BufferError, match="type 14"):
        exchange.from_dlpack(Foreign())
    monkeypatch.setattr(exchange, "_dlpack_devices", dict(exchange._dlpack_devices))
    x = torch.ones(1, device="meta")
    exchange.register_dlpack_device("meta", 14, lambda x, stream: ("capsule", stream), lambda f: x)
    assert exchange.dlpack_device(x) == (14, 0)
    assert exchange.dlpack(x, stream=3) == ("capsule", 3)
    assert exchange.from_dlpack(Foreign()) is x


def test_a_device_may_share_memory_by_a_protocol_of_its_own(monkeypatch):
    class Foreign:
        __of_a_device__ = 3

    with pytest.raises(RuntimeError, match="Could not infer dtype of Foreign"):
        tangrad.as_tensor(Foreign())
    monkeypatch.setattr(exchange, "_protocols", {})
    x = tangrad.ones(2)
    exchange.register_array_protocol("__of_a_device__", lambda foreign: x)
    assert tangrad.as_tensor(Foreign()) is x
    assert tangrad.asarray(Foreign()).data_ptr() == x.data_ptr()
    assert tangrad.tensor(Foreign()).data_ptr() != x.data_ptr()


def test_a_bare_capsule_tells_its_device():
    for capsule in (torch.ones(2).__dlpack__(), torch.ones(2).__dlpack__(max_version=(1, 0))):
        assert exchange._Capsule(capsule).__dlpack_device__() == (1, 0)


def test_from_dlpack_needs_a_capsule():
    with pytest.raises(RuntimeError, match="int"):
        exchange.from_dlpack(3)


def test_a_rest_of_a_buffer_is_told_in_bytes_behind_the_offset():
    with pytest.raises(ValueError, match=r"length \(7 bytes\) after offset \(1 bytes\) must be"):
        exchange.frombuffer(bytearray(8), dtype=torch.float32, offset=1)
