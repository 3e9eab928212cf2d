"""Composites have C implementations of their usual form, which give what the definitions say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad import _C, ops

SIZES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def outcome(function, *args):
    """Return what a call gives: (shape, strides, grad_fn, shares memory), or its exception."""
    x = args[0]
    try:
        y = function(*args)
    except (RuntimeError, IndexError, TypeError) as error:
        return type(error), str(error)
    name = None if y.grad_fn is None else y.grad_fn.name()
    return tuple(y.shape), y.stride(), name, y.data_ptr() == x.data_ptr()


def by_definition(name):
    """Return the composite's Python function, called with bound arguments."""
    op = ops.lookup(name)

    def call(*args, **options):
        bound, _ = _C.bind_arguments(op, args, options)
        return op.definition.function_body(*bound)

    return call


@settings(deadline=None)  # the first call loads families of ops
@given(SIZES, st.lists(st.integers(-2, 5), max_size=4).map(tuple), st.booleans())
def test_reshape_agrees_with_its_definition(size, wanted, transposed):
    x = tangrad.ones(size, requires_grad=True)
    x = x.transpose(0, -1) if transposed and x.ndim else x
    assert outcome(tangrad.reshape, x, wanted) == outcome(by_definition("reshape"), x, wanted)


@settings(deadline=None)  # the first call loads families of ops
@given(SIZES, st.integers(-4, 3), st.integers(-4, 3), st.booleans())
def test_flatten_agrees_with_its_definition(size, start, end, transposed):
    x = tangrad.ones(size, requires_grad=True)
    x = x.transpose(0, -1) if transposed and x.ndim else x
    assert outcome(tangrad.flatten, x, start, end) == outcome(
        by_definition("flatten"), x, start, end
    )


@settings(deadline=None)  # the first call loads families of ops
@given(SIZES, SIZES)
def test_matmul_agrees_with_its_definition(left, right):
    a, b = tangrad.ones(left, requires_grad=True), tangrad.ones(right)
    assert outcome(tangrad.matmul, a, b) == outcome(by_definition("matmul"), a, b)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, -1, 2])
@pytest.mark.parametrize("dtype", [None, tangrad.float64])
def test_softmax_agrees_with_its_definition(name, dim, dtype):
    x = tangrad.ones(2, 3, requires_grad=True)
    assert outcome(getattr(tangrad, name), x, dim, dtype) == outcome(
        by_definition(name), x, dim, dtype
    )


def test_contiguous_is_the_tensor_itself_where_it_lies_densely():
    x = tangrad.ones(2, 3)
    assert x.contiguous() is x
    assert x.t().contiguous().stride() == (2, 1)
    assert (
        x.reshape(1, 2, 3, 1)
        .contiguous(memory_format=tangrad.channels_last)
        .is_contiguous(memory_format=tangrad.channels_last)
    )


def test_observers_see_the_ops_within_a_composite():
    seen = []

    class Watch:
        def enter(self, op):
            seen.append(op.name)

        def leave(self, op, token):
            pass

    from tangrad.dispatch.intercept import pop_observer, push_observer

    watch = Watch()
    push_observer(watch)
    try:
        tangrad.ones(2, 3) @ tangrad.ones(3, 2)
    finally:
        pop_observer(watch)
    assert "mm" in seen


@pytest.mark.parametrize("size", [(3,), (2, 0, 4), (), (1,) * 64], ids=len)
def test_empty_of_plain_sizes_is_that_of_any_other_form(size):
    x = tangrad.empty(size, dtype=tangrad.int16)
    y = tangrad.empty(list(size), dtype=tangrad.int16, memory_format=tangrad.contiguous_format)
    assert (x.shape, x.stride(), x.dtype, x.device) == (y.shape, y.stride(), y.dtype, y.device)
    assert tangrad.empty(size).dtype == tangrad.get_default_dtype()
    assert tangrad.empty(size, device="meta").is_meta
    assert tangrad.empty(size, requires_grad=True).requires_grad


def test_empty_refuses_sizes_that_are_none():
    with pytest.raises(RuntimeError, match="negative dimension"):
        tangrad.empty(2, -1)
    with pytest.raises(RuntimeError, match="at most 64 dimensions"):
        tangrad.empty((1,) * 65)


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
def test_division_into_out_rounds_as_without(mode):
    x, y = tangrad.tensor([7.0, -7.0]), tangrad.tensor([2.0, 2.0])
    out = tangrad.empty(0)
    assert tangrad.div(x, y, rounding_mode=mode, out=out) is out
    assert out.equal(tangrad.div(x, y, rounding_mode=mode))


