"""linearize against jvp of the same function, and against PyTorch."""

import pytest

import tangrad
from tangrad.func import grad, jvp, linearize, vmap

FUNCTIONS = {
    "pointwise": lambda x, y: (x * y).sin(),
    "a tree": lambda x, y: {"a": x.exp().sum(), "b": (y.cos(), x @ y)},
    "one without derivative": lambda x, y: [x.relu(), tangrad.ones(2)],
    "only one argument": lambda x, y: y.softmax(0),
    "the argument itself": lambda x, y: x,
}


def point():
    generator = tangrad.Generator().manual_seed(3)
    return [tangrad.randn(4, generator=generator, dtype=tangrad.float64) for _ in range(4)]


def assert_same(a, b):
    if isinstance(a, dict):
        a, b = list(a.values()), list(b.values())
    if isinstance(a, (list, tuple)):
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    else:
        tangrad.testing.assert_close(a, b)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_pushed_tangents_are_those_of_jvp(name):
    x, y, dx, dy = point()
    value, push = linearize(FUNCTIONS[name], x, y)
    for tangents in ((dx, dy), (dy, dx)):
        expected, moved = jvp(FUNCTIONS[name], (x, y), tangents)
        assert_same(value, expected)
        assert_same(push(*tangents), moved)


def test_the_function_is_called_once():
    calls = []
    _, push = linearize(lambda x: calls.append(1) or x.sin(), tangrad.ones(2))
    push(tangrad.ones(2))
    push(tangrad.ones(2))
    assert len(calls) == 1


def test_it_nests_with_other_transforms():
    x, t, *_ = point()
    _, push = linearize(lambda y: y**3, x)
    tangrad.testing.assert_close(vmap(push)(tangrad.eye(4, dtype=x.dtype)), tangrad.diag(3 * x**2))
    second = grad(lambda x: linearize(lambda y: y**3, x)[1](t).sum())(x)
    tangrad.testing.assert_close(second, 6 * x * t)


# PyTorch's traces the function, and warns of the constants it finds.
@pytest.mark.filterwarnings("ignore:Attempted to insert:UserWarning")
def test_it_agrees_for_complex_numbers(agree):
    def program(framework):
        z = framework.tensor([1 + 2j, -0.5 + 0.1j])
        found, push = framework.func.linearize(lambda z: z * z * (1 + 2j), z)
        return [framework.view_as_real(t) for t in (found, push(z.conj().resolve_conj()))]

    agree(program)


REFUSED = {
    "another shape": lambda t: t.func.linearize(t.sin, t.ones(2))[1](t.ones(3)),
    "another dtype": lambda t: t.func.linearize(t.sin, t.ones(2))[1](t.ones(2, dtype=t.float64)),
    "another structure": lambda t: t.func.linearize(t.sin, t.ones(2))[1](t.ones(2), t.ones(2)),
}


@pytest.mark.filterwarnings("ignore:Attempted to insert:UserWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_refusals_agree(agree, case):
    agree(REFUSED[case], message=False)
