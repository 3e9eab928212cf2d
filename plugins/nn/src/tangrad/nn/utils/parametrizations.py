"""Parametrizations for weights that are orthogonal, of spectral norm 1, or split into two."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, TypeVar

import tangrad
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module
from tangrad.nn.utils import parametrize
from tangrad.nn.utils.spectral_norm import output_dim, rows_of
from tangrad.nn.utils.weight_norm import norms_except, with_norms

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

M = TypeVar("M", bound=Module)

# The power method starts from random vectors; as many steps are taken before the first forward.
_FIRST_STEPS = 15


def _tensor_of(module: Module, name: str) -> Any:
    tensor = getattr(module, name, None)
    if not isinstance(tensor, tangrad.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return tensor


# Orthogonal matrices ------------------------------------------------------------------------------


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


def _is_orthogonal(matrix: Any) -> bool:
    rows, columns = matrix.shape[-2:]
    identity = tangrad.eye(columns, dtype=matrix.dtype, device=matrix.device)
    tolerance = 10.0 * rows * tangrad.finfo(matrix.dtype).eps
    return bool(tangrad.allclose(matrix.mH @ matrix, identity, atol=tolerance))


def _orthogonalized(matrix: Any) -> Any:
    """Return the Q of A = Q R with positive diagonal of R; A has at least as many rows."""
    packed, tau = tangrad.geqrf(matrix)
    q = tangrad.linalg.householder_product(packed, tau)
    return q * packed.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """Maps matrices to orthogonal (unitary) ones, or to such as are part of one.

    With `base`, the result is `base` times the map, so that it may start anywhere (the dynamic
    trivialization of Lezcano-Casado 2019, arXiv:1909.09501).
    """

    base: Any

    def __init__(
        self, weight: Any, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True
    ) -> None:
        super().__init__()
        # A product of complex reflections has more parameters than there are below the diagonal.
        if weight.is_complex() and orthogonal_map == _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Any) -> Any:
        wide = X.shape[-2] < X.shape[-1]
        tall = X.mT if wide else X
        if self.orthogonal_map == _OrthMaps.householder:
            q = self._reflections(tall)
        else:
            q = self._of_skew(tall)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def _of_skew(self, tall: Any) -> Any:
        """Return the first columns of the map of a skew-Hermitian matrix."""
        rows, columns = tall.shape[-2:]
        lower = tall.tril()
        if rows != columns:
            lower = F.pad(lower, (0, rows - columns))
        skew = lower - lower.mH
        if self.orthogonal_map == _OrthMaps.matrix_exp:
            q = tangrad.matrix_exp(skew)
        else:
            identity = tangrad.eye(rows, dtype=skew.dtype, device=skew.device)
            q = tangrad.linalg.solve(identity - 0.5 * skew, identity + 0.5 * skew)
        return q if rows == columns else q[..., :columns]

    def _reflections(self, tall: Any) -> Any:
        """Return the product of the reflections below the diagonal, with its signs."""
        lower = tall.tril(diagonal=-1)
        tau = 2.0 / (1.0 + (lower * lower).sum(dim=-2))
        q = tangrad.linalg.householder_product(lower, tau)
        # The diagonal is 1 or -1 and no parameter: as an integer it has no gradient.
        return q * tall.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)

    @tangrad.no_grad()
    def right_inverse(self, Q: Any) -> Any:
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {Q.shape}."
            )
        wide = Q.shape[-2] < Q.shape[-1]
        tall = Q.mT if wide else Q
        if not hasattr(self, "base"):
            packed = self._packed(tall)
            return packed.mT if wide else packed
        rows, columns = tall.shape[-2:]
        if rows == columns:
            base = tall.clone() if _is_orthogonal(tall) else _orthogonalized(tall)
        else:
            others = tangrad.randn(
                (*tall.shape[:-2], rows, rows - columns), dtype=tall.dtype, device=tall.device
            )
            base = _orthogonalized(tangrad.cat([tall, others], dim=-1))
        self.base = base
        # Where each map is the identity: the reflections need -1 on the diagonal for that.
        start = tangrad.zeros_like(Q)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start

    def _packed(self, tall: Any) -> Any:
        """Return the reflections whose product is the Q of QR with positive diagonal of R."""
        if self.orthogonal_map != _OrthMaps.householder:
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        packed, tau = tangrad.geqrf(tall)
        diagonal = packed.diagonal(dim1=-2, dim2=-1)
        signs = diagonal.sign()
        # LAPACK's tau is exactly 0 where it needs no reflection; ours would be one all the same.
        diagonal.copy_(tangrad.where(tau == 0.0, -signs, signs))
        return packed


def orthogonal(
    module: M,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> M:
    """Keep a weight's rows or columns, whichever are fewer, orthonormal.

    Args:
        module: the module.
        name: name of the weight, a matrix or batch of matrices.
        orthogonal_map: ``"matrix_exp"``, ``"cayley"`` or ``"householder"``; by default the first
            for square and complex matrices, the last for others.
        use_trivialization: multiply by a fixed orthogonal matrix, so that the map starts at the
            identity and the weight can be assigned to.

    Returns:
        The module.

    Raises:
        ValueError: there is no such weight, it has less than two dimensions, the map is unknown
            or not for complex matrices.
    """
    weight = _tensor_of(module, name)
    if weight.dim() < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _OrthMaps.__members__:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    function = _Orthogonal(weight, _OrthMaps[orthogonal_map], use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, function, unsafe=True)
    return module


# Direction and length -----------------------------------------------------------------------------


class _WeightNorm(Module):
    """Maps lengths and directions to a weight."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return with_norms(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        return norms_except(weight, self.dim), weight


