"""Define the random ops whose numbers are functions of uniform or normal ones: composites."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, op
from tangrad.ops.definition.signature import Generator, Tensor, WrittenTensor
from tangrad.ops.random import sequential as random_sequential
from tangrad.ops.random.gamma import rejection, words_for_tries
from tangrad.ops.views.geometry import dtype_name, numel_of
from tangrad.random import philox

_WIDE = ("float64", "int32", "uint32", "int64", "uint64")


def _uniform(self: Any, generator: Any) -> Any:
    """Draw numbers on (0, 1] in a dtype that holds many digits, in the shape of a tensor."""
    dtype = tangrad.float64 if dtype_name(self.dtype) in _WIDE else tangrad.float32
    drawn = tangrad.empty(self.shape, dtype=dtype, device=self.device)
    return 1 - drawn.uniform_(generator=generator)


@composite(
    dtypes="floating",
    random=True,
    function=False,
    samples=lambda s: (
        [s(s.tensor(2, 3)), s(s.tensor(4), 2.0, 3.0), s(s.tensor(0))] if s.is_floating else []
    ),
    errors=lambda s: [
        (s(s.tensor(2), 0.0, 0.0), RuntimeError, "sigma > 0"),
        (s(s.tensor(2), 0.0, math.nan), RuntimeError, "sigma > 0"),
        (s(s.tensor(2, dtype="int64")), RuntimeError, "continuous"),
    ],
)
def cauchy_(
    self: WrittenTensor,
    median: float = 0.0,
    sigma: float = 1.0,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Overwrite a tensor by numbers of Cauchy's distribution.

    They are the distribution's quantiles at uniform numbers.
    """
    if not self.dtype.is_floating_point:
        raise RuntimeError(
            "Cauchy distribution is a continuous probability distribution: dtype must be a "
            f"floating-point one, but is {self.dtype}"
        )
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    engine = random_sequential.engine_of(generator, self.device)
    if engine is not None:
        return random_sequential.cauchy(self, median, sigma, engine)
    angle = (0.5 - _uniform(self, generator)) * math.pi
    return self.copy_(angle.tan() * sigma + median)


