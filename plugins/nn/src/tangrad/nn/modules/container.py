"""Modules that hold modules, and modules that hold parameters."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import tangrad
from tangrad.nn.modules.module import Module, _addindent
from tangrad.nn.parameter import Parameter

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _index(index: Any, length: int) -> int:
    """Return `index` counted from the front.

    Raises:
        IndexError: if it lies outside.
    """
    position = operator.index(index)
    if not -length <= position < length:
        raise IndexError(f"index {position} is out of range")
    return position % length if length else position


_CONTAINER_IS_DEPRECATED = (
    "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. "
    "Subclass that instead."
)


class Container(Module):
    """Hold modules given by name; a deprecated class.

    Args:
        kwargs: the modules.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Warn who subclasses it."""
        import warnings

        warnings.warn(_CONTAINER_IS_DEPRECATED, FutureWarning, stacklevel=2)
        super().__init_subclass__(**kwargs)

    def __init__(self, **kwargs: Any) -> None:
        """Register the modules."""
        if type(self) is Container:
            import warnings

            warnings.warn(_CONTAINER_IS_DEPRECATED, FutureWarning, stacklevel=2)
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


class _Numbered(Module):
    """What `Sequential` and `ModuleList` share: submodules named by their position or a key."""

    def _key(self, index: Any) -> str:
        """Return the name of the submodule at position `index`."""
        position = _index(index, len(self))
        return next(islice(self._modules, position, None))

    def _renumber(self, modules: Iterable[Any]) -> None:
        self._modules = {str(i): module for i, module in enumerate(modules)}

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice):
            for key in list(self._modules)[index]:
                delattr(self, key)
        else:
            delattr(self, self._key(index))
        self._renumber(list(self._modules.values()))

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, module: Module) -> Any:
        """Add `module` at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: int | slice) -> Any:
        """Remove and return the submodule at position `key`."""
        module = self[key]  # type: ignore[index]
        del self[key]
        return module


class Sequential(_Numbered):
    """Call submodules one after another, each on the output of the one before.

    Args:
        *args: the modules, or one `OrderedDict` from names to modules.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = len(args) == 1 and isinstance(args[0], OrderedDict)
        items = args[0].items() if named else ((str(i), m) for i, m in enumerate(args))
        for name, module in items:
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:
        """Return the output of the last submodule."""
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects of Sequential class, "
                f"but {type(other)} is given."
            )
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects of Sequential class, "
                f"but {type(other)} is given."
            )
        return self.extend(other)

    def _repeated(self, times: Any) -> list[Any]:
        if not isinstance(times, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(times)}")
        if times <= 0:
            raise ValueError(f"Non-positive multiplication factor {times} for {type(self)}")
        return list(self) * times

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*self._repeated(other))

    def __rmul__(self, other: int) -> Sequential:
        return self * other

    def __imul__(self, other: int) -> Any:
        return self.extend(self._repeated(other)[len(self) :])

    def insert(self, index: int, module: Module) -> Any:
        """Put `module` before position `index`.

        Raises:
            AssertionError: if `module` is not a module.
            IndexError: if the position lies outside.
        """
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}, got {type(module)}")
        length = len(self)
        if not -length <= index <= length:
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index if index >= 0 else index + length, module)
        self._renumber(modules)
        return self

    def extend(self, sequential: Iterable[Any]) -> Any:
        """Add all modules of `sequential` at the end."""
        for module in list(sequential):
            self.append(module)
        return self


class ModuleList(_Numbered):
    """Hold submodules in a list; calling them is left to the owner.

    Args:
        modules: the modules to begin with.
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _key(self, index: Any) -> str:
        return str(_index(index, len(self)))

    _get_abs_string_index = _key  # by which subclasses of programs ask

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._modules[self._key(index)]

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def insert(self, index: int, module: Module) -> None:
        """Put `module` before position `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add all of `modules` at the end.

        Raises:
            TypeError: if `modules` is not iterable.
        """
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, "
                f"but got {type(modules).__name__}"
            )
        for module in list(modules):
            self.append(module)
        return self

    def __repr__(self) -> str:
        blocks: list[list[Any]] = []
        for position, text in enumerate(map(repr, self)):
            if blocks and blocks[-1][2] == text:
                blocks[-1][1] = position
            else:
                blocks.append([position, position, text])
        if not blocks:
            return f"{self._get_name()}()"
        lines = [
            f"({i}): {text}" if i == last else f"({i}-{last}): {last - i + 1} x {text}"
            for i, last, text in blocks
        ]
        return f"{self._get_name()}(\n  " + "\n  ".join(_addindent(x, 2) for x in lines) + "\n)"