def weight_norm(module: M, name: str = "weight", dim: int = 0) -> M:
    """Express a weight as g * v / norm(v) (Salimans, Kingma 2016, arXiv:1602.07868).

    Args:
        module: the module.
        name: name of the weight; g is its `original0` then, v its `original1`.
        dim: the dimension that keeps norms of its own; None for one norm.

    Returns:
        The module. It also loads states of the older `nn.utils.weight_norm`.

    Raises:
        ValueError: there is no such weight.
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(_RenamesOlder(name))
    return module


class _RenamesOlder:
    """Renames what `nn.utils.weight_norm` saves; a class, so that it can be copied."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        old = [f"{prefix}{self.name}_{letter}" for letter in "gv"]
        if not all(key in state_dict for key in old):
            return
        for i, key in enumerate(old):
            new = f"{prefix}parametrizations.{self.name}.original{i}"
            state_dict[new] = state_dict.pop(key)


# Spectral norm ------------------------------------------------------------------------------------


class _SpectralNorm(Module):
    """Divides a weight by its largest singular value, a vector by its length."""

    _u: Any
    _v: Any

    def __init__(
        self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.dim()
        if not -ndim <= dim < ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got "
                f"{dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = rows_of(weight.detach(), self.dim)
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                self.register_buffer(name, self._unit(matrix.new_empty(size).normal_(0, 1)))
            self._power_method(matrix, _FIRST_STEPS)

    def _unit(self, vector: Any) -> Any:
        return F.normalize(vector, dim=0, eps=self.eps)

    @tangrad.no_grad()
    def _power_method(self, matrix: Any, steps: int) -> None:
        # In place: the buffers may be shared, as by replicas of the module.
        for _ in range(steps):
            self._u.copy_(self._unit(matrix.mv(self._v)))
            self._v.copy_(self._unit(matrix.mH.mv(self._u)))

    def forward(self, weight: Any) -> Any:
        if weight.dim() == 1:
            return self._unit(weight)
        matrix = rows_of(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # The buffers change at the next forward, maybe before this one's backward.
        u, v = self._u.clone(), self._v.clone()
        return weight / tangrad.vdot(u, matrix.mv(v))

    def right_inverse(self, value: Any) -> Any:
        # Nothing of norm 1 is changed by the division, up to the estimate.
        return value


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Divide a weight by its largest singular value (Miyato et al. 2018, arXiv:1802.05957).

    The value is estimated by the power method: 15 steps at first, then some whenever the weight
    is read in training.

    Args:
        module: the module.
        name: name of the weight.
        n_power_iterations: steps whenever the weight is read.
        eps: added to norms that are divided by.
        dim: the dimension that counts outputs: 0, or 1 for transposed convolutions.

    Returns:
        The module.

    Raises:
        ValueError: there is no such weight, or no step.
        IndexError: the weight has no such dimension.
    """
    weight = _tensor_of(module, name)
    function = _SpectralNorm(weight, n_power_iterations, output_dim(module, dim), eps)
    parametrize.register_parametrization(module, name, function)
    return module
