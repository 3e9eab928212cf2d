"""Transforms, constraints and the registries between them, against PyTorch's."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from distribution_cases import Framework, close, outcome, plain
from transform_cases import TRANSFORMS

import tangrad
from tangrad import distributions as d

torch = pytest.importorskip("torch", reason="torch is the oracle")


def text(value):
    return re.sub(r"\b(torch|tangrad)\.", "", repr(value))


def facts(transform, x):
    """Return what is to be the same: values by name, or the name of an exception."""

    def cached(t):
        y = t(x)
        return [t.inv(y) is x, t(x) is y, t == transform, t.inv.inv is t]

    return {
        "value": outcome(transform, x),
        "inverse": outcome(lambda: transform.inv(transform(x))),
        "volume": outcome(lambda: transform.log_abs_det_jacobian(x, transform(x))),
        "volume back": outcome(lambda: transform.inv.log_abs_det_jacobian(transform(x), x)),
        "domain": [text(transform.domain), outcome(transform.domain.check, x)],
        "codomain": [
            text(transform.codomain),
            outcome(lambda: transform.codomain.check(transform(x))),
        ],
        "text": [text(transform), text(transform.inv)],
        "bijective": transform.bijective,
        "sign": outcome(lambda: transform.sign),
        "event_dim": outcome(lambda: transform.event_dim),
        "shapes": outcome(
            lambda: [
                tuple(transform.forward_shape(x.shape)),
                tuple(transform.inverse_shape(transform(x).shape)),
            ]
        ),
        "cached": outcome(lambda: cached(transform.with_cache(1))),
    }


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    make, shape, change = TRANSFORMS[name]
    x = np.random.default_rng(0).normal(size=shape)
    x = x if change is None else change(x)
    mine, theirs = (facts(make(Framework(module)), module.tensor(x)) for module in (tangrad, torch))
    for what, expected in theirs.items():
        assert close(mine[what], expected, 1e-9), f"{what}: {mine[what]} {expected}"


@pytest.mark.parametrize("name", ["affine", "exp", "sigmoid", "softplus", "tanh", "power"])
def test_volume_is_the_derivative(name):
    make, _, _ = TRANSFORMS[name]
    transform = make(Framework(tangrad))
    x = tangrad.linspace(0.3, 2, 5, dtype=tangrad.float64, requires_grad=True)
    y = transform(x)
    (slope,) = tangrad.autograd.grad(y.sum(), x, retain_graph=True)
    assert transform.log_abs_det_jacobian(x, y).allclose(slope.abs().log())


def test_refused_transforms():
    with pytest.raises(ValueError, match="cache_size"):
        d.ExpTransform(cache_size=2)
    with pytest.raises(ValueError, match="numbers of elements"):
        d.ReshapeTransform((2, 3), (5,))
    with pytest.raises(ValueError, match="lower-diagonal"):
        d.CorrCholeskyTransform().forward_shape((5,))
    with pytest.raises(ValueError, match="Too few dimensions"):
        d.StickBreakingTransform().forward_shape(())


def test_transforms_are_pickled():
    for make, shape, change in TRANSFORMS.values():
        transform = make(Framework(tangrad))
        x = np.random.default_rng(0).normal(size=shape)
        x = tangrad.tensor(x if change is None else change(x))
        assert transform.inv is not None
        assert pickle.loads(pickle.dumps(transform))(x).equal(transform(x))


def constraints_of(c):
    return {
        "real": c.real,
        "positive": c.positive,
        "nonnegative": c.nonnegative,
        "greater_than": c.greater_than(1.0),
        "greater_than_eq": c.greater_than_eq(-1.0),
        "less_than": c.less_than(2.0),
        "unit_interval": c.unit_interval,
        "interval": c.interval(-1.0, 3.0),
        "half_open_interval": c.half_open_interval(0.0, 2.0),
        "simplex": c.simplex,
        "lower_cholesky": c.lower_cholesky,
        "positive_definite": c.positive_definite,
        "positive_semidefinite": c.positive_semidefinite,
        "corr_cholesky": c.corr_cholesky,
        "independent": c.independent(c.positive, 1),
        "real_vector": c.real_vector,
        "boolean": c.boolean,
        "one_hot": c.one_hot,
        "nonnegative_integer": c.nonnegative_integer,
        "positive_integer": c.positive_integer,
        "integer_interval": c.integer_interval(0, 3),
        "lower_triangular": c.lower_triangular,
        "square": c.square,
        "symmetric": c.symmetric,
        "multinomial": c.multinomial(3),
        "cat": c.cat([c.real, c.positive], 0, [1, 2]),
        "stack": c.stack([c.real, c.positive], 0),
        "mixture": c.MixtureSameFamilyConstraint(c.positive),
        "dependent": c.dependent,
        "stated": c.dependent(is_discrete=True),
    }


VALUES = [
    np.random.default_rng(0).normal(size=(3, 3)),
    np.eye(3),
    np.tril(np.ones((3, 3))),
    # No eigenvalue is zero: its sign would be that of LAPACK's rounding.
    np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]]),
    np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 0.0], [3.0, -1.0, 0.0]]),
    np.array([[2, 0.5, 0], [0.5, 1, 0], [0, 0, 3]]),
    np.ones((2, 3)),
]


@pytest.mark.parametrize("name", constraints_of(d.constraints))
def test_constraints_and_their_registered_transforms(name):
    def described(module):
        constraint = constraints_of(module.distributions.constraints)[name]
        x = module.tensor(VALUES[0])
        registered = (module.distributions.biject_to, module.distributions.transform_to)
        return [
            repr(constraint),
            module.distributions.constraints.is_dependent(constraint),
            outcome(lambda: constraint.is_discrete),
            outcome(lambda: constraint.event_dim),
            *(outcome(lambda v=v: constraint.check(module.tensor(v))) for v in VALUES),
            *(outcome(lambda r=r: repr(r(constraint))) for r in registered),
            *(outcome(lambda r=r: r(constraint)(x)) for r in registered),
        ]

    assert close(described(tangrad), described(torch), 1e-9)


def test_registration_of_ones_own_constraint():
    class Even(d.constraints.Constraint):
        def check(self, value):
            return value % 2 == 0

    registry = type(d.biject_to)()
    registry.register(Even, lambda constraint: d.identity_transform)
    assert registry(Even()) is d.identity_transform
    with pytest.raises(NotImplementedError, match="Real"):
        registry(d.constraints.real)
    with pytest.raises(TypeError, match="Constraint subclass"):
        registry.register(int, lambda constraint: d.identity_transform)


def test_triangles_and_vectors_are_inverse():
    from tangrad.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix

    matrix = tangrad.arange(16.0).reshape(4, 4).expand(2, 4, 4)
    for diagonal in (-2, -1, 0):
        vector = tril_matrix_to_vec(matrix, diagonal)
        expected = torch.distributions.utils.tril_matrix_to_vec(
            torch.arange(16.0).reshape(4, 4).expand(2, 4, 4), diagonal
        )
        assert plain(vector) == plain(expected)
        assert vec_to_tril_matrix(vector, diagonal).equal(matrix.tril(diagonal))
    with pytest.raises(ValueError, match="outside"):
        tril_matrix_to_vec(matrix, 4)
    with pytest.raises(ValueError, match="lower triangular"):
        vec_to_tril_matrix(tangrad.ones(4))
