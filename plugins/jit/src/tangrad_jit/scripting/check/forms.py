"""Functions of Python and of `tangrad.jit` that the language has forms of its own for."""

from __future__ import annotations

import ast
import builtins
import cmath
import contextlib
import math
import typing
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad.backends.cpu import get_cpu_capability
from tangrad_jit.scripting.check import type_forms
from tangrad_jit.scripting.check.builtins import choose_builtin
from tangrad_jit.scripting.check.values import Loop, Many, Value, described
from tangrad_jit.scripting.source.places import FrontendError, Place, ScriptError
from tangrad_jit.scripting.tree.nodes import (
    Apply,
    Builtin,
    Comprehension,
    Const,
    Convert,
    Expr,
    Fork,
    Invoke,
    Iteration,
    Local,
    MakeDict,
    MakeList,
    OpCall,
    SliceOf,
    Unpack,
)
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import (
    AwaitType,
    DictType,
    FutureType,
    ListType,
    ModuleType,
    OptionalType,
    TupleType,
    Type,
)

__all__ = ["NAMED_FORMS", "NamedBuiltin", "form_of", "math_function"]


class NamedBuiltin(Value):
    """A function that is a builtin, or an op where it is given tensors."""

    def __init__(self, name: str, op: str = "") -> None:
        self.name, self.op = name, op or name

    def __str__(self) -> str:
        return f"function {self.name}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Call the builtin, or the op."""
        given = [check.expr_of(arg, place) for arg in args]
        named = {key: check.expr_of(value, place) for key, value in kwargs.items()}
        if given and isinstance(given[0].type, kinds.ClassType):
            method = f"__{self.name.lower()}__"
            if method in given[0].type.unit.methods:
                of_class: Expr = check.call_method(given[0], method, given[1:], named, place)
                return of_class
        # `max(tensor, 0)` is a number there, as Python's is, and not the op of a dimension.
        of_numbers = self.name in ("min", "max") and len(given) == 2
        found = choose_builtin(self.name, given, named, place, convert=of_numbers)
        if found is None and any(a.type == kinds.TENSOR for a in given):
            made: Expr = check.call_named_op(self.op, given, named, place)
            return made
        if found is None and self.name in ("min", "max") and len(given) > 2 and not named:
            rest = self.call(check, given[1:], {}, place)
            return self.call(check, [given[0], rest], {}, place)
        if found is None:
            found = choose_builtin(self.name, given, named, place)
        if found is None:
            raise check.no_overload(self.name, given, named, place)
        return found


Caller = Callable[[Any, Sequence[Any], dict[str, Any], Place], Any]


