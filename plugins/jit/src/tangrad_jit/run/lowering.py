"""From a node to the kernel that is called directly, where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad.plugin.render import compute_type
from tangrad_jit._run import Kernel, Program
from tangrad_jit.graph.ir import Node, Value
from tangrad_jit.graph.types import ITEMSIZE, NumberType, TensorType
from tangrad_jit.run.layout import (
    coalesced,
    encoded,
    kinds_of,
    operand_strides,
    parameter,
    promoted,
    reduction_loop,
)

__all__ = ["Lowered", "lower"]

# Where a value's memory is: (buffer, offset in bytes); of a number: (register, 0).
Place = Callable[[Value], tuple[int, int]]
# Adds a node's step to a program.
Lowered = Callable[[Program, str, Place, Callable[[], Any]], None]
_FLOAT = NumberType("float")


def lower(node: Node, device: str) -> Lowered | None:
    """Return what adds the kernel's call to a program, or None where Python has to call the op.

    Args:
        node: the node.
        device: type of the device of all its tensors.
    """
    if node.form == "draw" or node.draws or any(_empty(v) for v in (*node.inputs, *node.results)):
        return None
    numbers = [v for v in node.inputs if not isinstance(v.type, TensorType)]
    if numbers and not (node.op.definition.schema.written_lists and _are_floats(node, numbers)):
        return None
    kind = node.op.kind
    if kind == "pointwise":
        return _pointwise(node, device)
    if kind == "reduction":
        return _reduction(node, device)
    if kind == "scan":
        return _scan(node, device)
    if kind == "kernel":
        return _copy(node) or _kernel(node, device)
    return None


def _are_floats(node: Node, numbers: list[Value]) -> bool:
    """Return whether numbers that a call is given are floats where it wants floats."""
    kinds = {id(v): k for v, k in zip(node.args, kinds_of(node.op), strict=True)}
    return all(v.type == _FLOAT and kinds.get(id(v)) == "float" for v in numbers)


def _empty(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.numel == 0


def _targets(node: Node) -> list[Value]:
    return list(node.written) if node.form in ("inplace", "out") else node.results


def _found(op: Any, device: str, dtype: str, form: str) -> Kernel | None:
    try:
        kernel = Kernel(op, device, dtype)
    except (NotImplementedError, TypeError):
        return None
    return kernel if kernel.form == form else None


def _pointwise(node: Node, device: str) -> Lowered | None:
    definition = node.op.definition
    if node.name == "pow" and not isinstance(node.args[1], Value):
        return None  # the core looks at the number, and may run another op
    if any(isinstance(item, complex) for item in node.args):
        return None  # beside real elements it is a real number
    tensors, numbers, dtypes = [], [], []
    kinds = kinds_of(node.op)
    for name, kind, item in zip(node.op.parameter_names, kinds, node.args, strict=True):
        if kind not in ("Tensor", "Tensor?", "Operand"):
            continue
        tensors.append(item)
        if isinstance(item, Value):
            fixed = definition.fixed.get(name)
            if fixed is not None and item.type.dtype != fixed:
                return None
            if fixed is None:
                dtypes.append(item.type.dtype)
        elif item is not None:
            numbers.append(item)
    dtype = promoted(node, dtypes, numbers)
    kernel = None if dtype is None else _found(node.op, device, dtype, "loop")
    if kernel is None or dtype is None:
        return None
    targets = _targets(node)
    shape = targets[0].type.shape
    if not _fits(node, targets, tensors, shape):
        return None
    compute = compute_type(dtype)
    operands = [*targets, *tensors]
    strides = [
        operand_strides(v.type, shape) if isinstance(v, Value) else [0] * len(shape)
        for v in operands
    ]
    if not definition.ordered:
        shape, strides = coalesced(shape, strides)
    params = [
        parameter(item, kind, dtype, False)
        for kind, item in zip(kinds, node.args, strict=True)
        if kind not in ("Tensor", "Tensor?", "Operand") and isinstance(item, (int, float))
    ]

    def add(program: Program, line: str, place: Place, otherwise: Any) -> None:
        laid = [
            (*place(v), v.type.dtype, tuple(row)) if isinstance(v, Value) else encoded(v, compute)
            for v, row in zip(operands, strides, strict=True)
        ]
        program.add_loop(kernel, line, shape, laid, params, compute, len(targets))

    return add


def _fits(node: Node, targets: list[Value], tensors: list[Any], shape: tuple[int, ...]) -> bool:
    """Return whether results can be written where they are wanted, reading what is read there."""
    for target, result in zip(targets, node.results, strict=True):
        if target.type.shape != shape or target.type.dtype != result.type.dtype:
            return False
        if target is result:
            continue
        if 0 in target.type.stride and target.type.numel > 1:
            return False
        for other in tensors:
            if isinstance(other, Value) and other.root is target.root:
                same = (other.offset, other.type.stride) == (target.offset, target.type.stride)
                if not same or other.type.shape != shape:
                    return False
    if node.form == "out":
        return len({target.root for target in targets}) == len(targets) and not _result_dtype(node)
    return not (node.form == "inplace" and _result_dtype(node))


def _result_dtype(node: Node) -> bool:
    """Return whether the op would give another dtype than the one it writes to."""
    results = node.op.definition.results
    return any(r not in ("promoted",) for r in results) or (
        bool(node.results)
        and any(
            isinstance(item, Value)
            and item.type.dtype != node.results[0].type.dtype
            and name not in node.op.definition.fixed
            for name, item in zip(node.op.parameter_names, node.args, strict=True)
        )
    )


def _reduction(node: Node, device: str) -> Lowered | None:
    named = dict(zip(node.op.parameter_names, node.args, strict=True))
    source = node.args[0]
    if node.form != "call" or len(node.results) != 1 or named.get("dtype") is not None:
        return None
    if any(isinstance(item, complex) for item in node.args):
        return None
    dtype = promoted(node, [source.type.dtype], [])
    kernel = None if dtype is None else _found(node.op, device, dtype, "loop")
    result = node.results[0]
    if kernel is None or dtype is None or not result.type.contiguous:
        return None
    shape, outs, ins, nreduced = reduction_loop(
        source.type, result.type, named.get("dim"), node.op.definition.keeps_without_dims
    )
    params = [
        parameter(item, kind, dtype, nreduced > 0)
        for kind, item in zip(kinds_of(node.op), node.args, strict=True)
        if kind not in ("Tensor", "Tensor?", "Operand") and isinstance(item, (int, float))
    ]

    def add(program: Program, line: str, place: Place, otherwise: Any) -> None:
        laid = [
            (*place(result), result.type.dtype, tuple(outs)),
            (*place(source), source.type.dtype, tuple(ins)),
        ]
        program.add_loop(kernel, line, shape, laid, params, compute_type(dtype), 1, nreduced)

    return add


def _scan(node: Node, device: str) -> Lowered | None:
    named = dict(zip(node.op.parameter_names, node.args, strict=True))
    if node.form != "call" or named.get("dtype") is not None:
        return None
    dtype = promoted(node, [node.args[0].type.dtype], [])
    kernel = None if dtype is None else _found(node.op, device, dtype, "call")
    return None if kernel is None else _call(node, kernel, node.results)


def _kernel(node: Node, device: str) -> Lowered | None:
    definition = node.op.definition
    schema = definition.schema
    if definition.native is not None or definition.loops or definition.shape_depends_on_data:
        return None
    if node.form != "call":
        return None
    first = next(iter(node.inputs), None)
    kernel = None if first is None else _found(node.op, device, first.type.dtype, "call")
    if kernel is None:
        return None
    if schema.written_lists:
        outs: list[Value] = []
    elif schema.written >= 0:
        outs = [node.args[schema.written]]
    else:
        outs = node.results
    return _call(node, kernel, outs)


def _call(node: Node, kernel: Kernel, outs: list[Value]) -> Lowered | None:
    if any(isinstance(item, int) and not -(2**63) <= item < 2**63 for item in node.args):
        return None  # the core makes of it what suits the elements
    kinds = kinds_of(node.op)
    tags = [_tag(kind, item) for kind, item in zip(kinds, node.args, strict=True)]

    def add(program: Program, line: str, place: Place, otherwise: Any) -> None:
        def view(value: Value | None) -> Any:
            if value is None:
                return None
            return (*place(value), value.type.dtype, value.type.shape, value.type.stride)

        laid: list[tuple[str, Any]] = []
        for tag, item in zip(tags, node.args, strict=True):
            if tag == "number":
                laid.append((tag, place(item)[0]))
            elif tag == "tensor":
                laid.append((tag, view(item)))
            elif tag == "tensors":
                laid.append((tag, [view(member) for member in item]))
            else:
                laid.append((tag, _plain(tag, item)))
        program.add_call(kernel, line, [view(v) for v in outs], laid, otherwise)

    return add


def _tag(kind: str, item: Any) -> str:
    if isinstance(item, Value):
        return "tensor" if isinstance(item.type, TensorType) else "number"
    if kind == "Tensor[]":
        return "tensors"
    if item is None:
        return "none"
    for type_, tag in ((bool, "bool"), (float, "float"), (int, "int"), (complex, "complex")):
        if isinstance(item, type_):
            return tag
    if isinstance(item, (tuple, list)):
        return "ints"
    if isinstance(item, str):
        return "text"
    return "dtype" if type(item).__name__ == "dtype" else "other"


def _plain(tag: str, item: Any) -> Any:
    if tag == "text":
        return item.encode()
    return item.name if tag == "dtype" else item


def _copy(node: Node) -> Lowered | None:
    """Return a copy of bytes for clones and copies of what is contiguous."""
    if node.name == "clone" and node.form == "call":
        to, source = node.results[0], node.args[0]
    elif node.name == "copy_" and isinstance(node.args[1], Value):
        to, source = node.args[0], node.args[1]
        if to.root is source.root:
            return None
    else:
        return None
    a, b = to.type, source.type
    if a.dtype != b.dtype or a.shape != b.shape or not (a.contiguous and b.contiguous):
        return None
    nbytes = a.numel * ITEMSIZE[a.dtype]

    def add(program: Program, line: str, place: Place, otherwise: Any) -> None:
        program.add_copy(line, place(to), place(source), nbytes)

    return add
