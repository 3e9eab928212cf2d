"""Methods about a tensor's memory, compared with PyTorch's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


def both(program):
    """Run a program on each library; return the results, or the types of what was raised."""
    found = []
    for library in (tangrad, torch):
        try:
            found.append(program(library))
        except Exception as error:
            found.append(type(error))
    return found


def assert_same(program):
    ours, theirs = both(program)
    assert ours == theirs


GEOMETRIES = [
    lambda t: t.ones(2, 3),
    lambda t: t.ones(2, 3).t(),
    lambda t: t.ones(()),
    lambda t: t.ones(1, 2, 3, 4).to(memory_format=t.channels_last),
    lambda t: t.ones(2, 3).expand(4, 2, 3),
    lambda t: t.ones(1, 2),
    lambda t: t.ones(2, 3, 4).permute(1, 2, 0)[::2],
]


@pytest.mark.parametrize("make", GEOMETRIES)
@pytest.mark.parametrize("check", [False, True])
def test_dim_order_is_that_of_the_strides(make, check):
    assert_same(lambda t: make(t).dim_order(ambiguity_check=check))


@given(st.permutations(range(4)), st.lists(st.integers(1, 3), min_size=4, max_size=4))
@settings(max_examples=60, deadline=None)
def test_dim_order_of_any_permutation(order, shape):
    assert_same(lambda t: t.ones(shape).permute(order).dim_order())


def test_dim_order_refuses_what_is_no_format():
    assert_same(lambda t: t.ones(2).dim_order(ambiguity_check="up"))
    assert_same(lambda t: t.ones(1, 2).dim_order(ambiguity_check=[t.contiguous_format]))


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.empty(0).set_(t.arange(10.0)[4:], 1, (2,), (1,)).tolist(),
        lambda t: t.empty(0).set_(t.arange(10.0).untyped_storage(), 1, (2,)).tolist(),
        lambda t: t.empty(0).set_(t.arange(10.0).storage()).tolist(),
        lambda t: t.empty(0).set_(t.arange(3)).tolist(),
        lambda t: t.empty(0).set_(t.arange(4.0).untyped_storage(), -1, (2,), (1,)).tolist(),
        lambda t: t.empty(0).set_(t.arange(4.0).untyped_storage(), 0, (2,), (-1,)).tolist(),
        lambda t: t.empty(0).set_(t.arange(4.0).untyped_storage(), 0, (2, 2), (1,)).tolist(),
        lambda t: tuple(t.empty(2, 2).resize_(1, 2, 3, 4).stride()),
        lambda t: t.empty(2, 2).resize_((1, 2, 3, 4), memory_format=t.channels_last).stride(),
        lambda t: tuple(t.empty(2, 3).t().resize_(3, 2).stride()),
        lambda t: tuple(t.empty(2, 3).t().resize_as_(t.empty(3, 2)).stride()),
        lambda t: tuple(t.empty(2, 2, requires_grad=True).resize_(2, 2).stride()),
        lambda t: tuple(t.rand(5).expand(1, 1, 5).stride()),
        lambda t: tuple(t.rand(()).expand(1, 1).stride()),
        lambda t: tuple(t.rand(3, 2).t().expand(1, 4, 1, 2, 3).stride()),
        lambda t: t.broadcast_shapes(1.0),
        lambda t: t.empty(2, 2).resize_(-1, 2),
        lambda t: t.empty(2, 2).resize_(),
        lambda t: t.empty(2, requires_grad=True).resize_(3),
        lambda t: tuple(t.arange(6.0).resize_(2, 2).tolist()),
        lambda t: (
            t.empty(2, 2)
            .resize_as_(
                t.empty(1, 2, 2, 2).to(memory_format=t.channels_last),
                memory_format=t.preserve_format,
            )
            .stride()
        ),
        lambda t: t.arange(12.0).as_strided_((2, 2), (3, 1), 1).tolist(),
        lambda t: t.tensor([0.0]).is_nonzero(),
        lambda t: t.tensor(1j).is_nonzero(),
        lambda t: t.tensor([]).is_nonzero(),
        lambda t: t.ones(2).is_nonzero(),
        lambda t: t.ones(2).map_(t.ones(1) * 3, lambda a, b: a + b).tolist(),
        lambda t: t.ones(2).map2_(t.ones(2) * 3, t.ones(2), lambda a, b, c: a + b - c).tolist(),
        lambda t: t.ones(2).map_(t.ones(3), lambda a, b: a + b),
        lambda t: t.ones(2).map_(t.ones(2).double(), lambda a, b: a + b),
        lambda t: t.ones(2, requires_grad=True).apply_(lambda a: a),
        lambda t: t.ones(2).map2_(
            t.ones(2), t.ones(2, requires_grad=True), lambda a, b, c: a + b - c
        ),
        lambda t: t.ones(2).int().apply_(lambda a: "one"),
        lambda t: str(t.ones(2).int().type(t.Tensor).dtype).rpartition(".")[2],
        lambda t: t.ones(2).int().apply_(lambda a: a + 1.5).tolist(),
        lambda t: t.ones(2, 3).t().apply_(lambda a: a + 1).tolist(),
        lambda t: str(t.ones(2).grad_dtype).rpartition(".")[2],
        lambda t: (t.ones(2, requires_grad=True) * 2).grad_dtype,
        lambda t: t.ones(2).module_load(t.zeros(2)).tolist(),
        lambda t: t.ones(2).module_load(t.zeros(3)),
        lambda t: t.ones(2).record_stream(None) is None,
        lambda t: (t.ones(2, 3).dense_dim(), t.ones(2, 3).sparse_dim()),
        lambda t: t.ones(2, 3).coalesce(),
        lambda t: t.ones(2, 3).values(),
        lambda t: t.ones(2, 3).q_scale(),
        lambda t: t.ones(2, 3).to_dense().tolist(),
        lambda t: t.ones(2, 3).to_padded_tensor(0.0),
        lambda t: str(t.ones(2).dequantize().dtype).rpartition(".")[2],
    ],
)
def test_is_as_in_pytorch(program):
    ours, theirs = both(program)
    if isinstance(ours, type) and isinstance(theirs, type):
        assert issubclass(ours, theirs) or issubclass(theirs, ours), (ours, theirs)
    else:
        assert ours == theirs


def test_more_dimensions_than_a_tensor_has_are_refused():
    with pytest.raises(RuntimeError, match="at most"):
        tangrad.ones(1).resize_([1] * 100)


@pytest.mark.parametrize("name", ["cuda", "xpu", "ipu", "mtia"])
def test_a_device_that_is_not_installed_names_itself(name):
    with pytest.raises(RuntimeError, match=name):
        getattr(tangrad.ones(2), name)()


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "complex64"])
def test_typed_storage_sees_the_elements(dtype):
    for t in (tangrad, torch):
        x = t.ones(6).to(getattr(t, dtype))
        seen = x[2:].storage()
        assert len(seen) == 6
        assert seen.size() == 6
        seen[1] = 0
        assert x[1] == 0
        assert seen.clone().fill_(0).tolist() != seen.tolist()
        assert seen.element_size() == x.element_size()
        assert seen.nbytes() == 6 * x.element_size()
        assert seen.data_ptr() == x.data_ptr()
        with pytest.raises(IndexError):
            seen[6]


def test_typed_storage_converts_and_is_made_of_data():
    for t in (tangrad, torch):
        assert t.FloatStorage([1.0, 2.5]).int().tolist() == [1, 2]
        assert len(t.LongStorage(3)) == len(t.LongStorage(np.int16(3))) == 3
        assert t.FloatStorage([1.0]).dtype is t.float32
        assert t.ones(2).storage_type() is t.FloatStorage is t.Storage
        assert t.ones(2).storage().type().endswith(".FloatStorage")


def test_storage_is_the_class_of_the_default_dtype():
    for t in (tangrad, torch):
        t.set_default_dtype(t.float64)
        try:
            assert t.Storage is t.DoubleStorage
        finally:
            t.set_default_dtype(t.float32)
        assert t.Storage is t.FloatStorage


def test_the_size_of_a_storage_counts_its_elements():
    sizes = [tangrad.zeros(n).storage().__sizeof__() for n in (0, 10, 100)]
    assert [n - sizes[0] for n in sizes] == [0, 40, 400]
    storage = tangrad.zeros(3).untyped_storage()
    copy = storage.__copy__()
    assert copy.tolist() == storage.tolist()
    assert copy.data_ptr() != storage.data_ptr()


def test_untyped_storage_is_bytes():
    for t in (tangrad, torch):
        s = t.arange(3, dtype=t.uint8).untyped_storage()
        assert s.tolist() == [0, 1, 2]
        assert s[2] == 2
        assert len(s) == 3
        s[0] = 7
        assert s.clone().tolist() == [7, 1, 2]
        assert s.clone().data_ptr() != s.data_ptr()
        assert t.zeros(3, dtype=t.uint8).untyped_storage().copy_(s).tolist() == [7, 1, 2]
        assert s.fill_(1).tolist() == [1, 1, 1]
        with pytest.raises((RuntimeError, IndexError)):
            s[3]
        with pytest.raises(AttributeError):
            s.no_such_attribute


def test_tensor_types_of_old():
    for t in (tangrad, torch):
        assert isinstance(t.ones(2), t.FloatTensor)
        assert not isinstance(t.ones(2), t.LongTensor)
        assert t.LongTensor([1, 2]).dtype is t.int64
        assert tuple(t.FloatTensor(2, 3).shape) == (2, 3)


def test_cond_calls_the_chosen_branch():
    from torch._higher_order_ops import cond

    for run, t in ((tangrad.cond, tangrad), (cond, torch)):
        assert run(t.tensor(True), lambda x: x + 1, lambda x: x - 1, (t.ones(2),)).tolist() == [
            2,
            2,
        ]
    with pytest.raises(RuntimeError, match="single element"):
        tangrad.cond(tangrad.ones(2), abs, abs, (1,))
    with pytest.raises(RuntimeError, match="operands"):
        tangrad.cond(True, abs, abs, 1)


def test_while_loop_runs_until_the_condition_fails():
    i, x = tangrad.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (tangrad.tensor(0), tangrad.ones(2))
    )
    assert int(i) == 3
    assert x.tolist() == [8, 8]
    with pytest.raises(RuntimeError, match="values like those"):
        tangrad.while_loop(lambda x: True, lambda x: (x.to(tangrad.float64),), (tangrad.ones(1),))


@pytest.mark.parametrize("kind", [bool, int, float, complex])
@pytest.mark.parametrize(
    "make",
    [
        lambda t, kind: t.zeros(2, dtype=kind),
        lambda t, kind: t.full((2,), 1, dtype=kind),
        lambda t, kind: t.tensor([1], dtype=kind),
        lambda t, kind: t.ones(2).new_empty(2, dtype=kind),
        lambda t, kind: t.ones(2).sum(dtype=kind),
        lambda t, kind: t.ones(2).to(kind),
        lambda t, kind: t.ones(2).to("cpu", kind),
        lambda t, kind: t.ones(2).to(dtype=kind),
    ],
)
def test_a_type_of_pythons_numbers_is_the_widest_dtype_of_its_kind(make, kind):
    assert str(make(tangrad, kind).dtype)[8:] == str(make(torch, kind).dtype)[6:]


@pytest.mark.filterwarnings("ignore:Complex modules")
@pytest.mark.parametrize("kind", [float, complex])
def test_a_module_converts_to_a_type_of_pythons_numbers(kind):
    made = [t.nn.Linear(2, 2).to(kind).to("cpu", kind).weight.dtype for t in (tangrad, torch)]
    assert str(made[0])[8:] == str(made[1])[6:]


def test_a_resize_counts_as_a_write():
    def program(t):
        x = t.zeros(1)
        versions = []
        for size in ((1, 2), (3,), (3,)):
            x.resize_(size)
            versions.append(x._version)
        return [*versions, x.resize_as_(t.zeros(2, 2))._version]

    found, wanted = both(program)
    assert found == wanted


def test_pieces_of_an_unsafe_split_count_their_writes_apart():
    def program(t):
        x = t.arange(4.0).requires_grad_()
        first, second = (x * 1).unsafe_split(2)
        first.mul_(second)
        first.sum().backward()
        return x.grad.tolist()

    found, wanted = both(program)
    assert found == wanted == [2, 3, 0, 1]


@pytest.mark.parametrize("write", ["t_", "squeeze_", "detach_", "resize_"])
def test_a_tensor_of_inference_keeps_its_shape_outside(write):
    def program(t):
        with t.inference_mode():
            x = t.ones(1, 2)
        getattr(x, write)(*([4] if write == "resize_" else []))
        return list(x.shape)

    found, wanted = both(program)
    assert found == wanted


def test_attributes_that_cannot_be_deleted():
    def program(t):
        x = t.ones(2)
        x._backward_hooks = {}
        for name in ("data", "_backward_hooks"):
            with pytest.raises(RuntimeError):
                delattr(x, name)
        return True

    assert both(program) == [True, True]


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "uint8"},
        {"dtype": "int16", "byte_order": "big"},
        {"dtype": "int16", "byte_order": "little", "count": 1, "offset": 2},
    ],
)
def test_an_untyped_storage_copies_a_buffer(options):
    def program(t):
        given = {**options, "dtype": getattr(t, options["dtype"])}
        return list(t.UntypedStorage.from_buffer(bytearray(b"abcdef"), **given))

    assert_same(program)


def test_an_untyped_storage_asks_for_the_dtype_of_a_buffer():
    with pytest.raises(RuntimeError, match="'dtype' cannot be None"):
        tangrad.UntypedStorage.from_buffer(b"ab")


def test_a_view_of_a_tensor_of_inference_records_nothing():
    def program(t):
        with t.inference_mode():
            x = t.ones(1, 2, requires_grad=True)
        view = x.view(-1)
        return view.requires_grad, view.is_leaf, view.is_inference(), view._is_view()

    assert_same(program)


def test_a_tensor_of_inference_takes_no_result_outside():
    with tangrad.inference_mode():
        out = tangrad.ones(2)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside"):
        tangrad.mul(tangrad.ones(2), 2, out=out)


def test_picked_and_written_samples_keep_channels_last() -> None:
    x = tangrad.arange(120.0).reshape(4, 3, 5, 2)
    last = x.contiguous(memory_format=tangrad.channels_last)
    places, mask = tangrad.tensor([2, 0]), tangrad.tensor([True, False, True, True])
    for pick in (
        lambda t: t[places],
        lambda t: t[mask],
        lambda t: t.index_fill(0, places, 7.0),
        lambda t: t.index_put((places,), t[:2]),
    ):
        found = pick(last)
        assert found.is_contiguous(memory_format=tangrad.channels_last)
        assert found.equal(pick(x))
    # Other picks are contiguous, as are those of tensors that are.
    assert last[:, places].is_contiguous()
    assert x[places].is_contiguous()
    leaf = last.clone().requires_grad_()
    leaf[places].square().sum().backward()
    assert leaf.grad.equal(2 * x * tangrad.tensor([1.0, 0, 1, 0]).reshape(4, 1, 1, 1))
