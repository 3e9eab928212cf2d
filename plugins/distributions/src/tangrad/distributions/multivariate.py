"""Multivariate normal distributions, by a full or by a low-rank covariance."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.distribution import Distribution
from tangrad.distributions.utils import Keeper, forget, lazy_property, standard_normal

__all__ = ["LowRankMultivariateNormal", "MultivariateNormal"]


def log_diagonal(factor: Any) -> Any:
    """Return half of the log-determinant of the matrix of a Cholesky factor."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def factor_of_inverse(matrix: Any) -> Any:
    """Return the Cholesky factor of the inverse, from the factor of the matrix turned around."""
    turned = tangrad.linalg.cholesky(tangrad.flip(matrix, (-2, -1)))
    upper = tangrad.flip(turned, (-2, -1)).mT
    eye = tangrad.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return tangrad.linalg.solve_triangular(upper, eye, upper=False)


def scatter_of(factor: Any) -> Any:
    """Return the matrix of a factor."""
    return factor @ factor.mT


def inverse_of_factor(factor: Any) -> Any:
    """Return the inverse of the matrix of a Cholesky factor."""
    return tangrad.cholesky_inverse(factor)


def squared_length(factor: Any, difference: Any) -> Any:
    """Return Mahalanobis' squared distance: the squared length in units of a Cholesky factor."""
    shape = tangrad.broadcast_shapes(factor.shape[:-2], difference.shape[:-1])
    whitened = tangrad.linalg.solve_triangular(
        factor.expand(shape + factor.shape[-2:]),
        difference.expand(shape + difference.shape[-1:]).unsqueeze(-1),
        upper=False,
    )
    return whitened.squeeze(-1).pow(2).sum(-1)


