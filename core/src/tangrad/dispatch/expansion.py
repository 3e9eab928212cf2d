"""Follow a composite that says `keeps_calls`: what it calls on which values, to call it again."""

from __future__ import annotations

from typing import Any

from tangrad import _C
from tangrad.dispatch.intercept import pop_observer, push_observer
from tangrad.dispatch.stack import current

_CONSTANT = (bool, int, float, complex, str, type(None), _C.dtype, _C.memory_format)
# What a kernel in Python sets aside, and what must be there as it was when the kernel returns.
_ASIDE = "function_modes rewriters levels dispatch_modes tracers write_watchers observers".split()
_MOST_VALUES = 64  # as in native/expansions.pxi


class _Notes:
    """Observe the ops of a composite: `steps` is None where one of them cannot be called again."""

    enter_call = staticmethod(lambda op, args: args)

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.values, self.recording = list(args), _C.is_grad_enabled()
        tensors = [id(x) for x in args if isinstance(x, _C.Tensor)]
        # Of a tensor that is given twice, a step does not tell which of the two it takes.
        self.steps: list[Any] | None = [] if len(set(tensors)) == len(tensors) else None

    def leave_call(self, op: Any, args: tuple[Any, ...], result: Any) -> None:
        if op.kind == "composite" or self.steps is None:
            return
        self.values.extend(result if isinstance(result, tuple) else (result,))
        places = bytes(map(self.place, args))
        constants = tuple(x if p == 255 else None for x, p in zip(args, places, strict=True))
        self.steps.append((op, places, constants))
        if (
            result is None  # it raised
            or op.functional is not None
            or op.definition.shape_depends_on_data
            or any(p.written for p in op.definition.schema.params)
            or _C.is_grad_enabled() is not self.recording  # `no_grad` is no call
            or not all(map(_is_constant, constants))
            or len(self.values) > _MOST_VALUES
        ):
            self.steps = None

    def place(self, value: Any) -> int:
        """Return the number of a tensor among the values so far, or 255."""
        same = (i for i, x in enumerate(self.values) if x is value)
        return next(same, 255) if isinstance(value, _C.Tensor) else 255


def _is_constant(value: Any) -> bool:
    kind = type(value)
    return all(map(_is_constant, value)) if kind is tuple else kind in _CONSTANT


def keep_no_calls() -> None:
    """Have the composite that calls this asked every time: it warns, as each call deserves."""
    for observer in current().observers:
        if isinstance(observer, _Notes):
            observer.steps = None


def followed(op: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Call a composite's Python; return its result, and the steps, or False; True: ask again."""
    if any(getattr(current(), name) for name in _ASIDE):
        return op.function(*args), True
    notes = _Notes(args)
    push_observer(notes)
    try:
        result = op.function(*args)
    finally:
        pop_observer(notes)
    several = isinstance(result, tuple)
    places = bytes(map(notes.place, result if several else (result,)))
    whole = 255 not in places and several is (len(places) > 1)
    return result, (*notes.steps, places) if notes.steps and whole else False
