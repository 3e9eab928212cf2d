"""Seeds of 64 bits, which programs that seed nothing draw, reach graphs with all their bits."""

import pytest

import tangrad
from tangrad import nn

SEEDS = [7, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", [nn.Dropout, lambda: lambda x: tangrad.rand_like(x) * x])
def test_compiled_draws_are_eager_s(seed, make):
    function, x = make(), tangrad.linspace(1, 2, 6, requires_grad=True)

    def losses(call):
        tangrad.manual_seed(seed)
        return [tangrad.autograd.grad(call(x).sum(), x)[0].tolist() for _ in range(4)]

    assert losses(tangrad.compile(function)) == losses(function)


_OWN = tangrad.Generator()


def _forks(x):
    with tangrad.random.fork_rng():
        inside = tangrad.rand(2)
    return x + inside + tangrad.rand(2)


def _forks_and_does_not_draw(x):
    with tangrad.random.fork_rng():
        made = x * 2
    return made + tangrad.rand(2)


def _goes_back(x):
    before = _OWN.get_state()
    made = x + tangrad.rand(2, generator=_OWN)
    _OWN.set_state(before)
    return made + tangrad.rand(2, generator=_OWN)


@pytest.mark.parametrize(
    ("function", "graphs"),
    [
        (_forks, False),
        (_forks_and_does_not_draw, True),
        (_goes_back, False),
        (lambda x: x + tangrad.rand(2, generator=tangrad.Generator()), False),
        (lambda x: x + tangrad.rand(2, generator=tangrad.Generator()) + tangrad.rand(2), False),
        (lambda x: x + tangrad.rand(2, generator=_OWN), True),
        (lambda x: x + tangrad.rand(2, generator=tangrad.default_generator.clone_state()), False),
    ],
)
def test_a_generator_that_is_set_back_or_made_in_a_call_draws_as_in_eager(function, graphs):
    def drawn(call):
        tangrad.manual_seed(3)
        _OWN.manual_seed(4)
        values = [call(tangrad.zeros(2)).tolist() for _ in range(5)]
        return values, tangrad.get_rng_state().tolist(), _OWN.get_state().tolist()

    fast = tangrad.compile(function, options={"measure": False})
    assert drawn(fast) == drawn(function)
    assert bool(fast.compiled.executables) == graphs


def test_a_checked_call_draws_of_every_generator_once():
    def function(x):
        return x + tangrad.rand(2, generator=_OWN) + tangrad.rand(2)

    def drawn(call):
        tangrad.manual_seed(3)
        _OWN.manual_seed(4)
        return [call(tangrad.zeros(2)).tolist() for _ in range(5)]

    fast = tangrad.compile(function, options={"measure": False, "check": 1.0})
    assert drawn(fast) == drawn(function)
    assert fast.compiled.executables
    assert not fast.compiled.off
