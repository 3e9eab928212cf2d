"""Hooks that can be taken away again."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


class RemovableHandle:
    """Take a hook out of its registry on request.

    Args:
        hooks_dict: registry of hooks, keyed by the handle's `id`; held weakly.
        extra_dict: further registries (one, or a list) which hold facts about the same hook
            and lose their entry together with it.
    """

    id: int
    next_id: int = 0

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        if extra_dict is None:
            extra_dict = []
        elif not isinstance(extra_dict, list):
            extra_dict = [extra_dict]
        self.extra_dict_ref = tuple(weakref.ref(extra) for extra in extra_dict)

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            registry = reference()
            if registry is not None:
                registry.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks_dict, self.id, extras = state
        self.hooks_dict_ref = _reference(hooks_dict)
        self.extra_dict_ref = tuple(_reference(extra) for extra in extras)
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def _reference(registry: Any) -> weakref.ref[Any]:
    # A registry that died before pickling is stood in for by one that dies at once.
    return weakref.ref(OrderedDict() if registry is None else registry)


def unserializable_hook(function: _F) -> _F:
    """Mark `function` as a hook that need not survive pickling of what it hangs on."""
    function.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return function


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn about each backward hook of `tensor` that pickling will lose.

    Args:
        tensor: the tensor about to be pickled.
    """
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            import warnings

            warnings.warn(
                f"the backward hook {hook!r} of a tensor of shape {tuple(tensor.shape)} is not "
                "serialized; mark it with unserializable_hook if that is meant",
                stacklevel=2,
            )
