"""Activation functions that have parameters of their own, gates, or random slopes."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.ops.definition.define import composite, pointwise
from tangrad.ops.definition.signature import Generator, Scalar, Tensor
from tangrad.ops.pointwise.activation import leaky_relu
from tangrad.ops.random import sequential as random_sequential

# Gates -------------------------------------------------------------------------------------------


@composite(
    dtypes="floating",
    namespace="nn",
    oracle="nn.functional.glu",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(6, 2, strided=True), 0),
        s(s.tensor(2, 0, 4)),
        s(s.tensor(2, 4, 3), dim=-2),
    ],
    errors=lambda s: [
        (s(s.tensor()), RuntimeError, "0-dim"),
        (s(s.tensor(3, 5)), RuntimeError, "must be even"),
        (s(s.tensor(4), 1), IndexError, "out of range"),
    ],
)
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Multiply the first half along `dim` by the sigmoid of the second half.

    Dauphin, Fan, Auli, Grangier: "Language modeling with gated convolutional networks", 2016.

    Raises:
        RuntimeError: if the size of `dim` is odd, or there are no dimensions.
    """
    if not input.dtype.is_floating_point:
        raise NotImplementedError(
            f'"glu" not implemented for {input.dtype}; convert the input with .to(dtype)'
        )
    if input.ndim == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors (0-dim); unsqueeze it")
    size = input.size(dim)
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    values, gates = input.chunk(2, dim) if size else (input, input)
    return values * gates.sigmoid()


# Learned slopes ----------------------------------------------------------------------------------

prelu_elements = pointwise(
    "prelu_elements(Tensor self, Tensor weight) -> Tensor",
    "where(self > 0, self, weight * self)",
    dtypes="floating",
    partials={"self": "where(self > 0, 1, weight)", "weight": "where(self > 0, 0, self)"},
    function=False,
    method=False,
    node="prelu_kernel",
    oracle=lambda torch, x, weight: torch.where(x > 0, x, weight * x),
    samples=lambda s: (
        [
            s(s.tensor(3, 4), s.tensor(4)),
            s(s.tensor(), s.tensor()),
            s(s.tensor(0, 2), s.tensor(1)),
            s(s.tensor(2, 3, strided=True), s.tensor(2, 1)),
        ]
        if s.is_floating
        else []
    ),
    doc="Multiply elements that are not positive by the weight at the same place.",
)


@composite(
    dtypes="floating",
    oracle="nn.functional.prelu",
    samples=lambda s: [
        s(s.tensor(3, 4), s.tensor(4)),
        s(s.tensor(2, 3, 2, strided=True), s.tensor(3)),
        s(s.tensor(2, 3), s.tensor(1)),
        s(s.tensor(2, 3), s.tensor()),
        s(s.tensor(), s.tensor()),
        s(s.tensor(5), s.tensor(1)),
        s(s.tensor(0, 2), s.tensor(2)),
    ],
    errors=lambda s: [
        (s(s.tensor(2, 3), s.tensor(2)), RuntimeError, "number of channels|channel size"),
        (s(s.tensor(2, 3), s.tensor(1, 3)), RuntimeError, "scalar or 1D tensor"),
        (s(s.tensor(), s.tensor(2)), RuntimeError, "Not allow zero-dim input tensor"),
        (s(s.tensor(2), s.tensor(1, dtype="float64")), RuntimeError, "Type promoting"),
    ],
)
def prelu(self: Tensor, weight: Tensor) -> Tensor:
    """Multiply what is not positive by a slope, one for all or one for each channel.

    He, Zhang, Ren, Sun: "Delving deep into rectifiers", 2015.

    Args:
        self: (N, C, ...), or of any shape with a single slope.
        weight: the slopes: of shape (C), (1) or ().
    """
    if self.dtype != weight.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {self.dtype} and {weight.dtype}"
        )
    if weight.ndim > 1:
        raise RuntimeError(
            "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = "
            f"{weight.ndim}, shape {list(weight.shape)}"
        )
    count = weight.numel()
    if count != 1:
        if self.ndim == 0:
            raise RuntimeError("prelu: Not allow zero-dim input tensor with several weights.")
        channels = self.shape[1] if self.ndim > 1 else 1
        if count != channels:
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{count} and channel size = {channels}."
            )
    shape = (-1,) + (1,) * (self.ndim - 2) if self.ndim > 1 else (1,) * self.ndim
    return prelu_elements(self, weight.reshape(shape))


# Random slopes -----------------------------------------------------------------------------------


def _check_slopes(lower: Any, upper: Any) -> None:
    if lower > upper:
        raise RuntimeError(
            "rrelu: Lower bound should be less than or equal to the upper bound, got "
            f"{lower} and {upper}"
        )
    for name, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise RuntimeError(f"rrelu: {name} bound must be finite, got {bound}")


@composite(
    dtypes="floating",
    random=True,
    inplace=True,
    method=False,
    oracle="rrelu",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(3, 4, strided=True), 0.1, 0.5),
        s(s.tensor(), training=True),
        s(s.tensor(0, 2), training=True),
        s(s.tensor(5), 0.25, 0.25, True),
    ],
    errors=lambda s: [
        (s(s.tensor(2), 0.5, 0.25), RuntimeError, "Lower bound should be less"),
        (s(s.tensor(2), -math.inf, 1.0), RuntimeError, "must be finite"),
    ],
)
def rrelu(
    self: Tensor,
    lower: Scalar = 0.125,
    upper: Scalar = 0.3333333333333333,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Multiply what is not positive by a slope: drawn from [lower, upper] in training.

    Otherwise by the middle of the range (Xu, Wang, Chen, Li: "Empirical evaluation of rectified
    activations in convolutional network", 2015).
    """
    _check_slopes(lower, upper)
    if not training:
        return leaky_relu(self, (lower + upper) / 2)
    engine = random_sequential.engine_of(generator, self.device)
    if engine is not None:
        slopes = random_sequential.slopes(self, lower, upper, engine)
        return tangrad.where(self <= 0, (self * slopes).to(self.dtype), self)
    slopes = tangrad.empty_like(self).detach().uniform_(lower, upper, generator=generator)
    return tangrad.where(self <= 0, self * slopes, self)


@composite(
    dtypes="floating",
    random=True,
    namespace="nn",
    method=False,
    oracle="nn.functional.gumbel_softmax",
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor(3, 4), 0.5, hard=True),
        s(s.tensor(2, 3), dim=0),
        s(s.tensor(4, 2), hard=True, dim=0),
    ],
    errors=lambda s: [(s(s.tensor(2), dim=1), IndexError, "out of range")],
)
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Draw from a distribution over categories, in a way that has a gradient.

    The softmax of the logits plus Gumbel noise, divided by `tau` (Jang, Gu, Poole: "Categorical
    reparameterization with Gumbel-softmax", 2016).

    Args:
        logits: unnormalised log-probabilities.
        tau: temperature; towards 0 the draws become one-hot.
        hard: give one-hot vectors, with the gradient of the soft ones.
        eps: ignored.
        dim: dimension of the categories.
    """
    if eps != 1e-10:
        import warnings

        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=4)
    noise = -tangrad.empty_like(logits).detach().exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    chosen = soft.argmax(dim, keepdim=True)
    one_hot = tangrad.zeros_like(soft).detach().scatter(dim, chosen, 1.0)
    return one_hot - soft.detach() + soft
