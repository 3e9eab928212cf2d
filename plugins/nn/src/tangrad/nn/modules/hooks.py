"""Hooks of modules: their registries, and the call of a module that has some.

A module without hooks never comes here: its call is compiled (`tangrad.nn._module`).
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import tangrad
import tangrad.nn._module as _module
from tangrad.plugin import of_modules
from tangrad.utils.hooks import RemovableHandle


class _CallHooks(OrderedDict[int, Any]):
    """Hooks of all modules' calls, which take the longer path as soon as there is one."""

    def __setitem__(self, key: int, hook: Any) -> None:
        _module.set_global_hooks(True)
        super().__setitem__(key, hook)


# Hooks for all modules, by handle id; the second kind holds facts about a hook of the first.
_global_forward_pre_hooks: OrderedDict[int, Callable[..., Any]] = _CallHooks()
_global_forward_hooks: OrderedDict[int, Callable[..., Any]] = _CallHooks()
_global_forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()
_global_forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
_global_backward_pre_hooks: OrderedDict[int, Callable[..., Any]] = _CallHooks()
_global_backward_hooks: OrderedDict[int, Callable[..., Any]] = _CallHooks()
_global_is_full_backward_hook: bool | None = None
_global_buffer_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_module_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_parameter_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()

_CALL_REGISTRIES = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
)
# What `nn.modules.module` shows of this file's names, to be read and bound anew.
GLOBAL_NAMES = frozenset(name for name in globals() if name.startswith("_global_"))


def rebind(name: str, value: Any) -> None:
    """Replace a registry of hooks for all modules."""
    globals()[name] = value
    _module.set_global_hooks(True)
    _module.set_registration_hooks(
        _global_parameter_registration_hooks, _global_module_registration_hooks
    )


def _calls_are_hooked() -> bool:
    """Tell whether a hook for all calls is there, or may come without our seeing it."""
    registries = [globals()[name] for name in _CALL_REGISTRIES]
    return any(registries) or any(type(found) is not _CallHooks for found in registries)


