"""Forms that users write: of ops, and of functions of their own (`Function.symbolic`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import tangrad
from tangrad import Tensor
from tangrad.autograd import Function
from tangrad.overrides import handle_torch_function, has_torch_function
from tangrad_onnx.values import to_array
from tangrad_onnx.writing.graph import Value, ValueType, Writer

__all__ = ["Graph", "Named", "SymbolicFunction", "names_of", "symbolic_functions"]

# What PyTorch's graphs write behind the name of an attribute, for its type.
_KINDS: dict[str, Callable[[Any], Any]] = {"f": float, "i": int, "s": str, "t": lambda value: value}


_COMPARISONS = frozenset("Equal Greater GreaterOrEqual Less LessOrEqual".split())
_OF_ONE_DTYPE = _COMPARISONS | frozenset(
    "Abs Acos Add Asin Atan Ceil Celu Clip Cos Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
    "Identity LeakyRelu Log LogSoftmax Max Min Mish Mod Mul Neg PRelu Pow Reciprocal Relu Round "
    "Selu Sigmoid Sign Sin Softmax Softplus Softsign Sqrt Sub Sum Tan Tanh Transpose Where".split()
)


class Named(str):
    """The name of a result; it may stand wherever a form takes a tensor.

    Attributes:
        dtype: of tangrad, as far as it follows from the operands; else None.
    """

    dtype: Any = None

    def setType(self, kind: Any) -> Named:
        """Return itself: types are found by who reads the file."""
        return self

    def type(self) -> ValueType:
        """Return its type, whose sizes are not known before the file is written."""
        return ValueType(dtype=self.dtype)


class Graph:
    """The graph that forms of users write into: `g.op`, as PyTorch's has it.

    Args:
        w: what collects the nodes.
    """

    def __init__(self, w: Writer) -> None:
        self._w = w

    def __getattr__(self, name: str) -> Any:
        return getattr(self._w, name)

    def op(
        self, operator: str, *operands: Any, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """Add a node and return its result, or a tuple of several.

        Args:
            operator: of the standard, or "domain::Operator".
            operands: tensors, results of other calls, numbers, or None for one that is left out.
            outputs: how many results there are.
            domain: of the operator.
            attributes: by their names, which may end in `_f`, `_i`, `_s` or `_t`, as in PyTorch.
        """
        if "::" in operator:
            domain, _, operator = operator.rpartition("::")
            domain = "" if domain == "onnx" else domain
        given = dict(_attribute(key, value) for key, value in attributes.items())
        known = [getattr(x, "dtype", None) for x in operands[operator == "Where" :]]
        known += [value.dtype for value in attributes.values() if isinstance(value, Tensor)]
        dtype = next(filter(None, known), None)
        # A number beside a tensor is of its dtype, where an operator wants both alike.
        names = [self._name(x, dtype if operator in _OF_ONE_DTYPE else None) for x in operands]
        made = self._w.op(operator, *names, outputs=outputs, domain=domain, **given)
        if outputs != 1:
            return tuple(map(Named, made))
        named = Named(made)
        named.dtype = tangrad.bool if operator in _COMPARISONS else dtype
        return named if operator in _OF_ONE_DTYPE or not operands else Named(made)

    def _name(self, operand: Any, dtype: Any) -> str | None:
        if operand is None or isinstance(operand, str):
            return operand
        if isinstance(operand, Value):
            return operand.name
        if isinstance(operand, Tensor):
            return self._w.constant(to_array(operand))
        if dtype is None or dtype is tangrad.bool:
            return self._w.constant(operand)
        fits = dtype.is_floating_point or isinstance(operand, int)
        return self._w.constant(operand, dtype if fits else None)


def _attribute(key: str, value: Any) -> tuple[str, Any]:
    stem, _, kind = key.rpartition("_")
    if stem and kind in _KINDS:
        convert = _KINDS[kind]
        value = [convert(x) for x in value] if isinstance(value, (list, tuple)) else convert(value)
        key = stem
    if isinstance(value, Tensor):
        from onnx import numpy_helper

        value = numpy_helper.from_array(np.ascontiguousarray(to_array(value)))
    return key, int(value) if isinstance(value, bool) else value


def names_of(made: Any) -> Any:
    """Return the name of what a form gave, or a tuple of names."""
    if isinstance(made, (list, tuple)) and not isinstance(made, Value):
        return tuple(map(names_of, made))
    return made.name if isinstance(made, Value) else str(made)


class SymbolicFunction:
    """`Function.apply` as a call that a program keeps, where the function has a form.

    Args:
        function: the class.
        apply: what it does.
    """

    def __init__(self, function: Any, apply: Callable[..., Any]) -> None:
        self.function, self.apply = function, apply
        self.__name__ = function.__name__

    def __call__(self, *args: Any) -> Any:
        """Apply the function, or hand it to who records the program."""
        if has_torch_function(args):
            return handle_torch_function(self, args, *args)
        return self.apply(*args)

    def write(self, w: Writer, args: Sequence[Any], several: bool) -> Any:
        """Return the name of the result that the form gives, or a tuple of several."""
        made = names_of(self.function.symbolic(Graph(w), *args))
        return (made,) if several and isinstance(made, str) else made


@contextmanager
def symbolic_functions() -> Iterator[None]:
    """Have a program keep the calls of functions that have a form."""
    found = [cls for cls in _subclasses(Function) if callable(getattr(cls, "symbolic", None))]
    before = [(cls, vars(cls).get("apply")) for cls in found]
    try:
        for cls in found:
            cls.apply = SymbolicFunction(cls, cls.apply)
        yield
    finally:
        for cls, own in before:
            if own is None:
                del cls.apply
            else:
                cls.apply = own


def _subclasses(cls: Any) -> Iterator[Any]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)
