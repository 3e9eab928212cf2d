"""Indexing and assignment follow PyTorch, rule by rule."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tangrad.tensor.indexing import IndexingOps, getitem, lower_indices, setitem

torch = pytest.importorskip("torch")


def checked_index(x, indices):
    assert_lowered(x, indices)
    return torch.ops.aten.index(x, indices)


def checked_index_put(x, indices, value, accumulate):
    assert_lowered(x, indices)
    return torch.ops.aten.index_put_(x, indices, value, accumulate)


def assert_lowered(x, indices):
    given_indices = [item for item in indices if item is not None]
    assert all(item.dtype == torch.int64 for item in given_indices)
    assert len({item.shape for item in given_indices}) == 1
    assert all(item is not None for item in indices[len(indices) - len(given_indices) :])
    assert len(indices) <= x.dim()


OPS = IndexingOps(
    alias=torch.ops.aten.alias,
    slice_=torch.ops.aten.slice,
    index=checked_index,
    index_put_=checked_index_put,
    tensor=torch.tensor,
)


def counted(*shape, dtype=torch.int64):
    return torch.arange(math.prod(shape)).reshape(shape).to(dtype)


def outcome(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function()
        except (IndexError, ValueError, TypeError, RuntimeError) as error:
            return type(error)


def assert_same(ours, theirs):
    if isinstance(theirs, type) or isinstance(ours, type):
        assert ours == theirs
        return
    assert ours.shape == theirs.shape
    assert torch.equal(ours, theirs)
    assert ours.stride() == theirs.stride() or ours.numel() < 2
    assert (ours.data_ptr() == theirs.data_ptr()) or not ours._is_view()


def check_getitem(x, index):
    assert_same(outcome(lambda: getitem(x, index, OPS)), outcome(lambda: x[index]))


def check_setitem(x, index, value):
    ours, theirs = x.clone(), x.clone()

    def assign():
        theirs[index] = value

    got, expected = outcome(lambda: setitem(ours, index, value, OPS)), outcome(assign)
    if isinstance(outcome(lambda: x[index]), type):
        # Index and value may both be at fault: then either may be reported.
        assert (got is None) == (expected is None)
    else:
        assert got == expected
    assert got is not None or torch.equal(ours.nan_to_num(99), theirs.nan_to_num(99))


# --- one example per rule ------------------------------------------------------------------

T = torch.tensor
MASK = T([[True, False, True], [False, False, True]])

INDICES = {
    "integer": 1,
    "negative integer": -2,
    "integer out of bounds": 5,
    "several integers": (0, 1, -1),
    "too many": (0, 0, 0, 0),
    "second out of bounds": (slice(None), 7),
    "numpy integer": np.int64(1),
    "numpy bool": np.bool_(True),
    "float": 1.0,
    "complex": 1j,
    "text": "a",
    "bytes": b"a",
    "set": {1},
    "dict": {0: 1},
    "object": object(),
    "huge integer": 2**70,
    "empty tuple": (),
    "full slice": slice(None),
    "slice": slice(1, 2),
    "slice past the end": slice(-100, 100, 2),
    "huge slice": slice(None, 2**70),
    "slice by tensors": slice(T(0), T(2), T(2)),
    "slice by text": slice("a", None),
    "slice by float": slice(1.5, None),
    "slice of step zero": slice(None, None, 0),
    "slice of negative step": slice(None, None, -1),
    "empty slice": slice(2, 1),
    "none": None,
    "nones": (None, 0, None),
    "none shifts the dimension in the error": (None, 5),
    "ellipsis": Ellipsis,
    "ellipsis between": (0, ..., 1),
    "ellipsis of nothing": (0, 0, ..., 0),
    "two ellipses": (..., 0, ...),
    "two ellipses first": (..., ..., 0),
    "true": True,
    "false": False,
    "true and none": (True, None),
    "true twice": (True, True),
    "true and integer": (True, 0),
    "integer and true": (0, True),
    "false and integers": (False, [0, 1]),
    "zero-dim integer tensor": T(1),
    "zero-dim int8 tensor": T(1, dtype=torch.int8),
    "zero-dim tensor out of bounds": T(5),
    "zero-dim float tensor": T(1.0),
    "zero-dim mask": T(True),
    "zero-dim byte mask": T(0, dtype=torch.uint8),
    "integer tensor": T([0, 1, -1]),
    "int32 tensor": T([0, 1], dtype=torch.int32),
    "int16 tensor": T([0, 1], dtype=torch.int16),
    "uint16 tensor": T([0, 1], dtype=torch.uint16),
    "float tensor": T([1.0]),
    "integer matrix": T([[0, 1], [1, 0]]),
    "empty integer tensor": T([], dtype=torch.int64),
    "mask": T([True, False]),
    "byte mask": T([1, 0], dtype=torch.uint8),
    "mask of two dimensions": MASK,
    "mask of wrong shape": T([True, False, True]),
    "mask of wrong second dimension": T([[True, False], [False, False]]),
    "mask of all": counted(2, 3, 4) > 5,
    "mask of too many dimensions": torch.ones(2, 3, 4, 1).bool(),
    "mask then integer": (MASK, 0),
    "mask then slice": (MASK, slice(1, 3)),
    "mask then tensor": (MASK, T([0, 1, 2])),
    "ellipsis then mask": (..., torch.ones(3, 4).bool()),
    "none then mask": (None, MASK),
    "adjacent": (slice(None), [0, 1], [0, 1]),
    "separated by a slice": ([0, 1], slice(None), [0, 1]),
    "separated by none": (T([0, 1]), None, T([1, 2])),
    "separated by an ellipsis": (T([0, 1]), ..., T([1, 2])),
    "separated by an integer": (T([0, 1]), 0, T([1, 2])),
    "separated by a number tensor": (T([0, 1]), T(0), T([1, 2])),
    "not broadcastable": ([0, 1], [0, 1, 2]),
    "broadcast": (T([[0], [1]]), slice(None), T([0, 1, 2])),
    "list": [0, 1],
    "list of floats": [1.0],
    "list of truths": [True, False],
    "list of truths and integers": [True, 0],
    "empty list": [],
    "list of lists": [[0, 1], [1, 0]],
    "list in tuple": ([[0, 1], [1, 0]],),
    "list of slices": [slice(None), 0],
    "list of none": [None, 0],
    "list of ellipsis": [..., 0],
    "list of tensors": [T(0), T(1)],
    "list of numpy integers": [np.int64(1), np.int64(0)],
    "long list": [0, 1] * 20,
    "range": range(2),
    "empty range": range(0),
    "tuple of tuples": ((0, 1), (1, 0)),
    "nested mask": ([[True, False, True], [False, False, True]],),
    "numpy array": np.array([0, 1]),
    "numpy matrix": np.array([[0, 1], [1, 0]]),
    "numpy int16": np.array([0, 1], dtype=np.int16),
    "numpy floats": np.array([0.0, 1.0]),
    "numpy mask": np.array([True, False]),
    "numpy bytes": np.array([1, 0], dtype=np.uint8),
    "numpy number": np.array(1),
    "numpy truth": np.array(True),
    "numpy arrays": (np.array([1]), np.array([0])),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES.keys())
def test_getitem_follows_torch(index):
    check_getitem(counted(2, 3, 4), index)


@pytest.mark.parametrize("index", [0, ..., None, True, False, T(True), T(0), [], (), slice(None)])
def test_a_zero_dim_tensor_is_indexed_as_in_torch(index):
    check_getitem(T(3), index)


VALUES = {
    "integer": 7,
    "float": 7.9,
    "truth": True,
    "complex": 1j,
    "nan": math.nan,
    "huge": 1e300,
    "zero-dim": T(3),
    "zero-dim float": T(2.5),
    "one float": T([2.5]),
    "row": T([1, 2, 3, 4]),
    "wrong row": T([1, 2, 3]),
    "leading ones": T([[[[5]]]]),
    "nothing": T([]),
    "list": [1, 2, 3, 4],
    "tuple": (1, 2),
    "array": np.ones(4),
    "none": None,
    "text": "a",
    "object": object(),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool], ids=str)
@pytest.mark.parametrize(
    "index",
    [i for name, i in INDICES.items() if "byte" not in name and name != "numpy bytes"],
    ids=[name for name in INDICES if "byte" not in name and name != "numpy bytes"],
)
def test_setitem_follows_torch(index, dtype, value):
    check_setitem(counted(2, 3, 4, dtype=dtype), index, value)


def test_a_byte_mask_assigns_like_a_bool_mask_and_warns():
    x = counted(2, 3)
    with pytest.warns(UserWarning, match="uint8"):
        setitem(x, T([1, 0], dtype=torch.uint8), 9, OPS)
    assert x.tolist() == [[9, 9, 9], [3, 4, 5]]


def test_a_list_read_as_a_tuple_warns():
    with pytest.warns(UserWarning, match="tuple"):
        getitem(counted(2, 3), [[0, 1], [1, 0]], OPS)


def test_a_zero_dim_index_without_a_value_gathers():
    x = torch.zeros(2, 3, 4, device="meta")
    place = torch.zeros((), dtype=torch.int64, device="meta")
    assert getitem(x, place, OPS).shape == (3, 4)
    assert getitem(x, (slice(None), place), OPS).shape == (2, 4)


# --- error texts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (5, "index 5 is out of bounds for dimension 0 with size 2"),
        ((..., 4), "index 4 is out of bounds for dimension 1 with size 4"),
        ((0, 0, 0, 0), "too many indices for tensor of dimension 3"),
        (1.0, r"only integers, slices \(`:`\), ellipsis .* \(got float\)"),
        (T([1.0]), "tensors used as indices must be long, int, byte or bool tensors"),
        (([0, 1], [0, 1, 2]), r"could not be broadcast together with shapes \[2\], \[3\]"),
        (T([True] * 3), r"mask \[3\] at index 0 does not match .* \[2, 3, 4\] at index 0"),
        ((..., ..., 0), "single ellipsis"),
        ((..., ..., slice(1)), "single ellipsis"),
    ],
)
def test_errors_say_what_is_wrong(index, message):
    with pytest.raises(IndexError, match=message):
        getitem(counted(2, 3, 4), index, OPS)


def test_a_zero_dim_tensor_says_to_use_item():
    with pytest.raises(IndexError, match=r"invalid index of a 0-dim tensor. Use `tensor.item\(\)`"):
        getitem(T(3), 0, OPS)


def test_values_that_do_not_fit_are_refused():
    x = counted(2, 3, 4)
    with pytest.raises(
        RuntimeError, match=r"value tensor of shape \[2\] .* result of shape \[20\]"
    ):
        setitem(x, x > 3, T([1, 2]), OPS)
    with pytest.raises(RuntimeError, match="dtypes match, got torch.int64 .* torch.float32"):
        setitem(x, [0], T(2.5), OPS)
    with pytest.raises(TypeError, match="can't assign a list to a tensor of dtype torch.int64"):
        setitem(x, 0, [1], OPS)


# --- gradients -----------------------------------------------------------------------------


def test_getitem_is_differentiable():
    x = counted(2, 3, 4, dtype=torch.float64).requires_grad_()
    for index in (1, (slice(None), [0, 2]), MASK, (..., T([0, 0]))):
        ours = torch.autograd.grad(getitem(x, index, OPS).square().sum(), x)[0]
        assert torch.equal(ours, torch.autograd.grad(x[index].square().sum(), x)[0])


def test_the_lowered_indices_of_separated_tensors_come_first():
    x, indices = lower_indices(counted(2, 3, 4), [(0, T([0, 1])), (2, T([[1], [2], [3]]))])
    assert x.shape == (2, 4, 3)
    assert [tuple(item.shape) for item in indices] == [(3, 2), (3, 2)]


# --- any index at all ----------------------------------------------------------------------


@st.composite
def items(draw, size):
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(st.integers(-size - 1, size))
    if kind == 1:
        ends = st.none() | st.integers(-size - 2, size + 2)
        return slice(draw(ends), draw(ends), draw(st.none() | st.integers(1, 3)))
    entries = st.integers(-size, size - 1) if size else st.nothing()
    if kind == 2:
        return draw(st.lists(entries, max_size=3)) if size else []
    if kind == 3:
        return T(draw(st.lists(entries, min_size=1, max_size=3))) if size else T([]).long()
    if kind == 4:
        return T(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=torch.bool)
    return slice(None)


@st.composite
def cases(draw):
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    chosen = [draw(items(size)) for size in shape[: draw(st.integers(0, len(shape)))]]
    extras = st.sampled_from([None, True, T(True), ...])
    for extra in draw(st.lists(extras, max_size=2)):
        chosen.insert(draw(st.integers(0, len(chosen))), extra)
    assume(sum(item is Ellipsis for item in chosen) < 2)
    base = counted(*shape)
    order = draw(st.permutations(range(len(shape))))
    inverse = [order.index(i) for i in range(len(shape))]
    return base.permute(order).contiguous().permute(inverse), tuple(chosen)


@settings(max_examples=1000, deadline=None)
@given(cases())
def test_any_getitem_follows_torch(case):
    x, index = case
    check_getitem(x, index)


@settings(max_examples=500, deadline=None)
@given(cases(), st.sampled_from([7, T(8), T([9]), T([[1], [2]]), T(1.5), "as shaped"]))
def test_any_setitem_follows_torch(case, value):
    x, index = case
    if isinstance(value, str):
        result = outcome(lambda: x[index])
        assume(not isinstance(result, type))
        value = -counted(*result.shape)
    check_setitem(x, index, value)
