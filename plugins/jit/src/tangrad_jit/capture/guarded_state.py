"""What a program reads of the outside: modules, globals, closures, containers, and their guards.

`survey` walks from a function and its arguments to all that it can name. It is called twice: before
the recorded run, and after it. What differs was changed by the run, and a graph cannot repeat
that; what is left is guarded.
"""

from __future__ import annotations

import contextvars
import functools
import re
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterable
from typing import Any

import tangrad
from tangrad import nn
from tangrad_jit._guards import (
    CacheGuard,
    CellGuard,
    ClassGuard,
    ContextGuard,
    DictGuard,
    EntryGuard,
    FunctionGuard,
    Guard,
    ListGuard,
    ReferenceGuard,
    SetGuard,
    SlotGuard,
    TensorGuard,
    ThreadGuard,
    TypeGuard,
)
from tangrad_jit.capture.calls import is_library, is_standard
from tangrad_jit.capture.errors import GuardError
from tangrad_jit.capture.names import imports_of, names_read, words_of

__all__ = ["GuardedState", "survey"]

# Of the source of a number: (identity of what holds it, its place there), and the place in a tuple.
Key = tuple[Any, ...]

_LIMIT = 50_000  # of objects
_NAMES = 100_000  # of modules that are held as objects
_PLAIN = frozenset(
    (int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
)
_FIXED = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.CodeType,
    types.GenericAlias,
    range,
    slice,
    property,
    re.Pattern,
    threading.Lock().__class__,
    threading.RLock().__class__,
    type(vars(namedtuple("_", "x"))["x"]),
    tangrad.dtype,
    tangrad.device,
    tangrad.layout,
    tangrad.memory_format,
    tangrad.Generator,
)
# Modules of the interpreter's, which nobody changes.
_STANDARD = sys.stdlib_module_names - {"__main__"}
_NOT_FOUND = "it ran, and nothing that the function names holds it, so its closure is not watched"
# What their objects say is not what programs compute with; those of `_abc` are caches.
_HARMLESS = ("typing", "pathlib", "abc", "_abc")
# Registries of the hooks that all modules' calls have.
_HOOKS_OF_ALL = (
    *("_global_forward_pre_hooks", "_global_forward_hooks"),
    *("_global_backward_pre_hooks", "_global_backward_hooks"),
)


_Cached = type(functools.lru_cache(len))
_CONTAINERS = (
    *(dict, list, tuple, set, frozenset, types.MappingProxyType, OrderedDict, defaultdict),
    *(weakref.ref, threading.local, contextvars.ContextVar),
)
# Kinds whose elements are read without a call, and stand in no attribute, by module and name.
_ELEMENTS = frozenset(
    (
        *(("_ctypes", "_CData"), ("array", "array"), ("builtins", "bytearray")),
        *(("collections", "deque"), ("numpy", "ndarray")),
    )
)
# Objects of these that have no attributes are what they are.
_BARE = (int, float, complex, str, bytes, tuple, frozenset)


