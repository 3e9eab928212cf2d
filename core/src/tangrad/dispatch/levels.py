"""The three interpreters of function transforms: reverse mode, forward mode and batching.

Each call of `grad`, `vjp`, `jvp` or `vmap` puts one level on the thread's stack. A tensor of a
level is a wrapper around a tensor of what lies below. A level takes every call: it unwraps its
own tensors, runs the op with the stack cut to what lies below it, and wraps the results. Tensors
that are not its own are constants to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tangrad import _C
from tangrad.dispatch import intercept

# Given by `tangrad.func.transforms`, which nobody enters a level without.
vjp: Any = None


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
        return self.level.item(self)

    def tolist(self) -> Any:
        """Return the values as nested lists."""
        return self.level.tolist(self)

    def represent(self, t: Any) -> str:
        """Return the text of the wrapper."""
        if self.level.lenient:
            return repr(self.inner)
        return f"{type(self.level).__name__}({self.inner!r})"


class Below:
    """Context manager: cut the thread's stack to what lies below a level."""

    __slots__ = ("level", "saved")

    def __init__(self, level: Level) -> None:
        self.level = level

    def __enter__(self) -> intercept.Stack:
        stack = intercept.current()
        self.saved = stack.levels, stack.function_modes
        stack.levels = stack.levels[: stack.levels.index(self.level)]
        stack.function_modes = []
        stack.install()
        return stack

    def __exit__(self, *exc: Any) -> None:
        stack = intercept.current()
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
        return any(self.owns(t) for t in intercept.flat_tensors(args))

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
            raise RuntimeError(
                f"{op.title}(): out= is not supported inside {self.transform}; use the result "
                "instead"
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

    def lift(self, made: Any, like: Any, stack: list[Level]) -> Any:
        """Take a tensor made inside the transform into this level; `stack` lies below."""
        raise NotImplementedError

    def _inplace(self, op: _C.Op, functional: _C.Op, args: tuple[Any, ...]) -> Any:
        """Run an in-place form: the functional form, then a copy into the target."""
        target = args[0]
        if not self.has_own(args):
            with self.below() as stack:
                return intercept.levelled(op, functional, args, None, stack)
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
                "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted "
                "to call in-place "
                f"operation ({name}) that would mutate a captured Tensor. This is not supported; "
                "please rewrite the "
                f"function being transformed to explicitly accept the mutated Tensor(s) as inputs."
            )