class Form(Value):
    """A function whose call a function of the checker makes."""

    def __init__(self, name: str, make: Caller, is_special: bool = False) -> None:
        self.name, self.make, self.is_special = name, make, is_special

    def __str__(self) -> str:
        return f"function {self.name}"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Make the call."""
        found: Expr | Value = self.make(check, args, kwargs, place)
        return found


class RawForm(Value):
    """A form that looks at the syntax of its arguments."""

    is_special = True

    def __init__(self, name: str, make: Callable[[Any, ast.Call, Type | None, Place], Any]) -> None:
        self.name, self.make = name, make

    def __str__(self) -> str:
        return f"function {self.name}"

    def call_raw(self, check: Any, node: ast.Call, hint: Type | None) -> Any:
        """Make the call."""
        return self.make(check, node, hint, check.place(node))


# --- loops


def _range(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Loop:
    if not 1 <= len(args) <= 3 or kwargs:
        bound = "at least 1 arguments" if not args else "at most 3 arguments"
        raise ScriptError(f"range expected {bound}, got {len(args)}", place)
    values = []
    for arg in args:
        value = check.expr_of(arg, place)
        if value.type == kinds.FLOAT:
            raise ScriptError("range takes integers, but found float", place)
        values.append(check.convert(value, kinds.INT, place, "an argument of range", True))
    return Loop(Iteration("range", values, kinds.INT))


def _enumerate(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Value:
    if not args:
        raise ScriptError("enumerate expected at least 1 arguments, got 0", place)
    if len(args) > 2:
        raise ScriptError(f"enumerate expected at most 2 arguments, got {len(args)}", place)
    start = check.expr_of(args[1], place) if len(args) > 1 else kwargs.get("start")
    over = check.iterated(args[0], place)
    if isinstance(over, list):
        first = 0 if start is None else check.constant_of(start, place, int)
        return Many(
            [Many([Const(place, kinds.INT, first + k), item]) for k, item in enumerate(over)]
        )
    element = TupleType([kinds.INT, over.element])
    values = [] if start is None else [check.expr_of(start, place)]
    return Loop(Iteration("enumerate", values, element, [over]))


def _zip(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Value:
    if not args or kwargs:
        raise ScriptError("zip expected at least 1 arguments, got 0", place)
    overs = [check.iterated(arg, place) for arg in args]
    unrolled = [over for over in overs if isinstance(over, list)]
    if not unrolled:
        return Loop(Iteration("zip", [], TupleType([o.element for o in overs]), overs))
    count = min(map(len, unrolled))
    columns = []
    for arg, over in zip(args, overs, strict=True):
        if isinstance(over, list):
            columns.append(over)
            continue
        listed = check.expr_of(arg, place) if not isinstance(arg, Loop) else None
        if listed is None or not isinstance(listed.type, ListType):
            raise ScriptError(
                "zip of modules or tuples with an iterable that does not have a statically "
                "determinable length",
                place,
            )
        columns.append(
            [
                choose_builtin("__getitem__", [listed, Const(place, kinds.INT, k)], {}, place)
                for k in range(count)
            ]
        )
    return Many([Many(list(row)) for row in zip(*columns, strict=False)])


def _reversed(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Any:
    over = check.iterated(args[0], place)
    if isinstance(over, list):
        return Many(over[::-1])
    step = Const(place, kinds.INT, -1)
    none = Const(place, kinds.NONE, None)
    return choose_builtin("slice", [check.expr_of(args[0], place), none, none, step], {}, place)


# --- containers


def _len(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Any:
    value = args[0]
    if isinstance(value, Value):
        members = value.members(check, place)
        if members is not None:
            return Const(place, kinds.INT, len(members))
    value = check.expr_of(value, place)
    if isinstance(value.type, TupleType):
        return Const(place, kinds.INT, len(value.type.elements))
    if isinstance(value.type, ModuleType):
        own = getattr(value.type.unit.cls, "__len__", None)
        if own is not None and not str(own.__module__).startswith("tangrad"):
            return check.call_method(value, "__len__", [], {}, place)
        members = check.children_of(value, place).members(check, place) or []
        return Const(place, kinds.INT, len(members))
    if isinstance(value.type, kinds.ClassType):
        return check.call_method(value, "__len__", [], {}, place)
    return NamedBuiltin("len").call(check, [value], {}, place)


def _list(check: Any, node: ast.Call, hint: Type | None, place: Place) -> Any:
    if not node.args:
        element = hint.element if isinstance(hint, ListType) else kinds.TENSOR
        return MakeList(place, ListType(element), [])
    if isinstance(node.args[0], ast.GeneratorExp):
        return check.value(node.args[0], hint)
    value = check.value(node.args[0], hint)
    over = check.iterated(value, place)
    if isinstance(over, list):
        if any(isinstance(item, Value) for item in over):
            return Many(over)
        return check.make_list([check.expr_of(item, place) for item in over], place)
    if over.kind in ("list", "str", "dict"):
        # PyTorch's op makes lists of lists and texts.
        named = "keys" if over.kind == "dict" else "list"
        return choose_builtin(named, [check.expr_of(value, place)], {}, place)
    name = check.temporary()
    return Comprehension(
        place, ListType(over.element), name, over, Local(place, over.element, name)
    )


def _tuple(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Any:
    if not args:
        return check.make_tuple([], place)
    if len(args) > 1:
        raise ScriptError(f"tuple expected at most 1 argument, got {len(args)}", place)
    return check.make_tuple(
        [check.expr_of(item, place) for item in check.spread(args[0], place)], place
    )


def _dict(check: Any, node: ast.Call, hint: Type | None, place: Place) -> Any:
    if len(node.args) > 1:
        raise ScriptError(f"dict expected at most 1 argument, got {len(node.args)}", place)
    keys: list[ast.expr | None] = []
    values = []
    given = node.args[0] if node.args else None
    if isinstance(given, ast.List) and all(isinstance(p, ast.Tuple) for p in given.elts):
        keys = [p.elts[0] for p in given.elts]  # type: ignore[attr-defined]
        values = [p.elts[1] for p in given.elts]  # type: ignore[attr-defined]
    elif isinstance(given, ast.Dict):
        keys, values = list(given.keys), list(given.values)
    elif given is not None:
        made = _dict_of(check, given, hint, place)
        if not node.keywords:
            return made
        more = check.expr(_of_keywords(node, [], []), made.type)
        joined = Builtin("joined", "rt_joined(_0, _1)", namespace="")
        return Apply(place, made.type, joined, [made, more])
    if not keys and not node.keywords:
        kind = hint if isinstance(hint, DictType) else DictType(kinds.STR, kinds.TENSOR)
        return MakeDict(place, kind, [], [])
    return check.value(_of_keywords(node, keys, values), hint)


def _of_keywords(node: ast.Call, keys: list[Any], values: list[ast.expr]) -> ast.Dict:
    """Return a dict of some entries and of a call's arguments by name."""
    named = [ast.copy_location(ast.Constant(k.arg), node) for k in node.keywords]
    literal = ast.Dict([*keys, *named], [*values, *(k.value for k in node.keywords)])
    return ast.copy_location(literal, node)