class ModuleDict(Module):
    """Hold submodules in a dictionary, in the order of insertion.

    Args:
        modules: mapping, or iterable of pairs, of names and modules.
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove all submodules."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove and return the submodule `key`."""
        return self._modules.pop(key)

    def keys(self) -> Any:
        """Return the names."""
        return self._modules.keys()

    def items(self) -> Any:
        """Return pairs of name and module."""
        return self._modules.items()

    def values(self) -> Any:
        """Return the modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add or replace submodules.

        Args:
            modules: mapping, or iterable of pairs, of names and modules.

        Raises:
            TypeError: if `modules` is not iterable.
            ValueError: if an element is not a pair.
        """
        for key, module in _pairs(modules, "ModuleDict"):
            self[key] = module


def _pairs(source: Any, owner: str) -> list[tuple[Any, Any]]:
    """Return the pairs of `source`, a mapping or an iterable of pairs."""
    if not isinstance(source, Iterable):
        raise TypeError(
            f"{owner}.update should be called with an iterable of key/value pairs, "
            f"but got {type(source).__name__}"
        )
    if isinstance(source, (Mapping, ModuleDict, ParameterDict)):
        return list(source.items())
    pairs = list(source)
    for position, pair in enumerate(pairs):
        if not isinstance(pair, Iterable):
            raise TypeError(
                f"{owner} update sequence element #{position} should be Iterable; "
                f"is {type(pair).__name__}"
            )
        if len(pair) != 2:  # type: ignore[arg-type]
            raise ValueError(
                f"{owner} update sequence element #{position} has length {len(pair)}; 2 is required"  # type: ignore[arg-type]
            )
    return pairs


def _parameter(value: Any) -> Any:
    """Return `value`, a tensor turned into a parameter."""
    if isinstance(value, tangrad.Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _described(key: Any, value: Any, kind: Callable[[Any], Any]) -> str:
    if not isinstance(value, tangrad.Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    name = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.shape))
    device = "" if value.device.type in ("cpu", "meta") else f" ({value.device})"
    return f"  ({key}): {name} containing: [{kind(value)} of size {size}{device}]"


class ParameterList(Module):
    """Hold parameters in a list.

    Args:
        values: values to begin with; tensors among them become parameters.
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            positions = range(*index.indices(len(self)))
            return type(self)(getattr(self, str(i)) for i in positions)
        return getattr(self, str(_index(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_index(index, len(self))), _parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, value: Any) -> ParameterList:
        """Add `value` at the end; a tensor becomes a parameter."""
        position = len(self)
        self._size += 1
        self[position] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add all of `values` at the end; tensors become parameters.

        Raises:
            TypeError: if `values` is not iterable, or is one tensor.
        """
        if not isinstance(values, Iterable) or isinstance(values, tangrad.Tensor):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, "
                f"but got {type(values).__name__}"
            )
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """List what is held."""
        lines = (_described(i, value, lambda tensor: tensor.dtype) for i, value in enumerate(self))
        return "\n".join(lines)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: a list of parameters computes nothing.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """Hold parameters in a dictionary, in the order of insertion.

    Args:
        parameters: mapping, or iterable of pairs; tensors among the values become parameters. Of
            a mapping that is no `OrderedDict`, the keys are sorted.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _attribute(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}')"
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._attribute(key))

    def __setitem__(self, key: str, value: Any) -> None:
        name = self._attribute(key)
        self._keys[key] = None
        setattr(self, name, _parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._attribute(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """Return a new dictionary of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, after setting it to `default` if it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove everything."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Remove and return the value of `key`."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last pair."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, or `default` if it is missing."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Return a new dictionary with `default` for each of `keys`."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> Any:
        """Return the keys."""
        return self._keys.keys()

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterate over pairs of key and value."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterator[Any]:
        """Iterate over the values."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Add or replace values; tensors become parameters.

        Args:
            parameters: mapping, or iterable of pairs.

        Raises:
            TypeError: if `parameters` is not iterable.
            ValueError: if an element is not a pair.
        """
        pairs = _pairs(parameters, "ParameterDict")
        # Plain mappings had no order once, so PyTorch sorts them, and so do state dicts.
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs.sort(key=operator.itemgetter(0))
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        """List what is held."""
        lines = (
            _described(key, value, lambda tensor: tensor.type()) for key, value in self.items()
        )
        return "\n".join(lines)

    def __call__(self, input: Any) -> Any:
        """Refuse: a dictionary of parameters computes nothing.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other: ParameterDict) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        joined = other.copy()
        joined.update(self)
        return joined

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self
