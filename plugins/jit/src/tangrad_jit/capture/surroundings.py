"""What a program reads of the outside: modules, globals, closures, containers, and their guards.

`survey` walks from a function and its arguments to all that it can name. It is called twice: before
the recorded run, and after it. What differs was changed by the run, and a graph cannot repeat
that; what is left is guarded.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import tangrad
from tangrad import nn
from tangrad_jit._guards import (
    CellGuard,
    CodeGuard,
    DictGuard,
    EntryGuard,
    EqualGuard,
    Guard,
    ListGuard,
    SlotGuard,
    TensorGuard,
    TypeGuard,
)
from tangrad_jit.capture.bytecode import instructions, name_of
from tangrad_jit.capture.calls import is_library
from tangrad_jit.capture.errors import GuardError

__all__ = ["Surroundings", "survey"]

# Of the source of a number: (identity of what holds it, its place there), and the place in a tuple.
Key = tuple[Any, ...]

_LIMIT = 50_000
_PLAIN = (int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
_FIXED = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.CodeType,
    range,
    slice,
    frozenset,
    property,
    tangrad.dtype,
    tangrad.device,
    tangrad.layout,
    tangrad.memory_format,
    tangrad.Generator,
)
_HARMLESS = ("logging", "threading", "_thread", "weakref", "typing", "re", "enum", "pathlib", "abc")


class Surroundings:
    """What was found.

    Attributes:
        guards: one per thing that may change.
        tensors: (path, tensor) of every tensor, in the order in which they were found.
        refusals: (path, reason) of what cannot be watched.
    """

    def __init__(self, executed: set[types.CodeType] | None, given: Iterable[Key] = ()) -> None:
        self.executed = executed
        self.given: dict[int, set[Any]] = {}
        for holder, place, *_ in given:
            self.given.setdefault(holder, set()).add(place)
        self.guards: list[Guard] = []
        self.tensors: list[tuple[str, Any]] = []
        self.refusals: list[tuple[str, str]] = []
        self.code: set[types.CodeType] = set()
        self._seen: dict[int, Any] = {}

    def modules(self) -> Iterable[Any]:
        """Return the modules (nn.Module) that were found, outermost first."""
        return [item for item in self._seen.values() if isinstance(item, nn.Module)]

    def add(self, item: Any, path: str) -> None:
        """Walk on from an object."""
        pending = [(item, path)]
        while pending:
            held, where = pending.pop()
            if isinstance(held, _PLAIN) or id(held) in self._seen:
                continue
            self._seen[id(held)] = held
            if len(self._seen) > _LIMIT:
                raise GuardError(f"{where}: the function names more than {_LIMIT} objects")
            pending.extend(reversed(list(self._look(held, where))))

    def _look(self, held: Any, path: str) -> Iterable[tuple[Any, str]]:
        if isinstance(held, tangrad.Tensor):
            self.tensors.append((path, held))
            self.guards.append(TensorGuard(path, held))
            return ()
        if isinstance(held, (dict, types.MappingProxyType)):
            return self._mapping(held, path)
        if isinstance(held, list):
            self.guards.append(ListGuard(path, held, self.given.get(id(held), ())))
            return [(member, f"{path}[{i}]") for i, member in enumerate(held)]
        if isinstance(held, tuple):
            return [(member, f"{path}[{i}]") for i, member in enumerate(held)]
        if isinstance(held, set):
            self.guards.append(EqualGuard(path, held))
            return ()
        if isinstance(held, types.FunctionType):
            return self._function(held, path)
        if isinstance(held, types.MethodType):
            return [(held.__func__, path), (held.__self__, f"{path}.__self__")]
        if isinstance(held, functools.partial):
            return [(held.func, path), (held.args, path), (held.keywords, path)]
        if isinstance(held, (staticmethod, classmethod)):
            return [(held.__func__, path)]
        if isinstance(held, type):
            return self._class(held, path)
        return self._object(held, path)

    def _mapping(self, held: Any, path: str) -> Iterable[tuple[Any, str]]:
        if type(held) is not types.MappingProxyType:
            self.guards.append(DictGuard(path, held, self.given.get(id(held), ())))
        found = []
        for key, value in held.items():
            name = repr(key) if isinstance(key, _PLAIN) else f"<{type(key).__name__}>"
            found.append((value, f"{path}[{name}]"))
            if not isinstance(key, _PLAIN):
                found.append((key, f"{path} key"))
        return found

    def _function(self, held: types.FunctionType, path: str) -> Iterable[tuple[Any, str]]:
        code = held.__code__
        self.code.add(code)
        if is_library(code):
            # Its cells may hold what is the user's: decorators of the library keep functions so.
            cells = held.__closure__ or ()
            return [
                (cell.cell_contents, path)
                for cell in cells
                if not _is_empty(cell)
                and isinstance(
                    cell.cell_contents, (types.FunctionType, types.MethodType, nn.Module)
                )
            ]
        self.guards.append(CodeGuard(path, held))
        if self.executed is not None and code not in self.executed:
            return ()
        name = f"{path}()" if path else f"{held.__qualname__}()"
        found: list[tuple[Any, str]] = []
        for free, cell in zip(code.co_freevars, held.__closure__ or (), strict=False):
            if not _is_empty(cell):
                self.guards.append(CellGuard(f"{name}: {free}", cell, id(cell) in self.given))
                found.append((cell.cell_contents, f"{name}: {free}"))
        found.extend(self._names(code, held.__globals__, name))
        found.append((held.__defaults__, f"{name} default"))
        found.append((held.__kwdefaults__, f"{name} default"))
        return found

    def _names(self, code: types.CodeType, names: dict[str, Any], path: str) -> list[Any]:
        """Return what code reads of its module, followed through modules' attributes."""
        found: list[Any] = []
        for chain in names_read(code):
            holder: dict[str, Any] = names
            where = ""
            for part in chain:
                if part not in holder:
                    break
                where = f"{where}.{part}" if where else part
                value = holder[part]
                if not _is_trusted_holder(holder):
                    given = self.given.get(id(holder), ())
                    self.guards.append(EntryGuard(f"{path} reads {where}", holder, part, given))
                if not isinstance(value, types.ModuleType):
                    found.append((value, where))
                    break
                holder = vars(value)
        return found

    def _class(self, held: type, path: str) -> Iterable[tuple[Any, str]]:
        if _of_library(held) or held.__module__ in sys.stdlib_module_names:
            return ()
        found: list[tuple[Any, str]] = []
        for kind in held.__mro__:
            if _of_library(kind) or kind is object:
                continue
            for name, value in vars(kind).items():
                if isinstance(value, property):
                    found.extend((f, f"{path}.{name}") for f in (value.fget,) if f is not None)
                elif not name.startswith("__") or name in ("__init__", "__call__", "__getitem__"):
                    code = isinstance(value, (types.FunctionType, staticmethod, classmethod))
                    if code or not (isinstance(value, _FIXED) or callable(value)):
                        found.append((value, f"{path}.{name}"))
        return found

    def _object(self, held: Any, path: str) -> Iterable[tuple[Any, str]]:
        kind = type(held)
        if isinstance(held, (_FIXED, types.ModuleType)):
            return ()
        if kind.__module__.partition(".")[0] in _HARMLESS:
            return ()
        names = getattr(held, "__dict__", None)
        slots = [s for k in kind.__mro__ for s in _slots_of(k)]
        if not isinstance(names, dict) and not slots:
            if isinstance(held, object) and kind.__basicsize__ == object.__basicsize__:
                return [(kind, path)]
            self.refusals.append(
                (path, f"an object of {kind.__module__}.{kind.__qualname__} cannot be watched")
            )
            return ()
        self.guards.append(TypeGuard(path, held))
        found: list[tuple[Any, str]] = [(kind, path)]
        if isinstance(names, dict):
            self.guards.append(DictGuard(path, names, self.given.get(id(names), ())))
            found.extend(_members(held, names, path))
        for slot in slots:
            self.guards.append(SlotGuard(f"{path}.{slot}", held, slot))
            found.append((getattr(held, slot, None), f"{path}.{slot}"))
        return found


