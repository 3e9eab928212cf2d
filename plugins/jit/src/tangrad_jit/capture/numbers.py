"""Numbers that may be others in the next call: arithmetic with them is recorded.

A `Number` takes a float's or an int's place while a run is recorded. Arithmetic with it makes nodes
of the graph, ops are given its value and the graph's own; a comparison is answered and becomes a
guard; whatever else Python does with it (a key, a size, a text, a function in C) needs the number
itself, which is guarded to be what it was. So nothing can depend on it unseen: it is no float, and
C code cannot look into it.

What is read from a tensor (`number_of`) can be computed with. It can be guarded, too, where the
program holds the tensor and had not written it before; else it is known only within the run, and
looking at it is refused.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import tangrad
from tangrad.plugin import innermost_tracer
from tangrad_jit._guards import is_same
from tangrad_jit.graph.ir import Node, Value
from tangrad_jit.graph.numbers import NUMBER_OPS
from tangrad_jit.graph.types import NumberType, TensorType

__all__ = ["COMPARISONS", "DynamicScalar", "Number", "Numbers", "made_for", "plain", "plain_in"]

# Values that ops, or shortcuts before them, may treat apart; a graph is recorded for them alone.
_APART = (0, 1, -1, 2, 3, 0.5, -0.5)
_REAL = (int, float)
# Operators of tensors that are handed over as methods of their type and not as ops.
_OPERATORS = frozenset(
    "__floordiv__ __rfloordiv__ __rsub__ __rtruediv__ __rmod__ __and__ __or__ __xor__ __lshift__ "
    "__rlshift__ __rshift__ __rrshift__".split()
)
# Ops some forms of which are composites: those for numbers are made of pointwise ops.
_MIXED = ("clamp", "where", "div")
# Ops that check of numbers only of which kind they are, or whether a dtype has a place for them.
_CHECK_KINDS = frozenset("fill_ _fill sub_plain _foreach_add_list_ _foreach_add_tensor_".split())
_KINDS = ("Operand", "Scalar", "Scalar?", "float", "float?")


def within(number: Any, bounds: tuple[Any, Any]) -> bool:
    """Return whether a dtype has a place for a number, given its least and greatest element.

    A floating dtype has one for infinities and NaN, too.
    """
    least, most = bounds
    if isinstance(number, float) and not math.isfinite(number):
        return isinstance(most, float)
    return bool(least <= number <= most)


#: What may be asked of numbers.
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "is": is_same,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "within": within,
}


class Numbers:
    """The numbers of one run.

    Args:
        recorder: whose graph the arithmetic goes to.

    Attributes:
        guards: (comparison, left, right, outcome): what was asked of numbers. Operands are values
            of the graph or constants.
    """

    #: Whether they are the sizes of tensors; see `symbolic_sizes`.
    of_sizes = False

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.guards: list[tuple[str, Any, Any, bool]] = []
        self._read: set[Value] = set()
        self._own: set[Value] = set()

    @property
    def live(self) -> bool:
        """Whether the run goes on in this thread, outside of any op."""
        return self.recorder.failure is None and innermost_tracer() is self.recorder

    def given(self, number: Any, name: str) -> Number:
        """Return what stands for a number that the graph is given."""
        type = NumberType(_kind(number).__name__)
        value = self.recorder.graph.add_input(type, "number", name)
        self._own.add(value)
        return made_for(self, value, number)

    def read(self, tensor: Any, number: Any) -> Any:
        """Return what stands for the number that a tensor of the graph holds now."""
        if type(number) not in _REAL:
            self.recorder.read(tensor)
            return number
        value = self.recorder.value_of(tensor)
        if self.recorder.is_constant(value):
            return number
        made = self.apply("number.item", (value,), number)
        if not self.recorder.is_as_given(value):
            self._read.add(made.value)
        return made

    def apply(self, name: str, operands: tuple[Any, ...], result: Any) -> Number:
        """Add an operation on values and constants, and return what stands for its result."""
        recorder = self.recorder
        node = Node(NUMBER_OPS[name], operands, "call", (), recorder._module, recorder._where())
        (value,) = recorder.graph.append(node, [NumberType(type(result).__name__)])
        self._own.add(value)
        if any(isinstance(item, Value) and item in self._read for item in operands):
            self._read.add(value)
        return made_for(self, value, result)

    def ask(self, name: str, left: Any, right: Any) -> bool:
        """Answer a comparison of which what follows in the run depends."""
        outcome = bool(COMPARISONS[name](plain(left), plain(right)))
        if self.live:
            self._guard(name, left, right, outcome)
        return outcome

    def bound(self, node: Node) -> None:
        """Guard that the dtypes of a call have a place for the numbers that it is given.

        Ops refuse others, wrap them around, or leave it to another op to compare with them.
        """
        for item in node.args:
            if isinstance(item, Value) and item in self._own and item not in self._read:
                for bounds in _bounds_of(node, item.type):
                    self.guards.append(("within", item, bounds, True))

    def _guard(self, name: str, left: Any, right: Any, outcome: bool) -> None:
        asked = [item for item in (left, right) if isinstance(item, Number)]
        if any(item.value in self._read for item in asked):
            self.recorder.read(None)
        else:
            self.guards.append((name, _operand(left), _operand(right), outcome))

    def settle(self, number: Number) -> Any:
        """Return the number itself: the graph holds for it alone."""
        self.ask("is", number, number.hint)
        return number.hint

    def argument(self, given: DynamicScalar, op: Any, position: int) -> Any:
        """Return what a graph's node has for a number that an op is given."""
        number = given.number
        kind = op.definition.schema.params[position].type if position >= 0 else ""
        if kind not in _KINDS:
            return self.constant(number)
        if _checks(op, op.definition.schema.params[position].name):
            return self.constant(number)
        if op.definition.schema.written_lists:
            return number.value
        if not (op.kind == "pointwise" or op.name in ("fill_", "_fill")):
            return self.constant(number)
        return self.constant(number) if number.hint in _APART else number.value

    def constant(self, number: Number) -> Any:
        """Return the number that an op is given: the graph holds for it alone."""
        # The recorder asks from within an op, where no run is live.
        self._guard("is", number, number.hint, True)
        return number.hint


