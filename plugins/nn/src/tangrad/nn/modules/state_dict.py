"""Writing a module's state into a dictionary and reading it back."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import tangrad
from tangrad.__future__ import get_swap_module_params_on_conversion
from tangrad.nn.modules.conversion import take_loaded
from tangrad.nn.parameter import Parameter, is_lazy
from tangrad.plugin import own_copy
from tangrad.utils.hooks import RemovableHandle
from tangrad.utils.swap import counting_once

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(NamedTuple):
    """Keys in which a state dict and a module differed."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys!r}, "
            f"unexpected_keys={self.unexpected_keys!r})"
        )

    def __str__(self) -> str:
        return repr(self)


class _WithModule:
    """Call `hook(module, ...)`; pickles together with the module, and does not keep it alive."""

    def __init__(self, hook: Callable[..., Any], module: Any) -> None:
        self.hook = hook
        self.module = weakref.ref(module)

    def __call__(self, *args: Any) -> Any:
        return self.hook(self.module(), *args)

    def __getstate__(self) -> tuple[Any, Any]:
        return self.hook, self.module()

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        self.__init__(*state)  # type: ignore[misc]


class Stateful:
    """The `state_dict` and `load_state_dict` of `Module`."""

    _version: int = 1
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: OrderedDict[int, Callable[..., Any]]
    _state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]

    def get_extra_state(self) -> Any:
        """Return what else belongs into `state_dict`; override together with `set_extra_state`.

        Raises:
            RuntimeError: unless overridden.
        """
        raise RuntimeError(
            f"{type(self).__name__} has no get_extra_state: define it together with "
            "set_extra_state to keep extra state in state_dict()"
        )

    def set_extra_state(self, state: Any) -> None:
        """Take `state`, made by `get_extra_state`, from a loaded state dict.

        Raises:
            RuntimeError: unless overridden.
        """
        raise RuntimeError(
            f"{type(self).__name__} has no set_extra_state: define it together with "
            "get_extra_state to read extra state in load_state_dict()"
        )

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, prefix, keep_vars)` before this module's state is collected."""
        handle = RemovableHandle(self._state_dict_pre_hooks)
        self._state_dict_pre_hooks[handle.id] = hook
        return handle

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, state_dict, prefix, local_metadata)` after collection.

        The hook may change the dictionary; it must return None.
        """
        # The mark tells the hook from those of _register_state_dict_hook, which may return a dict.
        hook._from_public_api = True  # type: ignore[attr-defined]
        return self._register_state_dict_hook(hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        handle = RemovableHandle(self._state_dict_hooks)
        self._state_dict_hooks[handle.id] = hook
        return handle

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run a hook before this module's state is read from a state dict.

        Args:
            hook: called as `hook(module, state_dict, prefix, local_metadata, strict,
                missing_keys, unexpected_keys, error_msgs)`; may change the dictionary and lists.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        handle = RemovableHandle(self._load_state_dict_pre_hooks)
        entry = _WithModule(hook, self) if with_module else hook
        self._load_state_dict_pre_hooks[handle.id] = entry
        return handle

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, incompatible_keys)` after this module's state was read.

        The hook may change `incompatible_keys` in place; it must return None.
        """
        handle = RemovableHandle(self._load_state_dict_post_hooks)
        self._load_state_dict_post_hooks[handle.id] = hook
        return handle

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Put this module's own state, without its submodules', into `destination`."""
        for name, value in self._own_state().items():
            destination[prefix + name] = value if keep_vars else value.detach()
        if type(self).get_extra_state is not Stateful.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def _own_state(self) -> dict[str, Any]:
        """Return the parameters and persistent buffers that are not None."""
        state: dict[str, Any] = {}
        for name, value in self._parameters.items():
            if value is not None:
                state[name] = value
        if self._buffers:
            passing = self._non_persistent_buffers_set
            for name, buffer in self._buffers.items():
                if buffer is not None and name not in passing:
                    state[name] = buffer
        return state

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Return an ordered dictionary of all parameters and persistent buffers.

        Args:
            *args: `destination`, `prefix`, `keep_vars` by position, as old programs pass them.
            destination: dictionary to fill; a new `OrderedDict` when omitted.
            prefix: put before each key.
            keep_vars: keep the tensors attached to the autograd graph.

        Returns:
            The dictionary. Its attribute `_metadata` holds each module's version.
        """
        if args:
            destination, prefix, keep_vars = _positional(args, destination, prefix, keep_vars)
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in self._state_dict_hooks.values():
            replacement = hook(self, destination, prefix, local_metadata)
            if replacement is None:
                continue
            if getattr(hook, "_from_public_api", False):
                raise RuntimeError("state_dict post-hook must return None")
            destination = replacement
        return destination

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Read this module's own state, without its submodules', from `state_dict`.

        Problems are added to the three lists; override this to read state of an older version.
        """
        for hook in self._load_state_dict_pre_hooks.values():
            hook(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )
        own = self._own_state()
        assign = local_metadata.get("assign_to_params_buffers", False)
        found = 0
        if own:  # many modules have no state of their own
            with tangrad.no_grad():
                for name, target in own.items():
                    key = prefix + name
                    if key not in state_dict:
                        if strict:
                            missing_keys.append(key)
                        continue
                    found += 1
                    message = self._load_one(name, target, key, state_dict[key], assign)
                    if message is not None:
                        error_msgs.append(message)
        extra_key = prefix + _EXTRA_STATE_KEY_SUFFIX
        takes_extra = type(self).set_extra_state is not Stateful.set_extra_state
        if extra_key in state_dict and takes_extra:
            self.set_extra_state(state_dict[extra_key])
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        elif strict and takes_extra:
            missing_keys.append(extra_key)
        if strict and found < len(state_dict):
            unexpected_keys.extend(self._unexpected(state_dict, prefix, own))

    def _unexpected(self, state_dict: Any, prefix: str, own: dict[str, Any]) -> list[str]:
        """List the keys below `prefix` that name neither own state nor a submodule."""
        unexpected = []
        start, extra_key = len(prefix), prefix + _EXTRA_STATE_KEY_SUFFIX
        modules = self._modules
        for key in state_dict:
            if not key.startswith(prefix) or key == extra_key:
                continue
            end = key.find(".", start)
            if key[start:] not in own if end < 0 else key[start:end] not in modules:
                unexpected.append(key)
        return unexpected

    def _load_one(self, name: str, target: Any, key: str, source: Any, assign: bool) -> str | None:
        """Copy, assign or swap `source` to the parameter or buffer `name`; return what went wrong.

        Gradients are off.
        """
        if not isinstance(source, tangrad.Tensor):
            return (
                f'While copying the parameter named "{key}", expected torch.Tensor or '
                f"Tensor-like object from checkpoint but received {type(source)}"
            )
        if is_lazy(target) and is_lazy(source):
            return None
        shape, given = target.shape, source.shape
        if shape != given:
            # Scalars were once saved with shape (1,).
            if shape or given != (1,):
                return (
                    f"size mismatch for {key}: copying a param with shape {given} from "
                    f"checkpoint, the shape in current model is {shape}."
                )
            source = source[0]
        if not assign and target.is_meta and not source.is_meta:
            _warn_of_meta(key)
        swap = get_swap_module_params_on_conversion()
        try:
            if swap:
                take_loaded(target, source, assign)
            elif assign:
                setattr(self, name, _assignable(source, target))
            else:
                target.copy_(source)
        except Exception as error:
            action = "swapping" if swap else "assigning" if assign else "copying"
            return (
                f'While {action} the parameter named "{key}", whose dimensions in the model are '
                f"{target.shape} and whose dimensions in the checkpoint are {source.shape}, "
                f"an exception occurred : {error.args}."
            )
        return None

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy parameters and buffers from `state_dict` into this module and its submodules.

        Args:
            state_dict: what `state_dict` returned.
            strict: raise when keys are missing or left over.
            assign: make the module hold the given tensors (their dtype, device and memory)
                instead of copying values; `requires_grad` stays the module's.

        Returns:
            The missing and the unexpected keys.

        Raises:
            TypeError: if `state_dict` is not a mapping.
            RuntimeError: if shapes differ or, when `strict`, keys; the message lists all.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing_keys: list[str] = []
        unexpected_keys: list[str] = []
        error_msgs: list[str] = []
        metadata = own_copy(getattr(state_dict, "_metadata", None))
        state = OrderedDict(state_dict)
        if metadata is not None:
            state._metadata = metadata  # type: ignore[attr-defined]
        problems = (missing_keys, unexpected_keys, error_msgs)
        with counting_once() if get_swap_module_params_on_conversion() else nullcontext():
            _load(self, state, "", metadata or {}, assign, problems)
        if strict:
            error_msgs[:0] = _key_messages(missing_keys, unexpected_keys)
        if error_msgs:
            error_msgs += _misfits(state, self)
            listing = "\n\t".join(error_msgs)
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listing}"
            )
        return _IncompatibleKeys(missing_keys, unexpected_keys)


def _load(
    module: Any, state: Any, prefix: str, metadata: Any, assign: bool, problems: tuple[Any, ...]
) -> None:
    """Read the state of a module at `prefix` and of its submodules."""
    local_metadata = metadata.get(prefix[:-1], {})
    if assign:
        local_metadata["assign_to_params_buffers"] = True
    module._load_from_state_dict(state, prefix, local_metadata, True, *problems)
    states = _of_children(state, prefix) if module._modules else {}
    for name, child in module._modules.items():
        if child is not None:
            _load(child, states.get(name, {}), f"{prefix}{name}.", metadata, assign, problems)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, _IncompatibleKeys(*problems[:2])) is not None:
            raise AssertionError(
                f"the load_state_dict post-hook {hook!r} must return None; to change the "
                "keys, change incompatible_keys in place"
            )


def _of_children(state: Mapping[str, Any], prefix: str) -> dict[str, dict[str, Any]]:
    """Divide the state of a module at `prefix` among its submodules, by their names."""
    start = len(prefix)
    states: dict[str, dict[str, Any]] = {}
    for key, value in state.items():
        end = key.find(".", start)
        if end < 0 or not key.startswith(prefix):
            continue
        name = key[start:end]
        if name in states:
            states[name][key] = value
        else:
            states[name] = {key: value}
    return states


def _misfits(state: Mapping[str, Any], module: Any) -> list[str]:
    """Return what layouts say of tensors in a state for modules that have none of them."""

    def of(values: Mapping[str, Any]) -> dict[Any, str]:
        return {
            part.layout: key
            for key, value in reversed(list(values.items()))
            for part in (value if isinstance(value, tuple) else (value,))
            if getattr(getattr(getattr(part, "layout", None), "definition", None), "misfit", "")
        }

    own = of(module.state_dict())
    return [
        f'"{key}" has layout {layout}: {layout.definition.misfit}'
        for layout, key in of(state).items()
        if layout not in own
    ]


def _key_messages(missing: list[str], unexpected: list[str]) -> list[str]:
    messages = []
    for title, keys in (("Missing", missing), ("Unexpected", unexpected)):
        if keys:
            listing = ", ".join(f'"{key}"' for key in keys)
            messages.append(f"{title} key(s) in state_dict: {listing}. ")
    return messages


def _positional(args: tuple[Any, ...], *defaults: Any) -> tuple[Any, ...]:
    import warnings

    warnings.warn(
        "Positional args are being deprecated, use kwargs instead: "
        "state_dict(destination=..., prefix=..., keep_vars=...)",
        FutureWarning,
        stacklevel=3,
    )
    if len(args) > len(defaults):
        raise TypeError(f"state_dict() takes at most {len(defaults)} arguments, got {len(args)}")
    return args + defaults[len(args) :]


def _assignable(source: Any, target: Any) -> Any:
    if not isinstance(target, Parameter):
        return source
    if isinstance(source, Parameter):
        return source.requires_grad_(target.requires_grad)
    return Parameter(source, requires_grad=target.requires_grad)


def _warn_of_meta(key: str) -> None:
    import warnings

    warnings.warn(
        f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in "
        "the current model does nothing. Pass assign=True to let the model hold the "
        "checkpoint's tensors, or give the model memory with to_empty() before loading",
        stacklevel=2,
    )
