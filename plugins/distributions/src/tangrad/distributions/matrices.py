"""Distributions of matrices: Wishart's, of scatter matrices, and LKJ's, of correlations."""

from __future__ import annotations

import math
import warnings
from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.distribution import Distribution, ExponentialFamily
from tangrad.distributions.interval import Beta
from tangrad.distributions.multivariate import (
    HasScaleMatrix,
    factor_of,
    log_diagonal,
    one_of,
    scatter_of,
)
from tangrad.distributions.positive import Chi2
from tangrad.distributions.utils import broadcast_all, standard_normal

__all__ = ["LKJCholesky", "Wishart"]


class Wishart(HasScaleMatrix, ExponentialFamily):
    """Wishart's distribution: of scatter matrices of `df` normal vectors.

    Args:
        df: degrees of freedom, more than n - 1.
        covariance_matrix: shape (..., n, n).
        precision_matrix: instead, the inverse of the covariance.
        scale_tril: instead, its Cholesky factor.

    Raises:
        ValueError: not one of the matrices was given, or there are too few degrees of freedom.
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    df: Any

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = one_of(
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        event_shape = matrix.shape[-2:]
        if not isinstance(df, tangrad.Tensor):
            df = tangrad.tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = tangrad.broadcast_shapes(matrix.shape[:-2], df.shape)
        self.df = df.expand(batch)
        self._take_matrix(name, matrix.expand(batch + event_shape))
        if self.df.le(event_shape[-1] - 1).any():
            raise ValueError(
                f"Value of df={df} expected to be greater than ndim - 1 = {event_shape[-1] - 1}."
            )
        super().__init__(batch, event_shape, validate_args)
        if self.df.lt(event_shape[-1]).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        self._unbroadcasted_scale_tril = factor_of(name, matrix)
        places = tangrad.arange(event_shape[-1], dtype=df.dtype, device=df.device)
        # Bartlett's decomposition: place i has df - i degrees of freedom.
        self._chi2 = Chi2(self.df.unsqueeze(-1) - places)

    @property
    def arg_constraints(self) -> Any:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    def _matrix(self, value: Any) -> Any:
        return value.expand(self._batch_shape + self._event_shape)

    @property
    def _df(self) -> Any:
        return self.df.reshape((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Any:
        return self._df * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self._df - self.covariance_matrix.shape[-1] - 1
        return factor.masked_fill(factor <= 0, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._df * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Any:
        """Draw matrices, by Bartlett's decomposition.

        Args:
            sample_shape: how many.
            max_try_correction: how often to draw anew what rounding made singular; None for 3
                with few degrees of freedom, else 10.
        """
        sample_shape = tangrad.Size(sample_shape)
        drawn = self._bartlett(sample_shape)
        if max_try_correction is None:
            max_try_correction = 3 if self._low_df() else 10
        for _ in range(max_try_correction):
            singular = ~self.support.check(drawn)
            if not singular.any():
                return drawn
            again = self._bartlett(sample_shape)
            drawn = tangrad.where(singular[..., None, None], again, drawn)
        if not self.support.check(drawn).all():
            warnings.warn("Singular sample detected.", stacklevel=2)
        return drawn

    def _low_df(self) -> bool:
        return bool(self.df.lt(self._event_shape[-1]).any())

    def _bartlett(self, sample_shape: Any) -> Any:
        dtype = self._unbroadcasted_scale_tril.dtype  # degrees of freedom may be integers
        tiny = tangrad.finfo(dtype).tiny
        diagonal = self._chi2.rsample(sample_shape).sqrt().clamp(min=tiny).diag_embed()
        shape = self._extended_shape(sample_shape)
        noise = standard_normal(shape, dtype, self.df.device)
        return scatter_of(self._unbroadcasted_scale_tril @ (diagonal + noise.tril(-1)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        nu, p = self.df, self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        trace = tangrad.cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            -nu * (p * math.log(2) / 2 + log_diagonal(factor))
            - tangrad.mvlgamma(nu / 2, p)
            + (nu - p - 1) / 2 * tangrad.linalg.slogdet(value).logabsdet
            - trace / 2
        )

    def entropy(self) -> Any:
        nu, p = self.df, self._event_shape[-1]
        volume = p * math.log(2) / 2 + log_diagonal(self._unbroadcasted_scale_tril)
        return (
            (p + 1) * volume
            + tangrad.mvlgamma(nu / 2, p)
            - (nu - p - 1) / 2 * _mvdigamma(nu / 2, p)
            + nu * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        p = self._event_shape[-1]
        return -self.precision_matrix / 2, (self.df - p - 1) / 2

    def _log_normalizer(self, *natural_params: Any) -> Any:
        x, y = natural_params
        p = self._event_shape[-1]
        half = y + (p + 1) / 2
        return half * (
            -tangrad.linalg.slogdet(-2 * x).logabsdet + math.log(2) * p
        ) + tangrad.mvlgamma(half, p)


def _mvdigamma(x: Any, p: int) -> Any:
    """Return the derivative of `mvlgamma`."""
    halves = tangrad.arange(p, dtype=x.dtype, device=x.device) / 2
    return tangrad.digamma(x.unsqueeze(-1) - halves).sum(-1)


class LKJCholesky(Distribution):
    """The distribution of Cholesky factors of correlation matrices.

    The density of a matrix M is proportional to `det(M) ** (concentration - 1)`. Drawn by the
    onion method (Lewandowski, Kurowicka and Joe: "Generating random correlation matrices based
    on vines and extended onion method", 2009).

    Args:
        dim: the size of the matrices, at least 2.
        concentration: 1 for all matrices alike, more for those near the identity.

    Raises:
        ValueError: the size is less than 2.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    concentration: Any

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        like = {"dtype": self.concentration.dtype, "device": self.concentration.device}
        marginal = self.concentration + 0.5 * (dim - 2)
        place = tangrad.arange(dim - 1, **like)
        place = tangrad.cat([place.new_zeros((1,)), place])
        # The squared length of a row beside its diagonal; that of the first is not used.
        self._beta = Beta((place + 1) / 2, marginal.unsqueeze(-1) - place / 2)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Any = ()) -> Any:
        with tangrad.no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            normal = tangrad.randn(shape, dtype=y.dtype, device=y.device).tril(-1)
            direction = normal / normal.norm(dim=-1, keepdim=True)
            direction = direction.index_fill(-2, tangrad.tensor([0], device=y.device), 0.0)
            w = y.sqrt() * direction
            tiny = tangrad.finfo(w.dtype).tiny
            return w + (1 - (w**2).sum(-1)).clamp(min=tiny).sqrt().diag_embed()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = tangrad.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        unnormalized = (order * diagonal.log()).sum(-1)
        less = self.dim - 1
        alpha = self.concentration + 0.5 * less
        denominator = tangrad.lgamma(alpha) * less
        numerator = tangrad.mvlgamma(alpha - 0.5, less)
        return unnormalized - (0.5 * less * math.log(math.pi) + numerator - denominator)