def _bounds_of(node: Node, number: NumberType) -> set[tuple[Any, Any]]:
    """Return the least and greatest elements of the dtypes that a call may compute in."""
    dtypes = {v.type.dtype for v in node.results if isinstance(v.type, TensorType)} - {"bool"}
    if not dtypes:  # a comparison
        given = {v.type.dtype for v in node.inputs if isinstance(v.type, TensorType)} - {"bool"}
        floating = {name for name in given if not name.startswith(("int", "uint"))}
        if number.kind == "float":
            given = floating or {str(tangrad.get_default_dtype()).rpartition(".")[2]}
        dtypes = given
    return {_bounds(name) for name in dtypes}


@lru_cache(maxsize=64)
def _bounds(name: str) -> tuple[Any, Any]:
    dtype = getattr(tangrad, name)
    integer = name.startswith(("int", "uint"))
    limits = tangrad.iinfo(dtype) if integer else tangrad.finfo(dtype)
    return limits.min, limits.max


def _checks(op: Any, name: str) -> bool:
    """Return whether an op may refuse some values of a parameter."""
    check = op.definition.check
    if check is None or op.definition.checks_kinds or op.name in _CHECK_KINDS:
        return False
    code = check.__code__
    return name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _kind(number: Any) -> type:
    return float if isinstance(number, float) else int


def _operand(item: Any) -> Any:
    return item.value if isinstance(item, Number) else item


def plain(item: Any) -> Any:
    """Return the number that an object stands for, or the object."""
    if isinstance(item, Number):
        return item.hint
    return item.number.hint if type(item) in (_SymbolicFloat, _SymbolicInt) else item


def plain_in(item: Any) -> Any:
    """Return tuples, lists and dicts with plain numbers; the same object where there are none."""
    if isinstance(item, Number):
        return item.hint
    if type(item) in (tuple, list, tangrad.Size):
        members = [plain_in(member) for member in item]
        same = all(a is b for a, b in zip(members, item, strict=True))
        return item if same else type(item)(members)
    if type(item) is dict:
        found = {key: plain_in(value) for key, value in item.items()}
        return item if all(found[key] is value for key, value in item.items()) else found
    return item


