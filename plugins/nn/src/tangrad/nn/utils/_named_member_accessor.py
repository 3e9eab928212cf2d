"""Tensors and modules of a module by their paths, read and put in its place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tangrad
from tangrad.nn.modules.module import Module

_MISSING = object()


def _holder(module: Module, name: str) -> tuple[Module, str]:
    path, _, last = name.rpartition(".")
    return module.get_submodule(path), last


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put a tensor into a module, registered as what it replaces; return that.

    Args:
        module: the module.
        name: its name there.
        tensor: the tensor; a private mark for none.
        allow_missing: whether there may be none so far.

    Raises:
        AttributeError: there is none.
        KeyError: the name has a dot or is empty.
        TypeError: what is there, or what is given, is no tensor.
    """
    if not name or "." in name:
        raise KeyError(f'tensor name can\'t be empty or contain ".", got: {name!r}')
    if tensor is not _MISSING and tensor is not None and not isinstance(tensor, tangrad.Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    for registry in (module._parameters, module._buffers):
        if name in registry:
            before = registry[name]
            if tensor is _MISSING:
                del registry[name]
            else:
                registry[name] = tensor
            return before
    before = module.__dict__.get(name, _MISSING)
    if before is _MISSING:
        if not allow_missing:
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    elif not isinstance(before, tangrad.Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is _MISSING:
        module.__dict__.pop(name, None)
    else:
        setattr(module, name, tensor)
    return before


def set_tensor(module: Module, name: str, tensor: Any) -> None:
    """Put a tensor into a module."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_submodule(module: Module, name: str, submodule: Module) -> Module:
    """Put a module in the place of another; return that.

    Raises:
        AttributeError: there is none.
        TypeError: what is given is no module.
    """
    if not isinstance(submodule, Module):
        raise TypeError(f"{submodule} is not an instance of torch.nn.Module")
    before = module._modules.get(name)
    if before is None:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    module._modules[name] = submodule
    return before


class NamedMemberAccessor:
    """Read and replace members of a module by their paths."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def get_submodule(self, name: str) -> Module:
        """Return a module."""
        return self.module.get_submodule(name)

    def swap_submodule(self, path: str, value: Module) -> Module:
        """Put a module in the place of another; return that."""
        holder, last = _holder(self.module, path)
        return swap_submodule(holder, last, value)

    def get_tensor(self, name: str) -> Any:
        """Return a tensor.

        Raises:
            AttributeError: there is none.
            TypeError: it is no tensor.
        """
        holder, last = _holder(self.module, name)
        found = getattr(holder, last)
        if not isinstance(found, tangrad.Tensor) and found is not None:
            raise TypeError(f"{found} is not an instance of torch.Tensor")
        return found

    def set_tensor(self, name: str, value: Any) -> None:
        """Put a tensor in."""
        holder, last = _holder(self.module, name)
        set_tensor(holder, last, value)

    def del_tensor(self, name: str) -> None:
        """Take a tensor out."""
        holder, last = _holder(self.module, name)
        swap_tensor(holder, last, _MISSING)

    def swap_tensor(self, name: str, value: Any, allow_missing: bool = False) -> Any:
        """Put a tensor in; return what was there."""
        holder, last = _holder(self.module, name)
        return swap_tensor(holder, last, value, allow_missing)

    def get_tensors(self, names: Iterable[str]) -> list[Any]:
        """Return several tensors."""
        return [self.get_tensor(name) for name in names]

    def set_tensors(self, names: Iterable[str], values: Iterable[Any]) -> None:
        """Put several tensors in."""
        for name, value in zip(list(names), list(values), strict=True):
            self.set_tensor(name, value)

    def set_tensors_dict(self, named_tensors: dict[str, Any]) -> None:
        """Put tensors in by name."""
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def del_tensors(self, names: Iterable[str]) -> None:
        """Take several tensors out."""
        for name in names:
            self.del_tensor(name)

    def swap_tensors(
        self, names: Iterable[str], values: Iterable[Any], allow_missing: bool = False
    ) -> list[Any]:
        """Put several tensors in; return what was there."""
        pairs = zip(list(names), list(values), strict=True)
        return [self.swap_tensor(name, value, allow_missing) for name, value in pairs]

    def swap_tensors_dict(
        self, named_tensors: dict[str, Any], allow_missing: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """Put tensors in by name; return what was there, and which names were missing."""
        before, missing = {}, []
        for name, value in named_tensors.items():
            found = self.swap_tensor(name, value, allow_missing)
            if found is _MISSING:
                missing.append(name)
            before[name] = found
        return before, missing

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return which names are missing among given ones, and which are too many."""
        given, own = set(keys), {name for name, _ in self.named_tensors(remove_duplicate=False)}
        return sorted(own - given), sorted(given - own)

    def named_parameters(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]:
        """Yield (path, parameter)."""
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]:
        """Yield (path, buffer)."""
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]:
        """Yield (path, parameter or buffer)."""
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Module]]:
        """Yield (path, module)."""
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)