def test_division_refuses_a_mode_that_is_no_text():
    with pytest.raises(TypeError, match="rounding_mode"):
        tangrad.div(tangrad.ones(1), tangrad.ones(1), rounding_mode=1)


def test_places_of_nonzero_lie_dimension_by_dimension():
    x = tangrad.tensor([[0, 1], [2, 3]])
    assert x.nonzero().tolist() == [[0, 1], [1, 0], [1, 1]]
    assert x.nonzero().stride() == (1, 3)
    assert all(places.is_contiguous() for places in x.nonzero(as_tuple=True))


@settings(deadline=None)  # the first call loads families of ops
@given(st.lists(SIZES, min_size=1, max_size=3), st.integers(0, 2), st.booleans(), st.booleans())
def test_stack_agrees_with_its_definition(sizes, further, transposed, whole):
    sizes += sizes[:1] * further
    whole_numbers = [tangrad.arange(tangrad.Size(size).numel()).view(size) for size in sizes]
    made = [x + i for i, x in enumerate(whole_numbers)]
    made = made if whole else [x.double().requires_grad_() for x in made]
    made = [x.transpose(0, -1) if transposed and x.ndim else x for x in made]

    def shown(stack):
        try:
            y = stack(made, 0)
        except RuntimeError as error:
            return str(error)
        grads = [] if whole else tangrad.autograd.grad((y * y).sum(), made)
        return y.tolist(), y.stride(), y._is_view(), [g.tolist() for g in grads]

    assert shown(tangrad.stack) == shown(by_definition("stack"))


FACTORIES = {"rand": (), "randn": (), "randint_below": (5,), "randint_between": (-2, 5)}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("size", [(3,), (2, 0, 4), ()], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"dtype": tangrad.float64}, {"device": "meta"}, {"generator": True}],
    ids=lambda options: next(iter(options), "plain"),
)
def test_random_numbers_of_a_size_agree_with_their_definition(name, size, options):
    outcomes = []
    for call in (ops.lookup(name), by_definition(name)):
        tangrad.manual_seed(4)
        given = dict(options)
        if "generator" in given:
            given["generator"] = tangrad.Generator().manual_seed(9)
        x = call(*FACTORIES[name], size, **given)
        outcomes.append((x.shape, x.dtype, x.device, [] if x.is_meta else x.tolist(), x._version))
    assert outcomes[0] == outcomes[1]


def test_random_numbers_into_out_fill_it_and_refuse_negative_sizes():
    x = tangrad.zeros(3)
    assert tangrad.rand(3, out=x) is x
    assert x.min() > 0
    assert tangrad.randn(3, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="negative dimension"):
        tangrad.randint(5, (2, -1))


def test_a_refused_masked_fill_is_named_as_programs_name_it():
    mask = tangrad.ones(2, dtype=tangrad.bool)
    with pytest.raises(RuntimeError, match=r"op 'masked_fill_'"):
        tangrad.ones(2, requires_grad=True).masked_fill_(mask, 1.0)
    with pytest.raises(RuntimeError, match=r"\(masked_fill of float32"):
        tangrad.ones(3).masked_fill(mask, 1.0)


@pytest.mark.parametrize("name", ["new_empty", "new_zeros", "new_ones"])
@pytest.mark.parametrize("size", [(3,), (2, 0, 4), (), (2, -1)], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"dtype": tangrad.int16}, {"device": "meta"}, {"requires_grad": True}],
    ids=lambda options: next(iter(options), "plain"),
)
def test_tensors_beside_another_agree_with_their_definition(name, size, options):
    x, outcomes = tangrad.ones(2, dtype=tangrad.float64), []
    for call in (ops.lookup(name), by_definition(name)):
        try:
            y = call(x, size, **options)
        except RuntimeError as error:
            outcomes.append(str(error))
            continue
        seen = [] if y.is_meta or name == "new_empty" else y.tolist()
        outcomes.append((y.shape, y.dtype, y.device, y.requires_grad, y._version, seen))
    assert outcomes[0] == outcomes[1]


def test_forgotten_elements_are_seen_in_tensors_beside_another():
    x = tangrad.ones(2)
    tangrad.use_deterministic_algorithms(True)
    try:
        assert x.new_empty(3).isnan().all()
    finally:
        tangrad.use_deterministic_algorithms(False)
