"""Activation functions."""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition.define import pointwise


def _check_not_bool(self: Any) -> None:
    if self.dtype.name == "bool":
        raise RuntimeError("Boolean inputs not supported for relu")


def _check_tanhshrink(self: Any) -> None:
    if self.dtype.name == "bool":
        raise RuntimeError("tanhshrink: a bool tensor has no difference; convert with .to(dtype)")


def _check_softshrink(lambd: Any) -> None:
    if not lambd >= 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")


# Rectifiers

relu = pointwise(
    "relu(Tensor self) -> Tensor",
    "where(self < 0, 0, self)",
    check=_check_not_bool,
    dtypes="integral floating",
    partials={"self": "where(result <= 0, 0, 1)"},
    inplace=True,
    oracle="nn.functional.relu",
    samples=lambda s: s.unary(),
    errors=lambda s: [(s(s.mask(2)), RuntimeError, "Boolean inputs not supported for relu")],
    doc="Apply the rectifier `max(self, 0)` (Nair and Hinton, 2010).",
)

relu6 = pointwise(
    "relu6(Tensor self) -> Tensor",
    "minimum(maximum(self, 0), 6)",
    dtypes="integral floating",
    partials={"self": "where((self > 0) & (self < 6), 1, 0)"},
    inplace=True,
    namespace="nn",
    oracle="nn.functional.relu6",
    samples=lambda s: [*s.unary(), s(s.tensor(3, 4, low=4, high=8))],
    doc="Apply the rectifier bounded by 6, `min(max(self, 0), 6)` (Krizhevsky, 2010).",
)

leaky_relu = pointwise(
    "leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
    "where(self > 0, self, negative_slope * self)",
    dtypes="floating",
    partials={"self": "where(self > 0, 1, negative_slope)"},
    inplace=True,
    namespace="nn",
    oracle="nn.functional.leaky_relu",
    samples=lambda s: [*s.unary(), s(s.tensor(3, 4), 0.2)],
    doc="Apply the rectifier with a slope below zero (Maas, Hannun and Ng, 2013).",
)

threshold = pointwise(
    "threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor",
    "where(self <= threshold, value, self)",
    dtypes="integral floating",
    partials={"self": "where(self <= threshold, 0, 1)"},
    beyond="refused wide narrow",
    inplace=True,
    method=False,
    oracle="nn.functional.threshold",
    samples=lambda s: [s(s.tensor(3, 4), 1, 5), s(s.tensor(), 0, 2), s(s.specials(), 0, 1)],
    doc="Replace elements that are not above `threshold` by `value`.",
)

hardtanh = pointwise(
    "hardtanh(Tensor self, Scalar min_val=-1.0, Scalar max_val=1.0) -> Tensor",
    "minimum(maximum(self, min_val), max_val)",
    dtypes="floating",
    partials={"self": "where((self > min_val) & (self < max_val), 1, 0)"},
    beyond="refused narrow",
    inplace=True,
    namespace="nn",
    oracle="nn.functional.hardtanh",
    samples=lambda s: [*s.unary(), s(s.tensor(3, 4), -2.0, 0.5)],
    doc="Bound elements by `min_val` and `max_val`; the gradient is zero on the bounds.",
)

softshrink = pointwise(
    "softshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
    "where(self > lambd, self - lambd, where(self < -lambd, self + lambd, self * 0))",
    check=_check_softshrink,
    dtypes="floating",
    partials={"self": "where((self < -lambd) | (self > lambd), 1, 0)"},
    beyond="refused narrow",
    namespace="nn",
    strict_out_dtype=True,
    oracle="nn.functional.softshrink",
    samples=lambda s: [*s.unary(), s(s.tensor(3, 4), 1.5)],
    errors=lambda s: [(s(s.tensor(2), -0.5), RuntimeError, "lambda must be")],
    doc="Shrink towards zero by `lambd`.",
)

hardshrink = pointwise(
    "hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
    "where((self >= -lambd) & (self <= lambd), 0, self)",
    dtypes="floating",
    partials={"self": "where((self < -lambd) | (self > lambd), 1, 0)"},
    beyond="refused narrow",
    strict_out_dtype=True,
    oracle="nn.functional.hardshrink",
    samples=lambda s: [*s.unary(), s(s.tensor(3, 4), 1.5)],
    doc="Replace elements in [-lambd, lambd] by zero.",
)