def _dict_of(check: Any, given: ast.expr, hint: Type | None, place: Place) -> Expr:
    """Return the dict that a dict, or pairs of keys and values, make."""
    if isinstance(given, ast.ListComp) and isinstance(given.elt, ast.Tuple):
        pairs = ast.DictComp(given.elt.elts[0], given.elt.elts[1], given.generators)
        found: Expr = check.expr(ast.copy_location(pairs, given), hint)
        return found
    value = check.value(given, hint)
    if isinstance(value, Expr) and isinstance(value.type, DictType):
        copied = choose_builtin("dict", [value], {}, place)
        assert copied is not None
        return copied
    over = check.iterated(value, place)
    if isinstance(over, list):
        spread = [check.spread(item, place) for item in over]
        keys = [check.expr_of(key, place) for key, _ in spread]
        entries: Expr = check.make_dict(
            keys, [check.expr_of(item, place) for _, item in spread], hint, place
        )
        return entries
    pair = over.element
    if not isinstance(pair, TupleType) or len(pair.elements) != 2:
        raise ScriptError(f"dict takes pairs of a key and a value, not {pair}", place)
    names = [check.temporary(), check.temporary()]
    key, item = (Local(place, kind, name) for kind, name in zip(pair.elements, names, strict=True))
    kind = DictType(*pair.elements)
    return Comprehension(place, kind, Unpack(place, list(names)), over, item, key)


# --- other forms


