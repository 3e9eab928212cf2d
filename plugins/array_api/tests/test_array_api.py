"""The Python array API standard, where it differs from PyTorch."""

from __future__ import annotations

import array
import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tangrad
import tangrad.array_api as xp

INF, NAN = math.inf, math.nan


def same(found: complex, expected: complex) -> bool:
    """Tell whether two numbers are equal, NaN and the sign of zero included."""
    if isinstance(expected, complex):
        return same(found.real, expected.real) and same(found.imag, expected.imag)
    if math.isnan(expected):
        return math.isnan(found)
    return found == expected and math.copysign(1, found) == math.copysign(1, expected)


@pytest.fixture(params=["cpu", "reference"])
def device(request):
    return request.param


@pytest.fixture(params=[xp.float32, xp.float64], ids=str)
def real(request):
    return request.param


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (INF, 2.0, INF),
        (INF, -2.0, -INF),
        (-INF, 2.0, -INF),
        (INF, INF, NAN),
        (2.0, INF, 0.0),
        (2.0, -INF, -0.0),
        (-2.0, INF, -0.0),
        (-2.0, -INF, 0.0),
        (0.0, -1.0, -0.0),
        (-0.0, 1.0, -0.0),
        (0.0, 0.0, NAN),
        (1.0, 0.0, INF),
        (1.0, -0.0, -INF),
        (7.0, -2.0, -4.0),
        (NAN, 1.0, NAN),
    ],
)
def test_floor_divide(x, y, expected, real, device):
    pair = [xp.asarray(v, dtype=real, device=device) for v in (x, y)]
    assert same(float(pair[0] // pair[1]), expected)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (0.0, 2.0, 0.0),
        (-0.0, 2.0, 0.0),
        (0.0, -2.0, -0.0),
        (-0.0, -2.0, -0.0),
        (4.0, -2.0, -0.0),
        (-4.0, 2.0, 0.0),
        (3.0, INF, 3.0),
        (3.0, -INF, -INF),
        (-3.0, INF, INF),
        (-3.0, -INF, -3.0),
        (INF, 2.0, NAN),
        (3.0, 0.0, NAN),
        (7.0, -4.0, -1.0),
    ],
)
def test_remainder(x, y, expected, real, device):
    pair = [xp.asarray(v, dtype=real, device=device) for v in (x, y)]
    assert same(float(pair[0] % pair[1]), expected)


@given(x=st.integers(-100, 100), y=st.integers(-100, 100).filter(bool))
def test_integers_divide_as_pythons(x, y):
    a, b = xp.asarray(x), xp.asarray(y)
    assert (int(a // b), int(a % b)) == divmod(x, y)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (complex(0.0, 0.0), complex(0.0, 0.0)),
        (complex(-0.0, 0.0), complex(0.0, 0.0)),
        (complex(1.0, INF), complex(NAN, NAN)),
        (complex(1.0, NAN), complex(NAN, NAN)),
        (complex(INF, 0.0), complex(INF, 0.0)),
        (complex(-INF, 1.0), complex(-1.0, 0.0)),
        (complex(INF, 2.0), complex(-INF, INF)),
        (complex(-INF, INF), complex(-1.0, 0.0)),
        (complex(INF, INF), complex(INF, NAN)),
        (complex(INF, NAN), complex(INF, NAN)),
        (complex(NAN, 0.0), complex(NAN, 0.0)),
        (complex(NAN, 1.0), complex(NAN, NAN)),
    ],
)
def test_expm1_of_complex(x, expected, device):
    found = complex(xp.expm1(xp.asarray(x, dtype=xp.complex128, device=device)))
    assert same(found, expected)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (complex(-1.0, 0.0), complex(-INF, 0.0)),
        (complex(1.0, INF), complex(INF, math.pi / 2)),
        (complex(-INF, 1.0), complex(INF, math.pi)),
        (complex(INF, 1.0), complex(INF, 0.0)),
        (complex(-INF, INF), complex(INF, 3 * math.pi / 4)),
        (complex(INF, NAN), complex(INF, NAN)),
        (complex(NAN, 1.0), complex(NAN, NAN)),
    ],
)
def test_log1p_of_complex(x, expected, device):
    found = complex(xp.log1p(xp.asarray(x, dtype=xp.complex128, device=device)))
    assert same(found.real, expected.real)
    assert found.imag == pytest.approx(expected.imag, nan_ok=True)


@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_small_complex_numbers_keep_their_digits(name):
    x = complex(1e-12, 1e-13)
    found = complex(getattr(xp, name)(xp.asarray(x, dtype=xp.complex128)))
    expected = x + x * x / 2 * (1 if name == "expm1" else -1)
    assert abs(found - expected) <= 1e-15 * abs(x)


