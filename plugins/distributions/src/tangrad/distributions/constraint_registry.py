"""From a constraint to a transform of all real numbers to it, as optimizers need.

`biject_to` gives a bijection, for samplers; `transform_to` a transform that may have many
preimages and is the better for optimization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad.distributions import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Find a transform to a constraint by the constraint's type."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}

    def register(self, constraint: Any, factory: Callable[[Any], Any] | None = None) -> Any:
        """Say how to make transforms to constraints of a type; a decorator without `factory`.

        Args:
            constraint: the type, or an instance of it.
            factory: function from a constraint to a transform.

        Raises:
            TypeError: the constraint is none.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, but got "
                f"{constraint}"
            )
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """Return a transform to a constraint.

        Raises:
            NotImplementedError: none is registered for its type.
        """
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _from_bound(bound: Any, sign: int) -> Any:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(bound, sign)]
    )


def _to_interval(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)]
    )


_BOTH: dict[Any, Callable[[Any], Any]] = {
    constraints.real: lambda c: transforms.identity_transform,
    constraints.greater_than: lambda c: _from_bound(c.lower_bound, 1),
    constraints.greater_than_eq: lambda c: _from_bound(c.lower_bound, 1),
    constraints.less_than: lambda c: _from_bound(c.upper_bound, -1),
    constraints.interval: _to_interval,
    constraints.half_open_interval: _to_interval,
    constraints.corr_cholesky: lambda c: transforms.CorrCholeskyTransform(),
}


def _register_of_parts(to: ConstraintRegistry) -> None:
    """Register what is made of transforms to parts of a constraint."""
    to.register(
        constraints.independent,
        lambda c: transforms.IndependentTransform(
            to(c.base_constraint), c.reinterpreted_batch_ndims
        ),
    )
    to.register(
        constraints.cat,
        lambda c: transforms.CatTransform([to(part) for part in c.cseq], c.dim, c.lengths),
    )
    to.register(
        constraints.stack,
        lambda c: transforms.StackTransform([to(part) for part in c.cseq], c.dim),
    )


for _to in (biject_to, transform_to):
    _register_of_parts(_to)
    for _constraint, _factory in _BOTH.items():
        _to.register(_constraint, _factory)

biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
for _constraint in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_constraint, lambda c: transforms.PositiveDefiniteTransform())
