"""The three interpreters of function transforms: reverse mode, forward mode and batching.

Each call of `grad`, `vjp`, `jvp` or `vmap` puts one level on the thread's stack. A tensor of a
level is a wrapper around a tensor of what lies below. A level takes every call: it unwraps its
own tensors, runs the op with the stack cut to what lies below it, and wraps the results. Tensors
that are not its own are constants to it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from tangrad import _C
from tangrad.dispatch.binding import call_bound
from tangrad.dispatch.python_dispatch import recorded
from tangrad.dispatch.stack import Stack, current, flat_tensors
from tangrad.dispatch.tangents import (
    put_back,
    shows_its_numbers,
    tangent_of,
    view_by_memory,
    view_of_tangent,
    written_tangent,
)


def map_tensors(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the tensors in nested lists and tuples, keeping their types."""
    if isinstance(value, _C.Tensor):
        return function(value)
    if isinstance(value, list):
        return [map_tensors(function, v) for v in value]
    if isinstance(value, tuple):
        mapped = [map_tensors(function, v) for v in value]
        return type(value)(*mapped) if hasattr(value, "_fields") else type(value)(mapped)
    return value


class Record:
    """What a wrapper tensor stands for.

    Attributes:
        inner: the tensor of what lies below.
        level: the level that the wrapper belongs to.
        strides: of the wrapper, where its shape differs from inner's.
    """

    __slots__ = ("__weakref__", "inner", "level", "strides")

    def __init__(self, inner: Any, level: Level) -> None:
        self.inner, self.level = inner, level
        self.strides: tuple[int, ...] | None = None

    def item(self) -> Any:
        """Return the value of the only element."""
        return self.inner.item() if self.level.lenient else self.level.item(self)

    def tolist(self) -> Any:
        """Return the values as nested lists."""
        return self.inner.tolist() if self.level.lenient else self.level.tolist(self)

    def data(self) -> Any:
        """Return what `.data` gives, or None for an alias of the same level."""
        return None

    def represent(self, t: Any) -> str:
        """Return the text of the wrapper, as PyTorch's wrappers print."""
        text, tangent = repr(self.inner), getattr(self, "tangent", None)
        if self.level.lenient:
            return text if tangent is None else f"{text[:-1]}, tangent={tangent!r})"
        from textwrap import indent

        levels = current().levels
        number = levels.index(self.level) + 1 if self.level in levels else -2
        kind, place = (
            ("BatchedTensor", f", bdim={self.dim}")
            if hasattr(self, "dim")
            else ("GradTrackingTensor", "")
        )
        return f"{kind}(lvl={number}{place}, value=\n{indent(text, ' ' * 4)}\n)"


class Below:
    """Context manager: cut the thread's stack to what lies below a level."""

    __slots__ = ("level", "saved")

    def __init__(self, level: Level) -> None:
        self.level = level

    def __enter__(self) -> Stack:
        stack = current()
        self.saved = stack.levels, stack.function_modes
        stack.levels = stack.levels[: stack.levels.index(self.level)]
        stack.function_modes = []
        stack.install()
        return stack

    def __exit__(self, *exc: Any) -> None:
        stack = current()
        stack.levels, stack.function_modes = self.saved
        stack.install()


