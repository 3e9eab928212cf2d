"""Define the random ops of the gamma family, whose numbers have derivatives by their parameters.

A number x drawn at a fixed place u of the distribution function F moves by
`dx/da = -(dF/da) / (dF/dx)` when the parameter a does (Figurnov, Mohamed and Mnih: "Implicit
reparameterization gradients", 2018).
"""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import op
from tangrad.ops.random import sequential as random_sequential
from tangrad.ops.views.geometry import numel_of
from tangrad.random import philox

# Marsaglia and Tsang's method accepts 19 numbers of 20: after so many none is left.
_TRIES = 32
# The terms of a series: enough where parameters are below a million.
_TERMS = 20_000
# Above it the quantiles' expansion is exact to 8 digits and more.
_LARGE_SHAPE = 1000.0


def words_for_tries(self: Any) -> int:
    """Return the words of a call that draws `_TRIES` times, and once more, per element."""
    return (2 * _TRIES + 1) * philox.words_for("normal float64", numel_of(self.shape))


def rejection(np: Any, n: int, seed: int, offset: int, attempt: Any) -> Any:
    """Draw until each of n numbers is accepted.

    Args:
        attempt: function from places, standard normal and uniform numbers, all of one length, to
            (values, which of them are accepted).
    """
    values, pending = np.zeros(n), np.arange(n)
    for _ in range(_TRIES):
        if not len(pending):
            break
        z = philox.normal(seed, offset, len(pending), "float64")
        u = 1 - philox.uniform(seed, offset + n, len(pending), "float64")
        drawn, accepted = attempt(pending, z, u)
        values[pending] = drawn
        pending = pending[~accepted]
        offset += 2 * n
    return values


def _log_gamma_numbers(np: Any, shape: Any, seed: int, offset: int) -> Any:
    """Draw logarithms of gamma distributed numbers: those of small shapes would underflow.

    Marsaglia and Tsang: "A simple method for generating gamma variables", 2000.
    """
    n = len(shape)
    small = shape < 1
    d = np.where(small, shape + 1, shape) - 1 / 3
    c = 1 / np.sqrt(9 * d)

    def attempt(places: Any, z: Any, u: Any) -> Any:
        root = 1 + c[places] * z
        positive = root > 0
        v = np.where(positive, root, 1) ** 3
        bound = z * z / 2 + d[places] * (1 - v + np.log(v))
        return np.log(d[places] * v), positive & (np.log(u) < bound)

    drawn = rejection(np, n, seed, offset, attempt)
    u = 1 - philox.uniform(seed, offset + 2 * _TRIES * n, n, "float64")
    return drawn + np.where(small, np.log(u) / shape, 0)


def _digits(np: Any, self: Any) -> Any:
    """Return what is known of the numbers of a dtype; NumPy has no bfloat16."""
    return np.finfo(self.dtype if self.dtype.kind == "f" else np.float32)


def _check_floating(**operands: Any) -> None:
    for name, x in operands.items():
        if not x.dtype.is_floating_point:
            raise NotImplementedError(
                f"numbers of gamma distributions need a floating-point {name}, got {x.dtype}"
            )


def _gamma_reference(np: Any, self: Any, seed: int, offset: int) -> Any:
    shape = self.reshape(-1).astype(np.float64)
    with np.errstate(all="ignore"):
        drawn = np.exp(_log_gamma_numbers(np, shape, seed, offset))
    drawn = np.where(shape == 0, 0, np.maximum(drawn, _digits(np, self).tiny))
    return drawn.reshape(self.shape).astype(self.dtype)


def _dirichlet_reference(np: Any, self: Any, seed: int, offset: int) -> Any:
    shape = self.reshape(-1).astype(np.float64)
    with np.errstate(all="ignore"):
        logs = _log_gamma_numbers(np, shape, seed, offset).reshape(self.shape)
        drawn = np.exp(logs - logs.max(-1, keepdims=True, initial=-np.inf))
    drawn = drawn / drawn.sum(-1, keepdims=True)
    digits = _digits(np, self)
    return np.clip(drawn, digits.tiny, 1 - digits.epsneg).astype(self.dtype)


def _while_terms(np: Any, step: Any, *states: Any) -> list[Any]:
    """Repeat `states, going = step(k, *states)` on the elements that are still going."""
    results = [np.array(state) for state in states]
    places = np.arange(len(states[0]))
    for k in range(_TERMS):
        if not len(places):
            break
        new, going = step(k, places, *(result[places] for result in results))
        for result, values in zip(results, new, strict=True):
            result[places] = values
        places = places[going]
    return results


def _composed(name: str) -> Any:
    from tangrad.expr.numpy_eval import composed

    return lambda *operands: composed(name, *operands)


def _gamma_slope(np: Any, a: Any, x: Any) -> Any:
    """Return dx/da of gamma distributed numbers x of shape a."""
    slope = np.full_like(x, np.nan)
    large = a > _LARGE_SHAPE
    upper = ~large & (x > a + 1)
    for where, part in (
        (large, _slope_large),
        (upper, _slope_upper),
        (~large & ~upper, _slope_low),
    ):
        if where.any():
            slope[where] = part(np, a[where], x[where])
    return np.where((x >= 0) & (a > 0), slope, np.nan)


