"""Record a run of a Python program as a program of the script language.

The recording is a mode: it sees the calls of the public names, as they are written, so that the
program that it makes has the ops of PyTorch's traces. The run is a real one. A tensor is known
again by the object that it is; one that is known to nobody is a constant. A script that is called
stays a call, with its branches and loops.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import tangrad
from tangrad import nn
from tangrad.overrides import TorchFunctionMode
from tangrad_jit.capture.source import frame_of_program, place_of_program
from tangrad_jit.scripting.check.builtins import choose_builtin
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.check.library_modules import is_library
from tangrad_jit.scripting.check.python_names import PythonNames
from tangrad_jit.scripting.check.statements import Statements
from tangrad_jit.scripting.recording.calls import (
    READS,
    attribute_name,
    expression_of,
    index_parts,
    plain,
    shape_text,
    told,
)
from tangrad_jit.scripting.recording.dead_code import without_dead
from tangrad_jit.scripting.recording.following import following
from tangrad_jit.scripting.recording.sizes import TracedInt
from tangrad_jit.scripting.recording.splitting import Mark, split
from tangrad_jit.scripting.recording.told import (
    devices_of,
    holds_sizes,
    holds_tensors,
    is_size,
    storage_of,
)
from tangrad_jit.scripting.recording.unit import RecordedModule, RecordedUnit
from tangrad_jit.scripting.source.places import Place, ScriptError, Source
from tangrad_jit.scripting.tree.nodes import (
    Assign,
    Call,
    Const,
    Do,
    Expr,
    GetAttr,
    Invoke,
    Local,
    Node,
    SetItem,
    TupleItem,
    Unpack,
    every,
)
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import type_of_value
from tangrad_jit.scripting.types.kinds import DictType, ListType, TupleType, Type

__all__ = ["Recording", "is_whole"]

_LIMIT = 1 << 63
_QUIET = ("__setitem__", "_assert", "retain_grad")


class Recording(TorchFunctionMode):
    """Record the calls of a `with` block.

    Args:
        world: what is scripted.
        watch: told by `is_paused` while a script runs, and by `is_over` that one has run; its
            `has_made` tells whether an op of the run has made a tensor.
        name: of the function.
        outplace: record writes of whole tensors as ops that make new ones.

    Attributes:
        failure: why the run is no program of the language, or "".
        reads_form: whether Python has looked at dimensions or dtypes.
        reads_sizes: whether something else than arithmetic was done with sizes of tensors.
        kept: lines at which a result of a script became a constant.
        shapes: the types of tensors in local variables, as graphs show them.
    """

    def __init__(self, world: Any, watch: Any, name: str, outplace: bool = False) -> None:
        self._watch, self._outplace = watch, outplace
        self.failure = ""
        self.reads_form = self.reads_sizes = self.is_over = False
        self.kept: list[str] = []
        self.body: list[Node] = []
        source = Source("<trace>", 1, [""])
        self.check = Statements(world, PythonNames(namespace={}), source, name)
        self._exprs: dict[int, Expr] = {}
        self._modules: dict[int, Expr] = {}
        self._held: list[Any] = []
        self._storages: set[int] = set()
        self._whole: list[Any] = []
        self._is_quiet = False
        self._count = 0
        self._unnamed: set[str] = set()
        self._taken: set[str] = {"self"}
        self._names: dict[str, str] = {}
        self.shapes: dict[str, str] = {}

    # --- what the run begins with

    def argument(self, value: Any, expr: Expr) -> None:
        """Follow an argument, and the tensors in it."""
        place = expr.place
        if isinstance(expr, Local):
            self._taken.add(expr.name)
        if isinstance(value, tangrad.Tensor):
            self._know(value, expr)
        elif isinstance(value, tuple):
            for k, member in enumerate(value):
                kind = expr.type.elements[k]  # type: ignore[attr-defined]
                self.argument(member, TupleItem(place, kind, expr, k))
        elif isinstance(value, (list, dict)):
            for key in value if isinstance(value, dict) else range(len(value)):
                at = self.check.constant(key, place)
                item = choose_builtin("__getitem__", [expr, at], {}, place)
                assert item is not None
                self.argument(value[key], item)

    def module(self, module: Any, kind: Any, expr: Expr) -> None:
        """Know a module, what it holds, and the modules inside.

        Args:
            module: the module.
            kind: its type.
            expr: what it is in the program.
        """
        declared, module = module, module.__dict__.get("_actual_script_module", module)
        self._modules.setdefault(id(declared), expr)
        self._modules.setdefault(id(module), expr)
        self._held.append((declared, module))
        whole = is_whole(module) and not isinstance(expr, Local)
        if whole and module not in self._whole:
            self._whole.append(module)
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is not None and id(tensor) not in self._exprs:
                self._know(tensor, GetAttr(expr.place, kinds.TENSOR, expr, name))
        for name, child in module._modules.items():
            if child is not None and not whole and not isinstance(kind, kinds.InterfaceType):
                inner = kind.unit.children.get(name) or kind.unit.attributes[name]
                self.module(child, inner, GetAttr(expr.place, inner, expr, name))

    def _know(self, tensor: Any, expr: Expr) -> None:
        self._storages.add(storage_of(tensor))
        if isinstance(expr, Local):
            self.shapes[expr.name] = shape_text(tensor)
        self._exprs[id(tensor)] = expr
        self._held.append(tensor)

    # --- values

    def lift(self, value: Any) -> Expr:
        """Return the expression of a value that the program has.

        Raises:
            ScriptError: it is of no type of the language, or comes from nowhere.
        """
        place = self.place()
        if isinstance(value, tangrad.Tensor):
            return self._tensor(value, place)
        if isinstance(value, TracedInt):
            return value.expr if value.recording is self else Const(place, kinds.INT, plain(value))
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return self.check.make_tuple([self.lift(member) for member in value], place)
        if isinstance(value, list):
            return self.check.make_list([self.lift(member) for member in value], place)
        if isinstance(value, dict):
            keys = [self.check.constant(key, place) for key in value]
            held = [self.lift(member) for member in value.values()]
            return self.check.make_dict(keys, held, None, place)
        if type(value) is int and not -_LIMIT <= value < _LIMIT:
            raise ScriptError("Integer constant out of range, out of bounds of 64 bits", place)
        return self.check.constant(value, place)

    def _tensor(self, tensor: Any, place: Place) -> Expr:
        known = self._exprs.get(id(tensor))
        if known is not None:
            if isinstance(known, Local) and known.name in self._unnamed:
                self._call_as_program(tensor, known.name)
            return known
        if self._watch.has_made(tensor) or storage_of(tensor) in self._storages - {0}:
            raise ScriptError("a tensor is used that a call has made which is not seen", place)
        if tensor.requires_grad:
            raise ScriptError(
                "Cannot insert a Tensor that requires grad as a constant. Consider making it a "
                "parameter or input, or detaching the gradient",
                place,
            )
        found = Const(place, kinds.TENSOR, tensor)
        self._know(tensor, found)
        return found

    def _call_as_program(self, tensor: Any, local: str) -> None:
        """Give a local variable the name that the program has for a tensor, if it has one."""
        frame = frame_of_program()
        for name, value in ({} if frame is None else frame.f_locals).items():
            if value is tensor and name.isidentifier() and not name.startswith("_"):
                taken = name
                while taken in self._taken:
                    taken = f"{name}{len(self._taken)}"
                self._taken.add(taken)
                self._unnamed.discard(local)
                self._names[local] = taken
                return

    def place(self) -> Place:
        """Return where the program is now."""
        found = place_of_program()
        if isinstance(found, str):
            return Place(self.check.source, 0, 0, 0, 0, self.check.function)
        code, at = found
        lines = (line for start, end, line in code.co_lines() if start <= at < end)
        number = next(lines, None) or code.co_firstlineno
        text = linecache.getline(code.co_filename, number).rstrip("\n")
        source = Source(code.co_filename, number, [text])
        return Place(source, 0, 0, 0, len(text), self.check.function)

    def number(self, operator: ast.operator, left: Any, right: Any, number: int) -> Any:
        """Return a number that the program computes of sizes."""
        if self.failure:
            return number
        with self._quietly():
            try:
                made = self.check.binary(operator, self.lift(left), self.lift(right), self.place())
            except ScriptError as error:
                self.fail(error)
                return number
            return self._named(number, made)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Look at tensors for the recording, which sees nothing of it."""
        before, self._is_quiet = self._is_quiet, True
        try:
            yield
        finally:
            self._is_quiet = before

    def size_is_read(self) -> None:
        """Note that the program looks at a size."""
        if not self.is_over:
            self.reads_sizes = True

    # --- calls

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given, named = plain(args), plain(kwargs or {})
        if self._watch.is_paused or self._is_quiet or self.failure:
            return func(*given, **named)
        made = self._expression(func, args, kwargs or {})
        result = func(*given, **named)
        return result if made is None or self.failure else self._recorded(func, made, given, result)

    def _expression(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the expression of a call that is about to run, or None where it is no part."""
        name = getattr(func, "__name__", "")
        if name in READS:
            self.reads_form |= name in _FORM
            self.reads_sizes |= name in _OF_SIZES
            return None
        attribute = attribute_name(func)
        if name == "detach_" or attribute == "data":
            self._watch.is_over = True  # its graph knows tensors by memory, whatever their history
        if attribute and attribute not in _TENSORS_OF:
            self.reads_form |= attribute in _FORM
            return None
        place = self.place()
        if any(map(tangrad.is_autocast_enabled, devices_of(args))):
            return ScriptError("autocast is active, whose conversions are no calls", place)
        try:
            if name in ("__getitem__", "__setitem__"):
                owner = self.lift(args[0])
                parts = index_parts(self.lift, args[1], place)
                if name == "__getitem__":
                    return expression_of(self.check, func, [owner, *parts], {}, place)
                return SetItem(place, owner, parts, self.lift(args[2]))
            if func in _MAKE_CONSTANTS and not holds_sizes(args):
                return _CONSTANT
            given = [self.lift(arg) for arg in args]
            named = {key: self.lift(value) for key, value in told(func, kwargs).items()}
            if self._outplace and getattr(tangrad.Tensor, name, None) is func:
                func = getattr(tangrad.Tensor, name.removesuffix("_"), func)
                self._watch.is_over |= name.endswith("_")
            return expression_of(self.check, func, given, named, place)
        except ScriptError as error:
            return error

    def _recorded(self, func: Any, made: Any, args: Any, result: Any) -> Any:
        """Add a call that has run, and return what the program gets of it."""
        if isinstance(made, SetItem):
            self.body.append(made)
            return result
        if made is _CONSTANT:
            return self._constant(result)
        if not holds_tensors(result) and not (type(result) is int and is_size(func)):
            if isinstance(result, tangrad.Size):
                return self._size(made, args[0], result)
            if result is None and getattr(func, "__name__", "") not in _QUIET:
                self.fail(ScriptError(f"{getattr(func, '__name__', func)} returns nothing"))
            return result
        if isinstance(made, ScriptError):
            self.fail(made)
            return result
        return self._named(result, made)

    def _constant(self, result: Any) -> Any:
        """Record a tensor made of numbers: each run has one of its own, which may be written."""
        if not isinstance(result, tangrad.Tensor):
            return result
        place = self.place()
        kept = Const(place, kinds.TENSOR, result.detach().clone())
        return self._named(result, self.check.call_method(kept, "clone", [], {}, place))

    def _size(self, made: Any, tensor: Any, result: Any) -> Any:
        """Return sizes of which each is recorded."""
        if isinstance(made, ScriptError):
            return result
        place = self.place()
        owner = self.lift(tensor)
        sizes = []
        for k, size in enumerate(result):
            at = Const(place, kinds.INT, k)
            one = self.check.call_method(owner, "size", [at], {}, place)
            sizes.append(self._named(size, one))
        return tuple.__new__(tangrad.Size, sizes)  # its own keeps numbers of Python

    def _named(self, result: Any, expr: Expr) -> Any:
        """Store what a call gives in local variables, and return it as the program gets it."""
        place = expr.place
        name = self._name()
        self.body.append(Assign(place, name, expr))
        return self._followed(result, Local(place, expr.type, name))

    def _name(self) -> str:
        self._count += 1
        name = f"_v{self._count}"
        self._unnamed.add(name)
        return name

    def _followed(self, result: Any, value: Expr) -> Any:
        """Follow a value that a local variable, or a part of one, holds."""
        place, kind = value.place, value.type
        if isinstance(result, tangrad.Tensor):
            self._know(result, value)
            return result
        if type(result) is int and kind == kinds.INT:
            return TracedInt(result, self, value)
        if isinstance(result, (tuple, list)) and isinstance(kind, (TupleType, ListType)):
            members: list[Type] = (
                list(kind.elements) if isinstance(kind, TupleType) else [kind.element] * len(result)
            )
            if len(members) != len(result):
                raise ScriptError("a call returns more values than its signature says", place)
            names = [self._name() for _ in members]
            if names:
                self.body.append(Assign(place, Unpack(place, list(names)), value))
            held = [
                self._followed(member, Local(place, one, name))
                for member, one, name in zip(result, members, names, strict=True)
            ]
            if hasattr(result, "_fields") or hasattr(type(result), "n_sequence_fields"):
                return result
            return type(result)(held)
        if isinstance(result, dict) and isinstance(kind, DictType):
            for key, member in list(result.items()):
                at = self.check.constant(key, place)
                item = choose_builtin("__getitem__", [value, at], {}, place)
                assert item is not None
                result[key] = self._named(member, item)
            return result
        if result is not None:
            self.kept.append(f"{place.source.file}:{place.source.first}")
        return result

    def fail(self, error: ScriptError) -> None:
        """Note why the run is no program of the language."""
        self.failure = self.failure or str(error.reason)

    # --- scripts

    def call(self, unit: Unit, is_method: bool, run: Any, args: Any, kwargs: Any) -> Any:
        """Record a call of a script, and run it.

        Args:
            unit: the script.
            is_method: whether its first argument is a module.
            run: runs it.
            args, kwargs: what it is called with.
        """
        made: Any = None
        straight = is_straight(unit)
        self._watch.is_over = self._watch.is_over or not straight
        with self._quietly():
            if not self.failure:
                try:
                    made = self._script_call(unit, is_method, args, kwargs)
                except ScriptError as error:
                    self.fail(error)
            before = self._watch.is_paused
            self._watch.is_paused = before or not straight
            try:
                with following(None):
                    result = run(*plain(args), **plain(kwargs))
            finally:
                self._watch.is_paused = before
            if made is None or self.failure:
                return result
            if result is None:
                self.body.append(Do(made.place, made))
                return None
            try:
                return self._named(result, made)
            except ScriptError as error:
                self.fail(error)
                return result

    def _script_call(self, unit: Unit, is_method: bool, args: Any, kwargs: Any) -> Expr:
        place = self.place()
        given: list[Any] = []
        if is_method:
            owner = self._modules.get(id(args[0]))
            if owner is None:
                raise ScriptError(
                    f"the scripted {type(args[0]).__name__} is no module inside of the one that is "
                    "traced: make it one, as a trace holds the parameters of its own modules only",
                    place,
                )
            given.append(owner)
            args = args[1:]
        given += [self.lift(arg) for arg in args]
        named = {key: self.lift(value) for key, value in kwargs.items()}
        bound = unit.bind(self.check, given, named, place)
        if not is_method:
            return Call(place, unit.returned, unit, bound)
        kind: Any = bound[0].type
        if isinstance(kind, kinds.InterfaceType):
            return Invoke(place, unit.returned, bound[0], unit.name, None, bound[1:])
        if kind.unit.hooked_call() is unit:
            return Call(place, unit.returned, unit, bound)
        return Invoke(place, unit.returned, bound[0], unit.name, unit, bound[1:])

    # --- modules of the library that stay one call

    @contextmanager
    def whole_modules(self) -> Iterator[None]:
        """Record calls of some modules of the library as such: their ops are none of PyTorch's."""
        before = [(module, dict(vars(module))) for module in self._whole]
        for module in self._whole:
            vars(module)["forward"] = partial(self._call_whole, module, module.forward)
        try:
            yield
        finally:
            for module, held in before:
                vars(module).pop("forward")
                if "forward" in held:
                    vars(module)["forward"] = held["forward"]

    def _call_whole(self, module: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
        made = None
        if self._watch.is_paused or self._is_quiet or self.failure:
            return forward(*args, **kwargs)
        with self._quietly():
            try:
                place, owner = self.place(), self._modules[id(module)]
                given = [self.lift(arg) for arg in args]
                named = {key: self.lift(value) for key, value in kwargs.items()}
                made = self.check.call(owner, given, named, place)
            except ScriptError:
                made = None  # as with arguments that scripts do not give it: its ops are recorded
        if made is None:
            return forward(*args, **kwargs)
        with self._quietly():
            return self._named(forward(*plain(args), **plain(kwargs)), made)

    # --- calls of modules inside

    def owner_of(self, module: Any) -> Expr | None:
        """Return a module inside whose calls become methods, as an expression, or None."""
        if self._watch.is_paused or self._is_quiet or self.failure or module in self._whole:
            return None
        found = self._modules.get(id(module))
        unit = getattr(getattr(found, "type", None), "unit", None)
        return found if isinstance(found, GetAttr) and isinstance(unit, RecordedModule) else None

    def names_of(self, result: Any) -> list[str]:
        """Return the local variables that hold the tensors of a result."""
        if isinstance(result, (tuple, list)):
            found = [name for part in result for name in self.names_of(part)]
            return list(dict.fromkeys(found))
        known = self._exprs.get(id(result)) if isinstance(result, tangrad.Tensor) else None
        return [known.name] if isinstance(known, Local) else []

    # --- the program

    def finished(self, result: Any) -> tuple[list[Node], Expr]:
        """Return the statements that the results need, and the expression of these.

        Raises:
            ScriptError: the run is no program of the language.
        """
        if self.failure:
            raise ScriptError(self.failure)
        value = self.lift(result)
        self.is_over = True
        body = without_dead(self.body, value)
        self.shapes = {self._names.get(name, name): text for name, text in self.shapes.items()}
        for node in every([*body, value]):
            if isinstance(node, Local):
                node.name = self._names.get(node.name, node.name)
            elif isinstance(node, Assign) and isinstance(node.target, str):
                node.target = self._names.get(node.target, node.target)
            elif isinstance(node, Mark):
                node.results = [self._names.get(name, name) for name in node.results]
            elif isinstance(node, Unpack):
                node.targets = [self._names.get(name, name) for name in node.targets]
        return split(body, value, self.check.world, self.shapes), value

    def type_of(self, value: Any) -> Type:
        """Return the type of an argument.

        Raises:
            RuntimeError: no traced program takes it: members of several types, or none.
            ScriptError: the language has none of its type.
        """
        if isinstance(value, dict) and not value:
            raise RuntimeError("Dictionary inputs must have entries: an argument is an empty dict")
        kind = type_of_value(value)
        if kind is None and isinstance(value, (list, dict)):
            what = "List" if isinstance(value, list) else "Dictionary"
            members = list(value.values() if isinstance(value, dict) else value)
            if any(isinstance(member, tangrad.Tensor) for member in members):
                raise RuntimeError(
                    f"{what} inputs to traced functions must have consistent types, not "
                    f"{', '.join(sorted({type(member).__name__ for member in members}))}"
                )
        if kind is None or not _is_of_tensors(kind):
            raise ScriptError(
                f"Type '{type(value).__name__ if kind is None else kind}' cannot be traced. Only "
                "Tensors and (possibly nested) Lists, Dicts, and Tuples of Tensors can be traced"
            )
        return kind


_CONSTANT = object()
# What tells dimensions and dtypes of a tensor, and what depends on its sizes.
_FORM = frozenset(("dim", "ndimension", "ndim", "dtype", "element_size"))
_OF_SIZES = frozenset(("__len__", "stride", "is_contiguous", "storage_offset"))
_WHOLE = (nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell, nn.MultiheadAttention)


def is_whole(module: Any) -> bool:
    """Return whether a module is of the library, and a call of it one in recordings."""
    return isinstance(module, _WHOLE) and is_library(module)


_MAKE_CONSTANTS = (tangrad.tensor, tangrad.as_tensor, tangrad.from_numpy)
# What reads a tensor of a tensor.
_TENSORS_OF = frozenset(("T", "mT", "H", "mH", "real", "imag", "data", "shape", "grad"))


def is_straight(unit: Unit) -> bool:
    """Return whether a unit has been recorded, and calls no others than such."""
    if not isinstance(unit, RecordedUnit):
        return False
    called = [node.unit for node in every(unit.body) if isinstance(node, (Call, Invoke))]
    return all(one is None or is_straight(one) for one in called)


def _is_of_tensors(kind: Type) -> bool:
    if isinstance(kind, TupleType):
        return all(map(_is_of_tensors, kind.elements))
    if isinstance(kind, ListType):
        return _is_of_tensors(kind.element)
    if isinstance(kind, DictType):
        return _is_of_tensors(kind.value)
    return kind == kinds.TENSOR
