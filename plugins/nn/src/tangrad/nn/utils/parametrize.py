"""Tensors of a module as functions of others, which are trained in their place."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import tangrad
from tangrad.nn.modules.container import ModuleDict, ModuleList
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

# How many `cached` blocks are open, and what has been computed in them.
_cache_enabled = 0
_cache: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within the block, compute each parametrized tensor once, when it is first asked for."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register(module: Module, name: str, tensor: Any) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _set(target: Any, source: Any) -> None:
    """Make `target` see the memory of `source`; optimizers keep the object `target`."""
    if target is not source:
        with tangrad.no_grad():
            target.set_(source)


def _differs(what: str, before: Any, name: str, after: Any) -> str:
    return f"the {what} of {name} would change from {before} to {after}"


_CHANGED = "Registering a parametrization may not change the {} of the tensor"
_INVERTED = "The tensor returned by parametrization.right_inverse must have the same {}"


def _check_like(tensor: Any, original: Any, name: str, rule: str) -> None:
    """Refuse a tensor that has not the dtype and shape of another.

    Args:
        tensor, original: the two.
        name: what has them, for the message.
        rule: what the message says, with a place for "dtype" or "shape".

    Raises:
        ValueError: it has not.
    """
    for what in ("dtype", "shape"):
        before, after = getattr(original, what), getattr(tensor, what)
        if before != after:
            raise ValueError(
                f"{rule.format(what)}, unless the `unsafe` flag is enabled: "
                f"{_differs(what, before, name, after)}"
            )


def _invert(module: Module, value: Any) -> Any:
    """Apply a module's `right_inverse`; one that it has but does not implement changes nothing."""
    if not hasattr(module, "right_inverse"):
        return value
    try:
        return module.right_inverse(value)
    except NotImplementedError:
        return value