@composite(
    dtypes="floating",
    random=True,
    function=False,
    samples=lambda s: (
        [s(s.tensor(2, 3)), s(s.tensor(4), -1.0, 0.5), s(s.tensor(0))] if s.is_floating else []
    ),
    errors=lambda s: [
        (s(s.tensor(2), 0.0, 0.0), RuntimeError, "std > 0"),
        (s(s.tensor(2, dtype="int64")), NotImplementedError, "int64"),
    ],
)
def log_normal_(
    self: WrittenTensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Overwrite a tensor by numbers whose logarithms are normally distributed.

    Args:
        mean: of the logarithms.
        std: the standard deviation of the logarithms.
    """
    if not self.dtype.is_floating_point:
        raise NotImplementedError(f"log_normal_ is not implemented for {self.dtype}")
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    engine = random_sequential.engine_of(generator, self.device)
    if engine is not None:
        return random_sequential.log_normal(self, mean, std, engine)
    dtype = tangrad.float64 if self.dtype is tangrad.float64 else tangrad.float32
    drawn = tangrad.empty(self.shape, dtype=dtype, device=self.device)
    return self.copy_(drawn.normal_(mean, std, generator=generator).exp())


@composite(
    dtypes="integral floating",
    random=True,
    function=False,
    samples=lambda s: (
        []
        if s.is_bool or s.is_complex
        else [s(s.tensor(2, 3), 0.5), s(s.tensor(4), 0.9), s(s.tensor(0), p=0.25)]
    ),
    errors=lambda s: [
        (s(s.tensor(2), 0.0), RuntimeError, r"in \(0, 1\)"),
        (s(s.tensor(2), 1.0), RuntimeError, r"in \(0, 1\)"),
        (s(s.tensor(2, dtype="bool"), 0.5), NotImplementedError, "bool"),
    ],
)
def geometric_(self: WrittenTensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Overwrite a tensor by numbers of trials up to the first success, of probability p."""
    if self.dtype is tangrad.bool or self.dtype.is_complex:
        raise NotImplementedError(f"geometric_ is not implemented for {self.dtype}")
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    engine = random_sequential.engine_of(generator, self.device)
    if engine is not None:
        return random_sequential.geometric(self, p, engine)
    trials = _uniform(self, generator).log() / math.log1p(-p)
    return self.copy_(trials.ceil().clamp_min(1))


# How many steps from the first guess to the quantile; it is off by one or two, and of means too
# large for the distribution function's digits any guess is as good.
_STEPS = 60


def _poisson_reference(np: Any, self: Any, seed: int, offset: int) -> Any:
    """Invert the distribution function, Q(k + 1, mean), at uniform numbers.

    The first guess is Cornish and Fisher's expansion about the normal distribution, 1938.
    """
    from tangrad.expr.numpy_eval import composed

    mean = self.reshape(-1).astype(np.float64)
    if not (mean >= 0).all():
        raise RuntimeError(
            "invalid Poisson rate, expected rate to be non-negative, got "
            f"{mean[~(mean >= 0)][0]} in a tensor of {self.dtype}"
        )
    u = 1 - philox.uniform(seed, offset, mean.size, "float64")

    def below(count: Any) -> Any:
        """Return the probability of at most `count`."""
        return np.where(count < 0, 0.0, composed("igammac", np.maximum(count, 0) + 1, mean))

    with np.errstate(all="ignore"):
        z = composed("ndtri", np.clip(u, 1e-300, 1 - 2.0**-53))
        count = np.maximum(np.floor(mean + np.sqrt(mean) * z + (z * z - 1) / 6), 0)
        for _ in range(_STEPS):
            step = np.where(below(count) < u, 1.0, np.where(below(count - 1) >= u, -1.0, 0.0))
            if not step.any():
                break
            count = np.maximum(count + step, 0)
    count = np.where(mean == 0, 0.0, count)
    return count.reshape(self.shape).astype(self.dtype)


def _check_poisson(self: Any) -> None:
    if not self.dtype.is_floating_point:
        raise NotImplementedError(f"poisson is not implemented for {self.dtype}")


poisson_tensor = op(
    "poisson_tensor(Tensor self, *, generator? generator=None) -> Tensor",
    dtypes="floating",
    check=_check_poisson,
    shape=lambda self: self.shape,
    random=True,
    words=lambda self: philox.words_for("uniform float64", numel_of(self.shape)),
    sequential=random_sequential.poisson,
    reference=_poisson_reference,
    vjp={"self": lambda g: g.new_zeros(g.shape)},
    jvp=lambda self: tangrad.zeros_like(self),
    batch="pointwise",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.tensor(2, 3, low=0, high=9)),
        s(s.tensor(low=0, high=9)),
        s(s.tensor(0)),
    ],
    oracle="poisson",
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64")), NotImplementedError, "int64"),
        (s(s.values([-1.0])), RuntimeError, "non-negative"),
    ],
    doc="Draw numbers of Poisson's distribution with the mean that each element states.",
)