def _arithmetic(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    function = NUMBER_OPS[f"number.{name}"].compute

    def method(self: Any, other: Any) -> Any:
        self = getattr(self, "number", self)
        if isinstance(other, tangrad.Tensor):
            return NotImplemented
        other = getattr(other, "number", other) if type(other) in _FOLLOWED else other
        left, right = _of_one_kind(*((other, self) if reflected else (self, other)))
        if not (isinstance(left, Number) or isinstance(right, Number)) or not self.env.live:
            return function(plain(left), plain(right))
        env = (left if isinstance(left, Number) else right).env
        if any(not isinstance(i, Number) and type(i) not in _REAL for i in (left, right)):
            return function(*(settled(item) for item in (left, right)))
        if name == "pow" and not _is_real_power(left, right):
            return function(*(settled(item) for item in (left, right)))
        result = function(plain(left), plain(right))
        return env.apply(f"number.{name}", (_operand(left), _operand(right)), result)

    return method


def _of_one_kind(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two operands, a size itself where the other stands for a number of another kind."""
    both = isinstance(left, Number) and isinstance(right, Number)
    if not both or left.env is right.env:
        return left, right
    return tuple(settled(item) if item.env.of_sizes else item for item in (left, right))


def _is_real_power(base: Any, exponent: Any) -> bool:
    """Return whether a power is a float whatever the exponent: not so below zero, or of ints."""
    number = plain(base)
    if type(number) is not float and type(plain(exponent)) is not float:
        return False
    if isinstance(base, Number):
        return False if base.value in base.env._read else base.env.ask(">=", base, 0)
    return number >= 0


def settled(item: Any) -> Any:
    """Return a number itself, guarded to be what it is; anything else as it is."""
    item = item.number if type(item) in _FOLLOWED else item
    if not isinstance(item, Number):
        return item
    return item.env.settle(item) if item.env.live else item.hint


def _unary(name: str) -> Callable[[Any], Any]:
    function = NUMBER_OPS[f"number.{name}"].compute

    def method(self: Any) -> Any:
        self = getattr(self, "number", self)
        result = function(self.hint)
        if not self.env.live or type(result) not in _REAL:
            return result
        return self.env.apply(f"number.{name}", (self.value,), result)

    return method


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        self = getattr(self, "number", self)
        if type(other) in _FOLLOWED:
            other = other.number
        if isinstance(other, Number) or type(other) in (*_REAL, bool):
            left, right = _of_one_kind(self, other)
            first = left if isinstance(left, Number) else right
            return first.env.ask(name, left, right)
        if isinstance(other, tangrad.Tensor):
            return NotImplemented
        return COMPARISONS[name](settled(self), other)

    return method


def _settling(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        number = settled(getattr(self, "number", self))
        return getattr(number, name)(*(settled(item) for item in args))

    return method


def _give(cls: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Run a call of the library with numbers that ops can be given, or with the numbers."""
    body = getattr(function, "function", None) or getattr(function, "__wrapped__", None)
    if getattr(function, "kind", None) is None and body is not None:
        return body(*args, **(kwargs or {}))  # in Python; its calls come here again
    change = _dynamic if _takes_numbers(function) else _settled_in
    args = tuple(change(item) for item in args)
    kwargs = {key: change(item) for key, item in (kwargs or {}).items()}
    return function(*args, **kwargs)


def _takes_numbers(op: Any) -> bool:
    """Return whether an op computes with a number as with any other, the usual shortcuts aside.

    Composites are made of Python, and of C that may look; of powers some are ops of their own.
    """
    if getattr(op, "__name__", "") in _OPERATORS:
        return True
    if "pow" in getattr(op, "name", "pow"):
        return False
    forms = op.overloads or (op,)
    return op.name.rstrip("_") in _MIXED or all(f.kind in ("pointwise", "kernel") for f in forms)


def _settled_in(item: Any) -> Any:
    if type(item) in (tuple, list):
        return type(item)(map(_settled_in, item))
    return settled(item)


def _dynamic(item: Any) -> Any:
    if isinstance(item, Number):
        if not item.env.live:
            return item.hint
        kind = _SymbolicFloat if isinstance(item.hint, float) else _SymbolicInt
        made = kind(item.hint)
        made.number = item
        return made
    if type(item) in (tuple, list):
        return type(item)(map(_dynamic, item))
    return item


_as_float = _unary("float")


def _array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Compute as NumPy does with the number, of whose kind and range its results depend."""
    kwargs = {key: settled(item) for key, item in kwargs.items()}
    return getattr(ufunc, method)(*(settled(item) for item in inputs), **kwargs)


_METHODS: dict[str, Any] = {
    **{f"__{name}__": _arithmetic(name) for name in ("add", "sub", "mul", "truediv")},
    **{f"__r{name}__": _arithmetic(name, True) for name in ("add", "sub", "mul", "truediv")},
    **{f"__{name}__": _arithmetic(name) for name in ("floordiv", "mod", "pow")},
    **{f"__r{name}__": _arithmetic(name, True) for name in ("floordiv", "mod", "pow")},
    "__neg__": _unary("neg"),
    "__abs__": _unary("abs"),
    "__pos__": lambda self: self,
    "__sym_float__": lambda self: self if isinstance(self, float) else _as_float(self),
    "__sym_sqrt__": _unary("sqrt"),
    "__eq__": _comparison("=="),
    "__ne__": _comparison("!="),
    "__lt__": _comparison("<"),
    "__le__": _comparison("<="),
    "__gt__": _comparison(">"),
    "__ge__": _comparison(">="),
    "__bool__": lambda self: self != 0,
    **{
        name: _settling(name)
        for name in (
            *("__hash__", "__float__", "__int__", "__trunc__", "__floor__", "__ceil__"),
            *("__round__", "__divmod__", "__rdivmod__", "__repr__", "__str__", "__format__"),
        )
    },
    "__array_ufunc__": _array_ufunc,
    "__copy__": lambda self: self,
    "__deepcopy__": lambda self, memo: self,
    "__reduce_ex__": lambda self, protocol: (type(settled(self)), (settled(self),)),
}


class Number:
    """Stands for a number.

    Attributes:
        env: the run's numbers, or its sizes. value: the graph's value, or the symbolic integer.
        hint: the number in this run.
    """

    __slots__ = ("env", "hint", "value")
    env: Any
    value: Any
    hint: Any
    __torch_function__ = classmethod(_give)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(type(self.hint), name):
            raise AttributeError(f"{type(self.hint).__name__!r} object has no attribute {name!r}")
        return getattr(settled(self), name)


for _name, _method in _METHODS.items():
    setattr(Number, _name, _method)


class _Float(Number):
    """Stands for a float, and says that it is one."""

    __slots__ = ()
    __class__ = property(lambda self: float)


class _Int(Number):
    """Stands for an int, and says that it is one."""

    __slots__ = ()
    __class__ = property(lambda self: int)


for _name in ("and", "or", "xor", "lshift", "rshift"):
    for _form in (f"__{_name}__", f"__r{_name}__"):
        setattr(_Int, _form, _settling(_form))
for _form in ("__index__", "__invert__"):
    setattr(_Int, _form, _settling(_form))


def made_for(env: Any, value: Any, hint: Any) -> Number:
    """Return what stands for a number whose present value is `hint`."""
    made: Number = object.__new__(_Float if isinstance(hint, float) else _Int)
    made.env, made.value, made.hint = env, value, hint
    return made


class DynamicScalar:
    """A number that ops take, on its way from a call to the recorder.

    Only the library's own code meets it: what C code sees of it is the number.
    """

    number: Number


class _SymbolicFloat(DynamicScalar, float):
    pass


class _SymbolicInt(DynamicScalar, int):
    pass


_FOLLOWED = (_SymbolicFloat, _SymbolicInt)
for _name, _method in _METHODS.items():
    if _name not in ("__reduce_ex__", "__deepcopy__", "__copy__", "__array_ufunc__"):
        for _kind_of in _FOLLOWED:
            setattr(_kind_of, _name, _method)
