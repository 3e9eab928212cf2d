"""Calls at the edge of what a function takes: rounding, refusals, random engines."""

import pytest

import tangrad

QUOTIENTS = ([2.999, 8.97, 1000.0, -1000.0], [1.001, 1.0, 3.0, 3.0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_quotient_of_halves_is_a_half_before_it_is_truncated(agree, dtype):
    def program(t):
        a, b = (t.tensor(values, dtype=getattr(t, dtype)) for values in QUOTIENTS)
        written = a.clone().div_(b, rounding_mode="trunc")
        return [
            x.float()
            for x in (written, t.div(a, b, rounding_mode="trunc"), a.div(3, rounding_mode="trunc"))
        ]

    agree(program, tolerance=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_counted_where_rounded_steps_put_them(agree, dtype):
    def program(t):
        x = t.linspace(-9, 9, 91, dtype=t.float32).to(getattr(t, dtype))
        return t.histc(x, 100, -10, 10).float(), t.histc(x, 37).float()

    agree(program, tolerance=0)


@pytest.mark.parametrize("name", ["div_", "add_", "mul_", "pow_", "remainder_", "floor_divide_"])
@pytest.mark.parametrize("given", [{}, {"rounding_mode": "floor"}])
def test_a_number_is_not_written_in_place(name, given):
    # With a rounding mode this ended the process: a bool was taken for a tensor.
    with pytest.raises(TypeError, match=r"must be Tensor, not bool|rounding_mode"):
        getattr(tangrad.Tensor, name)(True, tangrad.ones(2, 3), **given)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tangrad.linalg.pinv(x, rtol="a"),
        lambda x: tangrad.linalg.pinv(x, atol="a"),
        lambda x: tangrad.linalg.matrix_rank(x, rtol="a"),
        lambda x: tangrad.linalg.matrix_rank(x, "a"),
    ],
)
def test_a_tolerance_is_a_number(call):
    with pytest.raises(TypeError, match=r"tol must be a number or a Tensor, not 'a'"):
        call(tangrad.ones(2, 2))


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "celu"])
def test_a_negative_slope_in_place_has_no_way_back(agree, name):
    def run(t, slope, inplace):
        x = t.tensor([-1.0, 2.0], requires_grad=True)
        getattr(t.nn.functional, name)(x * 1, slope, inplace=inplace).sum().backward()
        return x.grad

    agree(lambda t: (run(t, 0.2, True), run(t, -0.2, False)))
    with pytest.raises(RuntimeError, match="negative slope"):
        run(tangrad, -0.2, True)


def test_numbers_drawn_by_probabilities_have_a_gradient_of_zero():
    tangrad.random.set_engine("mt19937")
    try:
        p = tangrad.full((3,), 0.5, requires_grad=True)
        drawn = tangrad.bernoulli(p, generator=tangrad.Generator().manual_seed(0))
        drawn.sum().backward()
        assert p.grad.tolist() == [0, 0, 0]
    finally:
        tangrad.random.set_engine("philox")


def test_zeta_of_an_infinite_exponent_is_its_first_term(agree):
    agree(lambda t: t.special.zeta(t.tensor([t.inf, t.inf]), t.tensor([1.0, 0.5])))
    assert tangrad.special.zeta(tangrad.tensor(tangrad.inf), 2.0) == 0
