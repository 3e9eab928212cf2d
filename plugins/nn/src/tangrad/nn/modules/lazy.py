"""Modules that take their sizes from their first input."""

from __future__ import annotations

from itertools import chain
from typing import Any

import tangrad
from tangrad.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Let a module declare parameters and make them when its first input tells their shapes.

    A subclass declares `UninitializedParameter`s and `UninitializedBuffer`s, and defines
    `initialize_parameters`, which gets the arguments of `forward` and materializes them. It runs
    before the first `forward`, after which the module is of the class `cls_to_become`.

    State is loaded into a module whether its parameters are made or not; loading makes them.
    """

    # The class after the first input; None for the same.
    cls_to_become: type[Any] | None = None
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        made: Any = self
        self._load_hook = made._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = made.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        kept = [
            (n, b) for n, b in self._buffers.items() if n not in self._non_persistent_buffers_set
        ]
        for name, value in chain(self._parameters.items(), kept):
            if value is not None:
                as_is = keep_vars or is_lazy(value)
                destination[prefix + name] = value if as_is else value.detach()

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *_: Any) -> None:
        """Make the parameters that a state dict tells the shapes of."""
        for name, value in chain(self._parameters.items(), self._buffers.items()):
            source = state_dict.get(prefix + name)
            if value is not None and is_lazy(value) and source is not None and not is_lazy(source):
                with tangrad.no_grad():
                    value.materialize(source.shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Make the parameters by the arguments of `forward`; a subclass defines it.

        Raises:
            NotImplementedError: it does not.
        """
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Tell whether a parameter or buffer is not made yet."""
        return any(is_lazy(x) for x in chain(self._parameters.values(), self._buffers.values()))

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {type(self).__name__} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become
