"""Hooks of modules, handed on to the modules that take their places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Hook(NamedTuple):
    """A hook before or after `forward`, and how it was registered."""

    call: Callable[..., Any]
    with_kwargs: bool
    always_call: bool = False


def hooks_before(module: Any) -> list[Hook]:
    """Return the hooks before a module's `forward`, in the order in which they run."""
    named = module._forward_pre_hooks_with_kwargs
    return [Hook(call, key in named) for key, call in module._forward_pre_hooks.items()]


def hooks_after(module: Any) -> list[Hook]:
    """Return the hooks after a module's `forward`, in the order in which they run."""
    named, always = module._forward_hooks_with_kwargs, module._forward_hooks_always_called
    return [Hook(call, key in named, key in always) for key, call in module._forward_hooks.items()]


@contextmanager
def without_hooks_before(module: Any) -> Iterator[None]:
    """Take the hooks before a module's `forward` off; they are back if the block fails."""
    own = module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs
    kept = [dict(hooks) for hooks in own]
    for hooks in own:
        hooks.clear()
    try:
        yield
    except BaseException:
        for hooks, before in zip(own, kept, strict=True):
            hooks.update(before)
        raise


def clear_after(module: Any) -> None:
    """Take the hooks after a module's `forward` off."""
    module._forward_hooks.clear()
    module._forward_hooks_with_kwargs.clear()
    module._forward_hooks_always_called.clear()


def register_before(module: Any, hooks: list[Hook]) -> None:
    """Have hooks run before a module's `forward`."""
    for hook in hooks:
        module.register_forward_pre_hook(hook.call, with_kwargs=hook.with_kwargs)


def register_after(module: Any, hooks: list[Hook]) -> None:
    """Have hooks run after a module's `forward`."""
    for hook in hooks:
        module.register_forward_hook(
            hook.call, with_kwargs=hook.with_kwargs, always_call=hook.always_call
        )
