"""Nested sequences become the elements that torch.tensor makes of them."""

from __future__ import annotations

import math
from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tangrad.tensor.packing import infer_shape, pack

torch = pytest.importorskip("torch")

NAMES = (
    ["bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
    + [f"int{bits}" for bits in (8, 16, 32, 64)]
    + [f"uint{bits}" for bits in (8, 16, 32, 64)]
)


def promote(a, b):
    return str(torch.promote_types(getattr(torch, a), getattr(torch, b))).removeprefix("torch.")


def made(data, dtype=None):
    buffer, name, shape = pack(data, dtype, promote=promote)
    raw = bytearray(memoryview(buffer).cast("B")) if len(buffer) else bytearray()
    kind = getattr(torch, name)
    flat = torch.frombuffer(raw, dtype=kind) if raw else torch.empty(0, dtype=kind)
    return flat.reshape(shape)


def outcome(function):
    try:
        return function()
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        return type(error)


def assert_as_torch(data, dtype=None):
    kind = None if dtype is None else getattr(torch, dtype)
    theirs = outcome(lambda: torch.tensor(data, dtype=kind))
    ours = outcome(lambda: made(data, dtype))
    if isinstance(theirs, type):
        assert ours == theirs
        return
    assert not isinstance(ours, type), ours
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    assert torch.equal(torch.isnan(ours), torch.isnan(theirs))
    if not theirs.isnan().any():
        assert torch.equal(ours, theirs)


T = torch.tensor
EXAMPLES = {
    "a tensor among lists": [[1, 2], T([3, 4])],
    "a tensor of another kind among lists": [[1, 2], T([3.5, 4.0])],
    "a deep tensor among lists": [[[1], [2]], T([[3], [4]])],
    "a longer tensor among lists": [[1, 2], T([3, 4, 5])],
    "a shallow tensor among lists": [[[1], [2]], T([3, 4])],
    "a number in a tensor among lists": [[1, 2], T(3)],
    "float": 1.5,
    "integer": 3,
    "truth": True,
    "complex": 1 + 2j,
    "list": [1, 2, 3],
    "mixed": [True, 2, 3.5],
    "mixed with complex": [False, 1, 2.0, 3j],
    "nested": [[1, 2], [3, 4.5]],
    "nested tuples": ((1,), [2]),
    "range": range(3),
    "ranges": [range(2), range(2)],
    "array": array("d", [1, 2]),
    "bytearray": bytearray(b"abc"),
    "memoryview": memoryview(b"abc"),
    "empty": [],
    "empty rows": [[], []],
    "size": torch.Size([2, 3]),
    "numpy float32": np.float32(2),
    "numpy float32 in list": [1, np.float32(2)],
    "numpy float64 in list": [np.float64(1), 2],
    "numpy halves": [np.float16(1), 2],
    "numpy mixture": [np.float32(1), np.float64(2)],
    "numpy int8": [np.int8(2)],
    "numpy int8 and float": [np.int8(2), 1.5],
    "numpy truth": np.bool_(True),
    "numpy complex": [np.complex128(1)],
    "numpy date": [np.datetime64("2020-01-01")],
    "tensors": [T(1), T(2)],
    "tensors and numbers": [[T(1), 2], [3, 4.0]],
    "tensors of one element": [T([1.0]), T([2.0])],
    "tensors of several dtypes": [T(1.0, dtype=torch.float64), T(2)],
    "tensors of several elements": [T([1, 2]), T([3, 4])],
    "tensors of several floats": [T([1.0, 2]), T([3.0, 4])],
    "ragged": [[1, 2], [1, 2, 3]],
    "ragged deeper": [[[1], [2]], [[3]]],
    "row then number": [[1], 2],
    "number then row": [1, [2]],
    "row then nothing": [[1], []],
    "text": "ab",
    "texts": ["a", "bc"],
    "number then text": [1, "a"],
    "bytes": [b"a"],
    "none": None,
    "none in list": [1, None],
    "dict": [{}],
    "set": {1, 2},
    "iterator": iter([1]),
    "object": object(),
    "past int64": [2**63],
    "past int64 with floats": [2**70, 1.0],
    "past float64": [10**400, 1.0],
    "infinite": [math.inf, -math.inf, math.nan],
}


@pytest.mark.parametrize("data", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_shape_dtype_and_elements_are_torchs(data):
    assert_as_torch(data)


def test_numpy_arrays_in_lists_are_rows():
    rows = [np.array([1, 2], np.int16), np.array([3, 4], np.int16)]
    assert made(rows).dtype == torch.int16
    assert made(rows).tolist() == [[1, 2], [3, 4]]


def test_rows_longer_than_the_first_are_refused_even_if_that_is_empty():
    # torch drops them silently.
    with pytest.raises(ValueError, match="length 0 at dim 1"):
        pack([[], [1]])


def test_endless_nesting_is_refused():
    rows: list[object] = []
    rows.append(rows)
    with pytest.raises(ValueError, match="too many dimensions 'list'"):
        pack(rows)


def test_a_ragged_list_says_where():
    with pytest.raises(ValueError, match=r"expected sequence of length 2 at dim 1 \(got 3\)"):
        pack([[1, 2], [1, 2, 3]])


edges = [2**bits + d for bits in (0, 7, 8, 15, 16, 31, 32, 62) for d in (-1, 0, 1)]
integers = st.sampled_from([*edges, *(-e for e in edges)]) | st.integers(-(2**63), 2**63 - 1)
floats = st.floats() | st.sampled_from([65504.0, 65519.9, 65520.0, 1e300, 3.4028235677973366e38])


@settings(max_examples=600, deadline=None)
@given(integers | st.booleans(), st.sampled_from(NAMES))
def test_any_integer_packs_as_in_torch(value, dtype):
    assert_as_torch([value], dtype)


@settings(max_examples=600, deadline=None)
@given(st.floats(-1e5, 1e5) | floats, st.sampled_from([n for n in NAMES if n != "uint64"]))
def test_any_float_packs_as_in_torch(value, dtype):
    if dtype == "int64" and value == 2.0**63:
        return  # undefined behaviour in torch
    assert_as_torch([value], dtype)


@settings(max_examples=200, deadline=None)
@given(st.complex_numbers(), st.sampled_from(["complex64", "complex128", "float32", "int8"]))
def test_any_complex_number_packs_as_in_torch(value, dtype):
    assert_as_torch([value], dtype)


def test_floats_become_uint64_by_truncation():
    # torch has no conversion here at all ("an integer is required").
    assert made([3.7, 2.0**63], "uint64").tolist() == [3, 2**63]
    with pytest.raises(RuntimeError, match="uint64"):
        pack([-1.0], "uint64")


def test_uint64_takes_its_whole_range():
    assert made([2**64 - 1, 0], "uint64").tolist() == [2**64 - 1, 0]
    with pytest.raises(OverflowError, match="too big"):
        pack([2**64], "uint64")


def test_shapes_are_found_alone():
    assert infer_shape([[1, 2], [3, 4]]) == (2, 2)


@pytest.mark.parametrize(
    ("data", "dtype"),
    [([1, 2.0], "float64"), ([1j], "complex128"), ([], "float64"), ([1], "int64")],
)
def test_floats_stand_for_the_default_dtype(data, dtype):
    assert pack(data, default="float64")[1] == dtype


def test_mixing_dtypes_needs_the_promotion_rule():
    with pytest.raises(TypeError, match="int16, int8"):
        pack([np.int16(1), np.int8(1)])


class Headless:
    """A sequence that gives no first item."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        raise TypeError("no items here")


@pytest.mark.parametrize("data", [Headless(), [Headless()]])
def test_a_sequence_that_gives_no_item_has_no_shape(data):
    with pytest.raises(ValueError, match="could not determine the shape of object type 'Headless'"):
        infer_shape(data)
