"""Initial values: ranges, moments, patterns and errors."""

import math

import pytest

import tangrad
from tangrad import nn
from tangrad.nn import init


def moments(values):
    values = values.flatten()
    mean = float(values.mean())
    return mean, math.sqrt(float(((values - mean) ** 2).mean()))


# The filler, and the standard deviation it promises for a weight of shape (400, 100).
SPREADS = {
    "uniform": (lambda w: init.uniform_(w, -1, 2), math.sqrt(9 / 12), 0.5),
    "normal": (lambda w: init.normal_(w, 1.0, 2.0), 2.0, 1.0),
    "xavier uniform": (lambda w: init.xavier_uniform_(w, gain=2), 2 * math.sqrt(2 / 500), 0),
    "xavier normal": (lambda w: init.xavier_normal_(w), math.sqrt(2 / 500), 0),
    "kaiming uniform": (lambda w: init.kaiming_uniform_(w), math.sqrt(2 / 100), 0),
    "kaiming normal": (
        lambda w: init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"),
        math.sqrt(2 / 400),
        0,
    ),
    "truncated": (lambda w: init.trunc_normal_(w, std=0.1), 0.1, 0),
}


@pytest.mark.parametrize("name", SPREADS)
def test_random_values_have_the_promised_moments(name):
    fill, std, mean = SPREADS[name]
    weight = nn.Parameter(tangrad.zeros(400, 100))
    assert fill(weight) is weight
    measured_mean, measured_std = moments(weight.detach())
    assert measured_mean == pytest.approx(mean, abs=0.03 * std)
    assert measured_std == pytest.approx(std, rel=0.03)
    assert weight.requires_grad


def test_truncated_values_stay_inside():
    weight = init.trunc_normal_(tangrad.empty(1000), mean=0.5, std=1.0, a=-0.3, b=0.7)
    assert float(weight.min()) >= -0.3 - 1e-6
    assert float(weight.max()) <= 0.7 + 1e-6


def test_truncation_far_from_the_mean_warns():
    with pytest.warns(UserWarning, match="more than 2 std"):
        init.trunc_normal_(tangrad.empty(10), mean=10.0, std=1.0)


PATTERNS = {
    "constant": lambda t: t.nn.init.constant_(t.empty(2, 2), 3.5),
    "ones": lambda t: t.nn.init.ones_(t.empty(2)),
    "zeros": lambda t: t.nn.init.zeros_(t.empty(2)),
    "eye": lambda t: t.nn.init.eye_(t.empty(2, 3)),
    "dirac 1d": lambda t: t.nn.init.dirac_(t.empty(3, 2, 3)),
    "dirac 2d": lambda t: t.nn.init.dirac_(t.empty(4, 2, 3, 3), groups=2),
    "dirac 3d": lambda t: t.nn.init.dirac_(t.empty(2, 2, 1, 2, 3)),
    "eye of a vector": lambda t: t.nn.init.eye_(t.empty(2)),
    "dirac of a matrix": lambda t: t.nn.init.dirac_(t.empty(2, 2)),
    "dirac of odd groups": lambda t: t.nn.init.dirac_(t.empty(3, 2, 3), groups=2),
    "fan of a vector": lambda t: t.nn.init.xavier_uniform_(t.empty(3)),
    "unknown mode": lambda t: t.nn.init.kaiming_uniform_(t.empty(3, 3), mode="fan"),
    "sparse of a vector": lambda t: t.nn.init.sparse_(t.empty(3), 0.5),
    "gains": lambda t: [
        t.nn.init.calculate_gain(name)
        for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu")
    ],
    "gain with slope": lambda t: t.nn.init.calculate_gain("leaky_relu", 0.2),
    "gain of a name": lambda t: t.nn.init.calculate_gain("swish"),
    "gain with no number": lambda t: t.nn.init.calculate_gain("leaky_relu", "a"),
}


@pytest.mark.parametrize("case", PATTERNS)
def test_patterns_and_errors_are_pytorchs(agree, case):
    agree(lambda t: PATTERNS[case](t))


def test_sparse_puts_zeros_into_each_column():
    weight = init.sparse_(tangrad.empty(10, 4), sparsity=0.35)
    assert (weight == 0).sum(0).tolist() == [4, 4, 4, 4]


def test_generators_repeat():
    generators = [tangrad.Generator().manual_seed(3) for _ in range(2)]
    first, second = (init.normal_(tangrad.empty(5), generator=g) for g in generators)
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (3, 2, 4)])
def test_orthogonal_values_are_orthogonal(shape):
    weight = nn.Parameter(tangrad.zeros(*shape))
    assert init.orthogonal_(weight, gain=3.0) is weight
    matrix = weight.detach().flatten(1)
    short = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    wanted = 9 * tangrad.eye(short.shape[0])
    tangrad.testing.assert_close(short @ short.T, wanted, atol=1e-4, rtol=1e-4)


def test_orthogonal_values_are_of_both_orientations():
    generator = tangrad.Generator().manual_seed(0)
    signs = {
        float(tangrad.linalg.det(init.orthogonal_(tangrad.empty(2, 2), generator=generator)).sign())
        for _ in range(20)
    }
    assert signs == {-1.0, 1.0}


@pytest.mark.parametrize("shape", [(3,), (), (0, 3), (3, 0)])
def test_orthogonal_values_of_other_shapes_agree(agree, shape):
    agree(lambda t: t.nn.init.orthogonal_(t.empty(shape)))


DEPRECATED = {
    "uniform": (),
    "normal": (),
    "constant": (2.0,),
    "eye": (),
    "xavier_uniform": (),
    "xavier_normal": (),
    "kaiming_uniform": (),
    "kaiming_normal": (),
    "orthogonal": (),
    "sparse": (0.5,),
}


@pytest.mark.parametrize("name", DEPRECATED)
def test_names_without_the_underscore_warn_and_fill(name):
    weight = tangrad.full((3, 3), 7.0)
    with pytest.warns(FutureWarning, match=f"nn.init.{name}_"):
        assert getattr(init, name)(weight, *DEPRECATED[name]) is weight
    assert not (weight == 7.0).any()


def test_dirac_without_the_underscore_warns_and_fills():
    with pytest.warns(FutureWarning, match="nn.init.dirac_"):
        weight = init.dirac(tangrad.full((2, 2, 3), 7.0))
    assert float(weight.sum()) == 2.0


@pytest.mark.parametrize("name", ["fill_", "zero_", "uniform_", "normal_", "trunc_normal_"])
def test_inner_fillers_write_leaves_that_need_gradients(agree, name):
    given = {"fill_": (3.0,), "zero_": (), "uniform_": (0, 1), "normal_": (0, 1)}

    def program(t):
        leaf = t.full((4,), 9.0, requires_grad=True)
        made = getattr(t.nn.init, f"_no_grad_{name}")(leaf, *given.get(name, (0, 1, -2, 2)))
        return [made is leaf, bool((leaf < 9).all()), leaf.requires_grad, leaf.is_leaf]

    agree(program)
