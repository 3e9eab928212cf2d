"""vmap of what depends on values: each sample's, compared with a loop over the samples."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.func import grad, vmap

X = tangrad.arange(12.0, dtype=tangrad.float64).reshape(3, 4)
COUNTS = tangrad.tensor([[1, 2, 0, 1], [1, 1, 1, 1], [4, 0, 0, 0]])
WEIGHTS = tangrad.tensor([[1.0, 2.0, 0.5, 1.0], [3.0, 1.0, 1.0, 2.0], [0.5, 0.2, 1.0, 1.0]])
EDGES = tangrad.tensor([[0.0, 2, 12], [0.0, 5, 12], [0.0, 9, 12]], dtype=tangrad.float64)
PATHS = ((tangrad.arange(96) * 5) % 7).to(tangrad.float64).reshape(2, 6, 2, 4).log_softmax(-1)
LABELS = tangrad.tensor([[[1, 2], [3, 1]], [[2, 2], [1, 1]]])
STEPS = tangrad.tensor([[6, 5], [5, 6]])
SPELLED = tangrad.tensor([[2, 1], [1, 2]])
ctc = tangrad.nn.functional.ctc_loss

CALLS = {
    "bincount": (lambda n: tangrad.bincount(n, minlength=5), COUNTS),
    "bincount with weights": (lambda n, w: tangrad.bincount(n, w, 5), COUNTS, WEIGHTS),
    "repeat_interleave": (lambda x, n: x.repeat_interleave(n, 0), X, COUNTS),
    "repeat_interleave of known size": (
        lambda x, n: x.repeat_interleave(n, 0, output_size=4),
        X,
        COUNTS,
    ),
    "repeat_interleave of places": (tangrad.repeat_interleave, COUNTS),
    "repeat_interleave of one count": (lambda x, n: x.repeat_interleave(n[3:]), X[::2], COUNTS[:2]),
    "linspace": (lambda a, b: tangrad.linspace(a, b, 5), X[0], X[2]),
    "linspace from a number": (lambda b: tangrad.linspace(1.5, b, 4), X[2]),
    "linspace of integers": (lambda a: tangrad.linspace(a, 9, 4, dtype=tangrad.int64), X[1]),
    "linspace of one": (lambda a: tangrad.linspace(a, 9, 1), X[1]),
    "logspace": (lambda a, b: tangrad.logspace(a, b, 5, 2.0), X[0], X[1]),
    "histogram": (lambda x: tangrad.histogram(x, 3), X),
    "histogram of one value": (lambda x: tangrad.histogram(x[:1], 3), X),
    "histogram by edges": (lambda x, e: tangrad.histogram(x, e), X, EDGES),
    "histogram of weights": (
        lambda x, e: tangrad.histogram(x, e, weight=x, density=True).hist,
        X,
        EDGES,
    ),
    "histogramdd": (lambda x: tangrad.histogramdd(x.reshape(2, 2), [2, 3])[0], X),
    "cov": (lambda x, w: tangrad.cov(x.reshape(2, 2).exp(), aweights=w[:2]), X / 9, WEIGHTS),
    "cov of counts": (lambda x, n: tangrad.cov(x * x, fweights=n + 1), X, COUNTS),
    "cov of both": (lambda w, n: tangrad.cov(X, fweights=n + 1, aweights=w), WEIGHTS, COUNTS),
    "ctc_loss": (lambda p, y: ctc(p, y, (6, 5), (2, 1)), PATHS, LABELS),
    "ctc_loss by lengths": (ctc, PATHS, LABELS, STEPS, SPELLED),
    "ctc_loss by lengths only": (
        lambda n, m: ctc(PATHS[0], LABELS[0], n, m, reduction="none"),
        STEPS,
        SPELLED,
    ),
    "gradient of ctc_loss": (grad(ctc), PATHS, LABELS, STEPS, SPELLED),
    "resize_ to another shape": (lambda x: x.clone().resize_(2, 2), X),
    "resize_ to less": (lambda x: x.clone().resize_(3) * 2, X),
    "resize_ to more": (lambda x: x.clone().resize_(2, 3).flatten()[:4], X),
    "resize_as_": (lambda x: x.clone().resize_as_(X[:2, :2]).sum(0), X),
}


def tuple_of(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", CALLS)
def test_it_is_a_loop_over_the_samples(name):
    function, *arguments = CALLS[name]
    loop = [tuple_of(function(*sample)) for sample in zip(*arguments, strict=True)]
    expected = [tangrad.stack(list(results)) for results in zip(*loop, strict=True)]
    last = [a.movedim(0, -1) for a in arguments]
    for found in (vmap(function)(*arguments), vmap(function, in_dims=-1)(*last)):
        for mine, theirs in zip(tuple_of(found), expected, strict=True):
            tangrad.testing.assert_close(mine, theirs)


def test_it_is_a_loop_of_loops():
    function, *arguments = CALLS["ctc_loss by lengths"]
    twice = [tangrad.stack([a, a.flip(0)]) for a in arguments]
    found = vmap(vmap(function))(*twice)
    tangrad.testing.assert_close(found[1], vmap(function)(*arguments).flip(0))


DRAWS = {
    "multinomial": lambda x: tangrad.multinomial(x, 3),
    "multinomial with replacement": lambda x: tangrad.multinomial(x, 50, True),
    "normal by means": lambda x: tangrad.normal(x, 2.0),
    "normal by deviations": lambda x: tangrad.normal(0.0, x),
    "normal by both": lambda x: tangrad.normal(x, x + 1),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_each_sample_draws(draw):
    x = tangrad.ones(2, 40)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(draw)(x)
    different = vmap(draw, randomness="different")(x)
    assert not (different[0] == different[1]).all()
    assert different.shape == (2, *draw(x[0]).shape)
    same = vmap(lambda _: draw(tangrad.ones(40)), randomness="same")(x)
    assert (same[0] == same[1]).all()


PARAMETERS = {
    "bernoulli": tangrad.bernoulli,
    "bernoulli of a number": lambda x: tangrad.bernoulli(x, 0.5),
    "bernoulli_ of probabilities": lambda x: tangrad.zeros(3, 2).bernoulli_(x),
    "binomial": lambda x: tangrad.binomial(x * 8, x),
    "normal by means": lambda x: tangrad.normal(x, 2.0),
    "normal by both": lambda x: tangrad.normal(x, x),
    "poisson": tangrad.poisson,
}
FILLS = {
    "exponential_": lambda x: x.clone().exponential_(),
    "normal_": lambda x: x.clone().normal_(),
    "rand": lambda x: tangrad.rand(3, 2) + 0 * x,
    "randint": lambda x: tangrad.randint(0, 99, (3, 2)) + 0 * x,
    "uniform_": lambda x: x.clone().uniform_(),
}


@pytest.mark.parametrize("draw", PARAMETERS.values(), ids=PARAMETERS)
def test_the_same_numbers_are_not_drawn_from_different_parameters(draw):
    with pytest.raises(RuntimeError, match="same randomness with a batched tensor input"):
        vmap(draw, randomness="same")(tangrad.full((4, 3, 2), 0.5))


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("draw", [*PARAMETERS.values(), *FILLS.values()])
def test_numbers_that_differ_are_those_of_a_call_with_the_batch(draw, dim):
    if draw is PARAMETERS["bernoulli_ of probabilities"]:
        pytest.skip("writes into a tensor without a batch")
    x = tangrad.linspace(0.1, 0.9, 24).reshape(4, 3, 2)
    tangrad.manual_seed(3)
    found = vmap(draw, dim, dim, randomness="different")(x.movedim(0, dim))
    tangrad.manual_seed(3)
    expected = {
        FILLS["rand"]: lambda x: tangrad.rand(4, 3, 2),
        FILLS["randint"]: lambda x: tangrad.randint(0, 99, (4, 3, 2)).float(),
    }.get(draw, draw)(x)
    assert found.movedim(dim, 0).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tangrad.multinomial(x - 1, 2), "either `inf`, `nan` or element < 0"),
        (lambda x: tangrad.normal(0.0, x - 1), "std >= 0.0"),
        (lambda x: tangrad.cov(X, aweights=x - 1), "cannot be negative"),
        (lambda x: tangrad.histogram(1 / x, 3), "range is not finite"),
        (lambda x: tangrad.bincount(x.long()), "equal size"),
        (lambda x: X[0].repeat_interleave(x.long()), "equal size"),
        (lambda x: tangrad.linspace(x, 1, 3), "0-dimensional"),
        (lambda x: ctc(PATHS[0], LABELS[0], x[:2].long() + 6, SPELLED[0]), "from 0 to 6"),
        (lambda x: setattr(x, "requires_grad", True) or x.resize_(2), "require grad"),
    ],
)
def test_values_of_one_sample_are_refused_for_all(call, message):
    x = tangrad.tensor([[1.0, 2.0, 3.0, 1.0], [0.0, 1.0, 1.0, 7.0]])
    with pytest.raises(RuntimeError, match=message):
        vmap(call, randomness="different")(x)


def test_second_derivatives_of_as_strided_scatter():
    """PyTorch's gradient of self is what was overwritten instead of what was kept."""
    x = tangrad.arange(6.0, dtype=tangrad.float64, requires_grad=True)
    src = tangrad.ones(2, dtype=tangrad.float64, requires_grad=True)

    def scattered(x, src):
        return tangrad.as_strided_scatter(x, src, (2,), (3,), 1).sin()

    assert tangrad.autograd.gradgradcheck(scattered, (x, src))
    both = tangrad.func.hessian(lambda x: scattered(x, src).sum())(x.detach())
    kept = tangrad.tensor([1.0, 0, 1, 1, 0, 1], dtype=tangrad.float64)
    tangrad.testing.assert_close(both.detach(), (-x.sin() * kept).diag().detach())
