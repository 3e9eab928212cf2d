"""functionalize: a function's writes and views taken out of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.dispatch.mutation import MutationLevel
from tangrad.dispatch.stack import entered
from tangrad.func.transforms import unwrapped
from tangrad.utils._pytree import tree_map

_VIEWS_STAY = {"mutations": True, "mutations_and_views": False}


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Return a function of the same results, whose ops write to no tensor that others see.

    What stands below, a `TorchDispatchMode` for one, sees ops that return new tensors. Writes to
    arguments are made up for when the function has returned, by one `copy_` for each.

    Args:
        func: takes and returns trees of tensors.
        remove: "mutations", or "mutations_and_views": what a view shows is then copied.

    Raises:
        RuntimeError: `remove` is another; when called, the function writes to a tensor that it
            captured.
    """
    if remove not in _VIEWS_STAY:
        raise RuntimeError(
            f"functionalize(f, remove={remove!r}): Valid options for `remove` are: "
            "'mutations', 'mutations_and_views'"
        )

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        level = MutationLevel(_VIEWS_STAY[remove])
        taken: list[tuple[Any, Any]] = []

        def take(x: Any) -> Any:
            if not isinstance(x, _C.Tensor):
                return x
            taken.append((x, level.wrap(x)))
            return taken[-1][1]

        with entered("levels", level):
            result = func(*tree_map(take, args), **tree_map(take, kwargs))
            own = {id(inside): outside for outside, inside in taken}
            outputs = tree_map(lambda t: own.get(id(t), t), result)
            with level.below():
                for outside, inside in taken:
                    _write_back(outside, inside)
                return unwrapped(level, outputs)

    from functools import update_wrapper

    return update_wrapper(wrapped, func)


def _write_back(outside: Any, inside: Any) -> None:
    record = _C.level_of(inside)
    if record.count() == 0 and tuple(inside.shape) == tuple(outside.shape):
        return
    if tuple(record.inner.shape) != tuple(outside.shape):
        outside.resize_(tuple(record.inner.shape))
    outside.copy_(record.inner)