def _members(held: Any, names: dict[str, Any], path: str) -> Iterable[tuple[Any, str]]:
    """Return an object's attributes; a module's parameters and modules under their own names."""
    for name, value in names.items():
        if isinstance(held, nn.Module) and name in ("_parameters", "_buffers", "_modules"):
            yield value, path
        else:
            yield value, f"{path}.{name}"


def _slots_of(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [n for n in names if not n.startswith("__") and not _of_library(kind)]


def _of_library(kind: Any) -> bool:
    module = getattr(kind, "__module__", "") or ""
    return module.partition(".")[0] in ("builtins", "tangrad") or module.startswith("tangrad_")


def _is_trusted_holder(holder: dict[str, Any]) -> bool:
    name = holder.get("__name__") or ""
    top = name.partition(".")[0]
    return (
        top == "tangrad"
        or top.startswith("tangrad_")
        or top in sys.stdlib_module_names - {"__main__"}
    )


def _is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


@lru_cache(maxsize=4096)
def names_read(code: types.CodeType) -> tuple[tuple[str, ...], ...]:
    """Return the global names that code reads, each with the attributes read of it, in order.

    Code within it (comprehensions, nested functions) counts.
    """
    found: dict[tuple[str, ...], None] = {}
    chain: list[str] = []
    for name, argument in instructions(code):
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            if chain:
                found[tuple(chain)] = None
            chain = [name_of(code, name, argument)]
        elif name in ("LOAD_ATTR", "LOAD_METHOD") and chain:
            chain.append(name_of(code, name, argument))
        elif name not in ("CACHE", "PUSH_NULL", "PRECALL"):
            if chain:
                found[tuple(chain)] = None
            chain = []
    if chain:
        found[tuple(chain)] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(dict.fromkeys(names_read(constant)))
    return tuple(found)


def survey(
    function: Any,
    args: Any,
    kwargs: Any,
    executed: dict[types.CodeType, Any] | None,
    given: Iterable[Key] = (),
) -> Surroundings:
    """Walk from a function, and from the objects among its arguments, to all that they name.

    Args:
        function: the function or module.
        args, kwargs: its arguments; tensors and plain values among them are not the outside.
        executed: the code that ran, as `CallWatch` has it: other functions are not looked into.
            None: all are, and nothing is refused.
        given: keys of the sources of numbers that the graph is given: they may change.
    """
    found = Surroundings(None if executed is None else set(executed), given)
    found.add(function, "self" if isinstance(function, nn.Module) else "")
    for item, path in _objects(args, "args"):
        found.add(item, path)
    for item, path in _objects(kwargs, "kwargs"):
        found.add(item, path)
    if executed is not None:
        for code, names in executed.items():
            if code not in found.code:
                for item, path in found._names(code, names, f"{code.co_name}()"):
                    found.add(item, path)
    return found


def _objects(item: Any, path: str) -> Iterable[tuple[Any, str]]:
    if isinstance(item, (tangrad.Tensor, *_PLAIN)):
        return
    if type(item) in (tuple, list):
        for i, member in enumerate(item):
            yield from _objects(member, f"{path}[{i}]")
    elif type(item) is dict:
        for key, value in item.items():
            yield from _objects(value, f"{path}[{key!r}]")
    else:
        yield item, path