def _register(registry: Any, hook: Callable[..., Any], **facts: Any) -> RemovableHandle:
    """Enter `hook`; `facts` are further registries, set for this hook."""
    handle = RemovableHandle(registry, extra_dict=list(facts.values()))
    registry[handle.id] = hook
    for fact in facts.values():
        fact[handle.id] = True
    return handle


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, args)` before the `forward` of every module.

    A value other than None replaces the positional arguments.
    """
    return _register(_global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Run `hook(module, args, output)` after the `forward` of every module.

    Args:
        hook: a value other than None replaces the output.
        with_kwargs: call `hook(module, args, kwargs, output)` instead.
        always_call: call it even when `forward` raised.
    """
    facts: dict[str, Any] = {}
    if with_kwargs:
        facts["with_kwargs"] = _global_forward_hooks_with_kwargs
    if always_call:
        facts["always_call"] = _global_forward_hooks_always_called
    return _register(_global_forward_hooks, hook, **facts)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, grad_output)` before the backward of every module."""
    return _register(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, grad_input, grad_output)` after the backward of every module.

    Raises:
        RuntimeError: if hooks of the older kind are registered for all modules.
    """
    return _register_global_backward_hook(hook, full=True)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook` at the last node of every module's graph; prefer the full backward hook.

    Raises:
        RuntimeError: if full backward hooks are registered for all modules.
    """
    return _register_global_backward_hook(hook, full=False)


def _register_global_backward_hook(hook: Callable[..., Any], full: bool) -> RemovableHandle:
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module "
            "hook. Please use only one of them."
        )
    _global_is_full_backward_hook = full
    return _register(_global_backward_hooks, hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, name, buffer)` in every `register_buffer`; it may replace the buffer."""
    return _register(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, name, submodule)` when a submodule is added; it may replace it."""
    return _register(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, name, param)` in `register_parameter`; it may replace the parameter."""
    return _register(_global_parameter_registration_hooks, hook)


def on_registration(
    registry: dict[int, Callable[..., Any]], module: Any, name: str, value: Any
) -> Any:
    """Pass `value`, about to be registered as `name`, through the hooks of `registry`."""
    for hook in registry.values():
        replacement = hook(module, name, value)
        if replacement is not None:
            value = replacement
    return value


class Hooked:
    """The hook methods of `Module`."""

    _forward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _backward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _backward_hooks: OrderedDict[int, Callable[..., Any]]
    _is_full_backward_hook: bool | None

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Run `hook(module, args)` before `forward`.

        Args:
            hook: a value other than None replaces the positional arguments.
            prepend: put it before the hooks of this module that exist.
            with_kwargs: call `hook(module, args, kwargs)`, which returns None or both.
        """
        facts = {"with_kwargs": self._forward_pre_hooks_with_kwargs} if with_kwargs else {}
        handle = _register(self._forward_pre_hooks, hook, **facts)
        if prepend:
            self._forward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Run `hook(module, args, output)` after `forward`.

        Args:
            hook: a value other than None replaces the output.
            prepend: put it before the hooks of this module that exist.
            with_kwargs: call `hook(module, args, kwargs, output)` instead.
            always_call: call it even when `forward` raised.
        """
        facts: dict[str, Any] = {}
        if with_kwargs:
            facts["with_kwargs"] = self._forward_hooks_with_kwargs
        if always_call:
            facts["always_call"] = self._forward_hooks_always_called
        handle = _register(self._forward_hooks, hook, **facts)
        if prepend:
            self._forward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(module, grad_output)` before the module's backward.

        Args:
            hook: a value other than None replaces the gradient of the output.
            prepend: put it before the hooks of this module that exist.
        """
        handle = _register(self._backward_pre_hooks, hook)
        if prepend:
            self._backward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(module, grad_input, grad_output)` when both gradients are known.

        Args:
            hook: a value other than None replaces the gradient of the input.
            prepend: put it before the hooks of this module that exist.

        Raises:
            RuntimeError: if the module has hooks of the older kind.
        """
        handle = self._register_backward_hook(hook, full=True)
        if prepend:
            self._backward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook` at the last node of the module's graph; prefer the full backward hook.

        Raises:
            RuntimeError: if the module has full backward hooks.
        """
        return self._register_backward_hook(hook, full=False)

    def _register_backward_hook(self, hook: Callable[..., Any], full: bool) -> RemovableHandle:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single "
                "Module. Please use only one of them."
            )
        self._is_full_backward_hook = full
        return _register(self._backward_hooks, hook)


def _call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `module`, running its hooks and those of all modules around `forward`."""
    if not _calls_are_hooked():
        _module.set_global_hooks(False)
    always = [*_global_forward_hooks_always_called, *module._forward_hooks_always_called]
    if not always:
        return _run(module, args, kwargs, _Progress())
    progress = _Progress()
    try:
        return _run(module, args, kwargs, progress)
    except Exception:
        _run_always_called(module, args, kwargs, progress)
        raise


class _Progress:
    """How far a call has come: what an always-called hook needs after an exception."""

    def __init__(self) -> None:
        self.result: Any = None
        self.called: set[int] = set()


def _run(module: Any, args: Any, kwargs: dict[str, Any], progress: _Progress) -> Any:
    args, kwargs = _before_forward(module, args, kwargs)
    full, plain = _backward_hooks(module)
    before = [*_global_backward_pre_hooks.values(), *module._backward_pre_hooks.values()]
    boundary = None
    if full or before:
        # Not earlier: a program without backward hooks needs no Function.
        from tangrad.nn.modules.backward_hook import BackwardHook

        boundary = BackwardHook(module, full, before)
        args = boundary.setup_input_hook(args)
    progress.result = module.forward(*args, **kwargs)
    for hook_id, hook, with_kwargs in _forward_hooks(module):
        progress.called.add(hook_id)
        replacement = (
            hook(module, args, kwargs, progress.result)
            if with_kwargs
            else hook(module, args, progress.result)
        )
        if replacement is not None:
            progress.result = replacement
    result = progress.result
    if boundary is not None:
        if not isinstance(result, (tangrad.Tensor, tuple)):
            warnings.warn(
                f"the backward hooks of {type(module).__name__} are not called: its output should "
                f"be a Tensor or a tuple of Tensors, not {type(result)}",
                stacklevel=2,
            )
        result = boundary.setup_output_hook(result)
    if plain:
        _hook_last_node(module, plain, result)
    return result


def _before_forward(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    # A list: a hook may remove itself, as that of lazy modules does.
    hooks = [*_global_forward_pre_hooks.items(), *module._forward_pre_hooks.items()]
    for hook_id, hook in hooks:
        if hook_id not in module._forward_pre_hooks_with_kwargs:
            replacement = hook(module, args)
            if replacement is not None:
                args = replacement if isinstance(replacement, tuple) else (replacement,)
            continue
        both = hook(module, args, kwargs)
        if both is None:
            continue
        if not (isinstance(both, tuple) and len(both) == 2):
            raise RuntimeError(
                "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                f"but got {both}."
            )
        args, kwargs = both
    return args, kwargs


def _forward_hooks(module: Any) -> Iterator[tuple[int, Callable[..., Any], bool]]:
    """Yield (id, hook, whether it takes keyword arguments), those for all modules first."""
    # Copies: a hook may remove itself while it runs.
    for hook_id, hook in list(_global_forward_hooks.items()):
        yield hook_id, hook, hook_id in _global_forward_hooks_with_kwargs
    for hook_id, hook in list(module._forward_hooks.items()):
        yield hook_id, hook, hook_id in module._forward_hooks_with_kwargs


def _run_always_called(module: Any, args: Any, kwargs: dict[str, Any], done: _Progress) -> None:
    """After an exception, run the always-called hooks that have not been called."""
    for hook_id, hook, with_kwargs in _forward_hooks(module):
        always = (
            hook_id in _global_forward_hooks_always_called
            or hook_id in module._forward_hooks_always_called
        )
        if not always or hook_id in done.called:
            continue
        try:
            if with_kwargs:
                replacement = hook(module, args, kwargs, done.result)
            else:
                replacement = hook(module, args, done.result)
        except Exception as error:
            warnings.warn(
                f"a forward hook of {type(module).__name__} with always_call=True raised "
                f"{error!r}; silenced, because forward had raised already",
                stacklevel=2,
            )
            continue
        if replacement is not None:
            done.result = replacement


def _backward_hooks(module: Any) -> tuple[list[Callable[..., Any]], list[Callable[..., Any]]]:
    """Return the full and the older backward hooks that apply to `module`."""
    hooks: tuple[list[Callable[..., Any]], list[Callable[..., Any]]] = ([], [])
    if _global_backward_hooks:
        hooks[not _global_is_full_backward_hook].extend(_global_backward_hooks.values())
    if module._backward_hooks:
        hooks[not module._is_full_backward_hook].extend(module._backward_hooks.values())
    return hooks


def _hook_last_node(module: Any, hooks: list[Callable[..., Any]], result: Any) -> None:
    while not isinstance(result, tangrad.Tensor):
        if isinstance(result, dict):
            result = next(value for value in result.values() if isinstance(value, tangrad.Tensor))
        else:
            result = result[0]
    node = result.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(lambda grad_in, grad_out, hook=hook: hook(module, grad_in, grad_out))


_module.set_call_with_hooks(_call_with_hooks)


class _Told:
    """Tell a watch of calls which module's forward begins and ends, in place of two hooks."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        _watched.append(self)
        _module.set_call_with_hooks(self._call)
        _module.set_global_hooks(True)

    def remove(self) -> None:
        """Tell it no longer."""
        _watched.remove(self)
        _module.set_call_with_hooks(_watched[-1]._call if _watched else _call_with_hooks)

    def _call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._watch.enter_module(module)
        try:
            if _has_hooks(module):
                return _call_with_hooks(module, args, kwargs)
            return module.forward(*args, **kwargs)
        finally:
            self._watch.leave_module()
            _module.set_global_hooks(True)


def _has_hooks(module: Any) -> bool:
    return bool(
        module._forward_pre_hooks
        or module._forward_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _calls_are_hooked()
    )


_watched: list[_Told] = []
of_modules.append(_Told)
