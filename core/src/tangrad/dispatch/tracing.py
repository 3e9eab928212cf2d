"""Follow the calls of a program: what ops it runs, on what, and which tensors no op made.

A tracer stands where recording begins: composites are expanded, autocast and transforms have done
their part, and the steps of backward come by as the ops they are made of. It changes nothing.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from tangrad.dispatch.stack import current

_at_all_sizes: set[CodeType] = set()


def at_all_sizes(function: Any) -> Any:
    """Declare that a function counts by sizes only to check them, or to tell those of a result.

    So what is recorded at some sizes serves others.
    """
    _at_all_sizes.add(function.__code__)
    return function


def serves_all_sizes(code: CodeType) -> bool:
    """Return whether code is declared to do the same at all sizes."""
    return code in _at_all_sizes


class traced_calls:
    """Context manager: a tracer is told of every call of this thread.

    Args:
        tracer: has five methods. `enter(op, functional, args, out)` before each call: the op that
            is called (an in-place form, or `functional` itself), the arguments in the order of
            the functional op's signature, seeds and offsets as `Drawn`, what is given as out=;
            its answer is handed to `leave(call, result)` when the call has succeeded, and a method
            `failed()`, where there is one, is called when it has not.
            `constant(tensor)` for a tensor that no op made: from numbers, an array, or zeros that
            backward asks for; `allocated(tensor)` for one without values yet. `read(tensor)`
            before Python looks at a value by `item()`, which gives what this returns, the number
            where that is None; `value_reads()` counts the other ways. One
            with a method `gradient(tensor)` is told before Python looks at `.grad` or sets it; one
            with a method `number(tensor)` may answer `number_of` by an object of its own, and one
            with a method `require(condition, message)` answers `require`.
    """

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    def __enter__(self) -> Any:
        stack = current()
        stack.tracers.append(self.tracer)
        stack.install()
        return self.tracer

    def __exit__(self, *exc: object) -> None:
        stack = current()
        stack.tracers.remove(self.tracer)
        stack.install()


def innermost_tracer() -> Any:
    """Return the tracer that is told of this thread's calls now, or None; none is within an op."""
    tracers = current().tracers
    return tracers[-1] if tracers else None


def number_of(t: Any) -> Any:
    """Return the number that a tensor of one element holds, as `item` does.

    A tracer may give an object that stands for the number in its later runs: arithmetic with it
    and ops that are given it are followed, comparing it is not. Optimizers ask so for numbers of
    steps that they keep in tensors.
    """
    follow = getattr(innermost_tracer(), "number", None)
    return t.item() if follow is None else follow(t)


def require(condition: Any, message: str) -> None:
    """Raise RuntimeError(message) unless a tensor of one element is true.

    A tracer may look itself, and have its later runs look as well.
    """
    look = getattr(innermost_tracer(), "require", None)
    if not (bool(condition) if look is None else look(condition, message)):
        raise RuntimeError(message)