@pytest.mark.parametrize(("sign", "imag"), [(1, 2.5), (1, -2.5), (-1, 1.0), (-1, -1.0)])
def test_tanh_at_infinity_keeps_the_sign_of_the_imaginary_part(sign, imag):
    found = complex(xp.tanh(xp.asarray(complex(sign * INF, imag), dtype=xp.complex128)))
    assert same(found, complex(sign, math.copysign(0.0, imag)))


def test_sign_of_nan_is_nan(real, device):
    found = xp.sign(xp.asarray([NAN, -0.5, 0.0], dtype=real, device=device))
    assert math.isnan(float(found[0]))
    assert [float(found[1]), float(found[2])] == [-1.0, 0.0]


def test_round_goes_to_even_and_takes_the_parts_of_complex_numbers():
    assert np.asarray(xp.round(xp.asarray([0.5, 1.5, -2.5]))).tolist() == [0.0, 2.0, -2.0]
    assert complex(xp.round(xp.asarray(1.5 + 2.5j))) == 2 + 2j


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("uint8", "int8", "int16"),
        ("uint16", "int8", "int32"),
        ("uint32", "int64", "int64"),
        ("uint32", "int8", "int64"),
        ("uint8", "uint64", "uint64"),
        ("float64", "complex64", "complex128"),
        ("float32", "float64", "float64"),
    ],
)
@pytest.mark.parametrize("shape", [(), (2,)])
def test_promotion_goes_by_dtype_and_not_by_dimensions(first, second, expected, shape, device):
    x = xp.ones((2,), dtype=getattr(xp, first), device=device)
    y = xp.ones(shape, dtype=getattr(xp, second), device=device)
    assert (x + y).dtype == (y + x).dtype == getattr(xp, expected)
    assert xp.result_type(x, y) == xp.result_type(x.dtype, y) == getattr(xp, expected)


@pytest.mark.parametrize(
    ("first", "second"),
    [("int64", "float32"), ("bool", "int8"), ("uint64", "int8"), ("bool", "float32")],
)
def test_kinds_do_not_mix(first, second):
    x, y = (xp.ones(2, dtype=getattr(xp, name)) for name in (first, second))
    with pytest.raises(TypeError, match="astype"):
        x + y
    assert not xp.can_cast(x, y.dtype)


@pytest.mark.parametrize(
    ("dtype", "scalar", "expected"),
    [
        ("int8", 3, "int8"),
        ("uint64", 2**63, "uint64"),
        ("float32", 3, "float32"),
        ("float32", 0.5, "float32"),
        ("float32", 1j, "complex64"),
        ("complex128", 0.5, "complex128"),
    ],
)
def test_python_scalars_take_the_dtype_of_the_array(dtype, scalar, expected):
    x = xp.ones(2, dtype=getattr(xp, dtype))
    assert (x + scalar).dtype == (scalar + x).dtype == getattr(xp, expected)
    assert xp.add(x, scalar).dtype == xp.result_type(x, scalar) == getattr(xp, expected)


@pytest.mark.parametrize(("dtype", "scalar"), [("int8", 0.5), ("bool", 1), ("int8", True)])
def test_python_scalars_of_another_kind_are_refused(dtype, scalar):
    with pytest.raises(TypeError, match="does not combine"):
        xp.ones(2, dtype=getattr(xp, dtype)) + scalar


@pytest.mark.parametrize(
    "call",
    [
        lambda: xp.sin(1.0),
        lambda: xp.sin(tangrad.ones(2)),
        lambda: xp.flip([1, 2]),
        lambda: xp.concat([[1], [2]]),
        lambda: xp.add(1, 2),
        lambda: xp.add(xp.ones(2), "a"),
        lambda: xp.result_type("float"),
        lambda: xp.exp(xp.asarray([1])),
        lambda: xp.sum(xp.asarray([True])),
        lambda: xp.ones(2) + np.ones(2),
        lambda: np.ones(2) + xp.ones(2),
        lambda: hash(xp.ones(2)),
        lambda: list(xp.asarray(1)),
        lambda: bool(xp.ones(2)),
        lambda: xp.ones(3).__index__(),
        lambda: xp.Array(),
        lambda: xp.astype(xp.asarray(1j), xp.float32),
    ],
)
def test_what_the_standard_does_not_define_is_a_type_error(call):
    with pytest.raises(TypeError):
        call()


sides = st.integers(0, 5)
bounds = st.none() | st.integers(-7, 7)
slices = st.builds(slice, bounds, bounds, st.integers(-4, 4).filter(bool))


