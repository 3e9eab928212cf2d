"""Transforms: the base, inverses, and transforms made of others or of shapes alone."""

from __future__ import annotations

import functools
import operator
import weakref
from typing import Any

import tangrad
from tangrad.distributions import constraints
from tangrad.distributions.utils import Keeper, lazy_property, sources, sum_rightmost, unchanged

__all__ = [
    "ComposeTransform",
    "IndependentTransform",
    "ReshapeTransform",
    "Transform",
    "identity_transform",
]


class Transform(Keeper):
    """Map numbers from `domain` to `codomain`.

    A subclass defines `_call`, and `_inverse` and `log_abs_det_jacobian` where they exist.

    Args:
        cache_size: 1 to keep the latest pair of argument and result, by which the inverse of the
            result is the argument itself; else 0.

    Raises:
        ValueError: the size is neither 0 nor 1.
    """

    bijective: Any = False
    domain: Any
    codomain: Any
    _inverse_of: Any = None  # a weak reference: the inverse holds the transform
    _cached_of: Any = ()  # the sources of the latest pair

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"cache_size must be 0 or 1, got {cache_size}")
        self._cache_size = cache_size
        self._cached_x_y: tuple[Any, Any] = (None, None)
        super().__init__()  # a program's transform may be a module, too

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_inverse_of"}

    @property
    def event_dim(self) -> int:
        """How many dimensions an event has, where the map changes nothing about that."""
        if self.domain.event_dim == self.codomain.event_dim:
            return int(self.domain.event_dim)
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Any:
        """The inverse, a transform too."""
        inverse = None if self._inverse_of is None else self._inverse_of()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inverse_of = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Any:
        """The sign of the derivative, of a monotone map of single numbers."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Any:
        """Return the transform with another cache size."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    def __call__(self, x: Any) -> Any:
        """Map numbers."""
        if self._cache_size == 0:
            return self._call(x)
        if x is not self._cached_x_y[0] or not self._is_cached():
            self._cache(x, self._call(x))
        return self._cached_x_y[1]

    def _inv_call(self, y: Any) -> Any:
        if self._cache_size == 0:
            return self._inverse(y)
        if y is not self._cached_x_y[1] or not self._is_cached():
            self._cache(self._inverse(y), y)
        return self._cached_x_y[0]

    def _cache(self, x: Any, y: Any) -> None:
        self._cached_x_y = x, y
        self._cached_of = sources([x, y, self])

    def _is_cached(self) -> bool:
        """Tell whether neither the pair nor a parameter was written to since it was made."""
        return unchanged(self._cached_of, sources([*self._cached_x_y, self]))

    def _call(self, x: Any) -> Any:
        raise NotImplementedError

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Return the logarithm of how much volume grows at x, which is mapped to y."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def forward_shape(self, shape: Any) -> Any:
        """Return the shape of what arguments of a shape are mapped to."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """Return the shape of the arguments of results of a shape."""
        return shape


class PlainTransform(Transform):
    """Map without parameters: all of one kind are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))


class _InverseTransform(Transform):
    """Map the other way."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return self._inv.domain

    @property
    def bijective(self) -> bool:
        return bool(self._inv.bijective)

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Any:
        return self.inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)


class ComposeTransform(Transform):
    """Apply several transforms, the first one first.

    Args:
        parts: the transforms.
        cache_size: 1 to have every part keep its latest pair.
    """

    def __init__(self, parts: list[Any], cache_size: int = 0) -> None:
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else parts
        super().__init__(cache_size=cache_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        dim = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            dim = max(dim + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return with_event_dim(self.parts[0].domain, dim)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        dim = self.parts[0].domain.event_dim
        for part in self.parts:
            change = part.codomain.event_dim - part.domain.event_dim
            dim = max(dim + change, part.codomain.event_dim)
        return with_event_dim(self.parts[-1].codomain, dim)

    @lazy_property
    def bijective(self) -> bool:
        return all(part.bijective for part in self.parts)

    @lazy_property
    def sign(self) -> Any:
        return functools.reduce(operator.mul, (part.sign for part in self.parts), 1)

    @property
    def inv(self) -> Any:
        inverse = None if self._inverse_of is None else self._inverse_of()
        parts = [part.inv for part in reversed(self.parts)]
        if inverse is None or [*map(id, inverse.parts)] != [*map(id, parts)]:
            inverse = ComposeTransform(parts)
            self._inverse_of, inverse._inverse_of = weakref.ref(inverse), weakref.ref(self)
        return inverse

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return tangrad.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        terms, event_dim = [], self.domain.event_dim
        for part, before, after in zip(self.parts, values[:-1], values[1:], strict=True):
            term = part.log_abs_det_jacobian(before, after)
            terms.append(sum_rightmost(term, event_dim - part.domain.event_dim))
            event_dim += part.codomain.event_dim - part.domain.event_dim
        return functools.reduce(operator.add, terms)

    def forward_shape(self, shape: Any) -> Any:
        return functools.reduce(lambda s, part: part.forward_shape(s), self.parts, shape)

    def inverse_shape(self, shape: Any) -> Any:
        return functools.reduce(lambda s, part: part.inverse_shape(s), self.parts[::-1], shape)

    def __repr__(self) -> str:
        parts = ",\n    ".join(repr(part) for part in self.parts)
        return f"{type(self).__name__}(\n    {parts}\n)"


def with_event_dim(constraint: Any, dim: int) -> Any:
    added = dim - constraint.event_dim
    return constraints.independent(constraint, added) if added > 0 else constraint


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """Take dimensions of the batch into the event of a transform.

    Args:
        base_transform: what maps.
        reinterpreted_batch_ndims: how many dimensions.
        cache_size: 0 or 1.
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(
            self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size
        )

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:
        return bool(self.base_transform.bijective)

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Any) -> Any:
        if x.dim() < self.domain.event_dim:
            raise ValueError(f"Too few dimensions on input: {x.dim()} < {self.domain.event_dim}")
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        if y.dim() < self.codomain.event_dim:
            raise ValueError(f"Too few dimensions on input: {y.dim()} < {self.codomain.event_dim}")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        change = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(change, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """Give events another shape.

    Args:
        in_shape: the event's shape before.
        out_shape: the event's shape afterwards.
        cache_size: 0 or 1.

    Raises:
        ValueError: the shapes have different numbers of elements.
    """

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = tangrad.Size(in_shape), tangrad.Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError(
                "in_shape, out_shape have different numbers of elements: "
                f"{tuple(in_shape)}, {tuple(out_shape)}"
            )
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return ReshapeTransform(self.in_shape, self.out_shape, cache_size=cache_size)

    def _call(self, x: Any) -> Any:
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y: Any) -> Any:
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _exchanged(shape, self.out_shape, self.in_shape)


def _exchanged(shape: Any, old: Any, new: Any) -> Any:
    """Replace the end of a shape."""
    if len(shape) < len(old):
        raise ValueError(f"Too few dimensions on input: {len(shape)} < {len(old)}")
    cut = len(shape) - len(old)
    if shape[cut:] != old:
        raise ValueError(f"Shape mismatch: expected {tuple(shape[cut:])} but got {tuple(old)}")
    return shape[:cut] + new
