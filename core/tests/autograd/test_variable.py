"""Variable and the other names of the past."""

import pytest

import tangrad

CALLS = {
    "of a leaf": lambda t: t.autograd.Variable(t.ones(2, requires_grad=True)),
    "of a result": lambda t: t.autograd.Variable(t.ones(2, requires_grad=True) * 2, True),
    "of nothing": lambda t: t.autograd.Variable(),
    "of integers": lambda t: t.autograd.Variable(t.ones(2, dtype=t.int64)),
    "of integers, with gradient": lambda t: t.autograd.Variable(t.ones(2, dtype=t.int64), True),
    "of a list": lambda t: t.autograd.Variable([1, 2]),
}


@pytest.mark.parametrize("case", CALLS)
def test_variables_agree(agree, case):
    def program(framework):
        made = CALLS[case](framework)
        return [made, made.requires_grad, made.is_leaf, type(made) is framework.Tensor]

    agree(program, message=case == "of a list")


def test_a_variable_shares_memory_and_every_tensor_is_one():
    x = tangrad.zeros(2)
    tangrad.autograd.Variable(x).fill_(3)
    assert x.tolist() == [3, 3]
    assert isinstance(x, tangrad.autograd.Variable)
    assert not isinstance([], tangrad.autograd.Variable)


def test_volatile_warns():
    with pytest.warns(UserWarning, match="no_grad"):
        tangrad.autograd.Variable(tangrad.ones(1), volatile=True)


def test_the_function_of_that_name_is_refused():
    with pytest.raises(RuntimeError, match="use tangrad.tensor"):
        tangrad.autograd.variable([1.0])


def test_multithreading_can_be_set_in_all_forms():
    x = tangrad.ones(2, requires_grad=True)

    @tangrad.autograd.set_multithreading_enabled(False)
    def backward():
        (x * 2).sum().backward()

    tangrad.autograd.set_multithreading_enabled(True)
    with tangrad.autograd.set_multithreading_enabled(False):
        backward()
    assert x.grad.tolist() == [2, 2]


def test_a_gradient_is_set_by_its_inner_name(agree):
    def program(t):
        p = t.nn.Parameter(t.ones(2))
        p._grad = t.full((2,), 3.0)
        return [p.grad, p._grad]

    agree(program)