# Exponential units


def _unit_samples(s: Any) -> list[Any]:
    if s.is_bool or s.is_integral:
        return s.unary()  # which are refused
    # PyTorch's gradient at NaN is NaN where it computes by vectors and 1 in what is left over, as
    # all of a few elements are.
    few = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0]
    return [*s.unary(specials=False), s(s.values(few))]


elu = pointwise(
    "elu(Tensor self, Scalar alpha=1.0) -> Tensor",
    "where(self > 0, self, alpha * expm1(self))",
    dtypes="floating",
    partials={"self": "where(self <= 0, alpha * exp(self), 1)"},
    inplace=True,
    namespace="nn",
    oracle="nn.functional.elu",
    samples=lambda s: [*_unit_samples(s), s(s.tensor(3, 4), 0.5)],
    doc="Apply the exponential linear unit (Clevert, Unterthiner and Hochreiter, 2015).",
)

selu = pointwise(
    "selu(Tensor self) -> Tensor",
    "1.0507009873554804934193349852946 * where(self > 0, self, 1.6732632423543772848170429916717 * "
    "expm1(self))",
    dtypes="floating",
    partials={
        "self": "where(self <= 0, 1.7580993408473768599402175208123 * exp(self), "
        "1.0507009873554804934193349852946)"
    },
    inplace=True,
    method=False,
    oracle="nn.functional.selu",
    samples=lambda s: _unit_samples(s),
    doc="Apply the self-normalising exponential unit (Klambauer et al., 2017).",
)

celu = pointwise(
    "celu(Tensor self, Scalar alpha=1.0) -> Tensor",
    "where(self > 0, self, alpha * expm1(self / alpha))",
    dtypes="floating",
    partials={"self": "where(self <= 0, exp(self / alpha), 1)"},
    inplace=True,
    method=False,
    oracle="nn.functional.celu",
    samples=lambda s: [*_unit_samples(s), s(s.tensor(3, 4), 0.5)],
    doc="Apply the continuously differentiable exponential unit (Barron, 2017).",
)

softplus = pointwise(
    "softplus(Tensor self, Scalar beta=1.0, Scalar threshold=20.0) -> Tensor",
    "x = self * beta; where(x > threshold, self, log1p(exp(x)) / beta)",
    dtypes="floating",
    partials={"self": "x = self * beta; where(x > threshold, 1, sigmoid(x))"},
    namespace="nn",
    strict_out_dtype=True,
    oracle="nn.functional.softplus",
    samples=lambda s: [*s.unary(), s(s.tensor(3, 4), 2.0, 3.0)],
    doc="Apply `log(1 + exp(beta * self)) / beta`; linear where `beta * self > threshold`.",
)

logsigmoid = pointwise(
    "logsigmoid(Tensor self) -> Tensor",
    "log_sigmoid(self)",
    dtypes="floating",
    partials={"self": "sigmoid(-self)"},
    namespace="nn",
    strict_out_dtype=True,
    oracle="nn.functional.logsigmoid",
    samples=lambda s: s.unary(),
    doc="Compute `log(sigmoid(self))` without overflow.",
)


# Smooth gates

gelu = pointwise(
    "gelu(Tensor self, *, str approximate='none') -> Tensor",
    {
        "none": "0.5 * self * (1 + erf(self * 0.7071067811865476))",
        "tanh": "0.5 * self * "
        "(1 + tanh(0.7978845608028654 * (self + 0.044715 * self * self * self)))",
    },
    dtypes="floating",
    partials={
        "self": {
            "none": "0.5 * erfc(self * -0.7071067811865476) "
            "+ self * 0.3989422804014327 * exp(-0.5 * self * self)",
            # 1 + tanh(x / 2) = 2 sigmoid(x); beyond 100 it is 0 or 1, and no power overflows.
            "tanh": "c = minimum(maximum(self, -100), 100); "
            "x = 1.5957691216057308 * (c + 0.044715 * c * c * c); "
            "sigmoid(x) * (1 + c * sigmoid(-x) * 1.5957691216057308 * (1 + 0.134145 * c * c))",
        }
    },
    namespace="nn",
    oracle="nn.functional.gelu",
    strict_out_dtype=True,
    samples=lambda s: [
        *s.unary(specials=False),
        s(s.tensor(3, 4), approximate="tanh"),
        s(s.values([-30.0, -8.0, 0.0, 8.0, 30.0]), approximate="tanh"),
    ],
    errors=lambda s: [(s(s.tensor(2), approximate="erf"), RuntimeError, "approximate")],
    doc="Apply the Gaussian error linear unit `self * Phi(self)` (Hendrycks and Gimpel, 2016).",
)

