"""Forms that users write: of ops, and of functions of their own (`Function.symbolic`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tangrad import Tensor
from tangrad.autograd import Function
from tangrad.overrides import handle_torch_function, has_torch_function
from tangrad_onnx.values import to_array
from tangrad_onnx.writing.graph import Value, Writer

__all__ = ["Graph", "Named", "SymbolicFunction", "names_of", "symbolic_functions"]

# What PyTorch's graphs write behind the name of an attribute, for its type.
_KINDS: dict[str, Callable[[Any], Any]] = {"f": float, "i": int, "s": str, "t": lambda value: value}


class Named(str):
    """The name of a result; it may stand wherever a form takes a tensor."""

    def setType(self, kind: Any) -> Named:
        """Return itself: types are found by who reads the file."""
        return self


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
        names = [self._name(x) for x in operands]
        made = self._w.op(operator, *names, outputs=outputs, domain=domain, **given)
        return Named(made) if outputs == 1 else tuple(map(Named, made))

    def _name(self, operand: Any) -> str | None:
        if operand is None or isinstance(operand, str):
            return operand
        if isinstance(operand, Value):
            return operand.name
        array = to_array(operand) if isinstance(operand, Tensor) else operand
        return self._w.constant(array)


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