class ParametrizationList(ModuleList):
    """The functions that one parametrized tensor is the value of, and what they are applied to.

    Args:
        modules: applied one after the other; the first may take several tensors.
        original: the tensor to parametrize.
        unsafe: allow the parametrization to change dtype and shape.

    Attributes:
        original: what the first is applied to; if several, `original0`, `original1` and so on.

    Raises:
        ValueError: without modules, where a `right_inverse` returns something else than tensors
            or another dtype or device, and, unless `unsafe`, for another dtype or shape.
    """

    original: Any
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        """Compute the originals by the modules' `right_inverse`, the last first."""
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        # Before `original` is given other memory, which may have another shape.
        like = original.detach()
        with tangrad.no_grad():
            new = original
            for module in reversed(list(self)):
                new = _invert(module, new)
        if not isinstance(new, (tangrad.Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, tangrad.Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            self._take_one(original, new)
        else:
            self._take_several(original, new)
        if not unsafe:
            value = self()
            if not isinstance(value, tangrad.Tensor):
                raise ValueError(
                    f"A parametrization must return a tensor. Got {type(value).__name__}."
                )
            _check_like(value, like, "the tensor", _CHANGED)

    def _take_one(self, original: Any, new: Any) -> None:
        for what in ("dtype", "device"):
            before, after = getattr(original, what), getattr(new, what)
            if before != after:
                raise ValueError(
                    f"When `right_inverse` outputs one tensor, it may not change the {what}: "
                    f"{_differs(what, before, 'the tensor', after)}"
                )
        _set(original, new)
        _register(self, "original", original)

    def _take_several(self, original: Any, new: Sequence[Any]) -> None:
        for i, tensor in enumerate(new):
            if not isinstance(tensor, tangrad.Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got element {i} of the sequence with type "
                    f"{type(tensor).__name__}."
                )
            if isinstance(original, Parameter):
                tensor = Parameter(tensor, original.requires_grad)
            tensor.requires_grad_(original.requires_grad)
            _register(self, f"original{i}", tensor)

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the parametrized tensor becomes `value`.

        Raises:
            RuntimeError: a parametrization has no `right_inverse`.
            ValueError: one returns something else than as many tensors, of the dtypes, there are.
        """
        with tangrad.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
            if self.is_tensor:
                self._replace("original", value, "`right_inverse` should return a tensor")
                return
            if not isinstance(value, Sequence):
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors. "
                    f"Got {type(value).__name__}."
                )
            if len(value) != self.ntensors:
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors of length "
                    f"{self.ntensors}. Got a sequence of length {len(value)}."
                )
            for i, tensor in enumerate(value):
                self._replace(
                    f"original{i}", tensor, f"element {i} of what `right_inverse` returns"
                )

    def _replace(self, name: str, tensor: Any, what: str) -> None:
        if not isinstance(tensor, tangrad.Tensor):
            raise ValueError(f"{what}: expected a tensor. Got {type(tensor).__name__}")
        original = getattr(self, name)
        if tensor.dtype != original.dtype:
            raise ValueError(
                f"The tensor returned by `right_inverse` has dtype {tensor.dtype} "
                f"while `{name}` has dtype {original.dtype}"
            )
        _set(original, tensor)

    def forward(self) -> Any:
        """Return the parametrized tensor."""
        if self.is_tensor:
            originals = [self.original]
        else:
            originals = [getattr(self, f"original{i}") for i in range(self.ntensors)]
        first, *others = self
        value = first(*originals)
        for module in others:
            value = module(value)
        return value


def _deepcopied(self: Any, memo: dict[int, Any]) -> Any:
    """Copy as `copy.deepcopy` does of itself, without asking for a state to pickle."""
    if id(self) in memo:
        return memo[id(self)]
    cls: Any = type(self)
    replica = memo[id(self)] = cls.__new__(cls)
    replica.__dict__ = deepcopy(self.__dict__, memo)
    for slot in copyreg._slotnames(cls):  # type: ignore[attr-defined]
        if hasattr(self, slot):
            setattr(replica, slot, deepcopy(getattr(self, slot), memo))
    return replica


def _refuse_pickling(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict()"
    )


def _give_own_class(module: Module) -> None:
    """Give a module a class of its own, for properties of this instance alone."""
    old: Any = type(module)
    members: dict[str, Any] = {"__getstate__": _refuse_pickling}
    if not hasattr(old, "__deepcopy__"):
        members["__deepcopy__"] = _deepcopied
    module.__class__ = type(f"Parametrized{old.__name__}", (old,), members)


def _add_property(module: Module, tensor_name: str) -> None:
    def value(self: Any) -> Any:
        parametrization = self.parametrizations[tensor_name]
        if not _cache_enabled:
            return parametrization()
        key = (id(self), tensor_name)
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    def assign(self: Any, tensor: Any) -> None:
        self.parametrizations[tensor_name].right_inverse(tensor)

    setattr(type(module), tensor_name, property(value, assign))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Make a tensor of a module a function of the tensor that it was, or of several.

    The tensor moves to ``module.parametrizations.<tensor_name>.original``; the attribute is
    computed whenever it is read. Further parametrizations are applied after the ones there are.
    If the parametrization has a method `right_inverse`, the attribute can be assigned to, and the
    original starts as the inverse of what the tensor was; it may return several tensors.

    Args:
        module: the module, which gets a class of its own.
        tensor_name: name of a parameter or buffer.
        parametrization: the function.
        unsafe: allow other dtypes and shapes; the first check of these is then left out.

    Returns:
        The module.

    Raises:
        ValueError: there is no such tensor, or, unless `unsafe`, dtype or shape would change.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_further(module, tensor_name, parametrization)
        functions = module.parametrizations[tensor_name]
        functions.append(parametrization)
        functions.unsafe |= unsafe
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    original = getattr(module, tensor_name)
    functions = ParametrizationList([parametrization], original, unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _give_own_class(module)
        module.parametrizations = ModuleDict()
    _add_property(module, tensor_name)
    module.parametrizations[tensor_name] = functions
    return module


def _check_further(module: Module, tensor_name: str, parametrization: Module) -> None:
    """Check one more parametrization on the present value of the tensor.

    Raises:
        ValueError: it, or its `right_inverse`, changes dtype or shape, or returns no tensor.
    """
    before = getattr(module, tensor_name)
    after = parametrization(before)
    name = f"module.{tensor_name}"
    if not isinstance(after, tangrad.Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    _check_like(after, before, name, _CHANGED)
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, tangrad.Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
        )
    _check_like(back, before, name, _INVERTED)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Say whether a tensor of a module, or any if no name is given, is parametrized."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make a parametrized tensor a plain parameter or buffer again.

    Args:
        module: the module.
        tensor_name: name of the tensor.
        leave_parametrized: keep its present value; otherwise that of its original.

    Returns:
        The module, of the class that it had, once no tensor is parametrized.

    Raises:
        ValueError: the tensor is not parametrized, or has several originals to be left.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    functions = module.parametrizations[tensor_name]
    if functions.is_tensor:
        tensor = functions.original
        if leave_parametrized:
            with tangrad.no_grad():
                value = getattr(module, tensor_name)
            _set(tensor, value)
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        tensor = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor "
            "that is parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, tensor)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """Return the class that a module had before a tensor of it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give a module the parametrizations of another, and the parameters they are applied to.

    Args:
        from_module: the module that has them; if it has none, nothing is done.
        to_module: the module that gets them.
        tensor_name: the tensor; all parametrized ones by default.

    Returns:
        `to_module`.
    """
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        source = from_module.parametrizations[name]
        for function in source:
            register_parametrization(to_module, name, function)
        target = to_module.parametrizations[name]
        if source.is_tensor:
            target.original = source.original
        else:
            for i in range(source.ntensors):
                setattr(target, f"original{i}", getattr(source, f"original{i}"))
    return to_module