@given(shape=st.tuples(sides, sides), key=st.tuples(slices, slices))
def test_slices_run_down(shape, key):
    plain = np.arange(math.prod(shape)).reshape(shape)
    found = xp.reshape(xp.arange(math.prod(shape)), shape)
    assert np.asarray(found[key]).tolist() == plain[key].tolist()
    value = -np.arange(1, plain[key].size + 1).reshape(plain[key].shape)
    plain[key] = value
    found[key] = xp.asarray(value.copy(), dtype=xp.int64)
    assert np.asarray(found).tolist() == plain.tolist()


def test_slices_that_run_down_beside_other_indices():
    plain = np.arange(24).reshape(2, 3, 4)
    x = xp.asarray(plain)
    for key in [
        (0, slice(None, None, -1)),
        (..., slice(None, None, -2)),
        (None, slice(None, None, -1), ..., 1),
        (slice(1, None, -1), None, 2),
    ]:
        assert np.asarray(x[key]).tolist() == plain[key].tolist(), key
    with pytest.raises(IndexError):
        x[0, 0, 0, ::-1]
    with pytest.raises(ValueError, match="zero"):
        x[::0]


def test_in_place_operators_write_into_what_shares_the_memory():
    x = xp.zeros((2, 3))
    row = x[0, ...]
    row += 1
    row *= 3
    assert np.asarray(x).tolist() == [[3.0] * 3, [0.0] * 3]


def test_in_place_operators_keep_dtype_and_shape():
    x = xp.ones(3, dtype=xp.int8)
    with pytest.raises(TypeError, match="int16"):
        x += xp.ones(3, dtype=xp.int16)
    with pytest.raises(ValueError, match="cannot be kept"):
        x += xp.ones((2, 3), dtype=xp.int8)
    with pytest.raises(TypeError):
        x[0] = 0.5


def test_asarray_shares_copies_and_refuses():
    tensor = tangrad.ones(3)
    assert xp.asarray(tensor).tensor is tensor
    assert xp.asarray(tensor, copy=True).tensor.data_ptr() != tensor.data_ptr()
    buffer = array.array("d", [1.0, 2.0])
    shared, copied = xp.asarray(buffer, copy=False), xp.asarray(buffer, copy=True)
    buffer[0] = 5.0
    assert (float(shared[0]), float(copied[0])) == (5.0, 1.0)
    frozen = np.ones(2)
    frozen.flags.writeable = False
    assert xp.asarray(frozen).shape == (2,)
    for refused in ([1, 2], 1.0, frozen, b"abc"):
        with pytest.raises(ValueError, match="copy"):
            xp.asarray(refused, copy=False)
    with pytest.raises(ValueError, match="copy"):
        xp.asarray(tensor, dtype=xp.float64, copy=False)
    with pytest.raises(ValueError, match="copy"):
        xp.reshape(xp.ones((2, 3)).T, (6,), copy=False)


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_asarray_reads_buffers(code):
    found = xp.asarray(array.array(code, [1, 2, 3]))
    assert np.asarray(found).dtype == np.dtype(code)
    assert np.asarray(found).tolist() == [1, 2, 3]


def test_dlpack_goes_both_ways():
    plain = np.arange(3)
    x = xp.from_dlpack(plain)
    x[0] = 7
    assert plain[0] == 7
    assert np.from_dlpack(x).tolist() == [7, 1, 2]
    with pytest.raises(AttributeError, match="has no __dlpack__"):
        xp.from_dlpack([1])
    assert xp.from_dlpack(x, copy=True).tensor.data_ptr() != x.tensor.data_ptr()


def test_every_nan_is_a_value_of_its_own_and_zeros_are_one():
    found = xp.unique_all(xp.asarray([NAN, 1.0, NAN, 1.0, -0.0, 0.0]))
    assert np.asarray(found.counts).tolist() == [2, 2, 1, 1]
    assert np.asarray(found.indices).tolist() == [4, 1, 0, 2]
    assert np.asarray(found.inverse_indices).tolist() == [2, 1, 3, 1, 0, 0]


@given(values=st.lists(st.sampled_from([0j, 1j, 1 + 0j, 1 + 1j, -1j]), max_size=8))
def test_complex_numbers_are_told_apart(values):
    found = xp.unique_inverse(xp.asarray(values, dtype=xp.complex128))
    expected, inverse = np.unique(np.array(values, dtype=complex), return_inverse=True)
    assert np.asarray(found.values).tolist() == expected.tolist()
    assert np.asarray(found.inverse_indices).tolist() == inverse.tolist()


