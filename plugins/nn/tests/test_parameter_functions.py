"""Functions on the parameters of a network: clipping, and parameters as a vector."""

import warnings

import pytest

import tangrad
from tangrad import nn


def parameters(t):
    """Return three parameters, the last of which has no gradient."""
    made = []
    for grad in ([3.0, -4.0], [[12.0]], None):
        shape = t.tensor(grad if grad is not None else [0.0])
        parameter = t.nn.Parameter(t.zeros_like(shape))
        parameter.grad = None if grad is None else shape
        made.append(parameter)
    return made


CLIPS = {
    "norm": lambda t, p: t.nn.utils.clip_grad_norm_(p, 6.5),
    "norm not needed": lambda t, p: t.nn.utils.clip_grad_norm_(p, 100.0),
    "largest": lambda t, p: t.nn.utils.clip_grad_norm_(iter(p), 6.0, float("inf")),
    "sum": lambda t, p: t.nn.utils.clip_grad_norm_(p, 6.0, norm_type=1),
    "one": lambda t, p: t.nn.utils.clip_grad_norm_(p[0], 1.0),
    "none": lambda t, p: t.nn.utils.clip_grad_norm_(p[2:], 1.0),
    "values": lambda t, p: t.nn.utils.clip_grad_value_(p, 3.5),
    "total": lambda t, p: t.nn.utils.get_total_norm([p[0].grad, p[1].grad]),
}


@pytest.mark.parametrize("name", CLIPS)
def test_gradients_are_clipped_as_in_pytorch(agree, name):
    def program(t):
        made = parameters(t)
        result = CLIPS[name](t, made)
        return [result, [parameter.grad for parameter in made]]

    agree(program)


def test_a_norm_that_is_not_finite_may_be_refused():
    parameter = nn.Parameter(tangrad.zeros(1))
    parameter.grad = tangrad.tensor([float("nan")])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)


def test_parameters_go_through_a_vector():
    made = parameters(tangrad)
    assert nn.utils.parameters_to_vector(made).tolist() == [0.0] * 4
    nn.utils.vector_to_parameters(tangrad.tensor([1.0, 2.0, 3.0, 4.0]), made)
    assert [parameter.tolist() for parameter in made] == [[1.0, 2.0], [[3.0]], [4.0]]
    with pytest.raises(TypeError, match="expected tangrad.Tensor"):
        nn.utils.vector_to_parameters([1.0], made)


@pytest.mark.parametrize("given", [[], (p for p in ()), iter(())])
def test_clipping_tells_of_a_generator_that_is_empty(agree, given):
    def program(t):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            norm = t.nn.utils.clip_grad_norm_(given, 1.0)
        return norm, [str(one.message) for one in told]

    agree(program)
