"""Every distribution against PyTorch's of the same name and parameters."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
import subprocess
import sys
import warnings
from typing import ClassVar

import pytest
from distribution_cases import CASES, COVARIANCE, TOLERANCE, Framework, close, ours, outcome, plain

import tangrad
from tangrad import distributions as d

torch = pytest.importorskip("torch", reason="torch is the oracle")

PROPERTIES = (
    "mean mode variance stddev batch_shape event_shape has_rsample has_enumerate_support"
    " entropy perplexity enumerate_support log_prob cdf icdf"
).split()


def of_torch(theirs, shape, seed=0):
    """Draw by PyTorch, whose `Wishart` warns of every number that is not singular."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return theirs.sample(shape)


def pair(name):
    """Return a distribution of tangrad and its parameters, PyTorch's, and numbers of it."""
    frameworks = Framework(tangrad), Framework(torch)
    mine, theirs = (CASES[name](framework) for framework in frameworks)
    drawn = of_torch(theirs, (4,))
    values = [framework.value(drawn) for framework in frameworks]
    return (mine, theirs), values, [framework.leaves for framework in frameworks]


def result(distribution, what, value):
    """Return a property, or what a method makes of numbers of the distribution."""
    found = getattr(distribution, what)
    if not callable(found):
        return found
    if what == "icdf":
        return found(value.new_full(distribution.batch_shape, 0.3))
    return found(value) if what in ("log_prob", "cdf") else found()


# Where PyTorch's own answer is wrong: docs/deviations.md.
WRONG = {("Kumaraswamy", "mode")}


@pytest.mark.parametrize("name", CASES)
def test_properties_and_densities(name):
    both, values, _ = pair(name)
    for what in PROPERTIES:
        if (name, what) in WRONG:
            continue
        mine, theirs = (outcome(result, p, what, v) for p, v in zip(both, values, strict=True))
        tolerance = TOLERANCE.get(name, 1e-9)
        assert close(mine, theirs, tolerance), f"{what}: tangrad {mine}, torch {theirs}"


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_densities_by_parameters_and_values(name):
    both, values, leaves = pair(name)
    for what in ("log_prob", "entropy", "mean", "variance"):
        found = []
        for p, value, parameters in zip(both, values, leaves, strict=True):
            wanted = list(parameters)
            if what == "log_prob" and p.has_rsample and value.is_floating_point():
                wanted.append(value := value.requires_grad_())
            try:
                y = result(p, what, value)
            except NotImplementedError:
                found.append("not implemented")
                continue
            if not y.requires_grad:
                found.append("constant")
                continue
            finite = y.isfinite()
            gradients = (tangrad if isinstance(y, tangrad.Tensor) else torch).autograd.grad(
                y[finite].sum(), wanted, allow_unused=True, retain_graph=True
            )
            found.append([None if g is None else plain(g) for g in gradients])
        mine, theirs = found
        if isinstance(theirs, list):  # a gradient that is not there is zero
            mine, theirs = (
                [[0.0] if g is None or not any_of(g) else g for g in side] for side in found
            )
        tolerance = TOLERANCE.get(name, 1e-6)
        assert close(mine, theirs, tolerance), f"{what}: tangrad {mine}, torch {theirs}"


def any_of(gradient):
    return any(map(any_of, gradient)) if isinstance(gradient, list) else gradient != 0


def without_framework(text):
    return re.sub(r"\b(torch|tangrad)\.", "", text)


@pytest.mark.parametrize("name", CASES)
def test_text_constraints_and_support(name):
    def described(framework):
        p = CASES[name](Framework(framework))
        stated = {key: repr(value) for key, value in p.arg_constraints.items()}
        texts = [repr(p), repr(stated), repr(p.support), repr(bool(type(p).support))]
        values = re.compile(r"tensor\(.*?\)(?=[,)]|$)", flags=re.DOTALL)
        return [values.sub("tensor", without_framework(text)) for text in texts]

    assert described(tangrad) == described(torch)


