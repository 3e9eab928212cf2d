"""Storages that tensors are laid on, filled from buffers, or that have no memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tangrad

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")


def on_both(program: Callable[[Any], Any]) -> list[Any]:
    """Return what the program gives on each library, or the type of the error."""

    def outcome(lib: Any) -> Any:
        try:
            return program(lib)
        except Exception as error:
            return type(error)

    return [outcome(lib) for lib in (tangrad, torch)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8", "complex64"])
@pytest.mark.parametrize("make", ["tensor", "as_tensor", "asarray"])
def test_a_tensor_of_a_storage_shows_its_memory(make: str, dtype: str) -> None:
    def program(lib: Any) -> Any:
        storage = lib.arange(4.0).untyped_storage()
        made = getattr(lib, make)(storage, dtype=getattr(lib, dtype))
        return tuple(made.shape), made.tolist(), made.data_ptr() == storage.data_ptr()

    ours, theirs = on_both(program)
    assert ours == theirs


@pytest.mark.parametrize(
    "program",
    [
        lambda lib, storage: lib.empty(0).set_(storage),
        lambda lib, storage: lib.empty(2).set_(storage, 0, (2,), (1,)),
        lambda lib, storage: lib.FloatTensor(storage),
        lambda lib, storage: lib.tensor(storage, dtype=lib.float32),
    ],
    ids=["set_", "set_ with a geometry", "FloatTensor", "tensor"],
)
def test_elements_of_another_dtype_are_not_read_as_ones_of_this(program: Any) -> None:
    for lib in (tangrad, torch):
        with pytest.raises(RuntimeError, match="Expected a Storage of type"):
            program(lib, lib.tensor([1, 2], dtype=lib.int32).storage())
        floats = lib.tensor([1.0, 2.0]).storage()
        assert program(lib, floats).tolist() == [1, 2]


@pytest.mark.parametrize("size", [(4,), (2,), (8,), (2, 4)])
@pytest.mark.parametrize("offset", [0, 1, 100])
def test_only_another_geometry_makes_a_storage_grow(size: tuple[int, ...], offset: int) -> None:
    def program(lib: Any) -> Any:
        storage = lib.zeros(4).untyped_storage()
        x = lib.zeros(4).set_(storage, offset, size)
        return tuple(x.shape), x.storage_offset(), storage.nbytes()

    ours, theirs = on_both(program)
    assert ours == theirs


@pytest.mark.parametrize("size", [1, 8])
def test_an_offset_beyond_the_storage_tells_how_much_is_missing(size: int) -> None:
    x = tangrad.zeros(size)
    with pytest.raises(RuntimeError, match=f"requiring a storage size of {4 * (size + 2**31)}"):
        x.set_(x.untyped_storage(), 2**31, x.size())


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("ByteStorage", ()),
        ("ShortStorage", ("big",)),
        ("ShortStorage", ("little",)),
        ("ShortStorage", ("native",)),
        ("IntStorage", ("big", 1)),
        ("IntStorage", ("big", -1, 4)),
        ("IntStorage", ("big", 1, 2)),
        ("HalfStorage", ("big",)),
        ("DoubleStorage", ("big",)),
        ("BoolStorage", ("big",)),
        ("ComplexFloatStorage", ("big",)),
        ("ComplexFloatStorage", ("little",)),
        ("ShortStorage", ("backward",)),
        ("ShortStorage", ("big", 5)),
        ("ShortStorage", ("big", -1, 1)),
        ("ShortStorage", ("big", -1, 9)),
    ],
)
def test_storages_are_read_from_buffers(kind: str, arguments: tuple[Any, ...]) -> None:
    buffer = bytearray([64, 16, 0, 0, 65, 32, 0, 1])
    ours, theirs = on_both(lambda lib: getattr(lib, kind).from_buffer(buffer, *arguments).tolist())
    assert ours == theirs


def test_a_storage_from_a_buffer_is_a_copy() -> None:
    buffer = bytearray([1, 2])
    storage = tangrad.ByteStorage.from_buffer(buffer)
    buffer[0] = 9
    assert storage.tolist() == [1, 2]


@pytest.mark.parametrize("typed", [False, True])
def test_a_storage_without_memory_has_nothing_to_read(typed: bool) -> None:
    for lib in (tangrad, torch):
        x = lib.empty(3, device="meta")
        storage = x.storage() if typed else x.untyped_storage()
        with pytest.raises(NotImplementedError, match="Not available"):
            storage[0]
        storage[0] = 1


def test_classes_of_storages_are_known_by_their_dtypes() -> None:
    by_dtype = tangrad.storage._dtype_to_storage_type_map()
    theirs = torch.storage._dtype_to_storage_type_map()
    assert {str(d)[8:]: name for d, name in by_dtype.items()} == {
        str(d)[6:]: name for d, name in theirs.items()
    }
    assert tangrad.storage._storage_type_to_dtype_map() == {n: d for d, n in by_dtype.items()}


def test_copies_of_a_list_share_what_its_members_share() -> None:
    import copy

    x = tangrad.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    leaf, grad = copy.deepcopy([x, x.grad])
    assert leaf.grad is grad
    assert grad is not x.grad


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "float32", "int64", "complex64"])
def test_the_bytes_of_elements_can_be_turned_around(dtype: str) -> None:
    def program(lib: Any) -> list[int]:
        storage = lib.arange(16, dtype=lib.uint8).untyped_storage()
        storage.byteswap(getattr(lib, dtype))
        return list(storage)

    assert program(tangrad) == program(torch)


@pytest.mark.parametrize("name", ["QInt8", "QUInt8", "QInt32", "QUInt4x2", "QUInt2x4"])
def test_storages_of_quantized_numbers_hold_whole_ones(name: str) -> None:
    for lib in (tangrad, torch):
        kind = getattr(lib, f"{name}Storage")
        storage = kind(5)
        storage[:] = 0
        storage[1:3] = 3
        assert kind._dtype is kind.dtype is getattr(lib, name.lower())
        assert storage.tolist() == [0, 3, 3, 0, 0]
        assert storage.pickle_storage_type() == f"{name}Storage"


def test_types_of_tensors_of_one_dtype_are_no_base_classes() -> None:
    for lib in (tangrad, torch):
        with pytest.raises(TypeError, match=r"FloatTensor' is not an acceptable base type"):
            type("Own", (lib.FloatTensor,), {})
