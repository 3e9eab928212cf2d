"""The layout as its users see it: one kernel of its own, the dense form for all else."""

import copy
import io
import pickle
import warnings

import pytest

import tangrad
from tangrad.plugin import LayoutWarning, to_layout
from tangrad_diagonal import from_diagonal


@pytest.fixture
def numbers():
    return tangrad.tensor([1.0, 2.0, 3.0], dtype=tangrad.float64, requires_grad=True)


def test_it_is_a_tensor_of_another_layout(numbers):
    d = from_diagonal(numbers.detach())
    assert (type(d), d.layout, d.shape) == (tangrad.Tensor, tangrad.diagonal_matrix, (3, 3))
    assert tangrad.equal(d.to_dense(), tangrad.diag(numbers.detach()))
    assert repr(d.float()) == (
        "tensor(diagonal=tensor([1., 2., 3.]), size=(3, 3),\n       layout=tangrad.diagonal_matrix)"
    )


def test_matmul_makes_no_dense_matrix(numbers):
    x = tangrad.randn(3, 2, dtype=tangrad.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        product = from_diagonal(numbers) @ x
        square = from_diagonal(numbers) @ from_diagonal(numbers)
    assert tangrad.allclose(product, tangrad.diag(numbers) @ x)
    assert square.layout is tangrad.diagonal_matrix


def test_gradients_reach_the_diagonal_and_the_other_factor():
    def product(d, x):
        return x.T @ (from_diagonal(d) @ x)

    d = tangrad.randn(3, dtype=tangrad.float64, requires_grad=True)
    x = tangrad.randn(3, 2, dtype=tangrad.float64, requires_grad=True)
    assert tangrad.autograd.gradcheck(product, (d, x))
    assert tangrad.autograd.gradgradcheck(product, (d, x))


def test_what_has_no_kernel_is_computed_densely_with_one_warning(numbers):
    d = from_diagonal(numbers)
    with pytest.warns(
        LayoutWarning, match="'tanh' has no kernel for layout tangrad.diagonal_matrix"
    ):
        d.tanh().sum().backward()
    assert tangrad.allclose(numbers.grad, 1 - numbers.detach().tanh() ** 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        d.tanh()


def test_it_is_saved_pickled_and_copied(numbers):
    d = from_diagonal(numbers.detach(), requires_grad=True)
    file = io.BytesIO()
    tangrad.save(d, file)
    file.seek(0)
    for back in (tangrad.load(file), pickle.loads(pickle.dumps(d)), copy.deepcopy(d)):
        assert back.layout is tangrad.diagonal_matrix
        assert back.requires_grad
        assert tangrad.equal(back.to_dense(), d.to_dense())


def test_a_matrix_with_more_than_a_diagonal_is_refused():
    with pytest.raises(ValueError, match="not zero beside its diagonal"):
        to_layout(tangrad.ones(2, 2), "diagonal_matrix")
    with pytest.raises(ValueError, match=r"a diagonal of shape \(2, 2\)"):
        from_diagonal(tangrad.ones(2, 2))
