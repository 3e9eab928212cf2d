"""The text of a tensor is PyTorch's, character for character."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tangrad.tensor.printing import (
    get_printoptions,
    printoptions,
    set_printoptions,
    tensor_repr,
)

torch = pytest.importorskip("torch")

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
COMPLEX = (torch.complex64, torch.complex128)
PRINTED_PARTS = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")


def text(x):
    return tensor_repr(x, default_dtype=torch.get_default_dtype())


@pytest.fixture(autouse=True)
def default_options():
    yield
    set_printoptions(profile="default")
    torch.set_printoptions(profile="default")


telling_numbers = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1e-4, 9.99e-5, 1000.0, 1001.0, 1e8, 1.5e8, 1e-45, 65504.0]
    + [math.nan, math.inf, -math.inf, 999.99999, 99999999.0, 123456.789]
)
numbers = telling_numbers | st.floats(-1e4, 1e4) | st.integers(-2000, 2000).map(float)
shapes = st.lists(st.integers(0, 7), max_size=4).map(tuple)


@st.composite
def real_tensors(draw, dtypes=FLOATS):
    shape = draw(shapes)
    pool = draw(st.lists(numbers, min_size=1, max_size=6))
    return repeat(pool, shape, torch.float64).to(draw(st.sampled_from(dtypes)))


@st.composite
def integer_tensors(draw):
    shape = draw(shapes)
    pool = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6))
    return repeat(pool, shape, torch.int64).to(draw(st.sampled_from((*INTEGERS, torch.bool))))


@st.composite
def complex_tensors(draw):
    shape = draw(shapes)
    pool = draw(st.lists(st.builds(complex, numbers, numbers), min_size=1, max_size=6))
    return repeat(pool, shape, torch.complex128).to(draw(st.sampled_from(COMPLEX)))


def repeat(pool, shape, dtype):
    count = math.prod(shape)
    return torch.tensor((pool * (count // len(pool) + 1))[:count], dtype=dtype).reshape(shape)


tensors = real_tensors() | integer_tensors() | complex_tensors()


@settings(max_examples=600, deadline=None)
@given(tensors)
def test_any_tensor_prints_as_in_torch(x):
    assert text(x) == repr(x)


option_sets = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.integers(0, 8),
        "threshold": st.integers(0, 30),
        "edgeitems": st.integers(1, 4),
        "linewidth": st.integers(10, 120),
        "profile": st.sampled_from(["default", "short", "full"]),
        "sci_mode": st.sampled_from([True, False, None]),
    },
)


@settings(max_examples=600, deadline=None)
@given(tensors, option_sets)
def test_any_print_options_act_as_in_torch(x, options):
    torch.set_printoptions(profile="default")
    torch.set_printoptions(**options)
    set_printoptions(profile="default")
    set_printoptions(**options)
    theirs = torch._tensor_str.get_printoptions()
    assert get_printoptions() == {name: theirs[name] for name in PRINTED_PARTS}
    assert text(x) == repr(x)


@pytest.mark.parametrize("shape", [(1001,), (40, 50), (1001, 2), (7, 7, 7, 7), (2, 3, 1001)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_long_dimensions_are_summarised(shape, dtype):
    x = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    assert text(x) == repr(x)


def test_only_the_printed_elements_are_brought_to_python():
    x = torch.zeros(1).expand(2**31, 2**31)
    assert text(x).count("0.") == 36


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
def test_a_meta_tensor_prints_its_geometry_only(shape, dtype):
    x = torch.empty(shape, dtype=dtype, device="meta")
    assert text(x) == repr(x)


def test_history_is_named():
    x = torch.arange(3.0, requires_grad=True)
    for y in (x, x + 1, x.exp().sum(), x.unbind()[0], x.double() * 2):
        assert text(y) == repr(y)


def test_a_suffix_that_does_not_fit_moves_to_a_line_of_its_own():
    for count in range(1, 40):
        x = torch.arange(float(count), dtype=torch.float64).requires_grad_() * 1
        assert text(x) == repr(x)


def test_parameters_and_subclasses_say_what_they_are():
    class Named(torch.Tensor):
        pass

    parameter = torch.nn.Parameter(torch.ones(2))
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    for x in (parameter, frozen, torch.arange(30.0).as_subclass(Named)):
        assert text(x) == repr(x)


def test_a_view_that_lost_its_history_still_prints():
    class Broken:
        def __getattr__(self, name):
            return getattr(torch.ones(2), name)

        @property
        def grad_fn(self):
            raise RuntimeError("the base was modified")

    assert text(Broken()).endswith("grad_fn=<Invalid>)")


def test_contents_may_be_replaced():
    x = torch.ones(2, 3, dtype=torch.float64)
    assert tensor_repr(x, "abc", torch.float32) == x.__repr__(tensor_contents="abc")


@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.float16])
def test_the_default_dtype_goes_without_saying(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        for dtype in (*FLOATS, *COMPLEX):
            for shape in ((2,), (0,), (0, 2)):
                x = torch.ones(shape, dtype=dtype)
                assert text(x) == repr(x)
    finally:
        torch.set_default_dtype(before)


def test_conjugate_views_print_resolved():
    x = torch.tensor([1 + 2j, 0.5 + 0j]).conj()
    assert text(x) == repr(x)


def test_options_hold_within_a_with_block():
    before = get_printoptions()
    with printoptions(precision=2, sci_mode=True):
        assert text(torch.tensor([1.0])) == "tensor([1.00e+00])"
    assert get_printoptions() == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"profile": "long"}, ValueError),
        ({"precision": "4"}, TypeError),
        ({"edgeitems": 2.5}, TypeError),
        ({"threshold": -1}, ValueError),
        ({"linewidth": True}, TypeError),
    ],
)
def test_senseless_options_are_refused_and_change_nothing(options, error):
    before = get_printoptions()
    with pytest.raises(error, match=next(iter(options))):
        set_printoptions(**options)
    assert get_printoptions() == before


def test_a_tensor_whose_storage_was_taken_has_a_text_without_values() -> None:
    import tangrad

    x = tangrad.ones(2, 3)
    x.untyped_storage().resize_(0)
    assert repr(x) == "tensor(..., size=(2, 3))"
