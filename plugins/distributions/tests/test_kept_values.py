"""What distributions and transforms keep follows from what they have now.

A distribution answers every question, so that all that is lazy is kept; then what it was computed
from changes, and the answers are compared with those of a distribution that is made anew.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from distribution_cases import CASES, TOLERANCE, Framework, close, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from transform_cases import TRANSFORMS

import tangrad
from tangrad import distributions as d
from tangrad.distributions.utils import lazy_property

QUESTIONS = {
    "mean": lambda x, v: x.mean,
    "mode": lambda x, v: x.mode,
    "variance": lambda x, v: x.variance,
    "stddev": lambda x, v: x.stddev,
    "entropy": lambda x, v: x.entropy(),
    "log_prob": lambda x, v: x.log_prob(v),
    "cdf": lambda x, v: x.cdf(v),
    "values": lambda x, v: x.enumerate_support(),
    "support": lambda x, v: repr(x.support),
    "shapes": lambda x, v: [tuple(x.batch_shape), tuple(x.event_shape)],
    "parameter's shape": lambda x, v: tuple(x.param_shape),
    "checks": lambda x, v: x._validate_args,
    "drawn": lambda x, v: x.sample((2,)),
    "expanded mean": lambda x, v: x.expand((2, *x.batch_shape)).mean,
    "expanded density": lambda x, v: x.expand((2, *x.batch_shape)).log_prob(v),
}


class Recorder:
    """Stand for the module of distributions, and note the latest call: the outermost."""

    def __getattr__(self, name):
        made = getattr(d, name)

        def call(*args, **kwargs):
            self.latest = made, args, kwargs
            return made(*args, **kwargs)

        return call


class Other(Framework):
    """Make the same distributions of other parameters that are legal too."""

    def t(self, values, dtype="float64"):
        return super().t(_other(values), dtype)


def _other(values):
    square = isinstance(values, list) and isinstance(values[-1], list)
    if square and len(values) == len(values[-1]):
        return [[2 * x for x in row] if isinstance(row[0], float) else row for row in values]
    return values[::-1] if isinstance(values, list) else values


def made(name, kind=Framework):
    """Return a distribution, the framework with its parameters, and the call that made it."""
    framework = kind(tangrad, gradients=False)
    framework.d = Recorder()
    return CASES[name](framework), framework, framework.d.latest


def answers(x, value):
    """Return what a distribution says, lazy attributes included."""
    names = [name for name in dir(type(x)) if _is_lazy(type(x), name)]
    asked = {
        name: lambda x, v, name=name: getattr(x, name) for name in (*x.arg_constraints, *names)
    }
    found = {}
    for name, question in (QUESTIONS | asked).items():
        tangrad.manual_seed(0)
        found[name] = outcome(question, x, value)
    return {name: None if isinstance(v, d.Distribution) else v for name, v in found.items()}


def _is_lazy(owner, name):
    return any(isinstance(vars(base).get(name), lazy_property) for base in owner.__mro__)


def differences(x, fresh, name):
    """Return the questions to which a distribution answers otherwise than one made anew."""
    tangrad.manual_seed(1)
    value = fresh.sample()
    tolerance = TOLERANCE.get(name, 1e-12)
    expected, found = answers(fresh, value), answers(x, value)
    return [key for key in expected if not close(found[key], expected[key], tolerance)]


def of_one_class():
    names = {name: type(made(name)[0]) for name in CASES}
    return [(a, b) for a, kind in names.items() for b in names if names[b] is kind]


@pytest.mark.parametrize(("before", "after"), of_one_class())
def test_a_distribution_that_is_initialised_again_is_as_one_made_anew(before, after):
    x, _, _ = made(before)
    tangrad.manual_seed(0)
    answers(x, x.sample())
    x._validate_args = False
    fresh, _, (kind, args, kwargs) = made(after, Other)
    kind.__init__(x, *args, **kwargs)
    assert differences(x, fresh, after) == []


@pytest.mark.parametrize("name", CASES)
def test_what_is_lazy_follows_parameters_that_are_written_to(name):
    x, framework, _ = made(name)
    tangrad.manual_seed(0)
    answers(x, x.sample())
    _, others, _ = made(name, Other)
    for mine, other in zip(framework.leaves, others.leaves, strict=True):
        mine.copy_(other)
    bare = copy.copy(x)
    for attribute in list(vars(x).get("_computed", ())):
        del vars(bare)[attribute]
    vars(bare).pop("_computed", None)
    assert differences(x, bare, name) == []


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_copy_follows_its_own_parameters(copied):
    x = d.Bernoulli(tangrad.tensor([0.25, 0.5]))
    assert x.logits is x.logits
    other = copied(x)
    other.probs = tangrad.tensor([0.75, 0.5])
    assert other.logits.allclose(-x.logits)
    assert x.logits.allclose(d.Bernoulli(tangrad.tensor([0.25, 0.5])).logits)


def test_an_expanded_distribution_follows_the_memory_that_it_shares():
    probs = tangrad.tensor([0.25, 0.5])
    x = d.Bernoulli(probs)
    assert x.logits.isfinite().all()
    wide = x.expand((3, 2))
    probs.fill_(0.75)
    assert wide.logits.equal(d.Bernoulli(probs).logits.expand(3, 2))


def test_gradients_are_of_the_parameters_as_they_are():
    probs = tangrad.tensor([0.25, 0.5], requires_grad=True)
    x = d.Bernoulli(probs)
    for _ in range(3):  # PyTorch's second backward raises: the graph of the logits is gone
        (slope,) = tangrad.autograd.grad(x.log_prob(tangrad.ones(2)).sum(), probs)
        assert slope.allclose(1 / probs)
        with tangrad.no_grad():
            probs.add_(0.1)


WRITES = ("argument", "result", "parameters")
STEPS = st.lists(st.sampled_from(("forward", "back", *WRITES)), max_size=8)


@pytest.mark.parametrize("name", TRANSFORMS)
@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_what_a_transform_keeps_is_what_it_would_compute(name, steps):
    make, shape, change = TRANSFORMS[name]
    framework = Framework(tangrad, gradients=False)
    plain = make(framework)
    cached = plain.with_cache(1)
    x = np.random.default_rng(0).normal(size=shape)
    x = tangrad.tensor(x if change is None else change(x))
    y = cached(x)
    written = False
    for step in steps:
        if step == "forward" and written:
            y, written = cached(x), False
            assert close(y.tolist(), plain(x).tolist(), 1e-9)
        elif step == "back" and written:
            x, written = cached.inv(y), False
            assert close(x.tolist(), plain.inv(y).tolist(), 1e-6)
        elif step in ("forward", "back"):
            assert cached(x) is y
            assert cached.inv(y) is x
        else:
            targets = {"argument": [x], "result": [y], "parameters": framework.leaves}[step]
            for target in targets:
                target.mul_(0.75)
            written = written or bool(targets)


def test_the_inverse_of_composed_transforms_follows_their_list():
    parts = [d.ExpTransform()]
    composed = d.ComposeTransform(parts)
    inverse, one = composed.inv, tangrad.ones(())
    assert composed.inv is inverse
    parts.append(d.AffineTransform(0.0, 2.0))
    assert composed.inv(composed(one)).allclose(one)
    composed.__init__([d.SigmoidTransform()])
    assert composed.inv(composed(one)).allclose(one)


def test_a_parameter_that_is_not_broadcast_is_the_leaf_itself(agree):
    def program(t):
        mean = t.tensor([0.5, 1.0], requires_grad=True)
        normal = t.distributions.Normal(mean, t.ones(2))
        normal.log_prob(t.zeros(2)).sum().backward()
        return normal.loc is mean, normal.loc.grad, repr(t.distributions.Laplace(mean[:1], 1.0))

    agree(program)
