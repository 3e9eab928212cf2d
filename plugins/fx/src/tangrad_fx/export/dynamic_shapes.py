"""Which dimensions of the inputs may have other sizes than the example's: `Dim`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tangrad import Tensor

__all__ = ["Dim", "dims"]


class Hint(NamedTuple):
    """A dimension whose size may vary (`DYNAMIC`), may if it can (`AUTO`), or may not (`STATIC`).

    Called with `min` and `max`, a hint returns one with that range.
    """

    kind: str
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> Hint:
        """Return the hint with a range of sizes.

        Raises:
            TypeError: a static dimension has none.
        """
        if self.kind == "STATIC":
            raise TypeError("Dim.STATIC has no range of sizes")
        return Hint(self.kind, min, max)

    def __repr__(self) -> str:
        return f"Dim.{self.kind}"


class Dim:
    """Name a size that may vary, the same wherever the same name is given.

    Args:
        name: an identifier.
        min: the smallest size; 0 by default.
        max: the greatest size; none by default.

    Raises:
        ValueError: the name is no identifier, or no size lies between the two.
    """

    AUTO = Hint("AUTO")
    DYNAMIC = Hint("DYNAMIC")
    STATIC = Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"Dim: expected an identifier for a name, got {name!r}")
        if min is not None and max is not None and min >= max:
            raise ValueError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        self.__name__ = name
        self.min, self.max = min or 0, max

    def __repr__(self) -> str:
        return f"Dim('{self.__name__}', min={self.min}, max={self.max})"

    def __add__(self, other: int) -> DerivedDim:
        return _derived(self, 1, _required(self, "add {} to", other))

    __radd__ = __add__

    def __sub__(self, other: int) -> DerivedDim:
        return _derived(self, 1, -_required(self, "subtract {} from", other))

    def __mul__(self, other: int) -> DerivedDim:
        if type(other) is not int or other <= 0:
            raise NotImplementedError(
                f"Attempted to multiply {other} with {self.__name__}, where a positive integer was "
                f"expected. {_LINEAR}"
            )
        return _derived(self, other, 0)

    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Any:
        raise NotImplementedError(f"Attempted to negate {self.__name__}. {_LINEAR}")


_LINEAR = "(Only increasing linear operations with integer coefficients are supported.)"


def _required(dim: Dim, what: str, other: Any) -> int:
    if type(other) is not int:
        raise NotImplementedError(
            f"Attempted to {what.format(other)} {dim.__name__}, where an integer was expected. "
            f"{_LINEAR}"
        )
    return other


class DerivedDim(Dim):
    """A size that is computed from another: `times * root + plus`; what arithmetic on `Dim` gives.

    Attributes:
        root: the other.
        times, plus: two integers.
    """

    def __init__(self, root: Dim, times: int, plus: int) -> None:
        self.root, self.times, self.plus = root, times, plus
        product = root.__name__ if times == 1 else f"{times}*{root.__name__}"
        sign = "-" if plus < 0 else "+"
        self.__name__ = f"{product} {sign} {abs(plus)}" if plus else product
        self.min = times * root.min + plus
        self.max = None if root.max is None else times * root.max + plus

    def __repr__(self) -> str:
        return self.__name__


def _derived(dim: Dim, times: int, plus: int) -> DerivedDim:
    if isinstance(dim, DerivedDim):
        return DerivedDim(dim.root, dim.times * times, dim.plus * times + plus)
    return DerivedDim(dim, times, plus)


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Return a `Dim` for each name.

    Args:
        names: identifiers.
        min, max: the range of all of them.
    """
    return tuple(Dim(name, min=min, max=max) for name in names)


class Place(NamedTuple):
    """Where a size is found, as `times * size + plus`.

    Attributes:
        input, dim: which dimension of which input.
        times, plus: two integers.
    """

    input: int
    dim: int
    times: int = 1
    plus: int = 0

    def of(self, size: int) -> int:
        """Return what the dimension is for a size."""
        return self.times * size + self.plus

    def size(self, found: int) -> int | None:
        """Return the size that a dimension stands for, or None if it stands for none."""
        size, rest = divmod(found - self.plus, self.times)
        return None if rest else size


class Size(NamedTuple):
    """A size that may vary.

    Attributes:
        name: of the `Dim`, or one that is made up.
        example: what it is in the example.
        min, max: its range; no end if `max` is None.
        required: whether it has to vary; if it cannot, that is an error.
        places: where it is found, the first first.
    """

    name: str
    example: int
    min: int
    max: int | None
    required: bool
    places: list[Place]


