"""What the code of an archive defines: functions, classes and modules, made when they are named."""

from __future__ import annotations

import ast
import enum
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import nn
from tangrad_jit.scripting.archive.names import ArchiveNames
from tangrad_jit.scripting.archive.records import Origins
from tangrad_jit.scripting.check.classes import ClassUnit, InterfaceUnit
from tangrad_jit.scripting.check.functions import Unit
from tangrad_jit.scripting.check.generated import hooked_call
from tangrad_jit.scripting.check.modules import ModuleUnit
from tangrad_jit.scripting.check.values import Bound
from tangrad_jit.scripting.program.emit import program_of
from tangrad_jit.scripting.source.finding import parse_text
from tangrad_jit.scripting.source.places import ScriptError, Source, place_of
from tangrad_jit.scripting.tree.nodes import Expr
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import AnnotationError, type_of_syntax
from tangrad_jit.scripting.types.kinds import EnumType, ModuleType, TupleType, Type

__all__ = ["ArchiveCode"]

_HOOKS = ("__forward_pre_hooks__", "__forward_hooks__")


class ArchiveCode:
    """The code of an archive.

    Args:
        world: what is scripted.
        read: path below `code/` -> text, or None where there is no such file.
        constants: the tensors of the archive.
        version: of the archive.
        records: path below `code/` -> a pickle of where the code came from, or b"".
    """

    def __init__(
        self,
        world: Any,
        read: Callable[[str], str | None],
        constants: Any,
        version: int,
        records: Callable[[str], bytes],
    ) -> None:
        self.world, self._read, self.constants = world, read, constants
        self._records = records
        self._found: dict[str, Any] = {}
        self._files: dict[str, tuple[Source, dict[str, ast.stmt]] | None] = {}
        self.names = ArchiveNames(self.find, constants, version, world.class_type)

    def find(self, name: str) -> Any:
        """Return the unit or type of a qualified name, or None."""
        if name not in self._found:
            prefix, _, last = name.rpartition(".")
            file = self._file(prefix)
            node = None if file is None else file[1].get(last)
            if node is None:
                return None
            assert file is not None
            self._make(name, file[0], node)
        return self._found[name]

    def _file(self, prefix: str) -> tuple[Source, dict[str, ast.stmt]] | None:
        path = prefix.replace(".", "/") + ".py"
        if path not in self._files:
            text = self._read(path)
            if text is None:
                self._files[path] = None
            else:
                source = Source(f"code/{path}", 1, text.split("\n"))
                records = self._records(path)
                source.origins = Origins(source.lines, records) if records else None
                tree = parse_text(text, source)
                _check_top(tree, source)
                defined = {
                    node.name: node
                    for node in tree.body
                    if isinstance(node, (ast.ClassDef, ast.FunctionDef))
                }
                self._files[path] = source, defined  # type: ignore[assignment]
        return self._files[path]

    def _make(self, name: str, source: Source, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef):
            self._found[name] = self.unit(name, source, node)
            return
        assert isinstance(node, ast.ClassDef)
        base = ast.unparse(node.bases[0]) if node.bases else "object"
        make = {
            "Module": self._module,
            "NamedTuple": self._named_tuple,
            "Enum": self._enum,
            "Interface": self._interface,
            "ModuleInterface": self._interface,
        }.get(base, self._class)
        make(name, source, node)

    def unit(
        self, name: str, source: Source, node: ast.FunctionDef, owner: Type | None = None
    ) -> Unit:
        """Return the unit of a function of the archive."""
        defaults: dict[str, Any] = {}
        arguments = node.args.args
        for argument, default in zip(
            arguments[len(arguments) - len(node.args.defaults) :], node.args.defaults, strict=True
        ):
            defaults[argument.arg] = self._default(default, source)
        return Unit(self.world, node.name, name, source, node, self.names, defaults, owner)

    def _default(self, node: ast.expr, source: Source) -> Any:
        """Return a default: a literal, a tensor of the archive, or a member of an enum of it."""
        name = ast.unparse(node)
        if isinstance(node, ast.Attribute) and name.startswith("__torch__."):
            kind = self.find(name.rpartition(".")[0])
            if isinstance(kind, EnumType) and node.attr in kind.python_class.__members__:
                return kind.python_class[node.attr]
        number = name.removeprefix("CONSTANTS.c")
        if number != name and number.isdigit() and int(number) < len(self.constants):
            return self.constants[int(number)]
        return _literal(node, source)

    def type_of(self, node: ast.AST, source: Source) -> Type:
        """Return the type that an annotation means.

        Raises:
            ScriptError: it means none.
        """
        try:
            return type_of_syntax(node, self.names.annotation, lambda cls: None)
        except AnnotationError as error:
            raise ScriptError(str(error), place_of(node, source)) from None

    def _named_tuple(self, name: str, source: Source, node: ast.ClassDef) -> None:
        fields, members, defaults = [], [], {}
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                fields.append(statement.target.id)
                members.append(self.type_of(statement.annotation, source))
                if statement.value is not None:
                    defaults[fields[-1]] = _literal(statement.value, source)
        cls = namedtuple(node.name, fields)  # type: ignore[misc]
        self._found[name] = TupleType(members, name, fields, cls, defaults)

    def _enum(self, name: str, source: Source, node: ast.ClassDef) -> None:
        members = {
            statement.targets[0].id: _literal(statement.value, source)  # type: ignore[attr-defined]
            for statement in node.body
            if isinstance(statement, ast.Assign)
        }
        kind = {int: kinds.INT, float: kinds.FLOAT}.get(
            type(next(iter(members.values()), 0)), kinds.STR
        )
        self._found[name] = EnumType(name, enum.Enum(node.name, members), kind)

    def _interface(self, name: str, source: Source, node: ast.ClassDef) -> None:
        unit = InterfaceUnit(self.world, type(node.name, (), {}), name, source, node)
        self._found[name] = unit.type
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                method = self.unit(f"{name}.{statement.name}", source, statement, unit.type)
                method.declare_only()
                unit.methods[statement.name] = method

    def _class(self, name: str, source: Source, node: ast.ClassDef) -> None:
        cls = type(node.name, (), {"__module__": "tangrad_jit.loaded"})
        unit = ClassUnit(self.world, cls, name, source, node)
        self._found[name] = unit.type
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                unit.attributes[statement.target.id] = self.type_of(statement.annotation, source)
            elif isinstance(statement, ast.FunctionDef):
                method = self.unit(f"{name}.{statement.name}", source, statement, unit.type)
                unit.methods[statement.name] = method
                setattr(cls, statement.name, _python_method(method))

    def _module(self, name: str, source: Source, node: ast.ClassDef) -> None:
        unit = _ModuleOfArchive(self, name, source, node)
        self._found[name] = unit.type
        unit.declare()