def drawn(op: _C.Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Draw the random state of a call here, where its derivative can see it.

    Under a vmap that lets samples differ each sample draws its own, so ops with a derivative
    must not come here then (dropout multiplies by a mask instead).
    """
    if not op.definition.random or args[-1] is not None:
        return args
    if any(level.transform == "vmap" for level in intercept.current().levels):
        return args
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
    levels = intercept.current().levels
    return _lift(made, like, levels) if levels else made


def _lift(made: Any, like: Any, levels: list[Level]) -> Any:
    return levels[-1].lift(made, like, levels[:-1]) if levels else made


def open_tensor(t: Any) -> Any:
    """Return what a tensor of a finished lenient level stands for."""
    record = _C.level_of(t)
    while record is not None and record.level.lenient:
        t = record.inner
        record = _C.level_of(t)
    return t


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
            result = intercept.levelled(op, op, inner, None, stack)
        wrapped = map_tensors(self.wrap, result)
        if op.kind == "view" and op.definition.differentiable and self.owns(args[0]):
            several = not isinstance(wrapped, _C.Tensor)
            for view in intercept.flat_tensors((wrapped,)):
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
            result = intercept.levelled(op, op, inner, None, stack)
        if result is not inner[written]:
            return self.wrap(result)
        _C.finish_write(node, target)
        return target


class _BelowUnrecorded(Below):
    """`Below`, with recording switched off."""

    __slots__ = ("mode",)

    def __enter__(self) -> intercept.Stack:
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

    @property
    def tangent(self) -> Any:
        """The tangent below the level, or None where it is zero."""
        if self.parent is None:
            return self.own
        whole = self.parent.tangent
        return None if whole is None else self.call(whole)

    def set_tangent(self, new: Any) -> None:
        """Replace the tangent, in the tensor that a view is a view of too."""
        if self.parent is None:
            self.own = new
            return
        old = self.parent.tangent
        if old is None and new is None:
            return
        whole, piece = self.parent.inner, self.inner
        old = _C.lookup_op("zeros_like")(whole) if old is None else old
        new = _C.lookup_op("zeros_like")(piece) if new is None else new
        covered = _put_back(self.call, whole, _C.lookup_op("ones_like")(piece))
        chosen = _C.lookup_op("where")(covered != 0, _put_back(self.call, whole, new), old)
        self.parent.set_tangent(chosen)


def _put_back(view: Callable[[Any], Any], whole: Any, piece: Any) -> Any:
    """Return zeros shaped like `whole` with `piece` where `view` looks: the transpose of a view."""
    return vjp(view, _C.lookup_op("zeros_like")(whole))[1](piece)[0]


class JvpLevel(Level):
    """Forward mode: every op computes the tangent of its results beside them."""

    transform = "jvp"

    def __init__(self, lenient: bool = False) -> None:
        self.lenient = lenient

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
            result = intercept.levelled(op, op, inner, None, stack)
            if self.lenient and not self.has_own(args):
                return result
            if op.kind == "view" and op.definition.differentiable:
                return self._recorded(op, args, self._views(op, args, result))
            tangents = tangent_of(op, inner, self.tangents(args), result)
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
            for view in intercept.flat_tensors((wrapped,)):
                _C.mark_as_view(view, args[0], not isinstance(wrapped, _C.Tensor))
        return _C.record_call(op, args, wrapped)

    def _views(self, op: _C.Op, args: tuple[Any, ...], result: Any) -> Any:
        if not self.owns(args[0]):
            return map_tensors(self.wrap, result)
        parent, rest = _C.level_of(args[0]), args[1:]
        if isinstance(result, _C.Tensor):
            call = view_of_tangent(op, parent.inner, result, rest)
            return self._wrapped(JvpRecord(result, self, None, parent, call))

        def piece(k: int) -> Callable[[Any], Any]:
            return lambda whole: call_bound(op, (whole, *rest))[k]

        made = [
            self._wrapped(JvpRecord(r, self, None, parent, piece(k))) for k, r in enumerate(result)
        ]
        return type(result)(made)

    def _write(
        self, op: _C.Op, args: tuple[Any, ...], written: int, name: str, overwrites: bool = False
    ) -> Any:
        target = args[written]
        inner = self.unwrap(args)
        if not self.has_own(args):
            with self.below() as stack:
                return intercept.levelled(op, op, inner, None, stack)
        if self.lenient and not self.owns(target):
            inner_target = _C.share_history(_C.plain_alias(target), target)
            _C.adopt(target, _C.share_history(self.wrap(inner_target), target))
            inner = self.unwrap(args)
        self.check_own(target, name)
        node = _C.record_write(op, args, target, name, overwrites) if self.lenient else None
        with self.below() as stack:
            tangents = self.tangents(args)
            result = intercept.levelled(op, op, inner, None, stack)
            if result is not inner[written]:
                return self.wrap(result)
            tangents[written] = None
            _C.level_of(target).set_tangent(written_tangent(op, inner, tangents, result))
        _C.finish_write(node, target)
        return target


def view_of_tangent(
    op: _C.Op, whole: Any, piece: Any, rest: tuple[Any, ...]
) -> Callable[[Any], Any]:
    """Return the function that takes the tangent of `whole` to that of `piece`, a view of it.

    A tangent need not lie in memory as its primal does, so views that depend on strides become
    their counterparts that do not.
    """
    if op.name == "view_size" and isinstance(rest[0], tuple):
        return lambda t: _C.lookup_op("reshape")(t, tuple(piece.shape))
    if op.name == "view_as_complex":
        return lambda t: op(t.contiguous())
    if op.name == "as_strided":
        from tangrad.dispatch.slices import positions

        def read(t: Any) -> Any:
            places = positions(whole, piece).to(t.device)
            return _C.lookup_op("index_select")(t.reshape((-1,)), 0, places.flatten()).reshape(
                tuple(piece.shape)
            )

        return read
    return lambda t: call_bound(op, (t, *rest))


def written_tangent(op: _C.Op, args: tuple[Any, ...], tangents: list[Any], result: Any) -> Any:
    """Return the tangent of a tensor that an op such as copy_ or fill_ has overwritten."""
    given = [t for t in tangents if isinstance(t, _C.Tensor)]
    if not given or op.definition.random:
        return None
    return given[0].to(result.dtype).expand(result.shape)


def tangent_of(op: _C.Op, args: tuple[Any, ...], tangents: list[Any], result: Any) -> Any:
    """Return the tangent(s) of a call's result(s): by the definition's jvp, linearity or vjp.

    Args:
        args: the arguments, with primals only.
        tangents: parallel to args: a tensor, a list (of a Tensor[]), or None.
        result: what the call gave.

    Returns:
        None where all are zero, else a tensor or a list with one entry per result.
    """
    definition = op.definition
    given = {
        name for name, t in zip(definition.parameter_names, tangents, strict=True) if _any_tensor(t)
    }
    if not given or not definition.differentiable:
        return None
    if op.kind == "pointwise" and not callable(definition.jvp):
        found = _pointwise_tangent(definition, args, tangents, result)
    elif definition.jvp is not None:
        found = _authored_tangent(definition, args, tangents, result)
    elif definition.linear and given <= set(definition.linear):
        found = _linear_tangent(op, args, tangents, given)
    else:
        found = tangent_by_vjp(op, args, tangents)
    if isinstance(result, _C.Tensor):
        return _fitted(found[0] if isinstance(found, (tuple, list)) else found, result)
    return [_fitted(t, r) for t, r in zip(found, result, strict=True)]


def _any_tensor(value: Any) -> bool:
    return isinstance(value, _C.Tensor) or (
        isinstance(value, list) and any(map(_any_tensor, value))
    )


def _fitted(tangent: Any, result: Any) -> Any:
    """Give a tangent the dtype and shape of its result; results without tangents have none."""
    if tangent is None or not (result.dtype.is_floating_point or result.dtype.is_complex):
        return None
    if tangent.dtype != result.dtype:
        tangent = tangent.to(result.dtype)
    return tangent if tuple(tangent.shape) == tuple(result.shape) else tangent.expand(result.shape)


def _named(
    definition: Any, args: tuple[Any, ...], tangents: list[Any], result: Any, suffix: str = "_t"
) -> dict[str, Any]:
    named = dict(zip(definition.parameter_names, args, strict=True))
    named.update(
        {name + suffix: t for name, t in zip(definition.parameter_names, tangents, strict=True)}
    )
    named.update(
        {
            f"{name}_meta": value
            for name, value in zip(definition.parameter_names, args, strict=True)
        }
    )
    results = (result,) if isinstance(result, _C.Tensor) else result
    # A derived op may have an input called result: the saved result of the op it derives from.
    named.setdefault("result", results[0])
    for k, r in enumerate(results):
        named.setdefault(f"result{k}", r)
    return named


def _pointwise_tangent(
    definition: Any, args: tuple[Any, ...], tangents: list[Any], result: Any
) -> Any:
    named = _named(definition, args, tangents, result, definition.tangent_suffix)
    given = tuple(
        n for n, t in zip(definition.parameter_names, tangents, strict=True) if t is not None
    )
    op, names = definition.tangent(given)
    return op(*[named[name] for name in names])


def _authored_tangent(
    definition: Any, args: tuple[Any, ...], tangents: list[Any], result: Any
) -> Any:
    from tangrad.dispatch.binding import call_by_name

    named = _named(definition, args, tangents, result)
    if not isinstance(result, _C.Tensor):
        named["result"] = result
    return call_by_name(definition.jvp, named)


def _linear_tangent(op: _C.Op, args: tuple[Any, ...], tangents: list[Any], given: set[str]) -> Any:
    total = None
    for k, name in enumerate(op.definition.parameter_names):
        if name in given:
            term = call_bound(op, (*args[:k], tangents[k], *args[k + 1 :]))
            total = term if total is None else _summed(total, term)
    return total


def call_bound(op: _C.Op, args: tuple[Any, ...]) -> Any:
    """Call an op with all its arguments in schema order."""
    return intercept.dispatch(op, op, args, None)


def _summed(a: Any, b: Any) -> Any:
    return a + b if isinstance(a, _C.Tensor) else [x + y for x, y in zip(a, b, strict=True)]


def tangent_by_vjp(op: _C.Op, args: tuple[Any, ...], tangents: list[Any]) -> Any:
    """Return tangents as the vjp of the vjp, which is linear in its cotangent."""
    places = [k for k, t in enumerate(tangents) if isinstance(t, _C.Tensor)]

    def outputs(*primals: Any) -> tuple[Any, ...]:
        full = list(args)
        for k, p in zip(places, primals, strict=True):
            full[k] = p
        made = call_bound(op, tuple(full))
        return tuple(
            r for r in ((made,) if isinstance(made, _C.Tensor) else made) if _differentiable(r)
        )

    results, pull = vjp(outputs, *[args[k] for k in places])
    cotangents = tuple(_C.lookup_op("zeros_like")(r) for r in results)
    _, push = vjp(lambda *c: pull(tuple(c)), *cotangents)
    return push(tuple(tangents[k] for k in places))


def _differentiable(t: Any) -> bool:
    return t.dtype.is_floating_point or t.dtype.is_complex