class GuardedState:
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
        self._entries: set[tuple[int, str]] = set()
        self._namespaces: dict[int, tuple[types.ModuleType, str, set[str]]] = {}
        self._slots: dict[type, list[str]] = {}

    def modules(self) -> Iterable[Any]:
        """Return the modules (nn.Module) that were found, outermost first."""
        return [item for item in self._seen.values() if isinstance(item, nn.Module)]

    def has(self, item: Any) -> bool:
        """Return whether an object was found."""
        return id(item) in self._seen

    def add(self, item: Any, path: str) -> None:
        """Walk on from an object."""
        pending = [(item, path)]
        while pending:
            held, where = pending.pop()
            if type(held) in _PLAIN or id(held) in self._seen:
                continue
            self._seen[id(held)] = held
            if len(self._seen) > _LIMIT:
                raise GuardError(f"{where}: the function names more than {_LIMIT} objects")
            pending.extend([*self._look(held, where)][::-1])

    def _look(self, held: Any, path: str) -> Iterable[tuple[Any, str]]:
        if isinstance(held, tangrad.Tensor):
            self.tensors.append((path, held))
            guard = TensorGuard(path, held)
            self.guards.append(guard)
            return [] if guard.attributes is None else [(guard.attributes, path)]
        if isinstance(held, types.FunctionType):
            return self._function(held, path)
        if isinstance(held, types.ModuleType):
            self._namespaces[id(held)] = (held, path, set())
            return ()
        if isinstance(held, types.MethodType):
            return [(held.__func__, path), (held.__self__, f"{path}.__self__")]
        if isinstance(held, functools.partial):
            return [(held.func, path), (held.args, path), (held.keywords, path)]
        if isinstance(held, (staticmethod, classmethod)):
            return [(held.__func__, path)]
        if isinstance(held, type):
            return self._class(held, path)
        if isinstance(held, _Cached):
            self.guards.append(CacheGuard(path, held))
            return [(held.__wrapped__, path)]
        found = self._members(held, path)
        if found is None:
            return self._object(held, path)
        return found if type(held) in _CONTAINERS else [*found, *self._object(held, path)]

    def _members(self, held: Any, path: str) -> list[tuple[Any, str]] | None:
        """Return what containers and weak references hold; None for other objects."""
        if isinstance(held, (dict, types.MappingProxyType)):
            return self._mapping(held, path)
        if isinstance(held, list):
            self.guards.append(ListGuard(path, held, self.given.get(id(held), ())))
            return [(member, f"{path}[{i}]") for i, member in enumerate(held)]
        if isinstance(held, tuple):
            return [(member, f"{path}[{i}]") for i, member in enumerate(held)]
        if isinstance(held, (set, frozenset)):
            if isinstance(held, set):
                self.guards.append(SetGuard(path, held))
            return [(member, f"a member of {path}") for member in held]
        if isinstance(held, weakref.ref):
            self.guards.append(ReferenceGuard(path, held))
            return [(held(), path)]
        if isinstance(held, contextvars.ContextVar):
            in_context = ContextGuard(path, held)
            self.guards.append(in_context)
            return [(in_context.value, path)]
        if isinstance(held, threading.local):
            self.guards.append(ThreadGuard(path, held))
            return [(value, f"{path}.{name}") for name, value in vars(held).items()]
        return None

    def _mapping(self, held: Any, path: str) -> list[tuple[Any, str]]:
        if type(held) is not types.MappingProxyType:
            self.guards.append(DictGuard(path, held, self.given.get(id(held), ())))
        found = []
        for key, value in held.items():
            plain = type(key) in _PLAIN
            if type(value) not in _PLAIN:
                name = repr(key) if plain else f"<{type(key).__name__}>"
                found.append((value, f"{path}[{name}]"))
            if not plain:
                found.append((key, f"{path} key"))
        return found

    def _function(self, held: types.FunctionType, path: str) -> Iterable[tuple[Any, str]]:
        code = held.__code__
        self.code.add(code)
        if is_library(code):
            # Its cells may hold what is the user's: decorators of the library keep functions so.
            kinds: tuple[type, ...] = (types.FunctionType, types.MethodType, nn.Module)
            if is_standard(code):
                kinds = (*kinds, dict)  # of functions for types
            cells = [cell for cell in held.__closure__ or () if not _is_empty(cell)]
            return [(c.cell_contents, path) for c in cells if isinstance(c.cell_contents, kinds)]
        name = f"{path}()" if path else f"{held.__qualname__}()"
        guard = FunctionGuard(name, held)
        self.guards.append(guard)
        found: list[tuple[Any, str]] = []
        if guard.attributes is not None:
            found.append((guard.attributes, name))
        if self.executed is not None and code not in self.executed:
            return found
        for free, cell in zip(code.co_freevars, held.__closure__ or (), strict=False):
            if not _is_empty(cell):
                self.guards.append(CellGuard(f"{name}: {free}", cell, id(cell) in self.given))
                found.append((cell.cell_contents, f"{name}: {free}"))
        found.extend(self._names(code, held.__globals__, name))
        found.append((held.__defaults__, f"{name} default"))
        found.append((held.__kwdefaults__, f"{name} default"))
        return found

    def _names(self, code: types.CodeType, names: dict[str, Any], path: str) -> list[Any]:
        """Return what code reads of its module, by attributes of modules, too, and imports."""
        found: list[Any] = []
        for chain in names_read(code):
            holder: dict[str, Any] = names
            where = ""
            for part in chain:
                where = f"{where}.{part}" if where else part
                if not self._entry(holder, part, f"{path} reads {where}"):
                    break
                value = holder[part]
                if not isinstance(value, types.ModuleType):
                    found.append((value, where))
                    break
                holder = vars(value)
            else:
                found.append((value, where))  # a module itself
        for module in imports_of(code, names.get("__package__") or ""):
            if module in sys.modules:
                found.append((sys.modules[module], module))
        return found

    def _entry(self, holder: dict[str, Any], name: str, path: str) -> bool:
        """Guard a name of a module; return whether it is there."""
        there = name in holder
        if (id(holder), name) in self._entries:
            return there
        self._entries.add((id(holder), name))
        if len(self._entries) > _NAMES:
            raise GuardError(f"{path}: the function's modules have more than {_NAMES} names")
        # What the library has not loaded comes when it is first asked for.
        if there or not _is_trusted_holder(holder):
            given = self.given.get(id(holder), ()) if there else ()
            self.guards.append(EntryGuard(path, holder, name, given))
        return there

    def follow_namespaces(self) -> None:
        """Guard what code may read of modules that it meets as objects: all names that it has.

        Where it may make names up (`vars`, `getattr`), all that a module of the user's holds.
        """
        while True:
            words = {word for code in self.code if not is_library(code) for word in words_of(code)}
            pending: list[tuple[Any, str]] = []
            for module, path, known in list(self._namespaces.values()):
                pending.extend(self._namespace(module, path, words - known))
                known |= words
            if not pending:
                return
            for item, where in pending:
                self.add(item, where)

    def _namespace(
        self, module: types.ModuleType, path: str, words: set[str]
    ) -> Iterable[tuple[Any, str]]:
        holder = vars(module)
        trusted = _is_trusted_holder(holder)
        if not trusted and not words.isdisjoint(("vars", "getattr", "__dict__", "attrgetter")):
            self.guards.append(DictGuard(path, holder))
        for word in sorted(words):
            if self._entry(holder, word, f"{path}.{word}") and not trusted:
                yield holder[word], f"{path}.{word}"

    def _class(self, held: type, path: str) -> Iterable[tuple[Any, str]]:
        if _of_library(held) or held.__module__ in _STANDARD:
            return ()
        self.guards.append(ClassGuard(path, held))
        found: list[tuple[Any, str]] = []
        for kind in held.__mro__:
            if _of_library(kind) or kind is object:
                continue
            for name, value in vars(kind).items():
                if isinstance(value, property):
                    does = (value.fget, value.fset, value.fdel)
                    found.extend((f, f"{path}.{name}") for f in does if f is not None)
                    continue
                # Operators and protocols are functions, which may hold what they close over.
                code = isinstance(value, (types.FunctionType, staticmethod, classmethod))
                fixed = name.startswith("__") or isinstance(value, _FIXED) or callable(value)
                if code or not fixed:
                    found.append((value, f"{path}.{name}"))
        return found

    def _object(self, held: Any, path: str) -> Iterable[tuple[Any, str]]:
        kind = type(held)
        if isinstance(held, _FIXED) or kind.__module__.partition(".")[0] in _HARMLESS:
            return ()
        logging = sys.modules.get("logging")  # who has no logger has not imported it
        if logging is not None and isinstance(held, logging.Logger):
            return self._logger(held, path)
        stands_for = getattr(kind, "stands_for", None)
        if stands_for is not None and _of_library(kind):
            return [(getattr(held, stands_for), path)]
        names = getattr(held, "__dict__", None)
        slots = self._slots.get(kind)
        if slots is None:
            slots = self._slots[kind] = [s for k in kind.__mro__ for s in _slots_of(k)]
        if not isinstance(names, dict) and not slots:
            if kind.__basicsize__ == object.__basicsize__ or isinstance(held, _BARE):
                return [(kind, path)]
            return self._unwatched(held, path)
        if any((k.__module__, k.__name__) in _ELEMENTS for k in kind.__mro__):
            return self._unwatched(held, path)
        self.guards.append(TypeGuard(path, held))
        found: list[tuple[Any, str]] = [(kind, path)]
        if isinstance(names, dict):
            self.guards.append(DictGuard(path, names, self.given.get(id(names), ())))
            found.extend(_attributes(held, names, path))
        for slot in slots:
            self.guards.append(SlotGuard(f"{path}.{slot}", held, slot))
            found.append((getattr(held, slot, None), f"{path}.{slot}"))
        return found

    def _unwatched(self, held: Any, path: str) -> tuple[()]:
        kind = type(held)
        name = f"{kind.__module__}.{kind.__qualname__}"
        self.refusals.append((path, f"an object of {name} cannot be watched"))
        return ()

    def _logger(self, held: Any, path: str) -> Iterable[tuple[Any, str]]:
        """Guard what decides which messages a logger takes; the messages themselves are refused."""
        for name in ("level", "disabled"):
            self.guards.append(EntryGuard(f"{path}.{name}", vars(held), name))
        return [(held.parent, f"{path}.parent")]