class Level:
    """One transform in progress.

    Attributes:
        closed: its graph is complete: what it saved is now seen as the tensors below.
        lenient: a tensor that outlives it stands for its value, instead of being an error.
    """

    transform = "transform"
    closed = False
    lenient = False
    # Each kind of level makes its tensors with what it has to know of them.
    wrap: Callable[..., Any]

    def owns(self, t: Any) -> bool:
        """Return whether a tensor belongs to this level."""
        record = _C.level_of(t)
        return record is not None and record.level is self

    def below(self) -> Below:
        """Return a context in which only what lies below this level acts."""
        return Below(self)

    def unwrap(self, value: Any) -> Any:
        """Replace this level's tensors in nested lists and tuples by what they stand for."""
        return map_tensors(lambda t: _C.level_of(t).inner if self.owns(t) else t, value)

    def has_own(self, args: Iterable[Any]) -> bool:
        """Return whether any tensor among arguments belongs to this level."""
        return any(self.owns(t) for t in flat_tensors(args))

    def item(self, record: Record) -> Any:
        """Return the value of a wrapper with one element."""
        with self.below():
            return record.inner.item()

    def tolist(self, record: Record) -> Any:
        """Return the values of a wrapper as nested lists."""
        with self.below():
            return record.inner.tolist()

    def process(self, op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any) -> Any:
        """Run a call that has reached this level.

        Raises:
            RuntimeError: the call uses out=, or writes to a tensor that the level cannot write.
        """
        if out is not None:
            raise NotImplementedError(
                f"Trying to use {self.transform} with {op.title}() that does not support it "
                "because it is an out= function; use the result instead"
            )
        if op is not functional:
            return self._inplace(op, functional, args)
        if functional.definition.schema.written >= 0:
            return self._write(
                functional, args, functional.definition.schema.written, functional.name
            )
        return self.functional(functional, args)

    def functional(self, op: _C.Op, args: tuple[Any, ...]) -> Any:
        """Run an op that writes nothing."""
        raise NotImplementedError

    def resize(self, target: Any, shape: tuple[int, ...]) -> Any:
        """Give a tensor of this level another shape.

        Raises:
            RuntimeError: it requires a gradient.
        """
        if target.requires_grad:
            raise RuntimeError("cannot resize variables that require grad")
        with self.below():
            inner = _C.level_of(target).inner
            inner.resize_(shape)
        return _C.adopt(target, self.wrap(inner))

    def lift(self, made: Any, like: Any, stack: list[Level]) -> Any:
        """Take a tensor made inside the transform into this level; `stack` lies below."""
        raise NotImplementedError

    def _inplace(self, op: _C.Op, functional: _C.Op, args: tuple[Any, ...]) -> Any:
        """Run an in-place form: the functional form, then a copy into the target."""
        target = args[0]
        if not self.has_own(args):
            with self.below() as stack:
                return levelled(op, functional, args, None, stack)
        self.check_own(target, op.name)
        result = self.functional(functional, self._kept(functional, args))
        if functional.kind == "view":
            return _C.adopt(target, result)
        result = result[0] if isinstance(result, (tuple, list)) else result
        _check_fits(op, target, result)
        return self._write(
            _C.lookup_op("copy_"), (target, result, False), 0, op.name, overwrites=True
        )

    def _kept(self, op: _C.Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments; the target copied where backward needs what is overwritten."""
        return args

    def _write(
        self, op: _C.Op, args: tuple[Any, ...], written: int, name: str, overwrites: bool = False
    ) -> Any:
        raise NotImplementedError

    def check_own(self, target: Any, name: str) -> None:
        """Refuse to write to a tensor from outside the transformed function.

        Raises:
            RuntimeError: it is not of this level.
        """
        if not self.owns(target):
            raise RuntimeError(
                "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to "
                f"call in-place operation ({name}) that would mutate a captured Tensor. This is "
                "not supported; please rewrite the function being transformed to explicitly accept "
                "the mutated Tensor(s) as inputs."
            )


def drawn(op: _C.Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Draw the random state of a call here, where its derivative can see it.

    Under a vmap that lets samples differ each sample draws its own, so ops with a derivative
    must not come here then (dropout multiplies by a mask instead).
    """
    if not op.definition.random or args[-1] is not None:
        return args
    if any(level.transform == "vmap" for level in current().levels):
        return args
    if op.definition.generator_of(args).sequential is not None:
        return args  # which has no state to hand on: the op draws when it runs
    return (*args[:-2], *op.definition.draw(args))


def _check_fits(op: _C.Op, target: Any, result: Any) -> None:
    if tuple(result.shape) != tuple(target.shape):
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape "
            f"{list(result.shape)} (op '{op.title}')"
        )
    if not _C.can_cast(result.dtype, target.dtype):
        raise RuntimeError(
            f"result type {result.dtype} can't be cast to the desired output type {target.dtype} "
            f"(op '{op.title}')"
        )


def lift(made: Any, like: Any = None) -> Any:
    """Take a freshly made tensor into the levels that act in this thread.

    Args:
        made: a tensor whose elements are not set yet, if `like` is given.
        like: the tensor it was modelled on; if that is batched, so is what is made.
    """
    levels = current().levels
    return _lift(made, like, levels) if levels else made