def varying_sizes(named: dict[str, Any], dynamic_shapes: Mapping[str, Any] | None) -> list[Size]:
    """Return the sizes that may vary in inputs.

    Dimensions with hints that are equal in the example count as one size.

    Args:
        named: {argument: value}, values nested.
        dynamic_shapes: {argument: shapes}; the shapes of a tensor are None, {dimension: Dim or
            hint}, or a sequence with one for each dimension.

    Raises:
        ValueError: the shapes do not fit the arguments.
    """
    if dynamic_shapes is None:
        return []
    unknown = [name for name in dynamic_shapes if name not in named]
    if unknown:
        raise ValueError(f"dynamic_shapes: there are no arguments {unknown}, only {list(named)}")
    found: dict[str, Size] = {}
    position = 0
    for name, value in named.items():
        for path, leaf, shapes in _leaves(name, value, dynamic_shapes.get(name)):
            for dim, wanted in _per_dimension(path, leaf, shapes):
                _note(found, path, leaf, position, dim, wanted)
            position += 1
    return list(found.values())


def _leaves(path: str, value: Any, shapes: Any) -> list[tuple[str, Any, Any]]:
    """Return path, value and shapes of each leaf of an argument, in the order of `_pytree`."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        within = shapes if shapes is not None else [None] * len(value)
        if not isinstance(within, (list, tuple)) or len(within) != len(value):
            raise ValueError(f"dynamic_shapes: {path} holds {len(value)} values, got {shapes!r}")
        pairs = enumerate(zip(value, within, strict=True))
        return [leaf for i, (v, s) in pairs for leaf in _leaves(f"{path}[{i}]", v, s)]
    if isinstance(value, dict):
        within = shapes or {}
        return [
            leaf for k, v in value.items() for leaf in _leaves(f"{path}[{k!r}]", v, within.get(k))
        ]
    return [(path, value, shapes)]


def _per_dimension(path: str, leaf: Any, shapes: Any) -> list[tuple[int, Any]]:
    if shapes is None:
        return []
    if not isinstance(leaf, Tensor):
        raise ValueError(f"dynamic_shapes: {path} is {type(leaf).__name__}, and has no dimensions")
    pairs = list(shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes))
    rank = leaf.dim()
    if not isinstance(shapes, Mapping) and len(pairs) != rank:
        raise ValueError(f"dynamic_shapes: {path} has {rank} dimensions, got {len(pairs)}")
    for dim, _ in pairs:
        if not isinstance(dim, int) or not -rank <= dim < rank:
            raise ValueError(f"dynamic_shapes: {path} has {rank} dimensions, and none is {dim}")
    return [(dim % rank, wanted) for dim, wanted in pairs]


def _note(
    found: dict[str, Size], path: str, leaf: Any, position: int, dim: int, wanted: Any
) -> None:
    size = leaf.shape[dim]
    if wanted is None or (isinstance(wanted, Hint) and wanted.kind == "STATIC"):
        return
    if isinstance(wanted, int):
        if wanted != size:
            raise ValueError(f"dynamic_shapes: {path} has size {size} in {dim}, not {wanted}")
        return
    place, example = Place(position, dim), size
    if isinstance(wanted, DerivedDim):
        place = Place(position, dim, wanted.times, wanted.plus)
        root = place.size(size)
        if root is None:
            raise ValueError(
                f"dynamic_shapes: {path} has size {size} in {dim}, which is not {wanted!r} for any "
                f"{wanted.root.__name__}"
            )
        wanted, example = wanted.root, root
    if isinstance(wanted, Dim):
        name, required = wanted.__name__, True
    elif isinstance(wanted, Hint):
        name, required = f"s{size}", wanted.kind == "DYNAMIC"
    else:
        raise ValueError(
            f"dynamic_shapes: expected a Dim for {path}, dimension {dim}, got {wanted!r}"
        )
    known = found.get(name)
    if known is None:
        known = Size(name, example, 0, None, required, [])
    known = known._replace(
        min=max(known.min, wanted.min or 0),
        max=min((m for m in (known.max, wanted.max) if m is not None), default=None),
    )
    if known.example != example:
        raise ValueError(
            f"dynamic_shapes: {name} is {known.example} in one place, and {example} in {path}, "
            f"dimension {dim}"
        )
    if example < known.min or (known.max is not None and example > known.max):
        raise ValueError(
            f"dynamic_shapes: {name} is {example} in the example, outside of its range"
        )
    found[name] = known._replace(required=known.required or required)
    known.places.append(place)