class _ModuleOfArchive(ModuleUnit):
    """Modules of a class of an archive."""

    def __init__(self, code: ArchiveCode, name: str, source: Source, node: ast.ClassDef) -> None:
        self.world, self._code = code.world, code
        self.cls = type(node.name, (nn.Module,), {"__module__": "tangrad_jit.loaded"})
        self.is_library = self.is_keyed = self.is_container = False
        self._hook_functions = ([], [])
        self._hook_names: list[list[str]] = [[], []]
        self.pre_hooks, self.hooks, self._hooked_call = [], [], None
        self.qualified = name
        self.type = ModuleType(name, self)
        self.attributes, self.constants, self.children = {}, {}, {}
        self.functions, self.failed, self._methods, self._overloads = {}, {}, {}, {}
        self._traced, self._replaced = {}, {}
        self.parameter_names, self.buffer_names = [], []
        self._source, self._node = source, node
        self._nodes = {s.name: s for s in node.body if isinstance(s, ast.FunctionDef)}

    def declare(self) -> None:
        """Read the attributes."""
        for statement in self._node.body:
            if isinstance(statement, ast.Assign):
                self._declare_names(statement)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                self._declare(statement.target.id, statement.annotation, statement.value)

    def _declare_names(self, statement: ast.Assign) -> None:
        target = statement.targets[0]
        if isinstance(target, ast.Subscript):  # __annotations__["0"] = type
            self._declare(str(_literal(target.slice, self._source)), statement.value, None)
            return
        names = _literal(statement.value, self._source)
        if isinstance(target, ast.Name) and isinstance(names, list):
            if target.id == "__parameters__":
                self.parameter_names = names
            elif target.id in _HOOKS:
                self._hook_names[_HOOKS.index(target.id)] = names
            elif target.id == "__buffers__":
                self.buffer_names = names

    def _declare(self, name: str, annotation: ast.AST, value: ast.expr | None) -> None:
        kind = self._code.type_of(annotation, self._source)
        if value is not None:
            self.constants[name] = _constant(value, kind, self._source)
        elif isinstance(kind, ModuleType):
            self.children[name] = kind
        else:
            self.attributes[name] = kind

    def attribute(self, check: Any, owner: Expr, name: str, place: Any) -> Any:
        """Return what an attribute of a module means, or None."""
        if name in self._nodes:
            return Bound(owner, name)
        return super().attribute(check, owner, name, place)

    def method(self, name: str) -> Any:
        """Return a method's unit, or None."""
        if name not in self._methods and name in self._nodes:
            unit = self._code.unit(
                f"{self.qualified}.{name}", self._source, self._nodes[name], self.type
            )
            self._methods[name] = unit
        return self._methods.get(name)

    def hooked_call(self) -> Unit | None:
        """Return the method that runs forward with the hooks that the archive names."""
        if self._hooked_call is None and any(self._hook_names):
            groups = [[self.method(name) for name in names] for names in self._hook_names]
            self.pre_hooks, self.hooks = groups
            self._hooked_call = hooked_call(self, self.method("forward"))
        return self._hooked_call

    def every_method(self) -> list[Unit]:
        """Return the units of all methods."""
        return [self.method(name) for name in self._nodes]


def _check_top(tree: ast.Module, source: Source) -> None:
    """Refuse what stands beside functions and classes, but for a number that old archives have."""
    for node in tree.body:
        old = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "op_version_set"
        if not old and not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            raise ScriptError(
                "the code of an archive has functions and classes only", place_of(node, source)
            )


def _python_method(unit: Unit) -> Any:
    """Return a method of a class, for calls that find it when they run."""

    def call(self: Any, *args: Any) -> Any:
        return program_of(unit)(self, *args)

    return call


def _literal(node: ast.AST, source: Source) -> Any:
    """Return the value of a literal of the archive's code.

    Raises:
        ScriptError: it is none.
    """
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return float(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Name):
        return -float(_literal(node.operand, source))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.device":
        return tangrad.device(str(_literal(node.args[0], source)))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "annotate":
        return _literal(node.args[1], source)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ScriptError("a literal was expected", place_of(node, source)) from None


def _constant(node: ast.expr, kind: Type, source: Source) -> Any:
    value = _literal(node, source)
    return float(value) if kind == kinds.FLOAT and isinstance(value, int) else value