def _slope_low(np: Any, a: Any, x: Any) -> Any:
    """Differentiate the power series of P, whose terms are t, by a."""
    from tangrad.expr.gamma import digamma

    outer = digamma(a) - np.log(x)

    def step(k: int, places: Any, slope: Any, t: Any, harmonic: Any) -> Any:
        slope = slope + t * (outer[places] + harmonic)
        following = a[places] + k + 1
        t = t * x[places] / following
        harmonic = harmonic + 1 / following
        return (slope, t, harmonic), t * (abs(outer[places]) + harmonic) > 1e-17 * abs(slope)

    slope = _while_terms(np, step, np.zeros_like(x), 1 / a, 1 / a)[0]
    return np.where(x == 0, 0, x * slope)


def _slope_upper(np: Any, a: Any, x: Any) -> Any:
    """Differentiate Legendre's continued fraction of Q by a; each of its values has a slope."""
    from tangrad.expr.gamma import digamma

    b = x + 1 - a
    h, dh = 1 / b, 1 / (b * b)

    def step(k: int, places: Any, h: Any, dh: Any, c: Any, dc: Any, d: Any, dd: Any) -> Any:
        m = k + 1
        n, dn = m * (a[places] - m), m
        b = x[places] + 1 - a[places] + 2 * m
        d, dd = 1 / (n * d + b), -(dn * d + n * dd - 1) / (n * d + b) ** 2
        c, dc = b + n / c, -1 + dn / c - n * dc / (c * c)
        ratio, dratio = c * d, dc * d + c * dd
        h, dh = h * ratio, dh * ratio + h * dratio
        going = (abs(ratio - 1) > 1e-16) | (abs(h * dratio) > 1e-16 * abs(dh))
        return (h, dh, c, dc, d, dd), going

    h, dh = _while_terms(np, step, h, dh, np.full_like(x, 1e300), np.zeros_like(x), h, dh)[:2]
    return x * (h * (np.log(x) - digamma(a)) + dh)


def _slope_large(np: Any, a: Any, x: Any) -> Any:
    """Differentiate Cornish and Fisher's expansion of the quantile at the normal quantile z."""
    below, above = _composed("igamma")(a, x), _composed("igammac")(a, x)
    ndtri = _composed("ndtri")
    z = np.clip(np.where(below < 0.5, ndtri(below), -ndtri(above)), -40, 40)
    r = 1 / np.sqrt(a)
    return (
        1
        + r * z / 2
        - r**3 * (z**3 - 7 * z) / 72
        + r**4 * (3 * z**4 + 7 * z**2 - 16) / 810
        - r**5 * (9 * z**5 + 256 * z**3 - 433 * z) / 25920
    )


def _beta_slope(np: Any, x: Any, a: Any, b: Any) -> Any:
    """Return dx/da / (1 - x) of beta distributed numbers x of shapes a and b.

    The distribution function I is a power of x and 1 - x times Gauss's series in x, or 1 minus
    the same with the sides exchanged: that which converges fast is differentiated.
    """
    from tangrad.expr.gamma import digamma

    total = a + b
    swapped = x > (a + 1) / (total + 2)
    argument, first = np.where(swapped, 1 - x, x), np.where(swapped, b, a)
    outer = np.log(x) - digamma(a) + digamma(total) - np.where(swapped, 0, 1 / a)

    def step(k: int, places: Any, slope: Any, t: Any, harmonic: Any) -> Any:
        slope = slope + t * (outer[places] + harmonic)
        up, down = total[places] + k, first[places] + 1 + k
        t = t * argument[places] * up / down
        harmonic = harmonic + 1 / up - np.where(swapped[places], 0, 1 / down)
        return (slope, t, harmonic), t * (abs(outer[places]) + abs(harmonic)) > 1e-17 * abs(slope)

    one = np.ones_like(x)
    slope = _while_terms(np, step, 0 * one, one, 0 * one)[0]
    return np.where(swapped, x / b, -x / a) * slope


def _slope_reference(slope: Any) -> Any:
    def reference(np: Any, **operands: Any) -> Any:
        dtype = next(iter(operands.values())).dtype
        wide = np.broadcast_arrays(*(x.astype(np.float64) for x in operands.values()))
        with np.errstate(all="ignore"):
            return slope(np, *(x.reshape(-1) for x in wide)).reshape(wide[0].shape).astype(dtype)

    return reference


_NOT_GIVEN = "none: a derivative of second order of a quantile is not given"