class HasScaleMatrix(Keeper):
    """A distribution given by a matrix, which is kept as its Cholesky factor.

    Attributes:
        _unbroadcasted_scale_tril: the factor, of the batch's shape before `expand`.
    """

    _unbroadcasted_scale_tril: Any

    def _matrix(self, value: Any) -> Any:
        raise NotImplementedError

    def _take_matrix(self, name: str, matrix: Any) -> None:
        """Keep the matrix that was given; the others follow."""
        forget(self, "scale_tril", "covariance_matrix", "precision_matrix")
        setattr(self, name, matrix)

    @lazy_property
    def scale_tril(self) -> Any:
        """The covariance's Cholesky factor."""
        return self._matrix(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return self._matrix(scatter_of(self._unbroadcasted_scale_tril))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return self._matrix(inverse_of_factor(self._unbroadcasted_scale_tril))


class MultivariateNormal(HasScaleMatrix, Distribution):
    """The normal distribution of vectors.

    Args:
        loc: the mean, shape (..., n).
        covariance_matrix: shape (..., n, n).
        precision_matrix: instead, the inverse of the covariance.
        scale_tril: instead, its Cholesky factor, the fastest.

    Raises:
        ValueError: not one of the matrices was given, or shapes do not fit.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    loc: Any

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = one_of(
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        batch = tangrad.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self._take_matrix(name, matrix.expand(batch + matrix.shape[-2:]))
        self.loc = loc.expand(batch + loc.shape[-1:])
        super().__init__(batch, self.loc.shape[-1:], validate_args)
        self._unbroadcasted_scale_tril = factor_of(name, matrix)

    def _matrix(self, value: Any) -> Any:
        return value.expand(self._batch_shape + self._event_shape * 2)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        squares = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return squares.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        eps = standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + (self._unbroadcasted_scale_tril @ eps.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        length = squared_length(self._unbroadcasted_scale_tril, value - self.loc)
        volume = log_diagonal(self._unbroadcasted_scale_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + length) - volume

    def entropy(self) -> Any:
        spread = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (spread + log_diagonal(self._unbroadcasted_scale_tril)).expand(self._batch_shape)


def one_of(**matrices: Any) -> tuple[str, Any]:
    """Return the one matrix that was given, and its name.

    Raises:
        ValueError: none or several were given, or it has fewer than two dimensions.
    """
    given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
    if len(given) != 1:
        raise ValueError(f"Exactly one of {' or '.join(matrices)} may be specified.")
    name, matrix = given[0]
    if matrix.dim() < 2:
        raise ValueError(
            f"{name} must be at least two-dimensional, with optional leading batch dimensions, "
            f"got shape {tuple(matrix.shape)}"
        )
    return name, matrix


def factor_of(name: str, matrix: Any) -> Any:
    """Return the covariance's Cholesky factor from the matrix that was given."""
    if name == "scale_tril":
        return matrix
    if name == "covariance_matrix":
        return tangrad.linalg.cholesky(matrix)
    return factor_of_inverse(matrix)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors whose covariance is `W Wᵀ + D`, of W with few columns.

    Only small matrices are factorized, by Woodbury's identity and the determinant lemma.

    Args:
        loc: the mean, shape (..., n).
        cov_factor: W, shape (..., n, rank).
        cov_diag: the diagonal of D, shape (..., n).

    Raises:
        ValueError: shapes do not fit.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    loc: Any
    cov_factor: Any
    cov_diag: Any

    def __init__(
        self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        n = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with leading batches")
        if cov_factor.shape[-2:-1] != n:
            raise ValueError(
                f"cov_factor must be a batch of matrices with shape {n[0]} x m, got "
                f"{tuple(cov_factor.shape)}"
            )
        if cov_diag.shape[-1:] != n:
            raise ValueError(
                f"cov_diag must be a batch of vectors with shape {tuple(n)}, got "
                f"{tuple(cov_diag.shape)}"
            )
        try:
            batch = tangrad.broadcast_shapes(
                loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]
            )
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {tuple(loc.shape)}, cov_factor "
                f"{tuple(cov_factor.shape)}, cov_diag {tuple(cov_diag.shape)}"
            ) from error
        self.loc, self.cov_diag = loc.expand(batch + n), cov_diag.expand(batch + n)
        self.cov_factor = cov_factor.expand(batch + cov_factor.shape[-2:])
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        # I + Wᵀ D⁻¹ W
        capacitance = cov_factor.mT / cov_diag.unsqueeze(-2) @ cov_factor
        eye = tangrad.eye(capacitance.shape[-1], dtype=loc.dtype, device=loc.device)
        self._capacitance_tril = tangrad.linalg.cholesky(capacitance + eye)
        super().__init__(batch, n, validate_args)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        squares = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return squares.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The covariance's Cholesky factor, from that of D^-½ (W Wᵀ + D) D^-½."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        eye = tangrad.eye(scaled.shape[-2], dtype=scaled.dtype, device=scaled.device)
        return self._matrix(root * tangrad.linalg.cholesky(scatter_of(scaled) + eye))

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        low_rank = scatter_of(self._unbroadcasted_cov_factor)
        return self._matrix(low_rank + tangrad.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        inverse = self._unbroadcasted_cov_diag.reciprocal()
        scaled = self._unbroadcasted_cov_factor.mT * inverse.unsqueeze(-2)
        whitened = tangrad.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._matrix(tangrad.diag_embed(inverse) - whitened.mT @ whitened)

    def _matrix(self, value: Any) -> Any:
        return value.expand(self._batch_shape + self._event_shape * 2)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        rank = self.cov_factor.shape[-1:]
        common = standard_normal(shape[:-1] + rank, self.loc.dtype, self.loc.device)
        own = standard_normal(shape, self.loc.dtype, self.loc.device)
        moved = (self._unbroadcasted_cov_factor @ common.unsqueeze(-1)).squeeze(-1)
        return self.loc + moved + self._unbroadcasted_cov_diag.sqrt() * own

    def _squared_length(self, difference: Any) -> Any:
        """Return Mahalanobis' squared distance by Woodbury's identity."""
        return low_rank_squared_length(
            self._unbroadcasted_cov_factor,
            self._unbroadcasted_cov_diag,
            difference,
            self._capacitance_tril,
        )

    def _log_determinant(self) -> Any:
        """Return the covariance's log-determinant by the determinant lemma."""
        own = self._unbroadcasted_cov_diag.log().sum(-1)
        return 2 * log_diagonal(self._capacitance_tril) + own

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        length = self._squared_length(value - self.loc)
        spread = self._event_shape[0] * math.log(2 * math.pi) + self._log_determinant()
        return -0.5 * (spread + length)

    def entropy(self) -> Any:
        spread = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (0.5 * (spread + self._log_determinant())).expand(self._batch_shape)


def low_rank_squared_length(w: Any, d: Any, difference: Any, capacitance_tril: Any) -> Any:
    """Return `xᵀ (W Wᵀ + D)⁻¹ x` from the Cholesky factor of the capacitance matrix."""
    projected = ((w.mT / d.unsqueeze(-2)) @ difference.unsqueeze(-1)).squeeze(-1)
    outer = (difference.pow(2) / d).sum(-1)
    return outer - squared_length(capacitance_tril, projected)