def _lift(made: Any, like: Any, levels: list[Level]) -> Any:
    return levels[-1].lift(made, like, levels[:-1]) if levels else made


def open_tensor(t: Any) -> Any:
    """Return what a tensor of a lenient level stands for."""
    record = _C.level_of(t)
    while record is not None and record.level.lenient:
        t = record.inner
        record = _C.level_of(t)
    return t


def levelled(op: _C.Op, functional: _C.Op, args: tuple[Any, ...], out: Any, stack: Stack) -> Any:
    """Hand the call to the innermost transform level, or on to recording."""
    if stack.levels:
        return stack.levels[-1].process(op, functional, args, out)
    escaped = next((a for a in flat_tensors(args) if _C.level_of(a) is not None), None)
    if escaped is not None:
        if _C.level_of(escaped).level.lenient:
            return levelled(op, functional, map_tensors(open_tensor, args), out, stack)
        raise RuntimeError(
            f"{op.title}: a tensor of a transform (vmap, grad, jvp) was used after the transform "
            "ended; return it from the transformed function instead of keeping it"
        )
    return recorded(op, functional, args, out, stack)


class GradLevel(Level):
    """Reverse mode: wrappers carry gradient records of their own; the one engine walks them."""

    transform = "grad"

    def __init__(self) -> None:
        self.outer_grad_mode = _C.is_grad_enabled()

    def below(self) -> Below:
        """Return a context of what lies below; recording is off there if it was off outside."""
        return Below(self) if self.outer_grad_mode else _BelowUnrecorded(self)

    def wrap(self, inner: Any) -> Any:
        """Return a tensor of this level."""
        return _C.wrap_level(inner, Record(inner, self))

    def lift(self, made: Any, like: Any, stack: list[Level]) -> Any:
        """Take a tensor made inside the transform into this level; `stack` lies below."""
        return self.wrap(_lift(made, self.unwrap(like), stack))

    def _kept(self, op: _C.Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if not _C.saves_first_input(op, args):
            return args
        with self.below():
            copy = _C.lookup_op("clone")(_C.level_of(args[0]).inner)
        return (_C.stand_in(self.wrap(copy), args[0]), *args[1:])

    def functional(self, op: _C.Op, args: tuple[Any, ...]) -> Any:
        """Run an op that writes nothing."""
        args = drawn(op, args)
        inner = self.unwrap(args)
        with self.below() as stack:
            result = levelled(op, op, inner, None, stack)
        wrapped = map_tensors(self.wrap, result)
        if op.kind == "view" and op.definition.differentiable and self.owns(args[0]):
            several = not isinstance(wrapped, _C.Tensor)
            for view in flat_tensors((wrapped,)):
                _C.mark_as_view(view, args[0], several)
        return _C.record_call(op, args, wrapped)

    def _write(
        self, op: _C.Op, args: tuple[Any, ...], written: int, name: str, overwrites: bool = False
    ) -> Any:
        target = args[written]
        inner = self.unwrap(args)
        if self.has_own(args):
            self.check_own(target, name)
        node = _C.record_write(op, args, target, name, overwrites) if self.owns(target) else None
        with self.below() as stack:
            result = levelled(op, op, inner, None, stack)
        if result is not inner[written]:
            return self.wrap(result)
        _C.finish_write(node, target)
        return target


class _BelowUnrecorded(Below):
    """`Below`, with recording switched off."""

    __slots__ = ("mode",)

    def __enter__(self) -> Stack:
        self.mode = _C._set_grad_enabled(False)
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        _C._set_grad_enabled(self.mode)


class JvpRecord(Record):
    """A primal and its tangent; a view's tangent is read from the tensor it is a view of."""

    __slots__ = ("call", "own", "parent")

    def __init__(
        self,
        inner: Any,
        level: Level,
        tangent: Any = None,
        parent: JvpRecord | None = None,
        call: Any = None,
    ) -> None:
        super().__init__(inner, level)
        self.own, self.parent, self.call = tangent, parent, call

    def data(self) -> Any:
        """Return what `.data` gives: the primal, without a tangent."""
        return self.level.wrap(self.inner.data)

    @property
    def tangent(self) -> Any:
        """The tangent below the level, or None where it is zero."""
        if self.parent is None:
            return self.own
        whole = self.parent.tangent
        return None if whole is None else self.call(whole)

    def _written(self, new: Any) -> bool:
        """Write the tangent's own memory, which who made the dual tensor sees; False if not so."""
        own = self.own
        if own is None or new is None or (own.is_leaf and own.requires_grad):
            return False
        if any(n > 1 and step == 0 for n, step in zip(own.shape, own.stride(), strict=True)):
            return False
        own.copy_(new)
        return True

    def set_tangent(self, new: Any) -> None:
        """Replace the tangent, in the tensor that a view is a view of too."""
        if self.parent is None:
            if new is not self.own and not (self.level.lenient and self._written(new)):
                self.own = new
            return
        old = self.parent.tangent
        if old is None and new is None:
            return
        whole, piece = self.parent.inner, self.inner
        old = _C.lookup_op("zeros_like")(whole) if old is None else old
        new = _C.lookup_op("zeros_like")(piece) if new is None else new
        # Both parts, of which memory may hold each as a number of its own.
        everywhere = _C.lookup_op("full_like")(piece, 1 + 1j if piece.dtype.is_complex else 1)
        covered = put_back(self.call, whole, everywhere)
        where = _C.lookup_op("where")
        chosen = where(covered != 0, put_back(self.call, whole, new), old)
        # Of an element that a view shows in several places, one of them was written.
        moved = old + put_back(self.call, whole, new - self.call(old))
        self.parent.set_tangent(where(covered.abs() > 1.5, moved, chosen))


def _parted(found: Any, given: list[Any]) -> Any:
    """Return tangents, copied where they share memory with one of those given."""
    memory = {t.untyped_storage()._cdata for t in given}
    return map_tensors(
        lambda t: _C.lookup_op("clone")(t) if t.untyped_storage()._cdata in memory else t, found
    )


class JvpLevel(Level):
    """Forward mode: every op computes the tangent of its results beside them."""

    transform = "jvp"

    def __init__(self, lenient: bool = False) -> None:
        self.lenient = lenient
        self._taken: list[weakref.ref[Any]] = []

    def give_back(self) -> None:
        """Let the tensors from outside that were written be plain ones again, leaves above all."""
        for t in (taken() for taken in self._taken):
            if t is not None and super().owns(t):
                _C.adopt(t, _C.share_history(_C.plain_alias(_C.level_of(t).inner), t))

    def wrap(self, inner: Any, tangent: Any = None) -> Any:
        """Return a tensor of this level with a tangent (None: zero)."""
        return self._wrapped(JvpRecord(inner, self, tangent))

    def _wrapped(self, record: JvpRecord) -> Any:
        return _C.wrap_level(record.inner, record)

    def lift(self, made: Any, like: Any, stack: list[Level]) -> Any:
        """Take a tensor made inside the transform into this level; `stack` lies below."""
        inner = _lift(made, self.unwrap(like), stack)
        return inner if self.lenient else self.wrap(inner)

    def tangents(self, value: Any) -> Any:
        """Return the tangents of tensors in lists and tuples; None where zero or not a tensor."""
        if isinstance(value, _C.Tensor):
            return _C.level_of(value).tangent if self.owns(value) else None
        if isinstance(value, (list, tuple)):
            return [self.tangents(v) for v in value]
        return None

    def functional(self, op: _C.Op, args: tuple[Any, ...]) -> Any:
        """Run an op that writes nothing."""
        args = drawn(op, args)
        inner = self.unwrap(args)
        with self.below() as stack:
            result = levelled(op, op, inner, None, stack)
            if self.lenient and not self.has_own(args):
                return result
            if op.kind == "view" and op.definition.differentiable:
                return self._recorded(op, args, self._views(op, args, result))
            given = self.tangents(args)
            tangents = tangent_of(op, inner, given, result)
            if self.lenient:  # tangents are written in place: no two tensors share one
                tangents = _parted(tangents, flat_tensors(given))
        if isinstance(result, _C.Tensor):
            return self._recorded(op, args, self.wrap(result, tangents))
        pairs = iter(tangents if tangents is not None else [None] * len(result))
        return self._recorded(op, args, map_tensors(lambda r: self.wrap(r, next(pairs)), result))

    def _kept(self, op: _C.Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if not self.lenient or not _C.saves_first_input(op, args):
            return args
        record = _C.level_of(args[0])
        with self.below():
            copy = self.wrap(_C.lookup_op("clone")(record.inner), record.tangent)
        return (_C.stand_in(copy, args[0]), *args[1:])

    def _recorded(self, op: _C.Op, args: tuple[Any, ...], wrapped: Any) -> Any:
        """Record a call on dual tensors, too: what their graph saves then has tangents."""
        if not self.lenient:
            return wrapped
        if op.kind == "view" and op.definition.differentiable:
            for view in flat_tensors((wrapped,)):
                _C.mark_as_view(view, args[0], not isinstance(wrapped, _C.Tensor))
        return _C.record_call(op, args, wrapped)

    def _views(self, op: _C.Op, args: tuple[Any, ...], result: Any) -> Any:
        if not self.owns(args[0]):
            return map_tensors(self.wrap, result)
        parent, rest = _C.level_of(args[0]), args[1:]
        while op.name == "as_strided" and parent.parent is not None:
            parent = parent.parent  # of which it may show more than the view that it is asked of
        if isinstance(result, _C.Tensor):
            call = view_of_tangent(op, parent.inner, result, rest)
            return self._wrapped(JvpRecord(result, self, None, parent, call))

        def piece(k: int) -> Callable[[Any], Any]:
            return lambda whole: call_bound(op, (whole, *rest))[k]

        made = [
            self._wrapped(JvpRecord(r, self, None, parent, piece(k))) for k, r in enumerate(result)
        ]
        return type(result)(made)

    def owns(self, t: Any) -> bool:
        """Return whether a tensor belongs to this level: in a lenient one, its base's views do."""
        if super().owns(t):
            return True
        base = t._base if self.lenient else None
        if base is None or not super().owns(base):
            return False
        whole = _C.level_of(base)
        if not shows_its_numbers(whole.inner, t):
            return False
        self._take(t, whole, view_by_memory(whole.inner, t))
        return True

    def _take(self, t: Any, parent: JvpRecord | None = None, call: Any = None) -> None:
        """Let a tensor from outside be one of this level, a view of another if that is given."""
        inner = _C.share_history(_C.plain_alias(t), t)
        if parent is not None:
            recorded = _C._set_grad_enabled(True)
            _C.mark_as_view(inner, parent.inner)
            _C._set_grad_enabled(recorded)
        wrapper = self._wrapped(JvpRecord(inner, self, None, parent, call))
        _C.adopt(t, _C.share_history(wrapper, t))
        self._taken.append(weakref.ref(t))

    def check_own(self, target: Any, name: str) -> None:
        """Take a tensor that is written to into a lenient level: it has a tangent from now on.

        Raises:
            RuntimeError: it is not of this level, which is not lenient.
        """
        if self.lenient and not self.owns(target):
            base = target._base
            self._take(target if base is None else base)
            if not self.owns(target):  # a view of other numbers than its base's
                self._take(target)
        super().check_own(target, name)

    def _write(
        self, op: _C.Op, args: tuple[Any, ...], written: int, name: str, overwrites: bool = False
    ) -> Any:
        target = args[written]
        if not self.has_own(args):
            with self.below() as stack:
                return levelled(op, op, self.unwrap(args), None, stack)
        self.check_own(target, name)
        inner = self.unwrap(args)
        node = _C.record_write(op, args, target, name, overwrites) if self.lenient else None
        with self.below() as stack:
            tangents = self.tangents(args)
            result = levelled(op, op, inner, None, stack)
            if result is not inner[written]:
                return self.wrap(result)
            tangents[written] = None
            moved = written_tangent(op, inner, tangents, result)
            if moved is None and flat_tensors(self.tangents(args)):  # a constant, from now on
                moved = _C.lookup_op("zeros_like")(result)
            moved = _parted(moved, flat_tensors(tangents)) if self.lenient else moved
            _C.level_of(target).set_tangent(moved)
        _C.finish_write(node, target)
        return target
