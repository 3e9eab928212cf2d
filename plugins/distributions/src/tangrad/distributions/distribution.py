"""The base of all distributions: shapes, validation, expansion; exponential families."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.utils import (
    Keeper,
    broadcast_all,
    forget,
    keep_computed,
    lazy_property,
)

__all__ = ["Distribution", "ExponentialFamily"]


def _is_lazy(owner: type, name: str) -> bool:
    found = next((vars(c)[name] for c in owner.__mro__ if name in vars(c)), None)
    return isinstance(found, lazy_property)


class Distribution(Keeper):
    """Describe a batch of probability distributions of one kind.

    A subclass names its parameters in `arg_constraints` and keeps them as attributes. What it
    inherits follows from that: validation, `expand` and how it prints.

    Args:
        batch_shape: the shape of the batch, in which every member has its own parameters.
        event_shape: the shape of one number drawn.
        validate_args: check parameters, and arguments of `log_prob`, `cdf` and `icdf`; None for
            what `set_default_validate_args` said.

    Raises:
        ValueError: a parameter breaks its constraint.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args: bool = __debug__
    _batch_shape: Any
    _event_shape: Any

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Say whether distributions made from now on check their arguments.

        Raises:
            ValueError: the value is neither True nor False.
        """
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args expects True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape = tangrad.Size(batch_shape)
        self._event_shape = tangrad.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        else:  # what an earlier call of `__init__` was told
            vars(self).pop("_validate_args", None)
        if self._validate_args:
            self._validate_parameters()
        super().__init__()  # a program's distribution may be a module, too

    def _take(self, validate_args: bool | None, **parameters: Any) -> None:
        """Broadcast the parameters of a distribution of single numbers, and keep them."""
        values = broadcast_all(*parameters.values())
        forget(self, *parameters)
        vars(self).update(zip(parameters, values, strict=True))
        Distribution.__init__(self, values[0].shape, validate_args=validate_args)

    def _validate_parameters(self) -> None:
        try:
            stated = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints ="
                " {}` or initialize the distribution with `validate_args=False` to turn off"
                " validation.",
                stacklevel=4,
            )
            return
        for name, constraint in stated.items():
            computed = name not in vars(self) and _is_lazy(type(self), name)
            if constraints.is_dependent(constraint) or computed:
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """Return the distribution with a larger batch, whose new members share parameters.

        Args:
            batch_shape: to which the batch's shape can be broadcast.
        """
        new = object.__new__(type(self)) if _instance is None else _instance
        batch_shape = tangrad.Size(batch_shape)
        computed = vars(self).get("_computed", {})
        for name, value in vars(self).items():
            if name not in computed and name != "_computed" and self._is_expanded(name):
                setattr(new, name, self._expanded(name, value, batch_shape))
        new._batch_shape = batch_shape
        for name in filter(self._is_expanded, list(computed)):
            keep_computed(new, name, self._expanded(name, getattr(self, name), batch_shape))
        return new

    def _is_expanded(self, name: str) -> bool:
        return self._constraint_of(name) is not None or not _is_lazy(type(self), name)

    def _constraint_of(self, name: str) -> Any:
        """Return the constraint of a parameter, also of one of a base class, or None."""
        if name in self.arg_constraints:
            return self.arg_constraints[name]
        return _constraints_of(type(self)).get(name)  # type: ignore[arg-type]

    def _expanded(self, name: str, value: Any, batch_shape: Any) -> Any:
        """Return what an attribute is after `expand`."""
        constraint = self._constraint_of(name)
        if constraint is not None and hasattr(value, "expand"):
            return value.expand(batch_shape + value.shape[value.dim() - constraint.event_dim :])
        if isinstance(value, Distribution):
            return value.expand(batch_shape + value.batch_shape[len(self._batch_shape) :])
        return value

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """Return what an `expand` of a program's own fills in: an instance not initialised."""
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return object.__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self) -> Any:
        """The shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of a single number drawn, without batching."""
        return self._event_shape

    @property
    def arg_constraints(self) -> Mapping[str, Any]:
        """The constraint of each parameter by name."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint of numbers drawn."""
        raise NotImplementedError

    @property
    def mean(self) -> Any:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Any:
        """The most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Any:
        """Draw numbers, without gradients: shape `sample_shape + batch_shape + event_shape`."""
        with tangrad.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Draw numbers that are functions of the parameters, so that gradients pass through."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Any:
        """Draw n numbers: `sample((n,))`."""
        warnings.warn(
            "sample_n(n) will be deprecated. Use .sample((n,)) instead.", UserWarning, stacklevel=2
        )
        return self.sample((n,))

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density or probability at a value."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Any:
        """Return the probability of at most a value."""
        raise NotImplementedError

    def icdf(self, value: Any) -> Any:
        """Return the quantile of a probability, the inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Any:
        """Return all values of a discrete distribution, along a new first dimension.

        Args:
            expand: repeat them over the batch; otherwise its dimensions have size 1.
        """
        raise NotImplementedError

    def _enumerated(self, values: Any, expand: bool) -> Any:
        values = values.reshape((-1, *(1,) * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values

    def entropy(self) -> Any:
        """Return the entropy, shape `batch_shape`."""
        raise NotImplementedError

    def perplexity(self) -> Any:
        """Return the exponential of the entropy."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = ()) -> Any:
        return tangrad.Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Any) -> None:
        """Check an argument of `log_prob`, `cdf` or `icdf`.

        Raises:
            ValueError: it is no tensor, does not fit the shapes, or is not in the support.
        """
        if not isinstance(value, tangrad.Tensor):
            raise ValueError(
                f"The value argument to log_prob must be a Tensor, not {type(value).__name__}"
            )
        event_start = value.dim() - len(self._event_shape)
        if value.shape[max(event_start, 0) :] != self._event_shape:
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{tuple(value.shape)} vs {tuple(self._event_shape)}."
            )
        sizes = zip(
            reversed(value.shape), reversed(self._batch_shape + self._event_shape), strict=False
        )
        if any(i != j and 1 not in (i, j) for i, j in sizes):
            raise ValueError(
                "Value is not broadcastable with batch_shape+event_shape: "
                f"{tuple(value.shape)} vs {tuple(self._batch_shape + self._event_shape)}."
            )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, but found "
                f"invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        shown = []
        for name in self.arg_constraints:
            if name in vars(self):
                value = vars(self)[name]
                shown.append(f"{name}: {value if value.numel() == 1 else value.size()}")
        return f"{type(self).__name__}({', '.join(shown)})"


class ExponentialFamily(Distribution):
    """Describe densities `exp(<t(x), θ> - F(θ) + k(x))` of natural parameters θ.

    Entropy and divergences follow from the log normalizer F and its gradient (Nielsen and Nock:
    "Entropies and cross-entropies of exponential families", 2010).
    """

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        """The natural parameters θ, tensors."""
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Any:
        """Return F of natural parameters."""
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> float:
        """The mean of k(x)."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """Return the entropy, from the log normalizer by automatic differentiation."""
        parameters, value, slopes = bregman_parts(self)
        for theta, slope in zip(parameters, slopes, strict=True):
            value = value - (theta * slope).reshape((*self._batch_shape, -1)).sum(-1)
        return value - self._mean_carrier_measure


def bregman_parts(family: ExponentialFamily) -> tuple[list[Any], Any, tuple[Any, ...]]:
    """Return natural parameters, the log normalizer and its gradient by each of them."""
    with tangrad.enable_grad():
        parameters = [theta.detach().requires_grad_() for theta in family._natural_params]
        value = family._log_normalizer(*parameters)
        slopes = tangrad.autograd.grad(value.sum(), parameters, create_graph=True)
    return parameters, value, slopes


@cache
def _constraints_of(kind: type) -> dict[str, Any]:
    """Return the constraints of the parameters that a class and those before it state."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        stated = vars(each).get("arg_constraints")
        found.update(stated if isinstance(stated, Mapping) else {})
    return found
