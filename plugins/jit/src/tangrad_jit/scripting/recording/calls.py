"""From calls that a mode sees to expressions of the script language."""

from __future__ import annotations

import ast
from typing import Any

import tangrad
from tangrad_jit.scripting.check.op_calls import signatures
from tangrad_jit.scripting.check.operators import Operators
from tangrad_jit.scripting.source.places import Place, ScriptError
from tangrad_jit.scripting.tree.nodes import Const, Expr, SliceOf, Subscript
from tangrad_jit.scripting.types import kinds

__all__ = ["READS", "attribute_name", "expression_of", "index_parts", "plain", "shape_text", "told"]

#: What looks at a tensor, and gives no tensor: whoever follows values is told of it elsewhere.
READS = frozenset(
    (
        *("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__complex__"),
        *("__index__", "__array__", "__len__", "__contains__", "__format__", "__repr__"),
        *("dim", "ndimension", "is_contiguous", "stride", "storage_offset", "data_ptr"),
        *("register_hook", "retain_grad", "get_device", "element_size", "__hash__"),
    )
)

_OPERATORS: dict[str, ast.operator] = {
    "add": ast.Add(),
    "sub": ast.Sub(),
    "mul": ast.Mult(),
    "truediv": ast.Div(),
    "floordiv": ast.FloorDiv(),
    "mod": ast.Mod(),
    "pow": ast.Pow(),
    "matmul": ast.MatMult(),
    "and": ast.BitAnd(),
    "or": ast.BitOr(),
    "xor": ast.BitXor(),
    "lshift": ast.LShift(),
    "rshift": ast.RShift(),
}
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
# Conversions that are `to` in PyTorch's graphs.
_CASTS: dict[str, Any] = {
    "byte": tangrad.uint8,
    "char": tangrad.int8,
    "short": tangrad.int16,
    "int": tangrad.int32,
    "long": tangrad.int64,
    "half": tangrad.float16,
    "bfloat16": tangrad.bfloat16,
    "float": tangrad.float32,
    "double": tangrad.float64,
    "bool": tangrad.bool,
    "cpu": tangrad.device("cpu"),
}
# Inner ops that PyTorch has under the same name.
_INNER = frozenset(
    """
    _chunk_cat _conj _conj_physical _dirichlet_grad _fft_c2c _fft_c2r _fft_r2c _int_mm
    _log_softmax _log_softmax_backward_data _lu_with_info _neg_view _sample_dirichlet _scaled_mm
    _softmax _softmax_backward_data _standard_gamma _standard_gamma_grad _to_copy
    _unsafe_masked_index _unsafe_masked_index_put_accumulate _unsafe_view _assert
    """.split()
)
# Arguments that say nothing of what is computed.
_SILENT = ("_stacklevel",)


def plain(item: Any) -> Any:
    """Return an argument with the integers of a recording as Python's."""
    if isinstance(item, int) and type(item) not in (int, bool):
        return int.__index__(item)
    if type(item) in (tuple, list, tangrad.Size):
        return type(item)([plain(member) for member in item])
    if type(item) is dict:
        return {key: plain(value) for key, value in item.items()}
    if isinstance(item, slice):
        return slice(plain(item.start), plain(item.stop), plain(item.step))
    return item


def told(func: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by name that say something: neither a default nor for warnings alone."""
    defaults: dict[str, Any] = {}
    if kwargs and (hasattr(func, "definition") or hasattr(func, "__wrapped__")):
        found = signatures(getattr(func, "__wrapped__", func))
        if len(found) == 1:
            defaults = {p.name: p.default for p in found[0].parameters if not p.required}
    return {
        key: value
        for key, value in kwargs.items()
        if key not in _SILENT and not (key in defaults and _is_the(defaults[key], value))
    }


def _is_the(default: Any, value: Any) -> bool:
    return default is value or (
        type(default) is type(value) in (bool, int, float, str) and default == value
    )


def attribute_name(func: Any) -> str:
    """Return the name of the attribute that a call reads, or ""."""
    if getattr(func, "__name__", "") != "__get__":
        return ""
    owner = func.__self__
    return str(getattr(owner, "__name__", "") or getattr(owner.fget, "__name__", ""))


def expression_of(
    check: Any, func: Any, args: list[Any], kwargs: dict[str, Any], place: Any
) -> Any:
    """Return a call as an expression.

    Args:
        check: of the function that is recorded.
        func: what is called.
        args, kwargs: expressions; parts of an index for `__getitem__`.
        place: of the call.

    Raises:
        ScriptError: the language has no such call.
    """
    name = getattr(func, "__name__", "")
    if name.startswith("_") and name[1:2] != "_" and name.rstrip("_") not in _INNER:
        raise ScriptError(f"{name} is none of PyTorch's ops", place)
    attribute = attribute_name(func)
    if attribute:
        return check.expr_of(check.attribute_of(args[0], attribute, place), place)
    if name == "__getitem__":
        return Subscript(place, kinds.TENSOR, args[0], args[1:])
    if name.startswith("__") and name.endswith("__"):
        made = _operator(check, name.strip("_"), args, place)
        if made is not None:
            return made
    if getattr(tangrad.Tensor, name, None) is func and name in _CASTS and len(args) == 1:
        to = check.constant(_CASTS[name], place)
        return check.call_method(args[0], "to", [to], {}, place)
    if getattr(tangrad.Tensor, name, None) is func:
        name = "detach" if name == "detach_" else name  # the object itself is followed
        return check.call_method(args[0], name, args[1:], kwargs, place)
    meaning = check.meaning(func, place, name)
    return check.expr_of(check.call(meaning, args, kwargs, place), place)


def _operator(check: Operators, name: str, args: list[Expr], place: Place) -> Expr | None:
    operator = _OPERATORS.get(name)
    if operator is not None:
        return check.binary(operator, args[0], args[1], place)
    operator = _OPERATORS.get(name[1:])
    if operator is not None and name[0] == "r":
        return check.binary(operator, args[1], args[0], place)
    if name in _COMPARED:
        return check.call_named_op(name, args, {}, place)
    return None


_SHOWN = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


def shape_text(tensor: Any) -> str:
    """Return a tensor's dtype, sizes and strides as graphs show them, or "" of odd ones."""
    name = _SHOWN.get(tensor.dtype.name)
    if name is None or tensor.layout != tangrad.strided:
        return ""
    sizes = [str(size) for size in tensor.shape]
    if sizes:
        sizes.append(f"strides=[{', '.join(map(str, tensor.stride()))}]")
    held = [*sizes, f"requires_grad={int(tensor.requires_grad)}", f"device={tensor.device}"]
    return f"{name}({', '.join(held)})"


def index_parts(lift: Any, index: Any, place: Place) -> list[Expr]:
    """Return the parts of an index of a tensor.

    Args:
        lift: returns the expression of a value of Python.

    Raises:
        ScriptError: the language has no such part.
    """
    parts: list[Expr] = []
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, slice):
            bounds = [
                None if bound is None else lift(bound)
                for bound in (part.start, part.stop, part.step)
            ]
            parts.append(SliceOf(place, kinds.NONE, *bounds))
        elif part is Ellipsis:
            parts.append(Const(place, kinds.ANY, part))
        elif part is None or isinstance(part, (int, tangrad.Tensor, list)):
            parts.append(lift(part))
        else:
            raise ScriptError(f"a {type(part).__name__} in the index of a tensor", place)
    return parts