_standard_gamma_grad = op(
    "_standard_gamma_grad(Tensor self, Tensor output) -> Tensor",
    dtypes="floating",
    check=lambda self, output: _check_floating(self=self, output=output),
    shape=lambda self: self.shape,
    reference=lambda np, self, output: _slope_reference(_gamma_slope)(np, a=self, x=output),
    vjp={"self": _NOT_GIVEN, "output": _NOT_GIVEN},
    batch="dims",
    method=False,
    samples=lambda s: [
        s(s.tensor(3, 4, low=0.1, high=9), s.tensor(3, 4, low=0.1, high=9)),
        s(s.tensor(low=0.1, high=9), s.tensor(low=0.1, high=9)),
        s(s.tensor(0), s.tensor(0)),
        s(s.tensor(2, 3, low=1, high=9, strided=True), s.tensor(2, 3, low=1, high=9)),
    ],
    doc="Compute the derivative of gamma distributed numbers by their concentrations.",
)

_dirichlet_grad = op(
    "_dirichlet_grad(Tensor x, Tensor alpha, Tensor total) -> Tensor",
    dtypes="floating",
    check=lambda x, alpha, total: _check_floating(x=x, alpha=alpha, total=total),
    shape=lambda x: x.shape,
    reference=lambda np, x, alpha, total: _slope_reference(
        lambda np, x, a, total: _beta_slope(np, x, a, total - a)
    )(np, x=x, a=alpha, total=total),
    vjp={"x": _NOT_GIVEN, "alpha": _NOT_GIVEN, "total": _NOT_GIVEN},
    batch="dims",
    method=False,
    samples=lambda s: [
        s(
            s.tensor(*shape, low=0.05, high=0.95),
            s.tensor(*shape, low=0.2, high=4),
            s.tensor(*shape, low=5, high=9),
        )
        for shape in ((3, 4), (), (0,))
    ],
    doc="""Compute how numbers of Dirichlet's distribution move with their own concentration.

    It is the derivative of x, beta distributed by alpha and total - alpha, divided by 1 - x.
    """,
)

_standard_gamma = op(
    "_standard_gamma(Tensor self, *, generator? generator=None) -> Tensor",
    dtypes="floating",
    check=lambda self: _check_floating(self=self),
    shape=lambda self: self.shape,
    random=True,
    words=words_for_tries,
    sequential=lambda self, generator: _gamma_in_turn(self, generator),
    reference=_gamma_reference,
    vjp={"self": lambda g, self, result: g * _standard_gamma_grad(self, result)},
    jvp=lambda self, self_t, result: _gamma_tangent(self, self_t, result),
    batch="pointwise",
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3, low=0.1, high=9)),
        s(s.tensor(low=0.1, high=9)),
        s(s.tensor(0)),
    ],
    errors=lambda s: [(s(s.tensor(2, dtype="int64")), NotImplementedError, "int64")],
    doc="Draw gamma distributed numbers of rate 1 with the concentration that each element states.",
)


def _with_tangent(alpha: Any, drawn: Any, tangent: Any) -> Any:
    """Return the numbers `drawn`, made outside of what is recorded, with their derivative.

    What is added is linear in a difference that is 0.
    """
    if not alpha.requires_grad:
        return drawn
    constant = alpha.detach()
    return drawn + tangent(constant, alpha - constant, drawn).nan_to_num(0.0, 0.0, 0.0)


def _gamma_tangent(self: Any, self_t: Any, result: Any) -> Any:
    return self_t * _standard_gamma_grad(self, result)


def _gamma_in_turn(self: Any, generator: Any) -> Any:
    return _with_tangent(self, random_sequential.gamma(self, generator), _gamma_tangent)


def _dirichlet_in_turn(self: Any, generator: Any) -> Any:
    return _with_tangent(self, random_sequential.dirichlet(self, generator), _dirichlet_tangent)


def _through_sum(x: Any, alpha: Any, toward: Any) -> Any:
    """Return the slope of each number by its own concentration times what it does to all."""
    total = alpha.sum(-1, keepdim=True).expand_as(alpha)
    return _dirichlet_grad(x, alpha, total) * (toward - (x * toward).sum(-1, keepdim=True))


def _dirichlet_tangent(self: Any, self_t: Any, result: Any) -> Any:
    total = self.sum(-1, keepdim=True).expand_as(self)
    moved = _dirichlet_grad(result, self, total) * self_t
    return moved - result * moved.sum(-1, keepdim=True)


_sample_dirichlet = op(
    "_sample_dirichlet(Tensor self, *, generator? generator=None) -> Tensor",
    dtypes="floating",
    check=lambda self: _check_floating(self=self),
    shape=lambda self: self.shape,
    random=True,
    words=words_for_tries,
    sequential=_dirichlet_in_turn,
    reference=_dirichlet_reference,
    vjp={"self": lambda g, self, result: _through_sum(result, self, g)},
    jvp=_dirichlet_tangent,
    batch="pointwise",
    method=False,
    samples=lambda s: [s(s.tensor(2, 3, low=0.1, high=9)), s(s.tensor(4, low=0.1, high=9))],
    errors=lambda s: [(s(s.tensor(2, dtype="int64")), NotImplementedError, "int64")],
    doc="Draw points of Dirichlet's distribution; the last dimension holds the concentrations.",
)