def _attributes(held: Any, names: dict[str, Any], path: str) -> Iterable[tuple[Any, str]]:
    """Return an object's attributes; a module's parameters and modules under their own names."""
    is_module = isinstance(held, nn.Module)
    for name, value in names.items():
        if type(value) in _PLAIN:
            continue
        if is_module and name in ("_parameters", "_buffers", "_modules"):
            yield value, path
        else:
            yield value, f"{path}.{name}"


def _slots_of(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    if _of_library(kind):
        return []
    mangled = kind.__name__.lstrip("_")
    private = [n for n in names if n.startswith("__") and not n.endswith("__")]
    return [n for n in names if not n.startswith("__")] + [f"_{mangled}{n}" for n in private]


def _of_library(kind: Any) -> bool:
    module = getattr(kind, "__module__", "") or ""
    return module.partition(".")[0] in ("builtins", "tangrad") or module.startswith("tangrad_")


def _is_trusted_holder(holder: dict[str, Any]) -> bool:
    name = holder.get("__name__") or ""
    top = name.partition(".")[0]
    return top == "tangrad" or top.startswith("tangrad_") or top in _STANDARD


def _is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def survey(
    function: Any,
    args: Any,
    kwargs: Any,
    executed: dict[types.CodeType, Any] | None,
    given: Iterable[Key] = (),
) -> GuardedState:
    """Walk from a function, and from the objects among its arguments, to all that they name.

    Args:
        function: the function or module.
        args, kwargs: its arguments; tensors and plain values among them are not the outside.
        executed: the code that ran, as `CallWatch` has it: other functions are not looked into.
            None: all are, and nothing is refused.
        given: keys of the sources of numbers that the graph is given: they may change.
    """
    found = GuardedState(None if executed is None else set(executed), given)
    found.add(function, "self" if isinstance(function, nn.Module) else "")
    for item, path in _objects(args, "args"):
        found.add(item, path)
    for item, path in _objects(kwargs, "kwargs"):
        found.add(item, path)
    if executed is not None:
        known = set(found.code)
        for code, names in executed.items():
            if code not in found.code:
                found.code.add(code)
                for item, path in found._names(code, names, f"{code.co_name}()"):
                    found.add(item, path)
        found.refusals += _unknown_closures(executed, known)
    for name in _HOOKS_OF_ALL if found.modules() else ():
        found.add(getattr(nn.modules.module, name), "hooks of all modules")
    found.guards.append(ClassGuard("Tensor", tangrad.Tensor))
    found.follow_namespaces()
    return found


def _unknown_closures(
    executed: Iterable[types.CodeType], known: set[types.CodeType]
) -> list[tuple[str, str]]:
    """Return refusals of closures that ran and were not found: what they hold is watched by nobody.

    Functions that the run has made close over what it has made, or over what its makers do.
    """
    within = {c for code in executed for c in code.co_consts if isinstance(c, types.CodeType)}
    return [
        (f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}()", _NOT_FOUND)
        for code in executed
        if code.co_freevars and code not in known and code not in within and not is_library(code)
    ]


def _objects(item: Any, path: str) -> Iterable[tuple[Any, str]]:
    if isinstance(item, tangrad.Tensor) or type(item) in _PLAIN:
        return
    if type(item) in (tuple, list):
        for i, member in enumerate(item):
            yield from _objects(member, f"{path}[{i}]")
    elif type(item) is dict:
        for key, value in item.items():
            yield from _objects(value, f"{path}[{key!r}]")
    else:
        yield item, path
