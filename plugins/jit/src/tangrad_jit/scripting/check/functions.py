"""Functions: their parameters, and their bodies, which are checked when they are first needed."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tangrad_jit.scripting.check.builtins import to_type
from tangrad_jit.scripting.check.statements import Statements
from tangrad_jit.scripting.check.values import Value
from tangrad_jit.scripting.source.places import FrontendError, Place, ScriptError, Source, place_of
from tangrad_jit.scripting.tree.nodes import Const, Convert, Expr, MakeList, Node, Return
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.annotations import (
    AnnotationError,
    type_of_object,
    type_of_syntax,
    type_of_value,
)
from tangrad_jit.scripting.types.kinds import ListType, OptionalType, Type, is_subtype

__all__ = ["FunctionValue", "Parameter", "Unit"]

_MISSING = object()
# A comment that was meant as one of types, as PyTorch recognises it.
_NEARLY_TYPE = re.compile(r"#[\t ]*type[\t ]*(?!: ignore(\[.*\])?$):")


@dataclass(slots=True)
class Parameter:
    """A parameter.

    Attributes:
        name, type: of it.
        default: a value of Python where `has_default`.
        keyword_only: whether a call names it.
        inferred: whether it is a tensor because nothing says what it is.
    """

    name: str
    type: Type
    default: Any = _MISSING
    keyword_only: bool = False
    inferred: bool = False

    @property
    def shown(self) -> str:
        """Its type, as messages show it."""
        return f"{self.type} (inferred)" if self.inferred else str(self.type)

    @property
    def has_default(self) -> bool:
        """Whether a call may leave it out."""
        return self.default is not _MISSING


class Unit:
    """A function or a method.

    Args:
        world: what is scripted.
        name: as errors name it.
        qualified: its name in archives.
        source: its text.
        node: its syntax.
        names: finds names that are not local.
        defaults: parameter -> default, as Python has evaluated them.
        owner: the type of `self`, for methods.
        plain: the type of parameters without an annotation.
        annotations: parameter, or "return" -> annotation, as Python has evaluated it.

    Attributes:
        program: the Python code that runs it, once it is made.
        machine: the program of the machine, or why there is none, once it is known.
        gains: whether the machine is faster than Python code, once it is known.
        first: what the first parameter means that is no value, or None: of a class method.
        stands_for_op: whether it is what an op of an older archive means.
    """

    stands_for_op = False

    def __init__(
        self,
        world: Any,
        name: str,
        qualified: str,
        source: Source,
        node: ast.FunctionDef,
        names: Any,
        defaults: dict[str, Any],
        owner: Type | None = None,
        plain: Type = kinds.TENSOR,
        annotations: dict[str, Any] | None = None,
    ) -> None:
        self.world, self.name, self.qualified = world, name, qualified
        self.source, self.node, self.names, self.owner = source, node, names, owner
        self._body: list[Node] | None = None
        self._returned: Type | None = None
        self._under_way = False
        self._plain, self._evaluated = plain, annotations or {}
        self.program: Any = None
        self.machine: Any = None
        self.gains: bool | None = None
        self.parameters = self._parameters_of(defaults)
        self.declared = self._declared_result()
        self.python_function: Any = None
        self.first: Value | None = None

    def place(self) -> Place:
        """Return where the function stands."""
        line = self.node.lineno - 1 if hasattr(self.node, "lineno") else 0
        column = getattr(self.node, "col_offset", 0) + self.source.indent
        last = column + len(self.node.name) + 4
        return Place(self.source, line, column, line, last, self.name)

    # --- what it takes and returns

    def _annotated(self, node: ast.AST | None, what: ast.AST, name: str = "") -> Type | None:
        if node is None:
            return None
        try:
            return type_of_syntax(node, self.names.annotation, self.world.class_type)
        except AnnotationError as error:
            evaluated = self._evaluated.get(name)
            if evaluated is not None and not isinstance(evaluated, str):
                with contextlib.suppress(AnnotationError):
                    return type_of_object(evaluated, self.world.class_type)
            raise ScriptError(str(error), place_of(what, self.source, self.name)) from None

    def _parameters_of(self, defaults: dict[str, Any]) -> list[Parameter]:
        arguments = self.node.args
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                raise FrontendError(
                    "Compiled functions can't take variable number of arguments or use "
                    "keyword-only arguments with defaults",
                    place_of(extra, self.source, self.name),
                )
        every = [*arguments.posonlyargs, *arguments.args]
        if self.owner is not None and not every:
            raise ScriptError(
                f"methods must have a self argument: {self.name} does not have a self argument; "
                "give it one, or decorate it with @staticmethod",
                self.place(),
            )
        self._check_comments(every)
        commented = self._comment_types(len(every) - (self.owner is not None))
        found = []
        for k, arg in enumerate([*every, *arguments.kwonlyargs]):
            if k == 0 and self.owner is not None:
                found.append(Parameter(arg.arg, self.owner))
                continue
            kind = self._annotated(arg.annotation, arg, arg.arg)
            if kind is None and arg.type_comment:
                kind = self._annotated(ast.Constant(arg.type_comment), arg)
            if kind is None and commented:
                kind = commented[k - (self.owner is not None)]
            inferred = kind is None and self._plain == kinds.TENSOR
            kind = kind or self._plain
            if kind == kinds.ANY and self._plain == kinds.ANY:
                kind = kinds.TENSOR
            default = defaults.get(arg.arg, _MISSING)
            if default is None and (kind == kinds.TENSOR or self._plain == kinds.ANY):
                kind = kinds.optional_of(kind)
            if type(default) is int and kinds.FLOAT in (kind, getattr(kind, "element", None)):
                default = float(default)
            if default is not _MISSING and self._plain != kinds.ANY:
                self._check_default(arg.arg, kind, default, inferred)
            found.append(Parameter(arg.arg, kind, default, k >= len(every), inferred))
        return found

    def refuse_mutable_defaults(self) -> None:
        """Refuse defaults that all calls of a function of Python would share.

        Raises:
            ScriptError: there is one.
        """
        for parameter in self.parameters:
            if _is_mutable(parameter.default):
                raise ScriptError(
                    "Mutable default parameters are not supported because Python binds them to "
                    "the function and they persist across function calls.\n As a workaround, make "
                    "the default None and instantiate the default parameter within the body of "
                    f"the function. Found {type(parameter.default)} on parameter {parameter.name}",
                    self.place(),
                )

    def _check_default(self, name: str, kind: Type, default: Any, inferred: bool) -> None:
        if isinstance(kind, kinds.EnumType) and isinstance(default, kind.python_class):
            return  # an archive's own, whose class has no other name
        given = type_of_value(default, self.world.class_type)
        if given is None or kind == kinds.ANY:
            return
        if to_type(Const(self.place(), given, default), kind, False) is None and not _widens(
            default, kind
        ):
            raise ScriptError(
                f"Expected a default value of type {kind}{' (inferred)' if inferred else ''} on "
                f'parameter "{name}".'
                + (
                    f' Because "{name}" was not annotated with an explicit type it is assumed to '
                    "be type 'Tensor'."
                    if inferred
                    else ""
                ),
                self.place(),
            )

    def _comment(self) -> Any:
        comment = self.node.type_comment
        if not comment:
            comment = self._comment_below()
        if not comment:
            return None
        if "->" not in comment:
            comment += " -> Any"
        try:
            return ast.parse(comment.strip(), mode="func_type")
        except SyntaxError:
            raise ScriptError(f"cannot parse the type comment: {comment}", self.place()) from None

    def _check_comments(self, every: Sequence[ast.arg]) -> None:
        """Refuse comments of types that nobody would read.

        Raises:
            ScriptError: there are some.
        """
        beside = [arg for arg in every if arg.type_comment]
        comment = self.node.type_comment or self._comment_below()
        if beside and comment:
            if not comment.replace(" ", "").startswith("(...)->"):
                raise ScriptError(
                    "Return type line '# type: (...) -> ...' not found on multiline type "
                    "annotation",
                    self.place(),
                )
            count = len(every) - (self.owner is not None)
            if len(beside) != count:
                raise self._miscounted(len(beside), count)
        last = self.node.end_lineno or self.node.lineno
        lines = self.source.lines[self.node.lineno - 1 : last]
        if self._plain == kinds.ANY or any("# type:" in line for line in lines):
            return
        for k, line in enumerate(lines):
            if _NEARLY_TYPE.search(line):
                raise ScriptError(
                    f"The annotation prefix in line {k} is probably invalid.\nIt must be '# type:'",
                    self.place(),
                )

    def _miscounted(self, found: int, wanted: int) -> ScriptError:
        return ScriptError(
            f"Number of type annotations ({found}) did not match the number of function "
            f"parameters ({wanted}):",
            self.place(),
        )

    def _comment_below(self) -> str:
        """Return a type comment in a line of its own between signature and body."""
        first = self.node.body[0].lineno - 1
        for line in self.source.lines[max(0, self.node.lineno - 1) : first]:
            text = line.strip()
            if text.startswith("# type:") and not text.startswith("# type: ignore"):
                return text.removeprefix("# type:").strip()
        return ""

    def _comment_types(self, count: int) -> list[Type]:
        comment = self._comment()
        if comment is None:
            return []
        nodes = comment.argtypes
        if len(nodes) == 1 and isinstance(nodes[0], ast.Constant) and nodes[0].value is ...:
            return []
        if len(nodes) != count:
            raise self._miscounted(len(nodes), count)
        return [self._annotated(node, self.node) or kinds.TENSOR for node in nodes]

    def _declared_result(self) -> Type | None:
        if self.node.returns is not None:
            kind = self._annotated(self.node.returns, self.node.returns, "return")
            return None if kind == kinds.ANY and self._plain == kinds.ANY else kind
        comment = self._comment()
        if comment is None or ast.unparse(comment.returns) == "Any":
            return None
        return self._annotated(comment.returns, self.node)

    @property
    def returned(self) -> Type:
        """The type of what it returns."""
        self.check()
        assert self._returned is not None
        return self._returned

    @property
    def body(self) -> list[Node]:
        """Its statements."""
        self.check()
        assert self._body is not None
        return self._body

    def declare_only(self) -> None:
        """Leave the body unread: that of an interface's method."""
        self._returned, self._body = self.declared or kinds.TENSOR, []

    def check(self) -> None:
        """Check the body, once.

        Raises:
            ScriptError: it cannot be scripted.
        """
        if self._body is not None:
            return
        if self._under_way:
            raise ScriptError(
                f"function '{self.name}' is called recursively. Recursive calls are not supported",
                self.place(),
            )
        self._under_way = True
        try:
            self._body = self._checked()
        finally:
            self._under_way = False

    def _checked(self) -> list[Node]:
        check = Statements(self.world, self.names, self.source, self.name)
        check.declared = self.declared
        for parameter in self.parameters:
            check.scope.top.names[parameter.name] = parameter.type
            if parameter.inferred:
                check.inferred.add(parameter.name)
        if self.first is not None:
            check.scope.top.names[self.parameters[0].name] = self.first
        body = check.body(self.node.body)
        if not check.scope.top.exits:
            returned = check.declared or check.returned
            allowed = self.declared in (None, kinds.NONE, kinds.ANY)
            if returned is not None and not (allowed and is_subtype(kinds.NONE, returned)):
                raise ScriptError(
                    "Function was not annotated as having type None, but does not return along all "
                    "paths",
                    self.place(),
                )
            place = self.place()
            body.append(Return(place, check.as_returned(Const(place, kinds.NONE, None), place)))
        self._returned = self.declared or check.returned or kinds.NONE
        return body

    def bind(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> list[Expr]:
        """Return an argument for each parameter, with defaults.

        Raises:
            ScriptError: the arguments do not fit.
        """
        rest = list(args)
        left = dict(kwargs)
        given: list[Expr] = []
        for parameter in self.parameters:
            if rest and not parameter.keyword_only:
                value = rest.pop(0)
            elif parameter.name in left:
                value = left.pop(parameter.name)
            elif parameter.has_default:
                default = check.constant(parameter.default, place)
                given.append(to_type(default, parameter.type) or default)
                continue
            else:
                raise self._refused(f"Argument {parameter.name} not provided.", place)
            given.append(self._fitted(check, check.expr_of(value, place), parameter, place))
        if rest:
            raise self._refused(
                f"Expected at most {len(self.parameters)} arguments but found {len(args)} "
                "positional arguments.",
                place,
            )
        if left:
            raise self._refused(f"Unknown keyword argument '{next(iter(left))}'.", place)
        return given

    def _fitted(self, check: Any, value: Expr, parameter: Parameter, place: Place) -> Expr:
        found = to_type(value, parameter.type)
        kind = parameter.type
        if found is None and isinstance(kind, ListType) and kind.broadcast:
            one = to_type(value, kind.element)
            found = None if one is None else MakeList(place, kind, [one] * kind.broadcast)
        if found is None:
            hint = ""
            if isinstance(value.type, OptionalType):
                hint = " Check first that it is not None."
            elif isinstance(parameter.type, kinds.InterfaceType):
                hint = f"\n{parameter.type.unit.lacking(value.type)}"
            elif parameter.inferred:
                hint = (
                    f"\nInferred '{parameter.name}' to be of type 'Tensor' because it was not "
                    "annotated with an explicit type."
                )
            raise self._refused(
                f"Expected a value of type '{parameter.shown}' for argument '{parameter.name}' but "
                f"instead found type '{value.type}'.{hint}",
                place,
            )
        return found

    def _refused(self, reason: str, place: Place) -> ScriptError:
        return ScriptError(f"\n{self.declaration()}:\n{reason}\n", place)

    def declaration(self) -> str:
        """Return the signature, as messages show it."""
        shown = []
        for p in self.parameters:
            default = f"={p.default!r}" if p.has_default else ""
            shown.append(f"{p.type} {p.name}{default}")
        returned = self.declared or self._returned
        return f"{self.name}({', '.join(shown)}) -> {returned if returned else 'Tensor'}"


def _is_mutable(default: Any) -> bool:
    """Return whether a default may change from one call to the next."""
    if isinstance(default, tuple):
        return any(map(_is_mutable, default))
    return isinstance(default, (list, dict))


def _widens(default: Any, kind: Type) -> bool:
    """Return whether a default is a number, or a tuple with some, that a wider type holds."""
    if isinstance(kind, OptionalType):
        return _widens(default, kind.element)
    if isinstance(kind, ListType):
        items = default if isinstance(default, tuple) else (default,) if kind.broadcast else ()
        return bool(items) and all(_widens(item, kind.element) for item in items)
    if isinstance(kind, kinds.TupleType) and isinstance(default, tuple):
        return len(default) == len(kind.elements) and all(map(_widens, default, kind.elements))
    python: dict[Type, Any] = {
        kinds.INT: int,
        kinds.FLOAT: (int, float),
        kinds.COMPLEX: (int, float, complex),
        kinds.BOOL: (bool, int),
        kinds.STR: str,
    }
    return isinstance(default, python.get(kind, ()))


class FunctionValue(Value):
    """A scripted function; of several, the first that takes the arguments is called."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units

    def __str__(self) -> str:
        return f"function {self.units[0].name}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Call it."""
        refused = []
        found: list[Expr] = []
        for unit in self.units:
            try:
                made: Expr = check.call_unit(unit, args, kwargs, place)
            except ScriptError as error:
                # One that takes the arguments and cannot be compiled is not passed over.
                if len(self.units) == 1 or error.calls:
                    raise
                refused.append(error)
            else:
                if not any(map(_is_number_of_tensor, getattr(made, "args", ()))):
                    return made
                found.append(made)
        if found:
            return found[0]
        raise refused[0]


def _is_number_of_tensor(value: Expr) -> bool:
    """Return whether an argument is a tensor taken for a number: other overloads go first."""
    return isinstance(value, Convert) and value.value.type == kinds.TENSOR