@pytest.mark.parametrize("name", CASES)
def test_expanded_distributions_share_parameters(name):
    (mine, theirs), (value, _), _ = pair(name)
    shape = (2, *mine.batch_shape)
    larger = mine.expand(shape)
    assert type(larger) is type(mine)
    assert tuple(larger.batch_shape) == shape
    assert larger.event_shape == mine.event_shape
    assert larger.log_prob(value[:2]).allclose(mine.log_prob(value[:2]), equal_nan=True)
    assert tuple(larger.sample((3,)).shape) == (3, *of_torch(theirs.expand(shape), ()).shape)
    for what in ("mean", "variance", "entropy"):
        alone, shared = (outcome(result, p, what, value) for p in (mine, larger))
        assert alone == shared or close(shared, [alone, alone], 1e-12)
    assert tuple(larger.expand((3, *shape)).sample().shape)[:2] == (3, 2)


@pytest.mark.parametrize("name", CASES)
def test_samples_have_the_shape_and_dtype_of_pytorchs(name):
    (mine, theirs), _, _ = pair(name)
    for shape in ((), (3,), (2, 3)):
        drawn, expected = mine.sample(shape), of_torch(theirs, shape)
        assert tuple(drawn.shape) == tuple(expected.shape)
        assert str(drawn.dtype).split(".")[1] == str(expected.dtype).split(".")[1]
        assert not drawn.requires_grad
        assert mine.support.check(drawn).all()
    if mine.has_rsample:
        assert mine.rsample((3,)).requires_grad
    else:
        with pytest.raises(NotImplementedError):
            mine.rsample()


