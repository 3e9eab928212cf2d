"""The special functions of float32 that run in lanes are right to 1 unit, wherever they branch."""

import numpy as np
import pytest

import tangrad
from tangrad.expr.gamma import digamma, polygamma, zeta
from tangrad.expr.numpy_eval import composed

# NumPy warns of what the references compute for lanes that they do not choose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

COUNT = 20_000
BESSEL = ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")


def _ulps(found: tangrad.Tensor, exact: np.ndarray) -> np.ndarray:
    """Return errors in units of float32's last place; inf where one alone is not finite."""
    got = found.numpy()
    assert got.dtype == np.float32
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.ldexp(1.0, np.maximum(np.frexp(exact)[1], -125) - 24)
        error = np.abs(got - exact) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    error = np.where(np.isfinite(got) & np.isfinite(rounded), error, np.inf)
    return np.where(same, 0, error)


def _numbers(low: float, high: float, wide: float = 60) -> np.ndarray:
    """Return numbers of an interval, and of all magnitudes up to exp(wide) within its signs."""
    rng = np.random.default_rng(5)
    spread = np.exp(rng.uniform(-60, wide, COUNT // 4))
    spread = np.where(rng.random(COUNT // 4) < 0.5, -spread, spread) if low < 0 else spread
    return np.concatenate([rng.uniform(low, high, COUNT), spread]).astype(np.float32)


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_functions_keep_their_digits_but_near_zeros(name):
    # Numbers beyond 2^17 = exp(11.8) go through sine and cosine of the C library.
    x = _numbers(-100 if "j" in name else 0, 100, 16)
    exact = composed(name, x.astype(np.float64))
    error = _ulps(getattr(tangrad.special, name)(tangrad.tensor(x)), exact)
    amplitude = np.sqrt(2 / (np.pi * np.maximum(np.abs(x), 1.0)))
    assert error[np.abs(exact) > 0.01 * amplitude].max() <= 1
    got = getattr(tangrad.special, name)(tangrad.tensor(x)).numpy().astype(np.float64)
    near = np.abs(exact) <= 0.01 * amplitude
    assert np.max(np.abs(got - exact)[near] / amplitude[near]) <= 2.0**-28


@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1"])
def test_bessel_functions_of_the_first_kind_keep_their_digits_near_the_first_zeros(name):
    zeros = {"bessel_j0": (2.404825557695773, 5.520078110286311)}
    zeros["bessel_j1"] = (3.8317059702075125, 7.015586669815619)
    x = np.concatenate([np.linspace(z - 1e-3, z + 1e-3, 999) for z in zeros[name]])
    x = x.astype(np.float32)
    exact = composed(name, x.astype(np.float64))
    found = getattr(tangrad.special, name)(tangrad.tensor(x))
    # The reference's own error is some units of float64's last place of the amplitude.
    np.testing.assert_allclose(found.numpy(), exact, rtol=2.0**-23, atol=1e-15)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("i1e", -20, 20), ("erfcx", -12, 40), ("log_ndtr", -40, 9)]
)
def test_functions_without_zeros_are_within_a_unit(name, low, high):
    x = _numbers(low, high)
    x = x[x > -20] if name == "erfcx" else x
    exact = composed(name, x.astype(np.float64))
    assert _ulps(getattr(tangrad.special, name)(tangrad.tensor(x)), exact).max() <= 1


def test_digamma_and_trigamma_are_within_a_unit_but_near_reflected_zeros():
    x = _numbers(-30, 30)
    exact = digamma(x.astype(np.float64))
    error = _ulps(tangrad.digamma(tangrad.tensor(x)), exact)
    assert error[(x > 0) | (np.abs(exact) > 0.1)].max() <= 1
    got = tangrad.digamma(tangrad.tensor(x)).numpy()
    assert np.abs(got - exact)[np.abs(exact) <= 0.1].max() <= 1e-7
    root = np.linspace(1.4615, 1.4618, 999).astype(np.float32)
    exact = digamma(root.astype(np.float64))
    np.testing.assert_allclose(tangrad.digamma(tangrad.tensor(root)).numpy(), exact, rtol=2.0**-23)
    y = np.where(x == np.floor(x), np.float32(0.5), x)
    leaf = tangrad.tensor(y, requires_grad=True)
    tangrad.digamma(leaf).sum().backward()
    assert _ulps(leaf.grad, polygamma(1.0, y.astype(np.float64))).max() <= 1


@pytest.mark.parametrize("order", [1, 2, 3, 7, 30, 31])
def test_polygamma_is_within_a_unit(order):
    x = np.abs(_numbers(0.01, 50, 10))
    exact = polygamma(float(order), x.astype(np.float64))
    assert _ulps(tangrad.special.polygamma(order, tangrad.tensor(x)), exact).max() <= 1


@pytest.mark.parametrize("order", [1, 2, 3, 10, 50, 100, 170, 200])
def test_polygamma_of_double_precision_is_the_reference(order):
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.uniform(-12, 12, 400), rng.uniform(0, 500, 400), [1e5, 1e100, -0.0, 0]])
    x = np.concatenate([x, np.round(x[:9]), [np.inf, np.nan], -3 + 10.0 ** rng.uniform(-12, -1, 9)])
    found = tangrad.special.polygamma(order, tangrad.tensor(x))
    expected = polygamma(float(order), x)
    # Terms of both sides of 0 may cancel: their own digits are what counts.
    terms = np.abs(polygamma(float(order), x - np.floor(x)))
    size = np.where((x < 0) & np.isfinite(terms), terms, 0) if order % 2 == 0 else 0
    rtol = 3e-15 if order <= 170 else 1e-11
    same = found.numpy() == expected
    same |= np.isnan(found.numpy()) & np.isnan(expected)
    assert np.all(same | (np.abs(found.numpy() - expected) <= rtol * (np.abs(expected) + size)))


def test_zeta_is_within_a_unit():
    q = _numbers(0.01, 50, 20)
    s = np.resize(np.float32([1, 1.001, 1.5, 2, 3, 9, 40.5, 100, 1e4]), q.shape)
    exact = zeta(s.astype(np.float64), q.astype(np.float64))
    found = tangrad.special.zeta(tangrad.tensor(s), tangrad.tensor(q))
    assert _ulps(found, exact).max() <= 1


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions_are_within_a_unit(name):
    rng = np.random.default_rng(6)
    # Shapes from 100 on and below 10^-6 are the core's own.
    a, x = (np.exp(rng.uniform(-16, 6, 4000)).astype(np.float32) for _ in range(2))
    x[:1000] = a[:1000] * np.linspace(0.7, 1.4, 1000, dtype=np.float32)
    exact = composed(name, a.astype(np.float64), x.astype(np.float64))
    found = getattr(tangrad, name)(tangrad.tensor(a), tangrad.tensor(x))
    assert _ulps(found, exact).max() <= 1