def _print(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    if kwargs:
        raise FrontendError("print doesn't accept any keyword arguments", place)
    values = [check.expr_of(arg, place) for arg in args]
    return Apply(place, kinds.NONE, Builtin("Print", "rt_print(_args)", "prim"), values)


def _warn(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    text = check.expr_of(args[0], place)
    return Apply(place, kinds.NONE, Builtin("warn", "rt_warn(_0)"), [text])


def _tensor(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    given = [check.expr_of(arg, place) for arg in args]
    named = {key: check.expr_of(value, place) for key, value in kwargs.items()}
    if len(given) != 1:
        raise ScriptError("tensor takes one argument by place: its data", place)
    inner: Type = given[0].type
    while isinstance(inner, ListType):
        inner = inner.element
    if isinstance(inner, TupleType):
        given = [check.convert(given[0], ListType(inner.elements[0]), place, "the data")]
        inner = inner.elements[0]
    numbers = (*kinds.NUMBERS, kinds.BOOL, kinds.NUMBER)
    of_tensors = isinstance(given[0].type, ListType) and inner == kinds.TENSOR
    if inner not in (*numbers, kinds.TENSOR) or (of_tensors and _is_bare(given[0])):
        hint = "\nEmpty lists default to List[Tensor]. Add a variable annotation to the assignment"
        raise ScriptError(
            f"Input must be of ints, floats, or bools, got {inner}"
            + (f"{hint} to create an empty list of another type" if inner == kinds.TENSOR else ""),
            place,
        )
    if "dtype" not in named and inner in _WHOLE and _may_be_empty(given[0]):
        # Python's list without members has no type, and would be one of floats.
        named["dtype"] = check.constant(_WHOLE[inner], place)
    for name, value in named.items():
        if name == "dtype" and value.type == kinds.INT:
            named[name] = Convert(place, kinds.DTYPE, value, "dtype of code")
    return OpCall(place, kinds.TENSOR, "aten::tensor", tangrad.tensor, given, named)


_WHOLE: dict[Type, Any] = {kinds.INT: tangrad.int64, kinds.BOOL: tangrad.bool}


def _is_bare(value: Expr) -> bool:
    """Return whether a value is a list without members."""
    return isinstance(value, MakeList) and not value.elements


def _may_be_empty(value: Expr) -> bool:
    """Return whether a value is a list of which it is not known that it has members."""
    if not isinstance(value.type, ListType):
        return False
    if not isinstance(value, MakeList):
        return True
    return not value.elements or any(map(_may_be_empty, value.elements))


def _constant(value: Any) -> Caller:
    def make(check: Any, args: Any, kwargs: Any, place: Place) -> Expr:
        found: Expr = check.constant(value, place)
        return found

    return make


def _fork(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    if not args:
        raise ScriptError("fork takes a function and its arguments", place)
    call = check.expr_of(check.call(args[0], list(args[1:]), kwargs, place), place)
    return Fork(place, FutureType(call.type), call)


def _awaitable(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    if not args:
        raise ScriptError("_awaitable takes a function and its arguments", place)
    call = check.expr_of(check.call(args[0], list(args[1:]), kwargs, place), place)
    return Fork(place, AwaitType(call.type), call)


def _awaitable_nowait(
    check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
) -> Expr:
    value = check.expr_of(args[0], place)
    builtin = Builtin("awaitable_nowait", "rt_await_nowait(_0)", "prim")
    return Apply(place, AwaitType(value.type), builtin, [value])


def _wait(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    future = check.expr_of(args[0], place)
    if not isinstance(future.type, FutureType):
        raise ScriptError(f"wait takes a future, not {described(future)}", place)
    return Invoke(place, future.type.element, future, "wait", None, [])


def _unwrap(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    value = check.expr_of(args[0], place)
    if not isinstance(value.type, OptionalType):
        if value.type == kinds.NONE:
            raise ScriptError(
                "Unwrapping null optional: its type could not be inferred from actual type None",
                place,
            )
        return value
    return Convert(place, value.type.element, value, "unwrap")


def _slice(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    if kwargs:
        raise ScriptError("Slice does not accept any keyword arguments", place)
    if not 1 <= len(args) <= 3:
        raise ScriptError(f"slice expected 1 to 3 arguments, got {len(args)}", place)
    bounds = [check.bound(check.expr_of(arg, place)) for arg in args]
    if len(bounds) == 1:
        bounds.insert(0, None)
    return SliceOf(place, kinds.NONE, *bounds, *[None] * (3 - len(bounds)))


def _device(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    values = [check.expr_of(a, place) for a in [*args, *kwargs.values()]]
    if values and values[0].type == kinds.DEVICE:
        return values[0]
    if not values or values[0].type != kinds.STR:
        raise ScriptError("device takes a text, and a number", place)
    template = "rt_device(_0)" if len(values) == 1 else "rt_device(_0, _1)"
    return Apply(place, kinds.DEVICE, Builtin("device", template), values)


def _id(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    if len(args) != 1 or kwargs:
        raise ScriptError("id takes one instance of a class", place)
    value = check.expr_of(args[0], place)
    kind = value.type.element if isinstance(value.type, OptionalType) else value.type
    if kind != kinds.NONE and not isinstance(kind, (kinds.ClassType, ModuleType)):
        raise ScriptError(
            "Expected a value of type 'Optional[AnyClassType]' for argument 'x' but instead found "
            f"type '{value.type}'",
            place,
        )
    return Apply(place, kinds.INT, Builtin("id", "rt_id(_0)", "prim"), [value])


def _size(check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place) -> Expr:
    value = check.expr_of(args[0], place)
    found: Expr = check.convert(value, ListType(kinds.INT), place, "sizes")
    return found


def _zero_dimensional(name: str, kind: Type, function: Any = None) -> Caller:
    """Make the function that asks a question which no op answers."""
    function = function or getattr(tangrad, name)

    def make(check: Any, args: Any, kwargs: Any, place: Place) -> Expr:
        given = [check.expr_of(arg, place) for arg in args]
        return OpCall(place, kind, f"aten::{name}", function, given, {})

    return make


NAMED_FORMS: dict[str, Value] = {
    "range": Form("range", _range),
    "enumerate": Form("enumerate", _enumerate),
    "zip": Form("zip", _zip),
    "reversed": Form("reversed", _reversed),
    "len": Form("len", _len),
    "list": RawForm("list", _list),
    "tuple": Form("tuple", _tuple),
    "dict": RawForm("dict", _dict),
    "annotate": RawForm("annotate", type_forms.annotate),
    "unchecked_cast": RawForm("unchecked_cast", type_forms.cast),
    "isinstance": RawForm("isinstance", type_forms.is_instance),
    "hasattr": RawForm("hasattr", type_forms.has_attribute),
    "getattr": RawForm("getattr", type_forms.get_attribute),
    "id": Form("id", _id),
    "type": NamedBuiltin("type_text"),
    "super": RawForm("super", type_forms.super_of),
    "print": Form("print", _print),
    "int": NamedBuiltin("Int"),
    "float": NamedBuiltin("Float"),
    "bool": NamedBuiltin("Bool"),
    "complex": NamedBuiltin("Complex"),
    **{
        name: NamedBuiltin(name)
        for name in (
            "str chr ord hex oct bin abs min max sum any all round divmod pow sorted hash".split()
        )
    },
    "fork": Form("fork", _fork, True),
    "wait": Form("wait", _wait),
    "slice": Form("slice", _slice),
    "unwrap_optional": Form("unwrap_optional", _unwrap),
}


def _forms_of_objects() -> dict[int, tuple[Any, Value]]:
    named = {
        getattr(builtins, name): form
        for name, form in NAMED_FORMS.items()
        if hasattr(builtins, name)
    }
    jit = tangrad.jit
    named.update(
        {
            tangrad.autograd.grad: NamedBuiltin("grad"),
            tangrad.autograd.backward: NamedBuiltin("backward"),
            jit.annotate: NAMED_FORMS["annotate"],
            jit.isinstance: RawForm("isinstance", type_forms.jit_is_instance),
            jit.is_scripting: Form("is_scripting", _constant(True)),
            jit.is_tracing: Form("is_tracing", _constant(False)),
            jit.fork: NAMED_FORMS["fork"],
            jit.wait: NAMED_FORMS["wait"],
            jit._unwrap_optional: NAMED_FORMS["unwrap_optional"],
            jit._awaitable: Form("_awaitable", _awaitable, True),
            jit._awaitable_wait: NAMED_FORMS["wait"],
            jit._awaitable_nowait: Form("_awaitable_nowait", _awaitable_nowait),
            OrderedDict: NAMED_FORMS["dict"],
            typing.cast: NAMED_FORMS["unchecked_cast"],
            warnings.warn: Form("warn", _warn),
            tangrad.tensor: Form("tensor", _tensor),
            tangrad.as_tensor: Form("as_tensor", _tensor),
            tangrad.device: Form("device", _device),
            tangrad.Size: Form("Size", _size),
            tangrad.overrides.has_torch_function: Form("has_torch_function", _constant(False)),
            tangrad.overrides.has_torch_function_unary: Form("unary", _constant(False)),
            tangrad.overrides.has_torch_function_variadic: Form("variadic", _constant(False)),
            tangrad.is_grad_enabled: Form(
                "is_grad_enabled", _zero_dimensional("is_grad_enabled", kinds.BOOL)
            ),
            tangrad.get_default_dtype: Form(
                "get_default_dtype", _zero_dimensional("get_default_dtype", kinds.DTYPE)
            ),
            get_cpu_capability: Form(
                "_get_cpu_capability",
                _zero_dimensional("_get_cpu_capability", kinds.STR, get_cpu_capability),
            ),
            tangrad.Generator: NamedBuiltin("Generator"),
            tangrad.manual_seed: Form("manual_seed", _zero_dimensional("manual_seed", kinds.NONE)),
        }
    )
    with contextlib.suppress(AttributeError, ImportError):  # the package may not be installed
        named[tangrad.sparse.mm] = NamedBuiltin("_sparse_mm")
    for name in ("_single", "_pair", "_triple", "_quadruple"):
        named[getattr(tangrad.nn.modules.utils, name)] = NamedBuiltin(name)
    for name in dir(cmath):
        if name in _MATH_NAMES and callable(getattr(cmath, name)):
            named[getattr(cmath, name)] = NamedBuiltin(name)
    for name in dir(math):
        found = math_function(name)
        if found is not None:
            named[getattr(math, name)] = found
    return {id(key): (key, form) for key, form in named.items()}


_IN_MATH = {"pow": "pow", "remainder": "mathremainder", "fsum": "", "sumprod": "", "prod": ""}


def math_function(name: str) -> Value | None:
    """Return what a function of `math` means, or None where the language has none of its name."""
    from_table = _IN_MATH.get(name, name)
    if name.startswith("_") or not callable(getattr(math, name, None)) or not from_table:
        return None
    probe = NamedBuiltin(from_table)
    return probe if from_table in _MATH_NAMES else None


_MATH_NAMES = frozenset(
    "ceil floor sqrt exp expm1 log log1p log10 sin cos tan asin acos atan atan2 sinh"
    " cosh tanh asinh acosh atanh erf erfc gamma lgamma degrees radians fabs factorial frexp ldexp"
    " modf copysign isnan isinf isfinite mathremainder gcd fmod pow".split()
)

_objects: dict[int, tuple[Any, Value]] = {}


def form_of(obj: Any) -> Value | None:
    """Return the form of an object of Python, or None."""
    if not _objects:
        _objects.update(_forms_of_objects())
    found = _objects.get(id(obj))
    return None if found is None else found[1]
