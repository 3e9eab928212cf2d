"""Forms of calls that samples of definitions cannot say: no tensors, operators, dtypes of out."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import torch

import tangrad


def test_a_block_diagonal_of_nothing_has_one_row():
    assert tangrad.block_diag().shape == torch.block_diag().shape


def test_a_grid_of_nothing_is_refused():
    for library in (torch, tangrad):
        with pytest.raises(RuntimeError, match="non-empty"):
            library.meshgrid()


@pytest.mark.parametrize("factor", [3, 2.5, "a", None])
def test_a_matrix_product_with_no_tensor_is_an_error_of_type(factor):
    for library in (torch, tangrad):
        for operands in ((library.ones(3), factor), (factor, library.ones(3))):
            with pytest.raises(TypeError, match="unsupported operand"):
                operator.matmul(*operands)


@pytest.mark.parametrize("name", ["__div__", "__rdiv__", "__idiv__"])
def test_the_divisions_of_python_2_have_their_names(name):
    ours, expected = (getattr(t.tensor([1.0, 4.0]), name)(2) for t in (tangrad, torch))
    assert ours.tolist() == expected.tolist()


def test_the_truth_of_python_2_has_its_name():
    for library in (torch, tangrad):
        assert library.ones(1).__nonzero__() is True
        with pytest.raises(RuntimeError, match="ambiguous"):
            library.ones(2).__nonzero__()


@pytest.mark.parametrize("conjugated", [(False, True), (True, True), (True, False)])
def test_vdot_conjugates_the_result_where_that_saves_conjugating_a_vector(conjugated):
    def product(library):
        pair = library.tensor([1 + 2j, 3j]), library.tensor([1 - 2j, 3 + 1j])
        operands = (x.conj() if c else x for x, c in zip(pair, conjugated, strict=True))
        result = library.vdot(*operands)
        return result.is_conj(), result.item()

    assert product(tangrad) == product(torch)


CALLS = {
    "maximum": lambda t, x, out: t.maximum(x, x, out=out),
    "minimum": lambda t, x, out: t.minimum(x, x, out=out),
    "max": lambda t, x, out: t.max(x, out=out),
    "min": lambda t, x, out: t.min(x, out=out),
    "amax": lambda t, x, out: t.amax(x, out=out),
    "diff": lambda t, x, out: t.diff(x, out=out),
    "float_power": lambda t, x, out: t.float_power(x, 2, out=out),
    "where": lambda t, x, out: t.where(x > 0, x, x, out=out),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128", "int64"])
@pytest.mark.parametrize("name", CALLS)
def test_out_takes_the_dtypes_that_pytorch_takes(name, dtype):
    def outcome(library):
        out = library.empty(0, dtype=getattr(library, dtype))
        try:
            return CALLS[name](library, library.tensor([1.0, 3.0]), out).tolist()
        except RuntimeError:
            return RuntimeError

    assert outcome(tangrad) == outcome(torch)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.ones(2).clamp(),
        lambda t: t.ones(2).max(0, True, 3),
        lambda t: t.ones(2).max(dim=0, keepdim=True, other=1),
        lambda t: t.ones(2).bernoulli_("a"),
    ],
)
def test_arguments_that_fit_no_form_are_refused_with_all_forms(agree, call):
    agree(call, message=False)


def test_too_few_or_many_arguments_for_one_form_leave_the_others(agree):
    agree(lambda t: t.ones(2, 3).max(1).indices)
    agree(lambda t: t.ones(2, 3).max(1, True).values)
    agree(lambda t: t.ones(2, 3).max())
    agree(lambda t: t.ones(2, 3).max(t.zeros(3)))
    agree(lambda t: t.ones(3).clamp(min=2))
    agree(lambda t: t.ones(3).clamp(2))
    agree(lambda t: t.ones(3).clamp(None, 0.5))
    agree(lambda t: t.ones(3).clamp(t.zeros(3), t.zeros(3)))


@pytest.mark.parametrize("window", [2, (2, 1), [1, 2], (2,)])
def test_windows_are_given_in_any_form_and_every_time(agree, window):
    def program(t):
        x = t.arange(2.0 * 6 * 6).reshape(1, 2, 6, 6)
        pools = t.nn.functional
        return [
            pools.max_pool2d(x, window),
            pools.max_pool2d(x, window, stride=1),
            pools.avg_pool2d(x, window, window),
            pools.max_pool2d(x.to(memory_format=t.channels_last), window),
        ]

    agree(program)
    agree(program)


def test_inner_products_of_any_rank(agree):
    for left, right in (((3,), (3,)), ((2, 3), (4, 3)), ((2, 3), (3,)), ((2, 2, 3), (4, 3))):

        def program(t, left=left, right=right):
            a = t.ones(left, requires_grad=True)
            b = t.full(right, 2.0, requires_grad=True)
            product = t.inner(a, b)
            return product, t.autograd.grad(product.sum(), (a, b))

        agree(program)
    agree(lambda t: t.inner(t.ones(2, 3), t.ones(2, 4)), message=False)
    agree(lambda t: t.inner(t.ones(2, 3), t.ones(2, 3, dtype=t.float64)), message=False)


@pytest.mark.parametrize(
    "arguments",
    [
        lambda t: (t.ones(2, 3), [0, 1], t.ones(3, 4), [1, 2], [0, 2]),
        lambda t: (t.ones(2, 3), [0, 1], t.ones(3, 4), [1, 2]),
        lambda t: (t.ones(2, 3, 5), [0, ..., 1], t.ones(5, 4), [1, 2], [..., 2]),
        lambda t: (t.ones(2, 3), (0, 51), (51,)),
        lambda t: (t.ones(2, 3), [27, 26], [27]),
        lambda t: (t.ones(2, 3), t.tensor([0, 1]), t.tensor([1])),
        lambda t: (t.ones(2, 3), [0, 1], []),
        lambda t: (t.arange(9.0).reshape(3, 3), [4, 4]),
        lambda t: (t.ones(2, 3), [0, 77]),
        lambda t: (t.ones(2, 3), [0, -1]),
        lambda t: (t.ones(2, 3), [0, 1.5]),
        lambda t: (t.ones(2, 3), [0, 1, 2]),
        lambda t: (t.ones(2, 3), ["i", "j"]),
        lambda t: (t.ones(2, 3),),
    ],
)
def test_einsum_takes_operands_with_their_labels(agree, arguments):
    agree(lambda t: t.einsum(*arguments(t)), message=False)
    for name in ("requires_grad_", "sin"):
        agree(lambda t, name=name: t.einsum(*_each(t, arguments(t), name)), message=False)


def _each(t, arguments, name):
    floating = [isinstance(a, t.Tensor) and a.is_floating_point() for a in arguments]
    return [getattr(a, name)() if f else a for a, f in zip(arguments, floating, strict=True)]


@pytest.mark.parametrize("library", [torch, tangrad])
def test_a_function_that_a_class_holds_binds_to_no_instance(library):
    class Operation:
        convolution = library.conv2d
        negation = library.neg

    x, kernel = library.arange(9.0).reshape(1, 1, 3, 3), library.ones(1, 1, 2, 2)
    operation = Operation()
    assert operation.convolution(x, kernel, stride=2).flatten().tolist() == [8.0]
    assert getattr(operation, "negation")(kernel).sum().item() == -4  # noqa: B009 (the other path)


def test_a_function_put_on_tensors_is_a_method(monkeypatch):
    monkeypatch.setattr(tangrad.Tensor, "stepped", tangrad.nn.functional.relu6, raising=False)
    assert tangrad.tensor([7.0, -1.0]).stepped().tolist() == [6.0, 0.0]
    assert tangrad.Tensor.unfold.__get__(tangrad.ones(3))(0, 2, 1).shape == (2, 2)


@pytest.mark.parametrize(
    ("equation", "first", "second"),
    [
        ("bn,bm->bnm", (3, 4), (3, 5)),
        ("i,j->ji", (2,), (3,)),
        ("ab,ab->ba", (2, 3), (2, 3)),
        ("...i,...j->...ij", (2, 3), (2, 4)),
        ("ij,->ij", (2, 3), ()),
        ("ij,ij->ij", (2, 3), (1, 3)),
        ("ii,j->ij", (3, 3), (2,)),
        ("bn,bm->bnm", (3, 4), (2, 5)),
    ],
)
def test_einsum_without_sums_is_a_product(agree, equation, first, second):
    def product(t):
        a, b = (t.ones(shape).cumsum(-1) if shape else t.tensor(3.0) for shape in (first, second))
        return t.einsum(equation, a, b)

    agree(product, message=False)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("number", [np.float64(2.5), np.float32(2.5), np.int8(3), np.bool_(True)])
def test_masks_are_filled_with_numbers_of_numpy(agree, number, dtype):
    def program(t):
        x = t.zeros(2, dtype=getattr(t, dtype))
        mask = t.tensor([True, False])
        return x.masked_fill(mask, number), x.clone().masked_fill_(mask, number)

    agree(program)
