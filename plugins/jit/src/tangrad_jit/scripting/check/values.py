"""What names mean beside values: modules, functions, classes, methods, and what loops go over."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

from tangrad import nn
from tangrad_jit.scripting.source.places import FrontendError, Place, ScriptError
from tangrad_jit.scripting.tree.nodes import Const, Expr, Iteration, PythonCall
from tangrad_jit.scripting.types.kinds import TENSOR
from tangrad_jit.tracing.script_module import ScriptModule

__all__ = ["Bound", "Loop", "Many", "PythonObject", "Value", "described"]


class Value:
    """What a name or an expression means that is no value of a type."""

    def as_expr(self, check: Any, place: Place) -> Expr:
        """Return it as a value.

        Raises:
            ScriptError: it is none.
        """
        raise ScriptError(f"{self} cannot be used as a value", place)

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        """Return what one of its attributes means.

        Raises:
            ScriptError: it has none of that name.
        """
        raise ScriptError(f"attribute lookup is not defined on {self}", place)

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Return what a call of it gives.

        Raises:
            ScriptError: it cannot be called.
        """
        raise ScriptError(f"{self} cannot be called", place)

    def item(self, check: Any, index: Any, place: Place) -> Expr | Value:
        """Return what stands at a place in it.

        Raises:
            ScriptError: nothing does.
        """
        raise ScriptError(f"{self} is not subscriptable", place)

    def members(self, check: Any, place: Place) -> list[Any] | None:
        """Return what a loop over it goes over where that is unrolled, or None."""
        return None


class PythonObject(Value):
    """An object of Python that has no value in the language."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __str__(self) -> str:
        return f"python value of type '{type(self.obj).__name__}'"

    def as_expr(self, check: Any, place: Place) -> Expr:
        """Refuse, with what may be done."""
        raise ScriptError(
            f"{self} cannot be used as a value. Perhaps it is a closed over global variable? If "
            "so, please consider passing it in as an argument or use a local variable instead",
            place,
        )

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        """Return what the object's attribute means."""
        try:
            found = getattr(self.obj, name)
        except (AttributeError, ImportError) as error:
            raise ScriptError(
                f"object has no attribute {name}. This op may not exist or may not be currently "
                "supported in TorchScript",
                place,
            ) from error
        return check.meaning(found, place, f"{name}", constant=True)

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Refuse, with what may be done."""
        if isinstance(self.obj, type) and issubclass(self.obj, BaseException):
            raise ScriptError(
                f"the exception {self.obj.__name__} cannot be used as a value: it is raised where "
                "it is made",
                place,
            )
        if isinstance(self.obj, nn.Module):
            if isinstance(self.obj, ScriptModule):
                raise ScriptError(
                    "Cannot call a ScriptModule that is not a submodule of the caller", place
                )
            return self._call_python(check, args, kwargs, place)
        if isinstance(self.obj, type) and hasattr(self.obj, "_torchscript_modifier"):
            raise FrontendError(
                f"Cannot instantiate class '{self.obj.__name__}' in a script function: it is "
                "left to Python",
                place,
            )
        own = inspect.getattr_static(type(self.obj), "__call__", None)
        if isinstance(own, FunctionType) or isinstance(self.obj, functools.partial):
            return self._call_python(check, args, kwargs, place)
        name = getattr(self.obj, "__name__", type(self.obj).__name__)
        if isinstance(self.obj, BuiltinFunctionType):
            raise ScriptError(
                f"Python builtin {self.obj!r} is currently not supported in Torchscript; call it "
                "in a function that is decorated with @jit.ignore",
                place,
            )
        raise ScriptError(
            f"{self} cannot be called: {name} has no form in scripts. This op may not exist or may "
            "not be currently supported in TorchScript; call it in a function that is decorated "
            "with @jit.ignore",
            place,
        )

    def _call_python(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr:
        """Return a call that Python makes, of what returns a tensor."""
        given = [check.expr_of(arg, place) for arg in args]
        named = {key: check.expr_of(value, place) for key, value in kwargs.items()}
        return PythonCall(place, TENSOR, self.obj, "python_value", given, named)


class Bound(Value):
    """A method of a value, by name."""

    def __init__(self, owner: Expr, name: str) -> None:
        self.owner, self.name = owner, name

    @property
    def is_special(self) -> bool:
        """Whether the call is a form of the language."""
        return self.name == "tolist" and self.owner.type == TENSOR

    def __str__(self) -> str:
        return f"builtin method {self.name}"

    def as_expr(self, check: Any, place: Place) -> Expr:
        """Refuse: it is to be called."""
        raise ScriptError(f"builtin cannot be used as a value: the method {self.name}", place)

    def attribute(self, check: Any, name: str, place: Place) -> Any:
        """Refuse: it is to be called."""
        raise ScriptError(
            f"attribute lookup is not defined on builtin: the method {self.name}", place
        )

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Call the method."""
        found: Expr | Value = check.call_method(self.owner, self.name, args, kwargs, place)
        return found


class Loop(Value):
    """What a loop goes over when it runs."""

    def __init__(self, iteration: Iteration) -> None:
        self.iteration = iteration

    def __str__(self) -> str:
        return f"<{self.iteration.kind} iterator>"

    def call(
        self, check: Any, args: Sequence[Any], kwargs: dict[str, Any], place: Place
    ) -> Expr | Value:
        """Refuse: it is no function."""
        return super().call(check, args, kwargs, place)


class Many(Value):
    """Several meanings in order: over which loops are unrolled."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)

    def __str__(self) -> str:
        return "a sequence of modules"

    def as_expr(self, check: Any, place: Place) -> Expr:
        """Return a tuple of the values."""
        found: Expr = check.make_tuple([check.expr_of(item, place) for item in self.items], place)
        return found

    def members(self, check: Any, place: Place) -> list[Any]:
        """Return all of them."""
        return self.items

    def item(self, check: Any, index: Any, place: Place) -> Any:
        """Return the one at a constant index, or several."""
        if isinstance(index, slice):
            return Many(self.items[index])
        if not isinstance(index, Const):
            raise ScriptError(
                "Expected integer literal for index. ModuleList/Sequential indexing is only "
                "supported with integer literals. For example, 'i = 4; self.layers[i](x)' will "
                "fail because i is not a literal. Enumeration is supported, e.g. 'for index, v in "
                "enumerate(self): out = v(inp)'",
                place,
            )
        number = check.constant_of(index, place, int)
        try:
            return self.items[number]
        except IndexError:
            raise ScriptError(f"Index {number} out of range of {len(self.items)}", place) from None


def described(value: Any) -> str:
    """Return a meaning as messages name it."""
    return str(value.type) if isinstance(value, Expr) else str(value)
