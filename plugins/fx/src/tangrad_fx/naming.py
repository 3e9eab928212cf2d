"""Names: of nodes, unique and legal in Python; of functions, as code would write them."""

from __future__ import annotations

import builtins
import keyword
import math
import re
import types
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import tangrad
from tangrad.utils import _pytree

# PyTorch's name, under which code is written: `import torch` may give tangrad where it is read.
ROOT = "torch"
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"(.*)_(\d+)$")
_BEFORE_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")


class CustomBuiltin(NamedTuple):
    """A name that generated code uses as if it were a builtin.

    Attributes:
        import_str: the statement that makes it known.
        obj: what it stands for.
    """

    import_str: str
    obj: Any


def _custom_builtins() -> dict[str, CustomBuiltin]:
    from tangrad_fx import _pytree as fx_pytree

    return {
        "inf": CustomBuiltin("from math import inf", math.inf),
        "nan": CustomBuiltin("from math import nan", math.nan),
        "NoneType": CustomBuiltin("NoneType = type(None)", type(None)),
        ROOT: CustomBuiltin(f"import tangrad as {ROOT}", tangrad),
        "device": CustomBuiltin("from tangrad import device", tangrad.device),
        "fx_pytree": CustomBuiltin("import tangrad.fx._pytree as fx_pytree", fx_pytree),
        "pytree": CustomBuiltin("import tangrad.utils._pytree as pytree", _pytree),
    }


custom_builtins = _custom_builtins()


def snake_case(text: str) -> str:
    """Return `BatchNorm` as `batch_norm`."""
    return _BEFORE_CAPITAL.sub(r"_\1", text).lower()


def is_magic(text: str) -> bool:
    """Return whether a name is of the form `__add__`."""
    return len(text) > 4 and text.startswith("__") and text.endswith("__")


class Namespace:
    """Names in use; each is given out once."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._used: set[str] = set()
        self._last: Counter[str] = Counter()

    def create_name(self, candidate: str, obj: Any) -> str:
        """Return a legal, free name like the candidate; for the same object the same.

        Args:
            candidate: what it should be called; characters that no name has become "_".
            obj: what is named, or None.
        """
        if obj is not None and obj in self._names:
            return self._names[obj]
        candidate = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        numbered = _NUMBERED.match(candidate)
        base, number = candidate, 0
        if numbered is not None:
            base, number = numbered.group(1), int(numbered.group(2))
        number = number or self._last[base]
        while candidate in self._used or _is_reserved(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._last[base] = number
        if obj is not None:
            self._names[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Note that a name given out stands for an object."""
        self._names.setdefault(obj, name)

    def _rename_object(self, obj: Any, name: str) -> None:
        self._names[obj] = name
        self._used.add(name)


def _is_reserved(name: str, obj: Any) -> bool:
    if keyword.iskeyword(name):
        return True
    if name in vars(builtins):
        return obj is not vars(builtins)[name]
    if name in custom_builtins:
        return obj is not custom_builtins[name].obj
    return False


# Where a public function may be shown, in the order in which it is looked for.
_PLACES = ("", "nn.functional", "functional", "_C._nn", "special", "linalg", "fft", "nn.init")


@cache
def _of_op(op: Any) -> str:
    """Return the public name of an op of tangrad, as PyTorch's program would write it."""
    short = op.__name__
    candidates = [(path, short) for path in _PLACES]
    for space in ("linalg", "fft", "special"):
        if short.startswith(f"{space}_"):
            candidates.insert(0, (space, short.removeprefix(f"{space}_")))
    for path, name in candidates:
        if _at(path, name) is op:
            return ".".join(filter(None, (ROOT, path, name)))
    if getattr(tangrad.Tensor, short, None) is op:
        return f"{ROOT}.Tensor.{short}"
    for name in (short, getattr(op, "name", short)):
        if _at("ops", name) is op:
            return f"{ROOT}.ops.{name}"
    return f"derived.{short}"  # a derivative's op, which no name leads to; code holds the object


def _at(path: str, name: str) -> Any:
    place: Any = tangrad
    try:
        for part in filter(None, path.split(".")):
            place = getattr(place, part)
        return getattr(place, name)
    except AttributeError:
        return None


def qualified_name(function: Callable[..., Any]) -> str:
    """Return a function's name with its module, such as "torch.relu" or "operator.add".

    Raises:
        RuntimeError: it has no name.
    """
    if isinstance(function, type(tangrad.relu)):
        return _of_op(function)
    name = getattr(function, "__name__", None)
    if getattr(builtins, str(name), None) is function:
        return f"builtins.{name}"
    if not isinstance(name, str):
        # An overload of an operator of a library knows its own text.
        if hasattr(function, "_schema"):
            return f"{ROOT}.ops.{function}"
        raise RuntimeError(f"{function!r} has no name that code could call it by")
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return f"{_module_of(function.__objclass__)}.{function.__objclass__.__name__}.{name}"
    if hasattr(function, "_schema"):
        return f"{ROOT}.ops.{function}"
    if name == "<lambda>":
        raise RuntimeError(f"{function!r} is a lambda, which code cannot name; give it a name")
    return f"{_module_of(function)}.{name}"


def _module_of(thing: Any) -> str:
    module = getattr(thing, "__module__", None) or "builtins"
    if module == "_operator":
        return "operator"
    top, _, rest = module.partition(".")
    if top != "tangrad":
        return str(module)
    for path in _PLACES:  # the public place rather than the file it is written in
        if _at(path, thing.__name__) is thing:
            return ".".join(filter(None, (ROOT, path)))
    return ".".join(filter(None, (ROOT, rest)))


def type_repr(kind: Any) -> str:
    """Return an annotation as code writes it."""
    if isinstance(kind, type) and not isinstance(kind, types.GenericAlias):
        if kind.__module__ == "builtins":
            return kind.__qualname__
        return f"{_public_module(kind.__module__)}.{kind.__qualname__}"
    if kind is ...:
        return "..."
    if isinstance(kind, types.FunctionType):
        return kind.__name__
    return repr(kind).replace("tangrad.", f"{ROOT}.")


def _public_module(module: str) -> str:
    top, _, rest = module.partition(".")
    return ".".join(filter(None, (ROOT, rest))) if top == "tangrad" else module
