"""The base class of all neural network modules."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import tangrad
import tangrad.nn._module as _module
from tangrad import Tensor
from tangrad.__future__ import get_swap_module_params_on_conversion
from tangrad.nn.modules import hooks as _hooks
from tangrad.nn.modules.conversion import converted, parse_to, swapped
from tangrad.nn.modules.hooks import (
    Hooked,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from tangrad.nn.modules.state_dict import _EXTRA_STATE_KEY_SUFFIX as _EXTRA_STATE_KEY_SUFFIX
from tangrad.nn.modules.state_dict import Stateful, _IncompatibleKeys
from tangrad.nn.notebooks import shown
from tangrad.nn.parameter import Buffer, Parameter
from tangrad.plugin import DEVICES, known_names
from tangrad.utils.gradients import clear_grad
from tangrad.utils.swap import counting_once

__all__ = [
    "Module",
    "_IncompatibleKeys",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

T = TypeVar("T", bound="Module")

# What every instance starts with: the registries, by attribute name.
_REGISTRIES: dict[str, type] = {
    "_parameters": dict,
    "_buffers": dict,
    "_non_persistent_buffers_set": set,
    "_modules": dict,
    "_backward_pre_hooks": OrderedDict,
    "_backward_hooks": OrderedDict,
    "_forward_hooks": OrderedDict,
    "_forward_hooks_with_kwargs": OrderedDict,
    "_forward_hooks_always_called": OrderedDict,
    "_forward_pre_hooks": OrderedDict,
    "_forward_pre_hooks_with_kwargs": OrderedDict,
    "_state_dict_hooks": OrderedDict,
    "_state_dict_pre_hooks": OrderedDict,
    "_load_state_dict_pre_hooks": OrderedDict,
    "_load_state_dict_post_hooks": OrderedDict,
}


def _typename(value: object) -> str:
    kind = type(value)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _addindent(text: str, width: int) -> str:
    """Indent every line but the first."""
    return text.replace("\n", "\n" + " " * width)


def _forward_unimplemented(self: Any, *input: Any) -> None:
    """Compute the module's output; every subclass defines it.

    Raises:
        NotImplementedError: unless overridden.
    """
    raise NotImplementedError(
        f'Module [{type(self).__name__}] is missing the required "forward" function'
    )


class Module(Stateful, Hooked):
    """Hold parameters, buffers and submodules, and compute `forward` of them.

    Tensors of class `Parameter`, and modules, are registered when they are assigned to an
    attribute; `to`, `state_dict`, `parameters` and the rest then find them.

    Attributes:
        training: whether the module is in training mode (`train`) or evaluation mode (`eval`).
    """

    dump_patches: bool = False
    call_super_init: bool = False
    training: bool
    forward: Callable[..., Any] = _forward_unimplemented

    __call__: Callable[..., Any] = _module.call
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...
    else:
        __getattr__ = _module.get_registered
        __setattr__ = _module.set_attribute

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _module.accelerate(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make the empty registries.

        Raises:
            TypeError: if there are arguments and `call_super_init` is False.
        """
        if not self.call_super_init and (args or kwargs):
            name = type(self).__name__
            if kwargs:
                raise TypeError(
                    f"{name}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
                )
            raise TypeError(
                f"{name}.__init__() takes 1 positional argument but {len(args) + 1} were given"
            )
        attributes = self.__dict__
        attributes["training"] = True
        attributes["_is_full_backward_hook"] = None
        _module.start_registries(attributes)
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return _module.call(self, *args, **kwargs)

    # --- registration ---------------------------------------------------------------------

    def _check_name(self, name: Any, what: str, registry: dict[str, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if name not in registry and _module.taken(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Register a tensor that is state of the module but no parameter.

        Args:
            name: attribute under which it is reached.
            tensor: the buffer; None registers the name only.
            persistent: whether it is part of `state_dict`.

        Raises:
            AttributeError: if `Module.__init__` has not run.
            KeyError: if the name is empty, contains a dot or is taken.
            TypeError: if `name` is no string, or `tensor` neither tensor nor None.
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name(name, "buffer", self._buffers)
        if tensor is not None and not isinstance(tensor, tangrad.Tensor):
            raise TypeError(
                f"cannot assign '{_typename(tensor)}' object to buffer '{name}' "
                "(tangrad.Tensor or None required)"
            )
        hooks = _hooks._global_buffer_registration_hooks
        self._buffers[name] = _hooks.on_registration(hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Any) -> None:
        """Register a parameter.

        Args:
            name: attribute under which it is reached.
            param: the parameter; None registers the name only.

        Raises:
            AttributeError: if `Module.__init__` has not run.
            KeyError: if the name is empty, contains a dot or is taken.
            TypeError: if `name` is no string, or `param` neither Parameter nor None.
            ValueError: if `param` is the result of an operation.
        """
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name(name, "parameter", self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_typename(param)}' object to parameter '{name}' "
                "(tangrad.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, "
                "compute the value in the forward() method."
            )
        hooks = _hooks._global_parameter_registration_hooks
        self._parameters[name] = _hooks.on_registration(hooks, self, name, param)

    def add_module(self, name: str, module: Module | None) -> None:
        """Register a submodule.

        Args:
            name: attribute under which it is reached.
            module: the submodule; None registers the name only.

        Raises:
            KeyError: if the name is empty, contains a dot or is taken.
            TypeError: if `name` is no string, or `module` neither Module nor None.
        """
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name(name, "module", self._modules)
        hooks = _hooks._global_module_registration_hooks
        self._modules[name] = _hooks.on_registration(hooks, self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """Register a submodule: another name of `add_module`."""
        self.add_module(name, module)

    def _forget(self, name: str, *keep: str) -> None:
        """Take `name` out of the instance and of every registry not in `keep`."""
        self.__dict__.pop(name, None)
        for registry in ("_parameters", "_buffers", "_modules"):
            if registry not in keep:
                self.__dict__[registry].pop(name, None)
        if "_buffers" not in keep:
            self._non_persistent_buffers_set.discard(name)

    def _register_attribute(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        parameters = attributes.get("_parameters")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as parameter '{name}' "
                    "(tangrad.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if parameters is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_modules")
            self._set_module(name, value)
        elif parameters is not None and name in attributes["_modules"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as child module '{name}' "
                    "(tangrad.nn.Module or None expected)"
                )
            self._set_module(name, value)
        elif isinstance(value, Buffer) or name in attributes.get("_buffers", ()):
            self._set_buffer(name, value)
        else:
            super().__setattr__(name, value)

    def _set_module(self, name: str, value: Module | None) -> None:
        hooks = _hooks._global_module_registration_hooks
        self._modules[name] = _hooks.on_registration(hooks, self, name, value)

    def _set_buffer(self, name: str, value: Any) -> None:
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        if value is not None and not isinstance(value, tangrad.Tensor):
            raise TypeError(
                f"cannot assign '{_typename(value)}' as buffer '{name}' "
                "(tangrad.nn.Buffer, tangrad.Tensor or None expected)"
            )
        if isinstance(value, Buffer):
            self._forget(name, "_buffers")
            persistent = value.persistent
        else:
            persistent = name not in self._non_persistent_buffers_set
        self.register_buffer(name, value, persistent)

    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A pickle made by an older version may lack registries that have been added since.
        for name, make in _REGISTRIES.items():
            if name not in self.__dict__:
                self.__dict__[name] = make()
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def __dir__(self) -> list[str]:
        names = [
            *dir(type(self)),
            *self.__dict__,
            *self._parameters,
            *self._modules,
            *self._buffers,
        ]
        return sorted({name for name in names if not name[0].isdigit()})

    # --- finding members ------------------------------------------------------------------

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        """Yield (name, member) for the members of this module and, when asked, all below."""
        seen = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for module_prefix, module in modules:
            for name, member in get_members_fn(module):
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield (f"{module_prefix}.{name}" if module_prefix else name), member

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Iterate over the parameters, of submodules too when `recurse`."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Iterate over (name, parameter).

        Args:
            prefix: put before every name.
            recurse: include the parameters of submodules.
            remove_duplicate: yield a shared parameter once.
        """
        yield from self._named_members(
            lambda module: module._parameters.items(), prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterate over the buffers, of submodules too when `recurse`."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Iterate over (name, buffer).

        Args:
            prefix: put before every name.
            recurse: include the buffers of submodules.
            remove_duplicate: yield a shared buffer once.
        """
        yield from self._named_members(
            lambda module: module._buffers.items(), prefix, recurse, remove_duplicate
        )

    def children(self) -> Iterator[Module]:
        """Iterate over the direct submodules."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Iterate over (name, module) of the direct submodules, each module once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self) -> Iterator[Module]:
        """Iterate over this module and all below it, each once."""
        for _, module in self.named_modules():
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Iterate over (name, module) of this module and all below it.

        Args:
            memo: modules already seen.
            prefix: put before every name.
            remove_duplicate: yield a shared module once.
        """
        if memo is None:
            memo = set()
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                inner = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, inner, remove_duplicate)

    def get_submodule(self, target: str) -> Module:
        """Return the submodule named `target`, such as `"net.0.conv"`.

        Raises:
            AttributeError: if the path meets something that is missing or no module.
        """
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at the path `target`.

        Args:
            target: path of the submodule, such as `"net.0.conv"`.
            module: what to put there.
            strict: require that there is a module already.

        Raises:
            ValueError: if `target` is empty or `module` is not a module.
            AttributeError: if the path meets something that is missing or no module.
        """
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Any:
        """Return the parameter named `target`, such as `"net.0.weight"`.

        Raises:
            AttributeError: if the path leads to nothing, or to no parameter.
        """
        parameter, name = self._get_member(target)
        if not isinstance(parameter, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return parameter

    def get_buffer(self, target: str) -> Any:
        """Return the buffer named `target`, such as `"net.1.running_mean"`.

        Raises:
            AttributeError: if the path leads to nothing, or to no buffer.
        """
        buffer, name = self._get_member(target)
        if name not in self.get_submodule(target.rpartition(".")[0])._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return buffer

    def _get_member(self, target: str) -> tuple[Any, str]:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        return getattr(module, name), name

    # --- changing members -----------------------------------------------------------------

    def apply(self: T, fn: Callable[[Module], Any]) -> T:
        """Call `fn` with every submodule, inner ones first, and with this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self: T, fn: Callable[[Any], Any], recurse: bool = True) -> T:
        """Replace the memory of every parameter, its gradient and every buffer by `fn` of it.

        The parameter objects stay, so that optimizers go on holding them; only a parameter that
        comes from, or goes to, the device "meta" is replaced, and every one where
        `tangrad.__future__` says so; it may also say that they are swapped.

        Raises:
            RuntimeError: a parameter is to be swapped, and has views or weak references, or was
                saved by a graph.
        """
        swaps = get_swap_module_params_on_conversion()
        convert = swapped if swaps else converted
        with counting_once() if swaps else nullcontext():
            if recurse:
                for module in self.children():
                    module._apply(fn)
            for name, parameter in self._parameters.items():
                if parameter is not None:
                    what = f"{self._get_name()}.{name}"
                    self._parameters[name] = convert(parameter, fn, what)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Move and convert the parameters and buffers in place.

        Called as `to(device=None, dtype=None, non_blocking=False)`,
        `to(dtype, non_blocking=False)`, `to(tensor, non_blocking=False)` or
        `to(memory_format=...)`. A dtype changes only floating point and complex members; a
        memory format only those of four or five dimensions.

        Raises:
            TypeError: if the dtype is neither floating point nor complex, or the arguments fit
                none of the forms.
        """
        device, dtype, non_blocking, memory_format = parse_to(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, "
                f"but got desired dtype={dtype}"
            )

        def convert(tensor: Any) -> Any:
            options: dict[str, Any] = {}
            if memory_format is not None and tensor.dim() in (4, 5):
                options["memory_format"] = memory_format
            if dtype is not None and (tensor.is_floating_point() or tensor.is_complex()):
                options["dtype"] = dtype
            if device is not None:
                options["device"] = device
            return tensor.to(non_blocking=non_blocking, **options) if options else tensor

        return self._apply(convert)

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """Move to `device` without copying values."""
        return self._apply(lambda tensor: tangrad.empty_like(tensor, device=device), recurse)

    def type(self: T, dst_type: Any) -> T:
        """Convert all parameters and buffers to `dst_type`, a dtype or its type string."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def _cast(self: T, dtype: Any) -> T:
        def convert(tensor: Any) -> Any:
            return tensor.to(dtype) if tensor.is_floating_point() else tensor

        return self._apply(convert)

    def float(self: T) -> T:
        """Convert all floating point parameters and buffers to float32."""
        return self._cast(tangrad.float32)

    def double(self: T) -> T:
        """Convert all floating point parameters and buffers to float64."""
        return self._cast(tangrad.float64)

    def half(self: T) -> T:
        """Convert all floating point parameters and buffers to float16."""
        return self._cast(tangrad.float16)

    def bfloat16(self: T) -> T:
        """Convert all floating point parameters and buffers to bfloat16."""
        return self._cast(tangrad.bfloat16)

    def cpu(self: T) -> T:
        """Move all parameters and buffers to the CPU."""
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self: T, device: Any = None) -> T:
        """Move all parameters and buffers to a CUDA device, the current one by default."""
        return self._apply(lambda tensor: tensor.cuda(device))

    def share_memory(self: T) -> T:
        """Move all parameters and buffers to memory that processes share."""
        return self._apply(lambda tensor: tensor.share_memory_())

    def train(self: T, mode: bool = True) -> T:
        """Set training mode (or, for False, evaluation mode) here and in all submodules.

        Raises:
            ValueError: if `mode` is not a bool.
        """
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Set evaluation mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Say for all parameters whether autograd records operations on them."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        for parameter in self.parameters():
            clear_grad(parameter, set_to_none)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Have `tangrad.compile` compile this module's forward, in place.

        Args:
            args, kwargs: of `tangrad.compile`.
        """
        forward = self.forward
        compiled = tangrad.compile(forward, *args, **kwargs)
        if compiled is not forward:
            self.__dict__["forward"] = compiled

    # --- printing -------------------------------------------------------------------------

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """Return what `repr` shows of the module besides its submodules."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [
            f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()
        ]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({lines[0]})"
        body = [*lines, *children]
        if not body:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join(body) + "\n)"

    def _repr_html_(self) -> str | None:
        return shown("nn.Module._repr_html_", self)


def _mover(module: Module, name: str) -> Any:
    """Return the method that moves a module to a device of an installed package, or None."""
    if name not in known_names(DEVICES):
        return None

    def move(device: Any = None) -> Module:
        return module._apply(lambda tensor: getattr(tensor, name)(device))

    move.__name__ = name
    move.__doc__ = f"Move all parameters and buffers to device {name}, the current one by default."
    return move


_module.set_further(_mover)
_module.set_registries(_REGISTRIES)
_module.set_classes(Module, tangrad.Tensor, Parameter, Module._register_attribute)
_module.set_registration_hooks(
    _hooks._global_parameter_registration_hooks, _hooks._global_module_registration_hooks
)
_module.accelerate(Module)


class _WithGlobalHooks(ModuleType):
    """This file as a module: the registries of hooks are read and bound where they are kept."""

    def __getattr__(self, name: str) -> Any:
        if name in _hooks.GLOBAL_NAMES:
            return getattr(_hooks, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _hooks.GLOBAL_NAMES:
            _hooks.rebind(name, value)
        else:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _WithGlobalHooks
