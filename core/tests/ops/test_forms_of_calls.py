"""Forms of calls that samples of definitions cannot say: no tensors, operators, dtypes of out."""

from __future__ import annotations

import operator

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