def test_integers_are_added_up_in_the_widest():
    assert xp.sum(xp.asarray([200, 100], dtype=xp.uint8)).dtype == xp.uint64
    assert int(xp.sum(xp.asarray([200, 100], dtype=xp.uint8))) == 300
    assert xp.prod(xp.asarray([100, 2], dtype=xp.int8)).dtype == xp.int64
    assert xp.cumulative_sum(xp.asarray([1], dtype=xp.uint16)).dtype == xp.uint64


def test_running_sums_after_their_start():
    x = xp.asarray([[1, 2], [3, 4]])
    found = xp.cumulative_sum(x, axis=0, include_initial=True)
    assert np.asarray(found).tolist() == [[0, 0], [1, 2], [4, 6]]
    found = xp.cumulative_prod(x, axis=1, include_initial=True)
    assert np.asarray(found).tolist() == [[1, 1, 2], [1, 3, 12]]


def test_gradients_flow_through_arrays():
    tensor = tangrad.ones(3, requires_grad=True)
    xp.sum(xp.asarray(tensor)[::-1] ** 2 * xp.asarray([1.0, 2.0, 3.0])).tensor.backward()
    assert tensor.grad.tolist() == [6.0, 4.0, 2.0]


def test_the_namespace_tells_what_it_can():
    told = xp.ones(1).__array_namespace__(api_version="2024.12").__array_namespace_info__()
    assert told.capabilities()["data-dependent shapes"]
    assert told.default_device() == xp.ones(1).device
    assert told.devices()[0] == told.default_device()
    for kind in ("bool", "signed integer", "unsigned integer", "real floating", "numeric"):
        assert all(xp.isdtype(each, kind) for each in told.dtypes(kind=kind).values())
    assert told.default_dtypes()["real floating"] == xp.ones(1).dtype
    with pytest.raises(ValueError, match="2030"):
        xp.ones(1).__array_namespace__(api_version="2030.12")
    with pytest.raises(ValueError, match="kinds are"):
        xp.isdtype(xp.int8, "integer")


def test_arrays_move_between_devices():
    x = xp.asarray([1.0, 2.0], device="reference")
    assert x.device == tangrad.device("reference")
    assert (x + 1).device == x.device
    assert x.to_device(x.device) is x
    assert np.asarray(x.to_device("cpu")).tolist() == [1.0, 2.0]


def test_limits():
    assert xp.finfo(xp.complex128).dtype == xp.float64
    assert xp.finfo(xp.ones(1)).bits == 32
    assert xp.iinfo(xp.uint64).max == 2**64 - 1
    with pytest.raises(TypeError):
        xp.finfo(xp.int8)


@pytest.mark.parametrize(
    ("shape", "mask"), [((0, 1), (0, 0)), ((2, 1), (0, 1)), ((2, 3), (2, 0)), ((2, 3), (0,))]
)
def test_a_mask_without_elements_picks_none(shape, mask):
    picked = xp.ones(shape)[xp.zeros(mask, dtype=xp.bool)]
    assert picked.shape == np.ones(shape)[np.zeros(mask, dtype=bool)].shape
    with pytest.raises(IndexError, match="mask"):
        xp.ones((2, 3))[xp.zeros((0, 2), dtype=xp.bool)]


@pytest.mark.parametrize("k", [2**63, -(2**70), 3, -2])
def test_diagonals_outside_the_matrix_are_empty(k):
    assert not xp.any(xp.eye(2, 3, k=k) != 0)


def test_what_is_shown_says_under_which_name():
    shown = {name: getattr(xp, name) for name in dir(xp) if not name.startswith("_")}
    modules = {name: getattr(what, "__module__", None) for name, what in shown.items()}
    ours = {name: module for name, module in modules.items() if module and "tangrad" in module}
    assert {"Array", "sum", "asarray"} <= set(ours)
    assert {
        module for module in ours.values() if not module.startswith("tangrad.array_api")
    } == set()
    assert xp.fft.fft.__module__ == "tangrad.array_api.fft"


def test_arrays_and_functions_are_pickled_by_their_public_names():
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]], dtype=xp.float64)
    stream = pickle.dumps([x, xp.sum])
    assert b"tangrad.array_api" in stream
    assert b"tangrad_array_api" not in stream
    found, function = pickle.loads(stream)
    assert function is xp.sum
    for other in (found, copy.copy(x), copy.deepcopy(x)):
        assert type(other) is xp.Array
        assert (other.dtype, other.tensor.tolist()) == (x.dtype, x.tensor.tolist())
    assert pickle.loads(b"\x80\x02ctangrad.array_api\nArray\n.") is xp.Array
