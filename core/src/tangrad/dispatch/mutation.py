"""The interpreter of `functionalize`: writes become new values, and views look at the newest.

A tensor of the level stands for a value that never changes. A write gives its record another
value; a view has none of its own between writes: it is read from the tensor it is a view of, and
writing to it makes a new value for that tensor, with the piece put where the view looks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from tangrad import _C
from tangrad.dispatch.binding import call_bound
from tangrad.dispatch.levels import Level, Record, _check_fits, _lift, levelled, map_tensors
from tangrad.dispatch.stack import current
from tangrad.dispatch.tangents import view_of_tangent


def _call(name: str, *args: Any) -> Any:
    return _C.lookup_op(name)(*args)


def _reshaped(whole: Any, piece: Any, rest: tuple[Any, ...]) -> Any:
    return piece.reshape(tuple(whole.shape))


def _permuted_back(whole: Any, piece: Any, rest: tuple[Any, ...]) -> Any:
    dims = [d % whole.ndim for d in rest[0]]
    return piece.permute([dims.index(d) for d in range(whole.ndim)])


# What a tensor becomes when `piece` was written where a view op looks: (whole, piece, the view's
# other arguments). A view that is not here shows elements of the whole in some order.
_PUT: dict[str, Callable[[Any, Any, tuple[Any, ...]], Any]] = {
    "alias": lambda whole, piece, rest: piece,
    "detach": lambda whole, piece, rest: piece,
    "_conj": lambda whole, piece, rest: piece.conj(),
    "_neg_view": lambda whole, piece, rest: -piece,
    "t": lambda whole, piece, rest: piece.t(),
    "transpose": lambda whole, piece, rest: piece.transpose(*rest),
    "permute": _permuted_back,
    "view_size": _reshaped,
    "_unsafe_view": _reshaped,
    "squeeze": _reshaped,
    "unsqueeze": _reshaped,
    "view_dtype": lambda whole, piece, rest: piece.view(whole.dtype),
    "view_as_real": lambda whole, piece, rest: _call("view_as_complex", piece.contiguous()),
    "view_as_complex": lambda whole, piece, rest: _call("view_as_real", piece.resolve_conj()),
    "select": lambda whole, piece, rest: _call("select_scatter", whole, piece, *rest),
    "slice": lambda whole, piece, rest: _call("slice_scatter", whole, piece, *rest),
    "diagonal": lambda whole, piece, rest: _call("diagonal_scatter", whole, piece, *rest),
}


class ValueRecord(Record):
    """The newest value of a tensor, or how it is read from the tensor it is a view of.

    Attributes:
        writes: counts the values that this tensor, or the one it is a view of, has had.
    """

    __slots__ = ("_seen", "_value", "look", "parent", "put", "writes")

    def __init__(
        self,
        value: Any,
        level: Level,
        parent: ValueRecord | None = None,
        look: Callable[[Any], Any] | None = None,
        put: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self.parent, self.look, self.put, self.writes = parent, look, put, 0
        self._seen = parent.count() if parent is not None else 0
        super().__init__(value, level)

    def count(self) -> int:
        """Return how many values this tensor has had."""
        return self.writes if self.parent is None else self.parent.count()

    @property
    def inner(self) -> Any:
        """The newest value, a tensor of what lies below."""
        if self.parent is not None and self._seen != self.parent.count():
            assert self.look is not None
            # Read where a call still stands above the level, or where it has been unwrapped.
            inside = self.level in current().levels
            with self.level.below() if inside else nullcontext():
                self._value, self._seen = self.look(self.parent.inner), self.parent.count()
        return self._value

    @inner.setter
    def inner(self, value: Any) -> None:
        self._value = value

    def replace(self, value: Any) -> None:
        """Take a new value, in the tensor that this one is a view of, too."""
        if self.parent is None:
            self._value, self.writes = _laid_out(value, self._value.stride()), self.writes + 1
            return
        assert self.put is not None
        self.parent.replace(self.put(self.parent.inner, value))


class MutationLevel(Level):
    """One functionalize in progress.

    Args:
        keep_views: views stay views; otherwise what they show is copied.
    """

    transform = "functionalize"

    def __init__(self, keep_views: bool) -> None:
        self.keep_views = keep_views

    def wrap(self, inner: Any) -> Any:
        """Return a tensor of this level."""
        return self._wrapped(ValueRecord(inner, self))

    def _wrapped(self, record: ValueRecord) -> Any:
        return _C.wrap_level(record.inner, record)

    def lift(self, made: Any, like: Any, stack: list[Level]) -> Any:
        """Take a tensor made inside the transform into this level; `stack` lies below."""
        return self.wrap(_lift(made, self.unwrap(like), stack))

    def process(self, op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any) -> Any:
        """Run a call that has reached this level; out= is a write like any other."""
        if out is None:
            return super().process(op, functional, args, out)
        result = self.functional(functional, args)
        for target, new in zip(_several(out), _several(result), strict=True):
            self.check_own(target, op.name)
            if tuple(target.shape) != tuple(new.shape):
                _C.adopt(target, new)
            else:
                self._replace(target, new, functional)
        return out

    def functional(self, op: _C.Op, args: tuple[Any, ...]) -> Any:
        """Run an op that writes nothing."""
        inner = self.unwrap(args)
        with self.below() as stack:
            result = levelled(op, op, inner, None, stack)
            if op.kind == "view" and not self.keep_views:
                result = map_tensors(lambda t: _call("clone", t), result)
        if op.kind == "view" and self.owns(args[0]):
            return self._views(op, args, result)
        return map_tensors(self.wrap, result)

    def _views(self, op: _C.Op, args: tuple[Any, ...], result: Any) -> Any:
        parent, rest = _C.level_of(args[0]), args[1:]
        if not isinstance(result, _C.Tensor):
            count = itertools.count()
            return map_tensors(lambda r: self._part(op, parent, rest, r, next(count)), result)
        look = self._looking(view_of_tangent(op, parent.inner, result, rest))
        known = _PUT.get(op.name)

        def put(whole: Any, piece: Any) -> Any:
            return (
                _put_in_places(whole, piece, look) if known is None else known(whole, piece, rest)
            )

        return self._wrapped(ValueRecord(result, self, parent, look, put))

    def _part(
        self, op: _C.Op, parent: ValueRecord, rest: tuple[Any, ...], piece: Any, k: int
    ) -> Any:
        look = self._looking(lambda whole: call_bound(op, (whole, *rest))[k])
        return self._wrapped(
            ValueRecord(piece, self, parent, look, lambda w, p: _put_in_places(w, p, look))
        )

    def _looking(self, look: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return look if self.keep_views else lambda whole: _call("clone", look(whole))

    def _write(
        self, op: _C.Op, args: tuple[Any, ...], written: int, name: str, overwrites: bool = False
    ) -> Any:
        target = args[written]
        inner = self.unwrap(args)
        if not self.has_own(args):
            with self.below() as stack:
                return levelled(op, op, inner, None, stack)
        self.check_own(target, name)
        with self.below() as stack:
            if op.name == "copy_":
                new = inner[1].to(target.dtype).to(target.device).expand(tuple(target.shape))
            else:
                # Written to, but by nobody else seen: the op has no form that returns its result.
                new = _call("clone", inner[written])
                levelled(op, op, (*inner[:written], new, *inner[written + 1 :]), None, stack)
        self._replace(target, new, op)
        return target

    def _inplace(self, op: _C.Op, functional: _C.Op, args: tuple[Any, ...]) -> Any:
        target = args[0]
        if functional.kind == "view" or not self.has_own(args):
            return super()._inplace(op, functional, args)
        self.check_own(target, op.name)
        result = self.functional(functional, args)
        self._replace(target, result[0] if isinstance(result, (tuple, list)) else result, op)
        return target

    def _replace(self, target: Any, new: Any, op: _C.Op) -> None:
        """Give a tensor another value."""
        _check_fits(op, target, new)
        if any(n > 1 and s == 0 for n, s in zip(target.shape, target.stride(), strict=True)):
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to "
                "a single memory location. Please clone() the tensor before performing the "
                f"operation. ({op.title}())"
            )
        with self.below():
            value = self.unwrap(new)
            if value.dtype != target.dtype:
                value = value.to(target.dtype)
            _C.level_of(target).replace(value)

    def check_own(self, target: Any, name: str) -> None:
        """Refuse to write to a tensor from outside the transformed function.

        Raises:
            RuntimeError: it is not of this level.
        """
        if not self.owns(target):
            raise RuntimeError(
                f"{name}: mutating a non-functional tensor with a functional tensor is not "
                "allowed; a tensor that the function captures cannot be written to inside "
                "functionalize: make it an argument"
            )


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, _C.Tensor) else value


def _laid_out(value: Any, strides: tuple[int, ...]) -> Any:
    """Return a value in the order of memory that the strides of a dense tensor tell."""
    if tuple(value.stride()) == tuple(strides):
        return value
    order = sorted(range(value.ndim), key=lambda d: -strides[d])
    return value.permute(order).contiguous().permute([order.index(d) for d in range(len(order))])


def _put_in_places(whole: Any, piece: Any, look: Callable[[Any], Any]) -> Any:
    """Return `whole` with the elements that a view shows replaced by those of `piece`."""
    order = _call("arange", whole.numel()).reshape(tuple(whole.shape))
    places = look(order).to(whole.device)
    return _call("put", whole, places, piece.reshape(tuple(places.shape)))