SEQUENTIAL = (
    "Bernoulli Categorical Cauchy Exponential Geometric Gumbel HalfCauchy HalfNormal Independent"
    " Kumaraswamy Laplace LogNormal LogisticNormal MultivariateNormal Multinomial Normal Pareto"
    " RelaxedBernoulli RelaxedOneHotCategorical Uniform Weibull ContinuousBernoulli"
    " GeneralizedPareto OneHotCategorical"
).split()


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_same_numbers_as_pytorch_from_its_engine(name):
    (mine, theirs), _, _ = pair(name)
    expected = of_torch(theirs, (5,), seed=11)
    tangrad.random.set_engine("mt19937")
    try:
        tangrad.manual_seed(11)
        drawn = mine.sample((5,))
    finally:
        tangrad.random.set_engine("philox")
    assert close(plain(drawn), plain(expected), 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_copies_and_pickles_are_equal(name):
    _, (value, _), _ = pair(name)
    mine = CASES[name](Framework(tangrad, gradients=False))
    for other in (copy.copy(mine), pickle.loads(pickle.dumps(mine)), copy.deepcopy(mine)):
        assert other.log_prob(value).allclose(mine.log_prob(value), equal_nan=True)


BAD = {
    "Bernoulli": lambda f: f.d.Bernoulli(f.t([1.5])),
    "both": lambda f: f.d.Bernoulli(f.t([0.5]), f.t([0.5])),
    "none": lambda f: f.d.Categorical(),
    "scalar": lambda f: f.d.Categorical(f.t(1.0)),
    "Beta": lambda f: f.d.Beta(f.t([-1.0]), f.t([1.0])),
    "Binomial": lambda f: f.d.Binomial(-1, f.t([0.5])),
    "Categorical": lambda f: f.d.Categorical(f.t([-0.5, 1.5])),
    "Dirichlet": lambda f: f.d.Dirichlet(f.t(1.0)),
    "Gamma": lambda f: f.d.Gamma(f.t([0.0]), f.t([1.0])),
    "Geometric": lambda f: f.d.Geometric(f.t([0.0])),
    "HalfNormal": lambda f: f.d.HalfNormal(f.t([-1.0])),
    "Independent": lambda f: f.d.Independent(f.d.Normal(f.t([0.0]), f.t([1.0])), 2),
    "LKJCholesky": lambda f: f.d.LKJCholesky(1),
    "LowRankMultivariateNormal": lambda f: f.d.LowRankMultivariateNormal(
        f.t([0.0, 1.0]), f.t([[1.0]]), f.t([1.0, 1.0])
    ),
    "MixtureSameFamily": lambda f: f.d.MixtureSameFamily(
        f.d.Categorical(f.t([0.5, 0.5])), f.d.Normal(f.t([0.0]), f.t([1.0]))
    ),
    "mixture of one": lambda f: f.d.MixtureSameFamily(
        f.d.Normal(f.t([0.0]), f.t([1.0])), f.d.Normal(f.t([0.0]), f.t([1.0]))
    ),
    "Multinomial": lambda f: f.d.Multinomial(f.t([1.0]), f.t([0.5, 0.5])),
    "MultivariateNormal": lambda f: f.d.MultivariateNormal(f.t([0.0]), f.t([[-1.0]])),
    "two matrices": lambda f: f.d.MultivariateNormal(f.t([0.0]), f.t([[1.0]]), f.t([[1.0]])),
    "Normal": lambda f: f.d.Normal(f.t([0.0, 1.0]), f.t([1.0, -1.0])),
    "nan": lambda f: f.d.Normal(f.t([float("nan")]), f.t([1.0])),
    "text": lambda f: f.d.Normal("a", "b"),
    "shapes": lambda f: f.d.Normal(f.t([0.0, 1.0]), f.t([1.0, 1.0, 1.0])),
    "TransformedDistribution": lambda f: f.d.TransformedDistribution(
        f.d.Normal(f.t([0.0]), f.t([1.0])), [1]
    ),
    "stick": lambda f: f.d.TransformedDistribution(
        f.d.Normal(f.t(0.0), f.t(1.0)), f.d.StickBreakingTransform()
    ),
    "Uniform": lambda f: f.d.Uniform(f.t([1.0]), f.t([0.0])),
    "Wishart": lambda f: f.d.Wishart(f.t(0.5), f.t(COVARIANCE)),
    "value outside": lambda f: f.d.Exponential(f.t([1.0])).log_prob(f.t([-1.0])),
    "value of another shape": lambda f: f.d.Normal(f.t([0.0, 1.0]), f.t(1.0)).log_prob(
        f.t([1.0, 2.0, 3.0])
    ),
    "number": lambda f: f.d.Normal(f.t([0.0]), f.t(1.0)).log_prob(1.0),
    "event": lambda f: f.d.Dirichlet(f.t([1.0, 1.0])).log_prob(f.t([0.2, 0.3, 0.5])),
    "trials": lambda f: f.d.Binomial(f.module.tensor([1, 2]), f.t([0.5, 0.5])).entropy(),
}


@pytest.fixture
def validation():
    """PyTorch validates, which its compiler switches off for the process when it is first used."""
    torch.distributions.Distribution.set_default_validate_args(True)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.usefixtures("validation")
def test_bad_parameters_and_values_are_refused(name):
    mine, theirs = (outcome(BAD[name], Framework(f)) for f in (tangrad, torch))
    assert isinstance(theirs, str)
    assert mine == theirs


def test_an_error_names_the_parameter_and_the_distribution():
    with pytest.raises(ValueError, match=r"scale.*Normal.*GreaterThan"):
        d.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match=r"within the support \(Boolean\(\)\)"):
        d.Bernoulli(0.5).log_prob(tangrad.tensor(0.5))


def test_validation_can_be_switched_off():
    assert d.Normal(0.0, -1.0, validate_args=False).scale == -1
    d.Distribution.set_default_validate_args(False)
    try:
        assert d.Normal(0.0, -1.0).scale == -1
    finally:
        d.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="True or False"):
        d.Distribution.set_default_validate_args(None)


def test_numbers_take_the_dtype_of_tensors():
    p = d.Normal(0, tangrad.ones(2, dtype=tangrad.float64))
    assert p.loc.dtype is tangrad.float64
    assert d.Normal(0, 1).loc.dtype is tangrad.get_default_dtype()