@composite(
    dtypes="floating",
    random=True,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3, low=0, high=9)), s(s.tensor(low=0, high=9))],
    errors=lambda s: [(s(s.values([-1.0])), RuntimeError, "non-negative")],
)
def poisson(self: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw numbers of Poisson's distribution with the mean that each element states."""
    return poisson_tensor(self, generator=generator)


def _binomial_reference(np: Any, count: Any, prob: Any, seed: int, offset: int) -> Any:
    """Count successes of the less probable kind: by inversion of few, by rejection of many."""
    n, p = (x.reshape(-1).astype(np.float64) for x in (count, prob))
    p = np.where((n >= 0) & (p >= 0) & (p <= 1), p, np.nan)
    rare = np.minimum(p, 1 - p)
    with np.errstate(all="ignore"):
        many = n * rare >= 10
        drawn = _few_successes(np, np.where(many, 0, n), rare, seed, offset)
        if many.any():
            drawn[many] = _many_successes(np, n[many], rare[many], seed, offset)
    drawn = np.where(p > 0.5, n - drawn, np.where(np.isnan(p), np.nan, drawn))
    return drawn.reshape(count.shape).astype(count.dtype)


def _few_successes(np: Any, n: Any, p: Any, seed: int, offset: int) -> Any:
    """Walk up the probabilities until a uniform number is used up."""
    rest = philox.uniform(seed, offset, len(n), "float64")
    probability, drawn = np.exp(n * np.log1p(-p)), np.zeros_like(n)
    odds, k = p / (1 - p), 0
    while (above := (rest >= probability) & (k < n)).any():
        rest = np.where(above, rest - probability, -1)
        probability = probability * (n - k) / (k + 1) * odds
        k += 1
        drawn[above] = k
    return drawn


def _many_successes(np: Any, n: Any, p: Any, seed: int, offset: int) -> Any:
    """Draw by Hörmann's method BTRS: "The generation of binomial random variates", 1993."""
    from tangrad.expr.gamma import lgamma
    from tangrad.expr.gaussian import erf

    spread = np.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a, centre = -0.0873 + 0.0248 * b + 0.01 * p, n * p + 0.5
    odds, mode = np.log(p / (1 - p)), np.floor((n + 1) * p)
    top = lgamma(mode + 1) + lgamma(n - mode + 1)

    def attempt(places: Any, z: Any, v: Any) -> Any:
        at_a, at_b, at_n = a[places], b[places], n[places]
        u = erf(z * math.sqrt(0.5)) / 2  # uniform
        margin = 0.5 - abs(u)
        k = np.floor((2 * at_a / margin + at_b) * u + centre[places])
        inside = (k >= 0) & (k <= at_n)
        scale = (2.83 + 5.1 / at_b) * spread[places]
        height = np.log(v * scale / (at_a / (margin * margin) + at_b))
        bound = top[places] - lgamma(k + 1) - lgamma(at_n - k + 1)
        return k, inside & (height <= bound + (k - mode[places]) * odds[places])

    return rejection(np, len(n), seed, offset, attempt)


def _check_binomial(count: Any, prob: Any) -> None:
    if not count.dtype.is_floating_point:
        raise ValueError(
            f"binomial only supports floating-point dtypes for count, got: {count.dtype}"
        )
    if count.dtype is not prob.dtype:
        raise RuntimeError(
            f"binomial expects count and prob of one dtype, got {count.dtype} and {prob.dtype}"
        )


_binomial = op(
    "_binomial(Tensor count, Tensor prob, *, generator? generator=None) -> Tensor",
    dtypes="floating",
    check=lambda count, prob: _check_binomial(count, prob),
    shape=lambda count: count.shape,
    random=True,
    words=lambda count: words_for_tries(count),
    sequential=random_sequential.binomial,
    reference=_binomial_reference,
    vjp={"count": lambda g: g.new_zeros(g.shape), "prob": lambda g: g.new_zeros(g.shape)},
    jvp=lambda count: tangrad.zeros_like(count),
    batch="pointwise",
    function=False,
    method=False,
    samples=lambda s: [
        s(s.values([0.0, 3.0, 100.0]), s.values([0.5, 0.25, 0.75])),
        s(s.values([]), s.values([])),
    ],
    oracle="binomial",
    doc="Draw numbers of successes; both tensors have one shape.",
)


@composite(
    dtypes="floating",
    random=True,
    method=False,
    samples=lambda s: [
        s(s.values([0.0, 3.0, 100.0]), s.values([0.5, 0.25, 0.75])),
        s(s.values([[4.0], [200.0]]), s.values([0.5, 0.25, 1.0])),
    ],
    errors=lambda s: [
        (s(s.tensor(2, dtype="int64"), s.values([0.5, 0.5])), ValueError, "floating-point")
    ],
)
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw numbers of successes in `count` trials, each of probability `prob`."""
    count, prob = tangrad.broadcast_tensors(count, prob)
    return _binomial(count.contiguous(), prob.contiguous(), generator=generator)
