"""Results of a Function in forward mode, with the tangents that its jvp gave."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.dispatch.levels import JvpLevel


def has_tangent(x: Any) -> bool:
    """Return whether something can have a tangent."""
    return isinstance(x, _C.Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex)


def versions_of(tangents: list[Any]) -> list[Any]:
    """Return how often each tensor was written; None of what does not count it."""
    return [
        t._version if isinstance(t, _C.Tensor) and not t.is_inference() else None for t in tangents
    ]


class Moved:
    """Makes the results of a call tensors of a level.

    Args:
        cls: the Function.
        level: of forward mode.
        args, inner: the arguments, and what they stand for below the level.
        tangents: of the arguments, as jvp was given them.
        fixed: numbers of the results that have no derivative.
        versions: of the tangents, before jvp was called.
    """

    def __init__(
        self,
        cls: Any,
        level: JvpLevel,
        args: tuple[Any, ...],
        inner: tuple[Any, ...],
        tangents: list[Any],
        fixed: tuple[int, ...],
        versions: list[Any],
    ) -> None:
        self.cls, self.level, self.args, self.inner = cls, level, args, inner
        self.tangents, self.fixed, self.versions = tangents, fixed, versions

    def unmoved(self, result: Any) -> Any:
        """Return a result of arguments without tangents: an argument, where that was written."""
        return self._made(result, None, self._written(result))

    def all_moved(self, results: Any, tangents: Any) -> list[Any]:
        """Return the results, each with its tangent.

        Raises:
            RuntimeError: there are fewer or more tangents, or one does not fit (see `moved`).
        """
        given = list(tangents) if isinstance(tangents, (tuple, list)) else [tangents]
        if len(results) != len(given):
            raise RuntimeError(
                f"{self.cls.__name__}.jvp returned an incorrect number of gradients (expected "
                f"{len(results)}, got {len(given)})"
            )
        return [self.moved(k, r, t) for k, (r, t) in enumerate(zip(results, given, strict=True))]

    def moved(self, k: int, result: Any, tangent: Any) -> Any:
        """Return result k with its tangent.

        Raises:
            RuntimeError: it may have none, it is not the argument's own where that was written in
                place, or no view of it where the result is one.
        """
        if tangent is not None and (k in self.fixed or not has_tangent(result)):
            raise RuntimeError(
                f"{self.cls.__name__}.jvp returned a tangent at position {k}, but that output is "
                "not differentiable. You should return None at that position instead"
            )
        if not isinstance(result, _C.Tensor):
            return result
        place = self._written(result)
        if place is None:
            self._check_view(result, tangent)
        elif tangent is not self.tangents[place] or self._unwritten(place):
            raise RuntimeError(
                "An inplace custom Function is not modifying the forward mode gradients inplace: "
                "where forward marks an input as dirty, its jvp function must modify the "
                f"corresponding gradient inplace and return it ({self.cls.__name__})"
            )
        return self._made(result, tangent, place)

    def _made(self, result: Any, tangent: Any, place: int | None) -> Any:
        made = self.level.wrap(result, tangent) if place is None else self.args[place]
        if place is not None and tangent is not None:
            _C.level_of(made).set_tangent(tangent)
        # Backward may be asked of dual tensors themselves.
        return _C.share_history(made, result) if self.level.lenient else made

    def _written(self, result: Any) -> int | None:
        """Return which argument was written in place and is returned."""
        for i, (given, below) in enumerate(zip(self.args, self.inner, strict=True)):
            if result is below and self.level.owns(given):
                return i
        return None

    def _unwritten(self, place: int) -> bool:
        before, after = self.versions[place], versions_of([self.tangents[place]])[0]
        return before is not None and before == after

    def _check_view(self, result: Any, tangent: Any) -> None:
        """Refuse a tangent that is no view where its result is one: writes would part them."""
        base = result._base
        if base is None or tangent is None:
            return
        said = (
            "A custom Function's forward is returning a view (or an input as-is) but its jvp is "
            "not returning a view"
        )
        for given, x, t in zip(self.args, self.inner, self.tangents, strict=True):
            if not isinstance(t, _C.Tensor) or (base is not x and base is not x._base):
                continue
            if tangent._base is None:
                raise RuntimeError(f"{said} ({self.cls.__name__})")
            if tangent._base is not (t if t._base is None else t._base):
                seen = self.level.owns(given) and _C.level_of(given).parent is not None
                which = "the same base as the tangent" if seen else "the given tangent"
                raise RuntimeError(f"{said} of {which} ({self.cls.__name__})")
            return