def test_a_distribution_of_ones_own_needs_little():
    class Shifted(d.Distribution):
        arg_constraints: ClassVar = {"by": d.constraints.real}
        support = d.constraints.real

        def __init__(self, by, validate_args=None):
            self.by = by
            super().__init__(by.shape, validate_args=validate_args)

        def rsample(self, sample_shape=()):
            return self.by + tangrad.zeros(self._extended_shape(sample_shape))

    p = Shifted(tangrad.ones(2)).expand((3, 2))
    assert p.sample((4,)).shape == (4, 3, 2)
    assert repr(p) == "Shifted(by: tangrad.Size([3, 2]))"
    with pytest.raises(ValueError, match="by"):
        Shifted(tangrad.tensor([float("nan")]))
    with pytest.raises(NotImplementedError):
        p.log_prob(tangrad.ones(2))

    class Mine(d.Distribution):
        pass

    with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
        Mine()


def test_a_subclass_may_define_expand_as_for_pytorch():
    class Centred(d.Normal):
        def __init__(self, scale, validate_args=None):
            super().__init__(tangrad.zeros_like(scale), scale, validate_args)

        def expand(self, batch_shape, _instance=None):
            return super().expand(batch_shape, self._get_checked_instance(Centred, _instance))

    class Further(Centred):
        def __init__(self):
            super().__init__(tangrad.ones(2))

    larger = Centred(tangrad.ones(2)).expand((3, 2))
    assert type(larger) is Centred
    assert larger.sample().shape == (3, 2)
    with pytest.raises(NotImplementedError, match="Further of Centred"):
        Further().expand((3, 2))


def test_policy_gradient_moves_towards_reward():
    logits = tangrad.zeros(3, requires_grad=True)
    tangrad.manual_seed(0)
    for _ in range(200):
        policy = d.Categorical(logits=logits)
        action = policy.sample((16,))
        loss = -(policy.log_prob(action) * (action == 2)).mean()
        (gradient,) = tangrad.autograd.grad(loss, [logits])
        logits = (logits - gradient).detach().requires_grad_()
    assert d.Categorical(logits=logits).probs[2] > 0.9


def test_names_and_modules_are_those_of_pytorch():
    assert set(torch.distributions.__all__) == set(d.__all__)
    for name in torch.distributions.__all__:
        module = getattr(torch.distributions, name).__module__.removeprefix("torch.")
        assert getattr(importlib.import_module(f"tangrad.{module}"), name) is getattr(d, name)
    for module in ("constraints", "transforms", "constraint_registry", "kl", "utils"):
        expected = set(getattr(getattr(torch.distributions, module), "__all__", ()))
        assert expected <= set(dir(getattr(d, module)))


def test_distributions_are_loaded_on_first_use():
    program = (
        "import sys, tangrad; assert 'tangrad.distributions' not in sys.modules;"
        " tangrad.distributions.Normal(0.0, 1.0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_cases_cover_every_distribution():
    abstract = {"Distribution", "ExponentialFamily"}
    named = {type(ours(name)).__name__ for name in CASES}
    public = {n for n in d.__all__ if isinstance(getattr(d, n), type)}
    wanted = {n for n in public if issubclass(getattr(d, n), d.Distribution)} - abstract
    assert wanted == named


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_continuous_bernoulli_of_extreme_logits_is_finite(value):
    def program(t):
        logits = t.tensor([-1e38, -200.0, 200.0, 1e38], requires_grad=True)
        found = t.distributions.ContinuousBernoulli(logits=logits).log_prob(t.tensor(value))
        found.sum().backward()
        return found.tolist(), logits.grad.tolist()

    (found, gradient), (wanted, theirs) = program(tangrad), program(torch)
    assert found == pytest.approx(wanted, rel=1e-5)
    assert gradient == pytest.approx(theirs, abs=1e-5)


@pytest.mark.filterwarnings("ignore:Singular|Low")
def test_degrees_of_freedom_may_be_an_integer():
    wishart = d.Wishart(tangrad.tensor(1), tangrad.tensor([[1.0]]))
    assert wishart.sample((3, 2)).shape == (3, 2, 1, 1)
    assert wishart.sample().dtype == tangrad.float32
