"""Where values may lie: the supports of distributions and the domains of parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tangrad

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


class Constraint:
    """Say for each event whether it lies in a region.

    Attributes:
        is_discrete: whether the region is discrete.
        event_dim: how many dimensions at the end make an event.
    """

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Any) -> Any:
        """Return bool of the shape without the event's dimensions."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}()"


class _Dependent(Constraint):
    """Stand for a region that depends on parameters or on other variables."""

    def __init__(
        self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim
        super().__init__()

    def _stated(self, name: str) -> Any:
        value = getattr(self, f"_{name}")
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    is_discrete = property(lambda self: self._stated("is_discrete"))
    event_dim = property(lambda self: self._stated("event_dim"))

    def __call__(
        self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> _Dependent:
        """Return a copy of which more is stated."""
        if is_discrete is NotImplemented:
            is_discrete = self._is_discrete
        if event_dim is NotImplemented:
            event_dim = self._event_dim
        return _Dependent(is_discrete=is_discrete, event_dim=event_dim)

    def check(self, value: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Tell whether a constraint is a dependent one."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """Be a property of instances, and of their class a dependent constraint."""

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> _DependentProperty:  # type: ignore[override]
        """Decorate a function, after `is_discrete` and `event_dim` were given."""
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """Take dimensions of the batch into the event."""

    def __init__(self, base_constraint: Any, reinterpreted_batch_ndims: int) -> None:
        _require("base_constraint", base_constraint, Constraint)
        _require("reinterpreted_batch_ndims", reinterpreted_batch_ndims, int)
        if reinterpreted_batch_ndims < 0:
            raise ValueError("reinterpreted_batch_ndims must be >= 0")
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(
        lambda self: self.base_constraint.event_dim + self.reinterpreted_batch_ndims
    )

    def check(self, value: Any) -> Any:
        result = self.base_constraint.check(value)
        return _all_rightmost(result, self.reinterpreted_batch_ndims, self.event_dim)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__[1:]}({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"
        )


class MixtureSameFamilyConstraint(Constraint):
    """Check values of a mixture, which lack the dimension of the components."""

    def __init__(self, base_constraint: Any) -> None:
        _require("base_constraint", base_constraint, Constraint)
        self.base_constraint = base_constraint

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)

    def check(self, value: Any) -> Any:
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return result.reshape((*result.shape[: value.dim() - self.event_dim], -1)).all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


def _require(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise AssertionError(f"{name} must be of {kind.__name__}, got {type(value).__name__}")


def _all_rightmost(result: Any, dims: int, event_dim: int) -> Any:
    if result.dim() < dims:
        raise ValueError(
            f"Expected value.dim() >= {event_dim} but got {result.dim() + event_dim - dims}"
        )
    return result.reshape((*result.shape[: result.dim() - dims], -1)).all(-1)


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _Bounded(Constraint):
    """Hold bounds, in the order of `fields`, and print them."""

    fields: tuple[str, ...] = ("lower_bound", "upper_bound")

    def __init__(self, *bounds: Any, **named: Any) -> None:
        given = dict(zip(self.fields, bounds, strict=False)) | named
        if len(bounds) + len(named) != len(self.fields) or set(given) != set(self.fields):
            raise TypeError(f"{type(self).__name__} takes {' and '.join(self.fields)}")
        vars(self).update(given)
        super().__init__()

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={getattr(self, name)}" for name in self.fields)
        return f"{type(self).__name__[1:]}({bounds})"


class _Lower(_Bounded):
    fields = ("lower_bound",)
    lower_bound: Any


class _Upper(_Bounded):
    fields = ("upper_bound",)
    upper_bound: Any


class _Between(_Bounded):
    lower_bound: Any
    upper_bound: Any


class _IntegerInterval(_Between):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _IntegerLessThan(_Upper):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Lower):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _Real(Constraint):
    def check(self, value: Any) -> Any:
        return value == value  # not NaN


class _GreaterThan(_Lower):
    def check(self, value: Any) -> Any:
        return self.lower_bound < value


class _GreaterThanEq(_Lower):
    def check(self, value: Any) -> Any:
        return self.lower_bound <= value


class _LessThan(_Upper):
    def check(self, value: Any) -> Any:
        return value < self.upper_bound


class _Interval(_Between):
    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(_Upper):
    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)

    __repr__ = Constraint.__repr__


class _Matrix(Constraint):
    event_dim = 2


def _all_elements(truth: Any) -> Any:
    return truth.flatten(-2).all(-1)


class _LowerTriangular(_Matrix):
    def check(self, value: Any) -> Any:
        return _all_elements(value.tril() == value)


class _LowerCholesky(_Matrix):
    def check(self, value: Any) -> Any:
        positive = (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)
        return lower_triangular.check(value) & positive


class _CorrCholesky(_Matrix):
    def check(self, value: Any) -> Any:
        # Rounding in sums of squares grows with the number of terms.
        tolerance = tangrad.finfo(value.dtype).eps * value.shape[-1] * 10
        lengths = value.detach().norm(dim=-1)
        return lower_cholesky.check(value) & (lengths - 1).abs().le(tolerance).all(dim=-1)


class _Square(_Matrix):
    def check(self, value: Any) -> Any:
        square = value.shape[-2] == value.shape[-1]
        return tangrad.full(value.shape[:-2], square, dtype=tangrad.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Any) -> Any:
        square = super().check(value)
        if not square.all():
            return square
        return _all_elements(tangrad.isclose(value, value.mT, atol=1e-6))


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        return tangrad.linalg.eigvalsh(value).ge(0).all(-1) if symmetric.all() else symmetric


class _PositiveDefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        return tangrad.linalg.cholesky_ex(value).info.eq(0) if symmetric.all() else symmetric


class _Joined(Constraint):
    """Hold a sequence of constraints for the parts of a value along a dimension."""

    def __init__(self, cseq: Sequence[Any], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim
        for constraint in self.cseq:
            _require("each of cseq", constraint, Constraint)

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))


class _Cat(_Joined):
    """Check parts that lie side by side along a dimension."""

    def __init__(self, cseq: Sequence[Any], dim: int = 0, lengths: Sequence[int] | None = None):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(
                f"{len(self.lengths)} lengths were given for {len(self.cseq)} constraints"
            )

    event_dim = property(lambda self: max(c.event_dim for c in self.cseq))

    def check(self, value: Any) -> Any:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} is out of range for a value of {value.dim()}")
        parts = value.split(self.lengths, self.dim)
        return tangrad.cat(
            [c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim
        )


class _Stack(_Joined):
    """Check slices of a dimension."""

    @property
    def event_dim(self) -> int:
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Any) -> Any:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} is out of range for a value of {value.dim()}")
        slices = value.unbind(self.dim)
        return tangrad.stack(
            [c.check(part) for c, part in zip(self.cseq, slices, strict=False)], self.dim
        )


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
integer_interval = _IntegerInterval
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
real = _Real()
real_vector = independent(real, 1)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
interval = _Interval
unit_interval = _Interval(0.0, 1.0)
half_open_interval = _HalfOpenInterval
multinomial = _Multinomial
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