silu = pointwise(
    "silu(Tensor self) -> Tensor",
    "self * sigmoid(self)",
    dtypes="floating complex",
    partials={"self": "sigmoid(self) * (1 + self * sigmoid(-self))"},
    inplace=True,
    namespace="nn",
    oracle="nn.functional.silu",
    samples=lambda s: s.unary(specials=False),
    doc="Apply the sigmoid linear unit `self * sigmoid(self)` (Hendrycks and Gimpel, 2016).",
)

mish = pointwise(
    "mish(Tensor self) -> Tensor",
    "self * tanh(where(self > 40, self, log1p(exp(self))))",
    dtypes="floating",
    partials={
        "self": "s = where(self > 40, self, log1p(exp(self))); "
        "tanh(s) + self * (4 * sigmoid(self) * sigmoid_slope(2 * s))"
    },
    inplace=True,
    namespace="nn",
    oracle="nn.functional.mish",
    samples=lambda s: s.unary(specials=False),
    doc="Apply `self * tanh(softplus(self))` (Misra, 2019).",
)

hardsigmoid = pointwise(
    "hardsigmoid(Tensor self) -> Tensor",
    "minimum(maximum(self + 3, 0), 6) / 6",
    dtypes="floating",
    partials={"self": "where((self > -3) & (self < 3), 0.16666666666666667, 0)"},
    inplace=True,
    namespace="nn",
    oracle="nn.functional.hardsigmoid",
    samples=lambda s: [*s.unary(), s(s.tensor(3, 4, low=-6, high=6))],
    doc="Apply the piecewise linear sigmoid `relu6(self + 3) / 6` (Howard et al., 2019).",
)

hardswish = pointwise(
    "hardswish(Tensor self) -> Tensor",
    "self * minimum(maximum(self + 3, 0), 6) / 6",
    dtypes="floating",
    partials={"self": "where(self <= -3, 0, where(self < 3, self / 3 + 0.5, 1))"},
    inplace=True,
    namespace="nn",
    oracle="nn.functional.hardswish",
    samples=lambda s: [*s.unary(specials=False), s(s.tensor(3, 4, low=-6, high=6))],
    doc="Apply `self * relu6(self + 3) / 6` (Howard et al., 2019).",
)


def _softsign_moved(by: str) -> str:
    """Write the derivative times a gradient or a tangent; of real numbers it is no difference."""
    d = "(1 + abs(self))"  # a name would need a statement, which no part of an expression is
    of_complex = f"{by} / {d} - self * (real({by} * conj(self)) / (abs(self) * {d} * {d}))"
    return f"select_complex(self, where(self == 0, {by}, {of_complex}), {by} / {d} / {d})"


softsign = pointwise(
    "softsign(Tensor self) -> Tensor",
    "self / (1 + abs(self))",
    promote="float",
    dtypes="floating complex",
    vjp={"self": _softsign_moved("g")},
    jvp={"self": _softsign_moved("self_t")},
    namespace="nn",
    oracle="nn.functional.softsign",
    samples=lambda s: s.unary(specials=False),
    doc="Apply `self / (1 + abs(self))`.",
)

tanhshrink = pointwise(
    "tanhshrink(Tensor self) -> Tensor",
    "self - tanh(self)",
    promote="float",
    check=_check_tanhshrink,
    dtypes="floating complex",
    partials={"self": "t = tanh(self); t * t"},
    namespace="nn",
    oracle="nn.functional.tanhshrink",
    samples=lambda s: s.unary(specials=False),
    doc="Apply `self - tanh(self)`.",
)
