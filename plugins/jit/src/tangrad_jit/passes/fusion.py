"""Fusion: pointwise ops and folds over one space of rows and columns become one kernel.

Rule: a group is some pure nodes whose results lie over one shape, of which the last dimension are
the columns; folds are those of the last dimension. It runs where its last node stands, so it ends
before anybody else reads what it makes or writes what it reads. What the code generator cannot make
a kernel of stays as it is. For a device that compiles source the kernel is written in its language,
with those folds that its own kernels fold row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from tangrad.plugin.render import describe
from tangrad_jit._run import Program
from tangrad_jit.codegen import (
    Const,
    Group,
    GroupInput,
    Number,
    Refused,
    Step,
    compile_group,
)
from tangrad_jit.graph.ir import Graph, Node, Value
from tangrad_jit.graph.types import NumberType, TensorType, contiguous_stride
from tangrad_jit.run.layout import kinds_of, promoted

__all__ = ["FusedGroup", "fuse", "pattern_of"]

Shape = tuple[int, ...]
#: The type of the numbers that a kernel is given with each call.
DYNAMIC_SCALAR = NumberType("float")
# Seeds and offsets, which stand for no operand.
DRAWN_NUMBER = NumberType("int")
_FORMS = {DYNAMIC_SCALAR: "float64", DRAWN_NUMBER: "int64"}

_FLOATS = frozenset(("float32", "float64", "float16", "bfloat16"))
_WHOLE = frozenset(("bool", "uint8", "int8", "int16", "int32", "int64"))


class FusedGroup:
    """Nodes that one kernel computes.

    Attributes:
        nodes: in the order of the steps; the kernel runs where the last of them in the graph is.
        inputs, outputs: values that it reads, and values that others read.
        shape, rows, columns: its space.
        code: the compiled group.
    """

    def __init__(self, shape: Shape, nodes: list[Node]) -> None:
        self.nodes, self.shape = nodes, shape
        self.columns = shape[-1] if shape else 1
        self.rows = prod(shape[:-1])
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.code: Any = None

    def add(self, program: Program, line: str, place: Callable[[Value], tuple[int, int]]) -> None:
        """Add the kernel's call to a program."""
        kernel = self.code.kernel
        outs, ins = [place(v) for v in self.outputs], [place(v) for v in self.inputs]
        numbers = forms_of_numbers(self.inputs)
        program.add_group(
            line,
            kernel.entry,
            kernel.context,
            outs,
            ins,
            numbers,
            self.rows,
            self.columns,
            self.code,
        )

    def run_on(self, held: list[Any], register: Callable[[Value], int]) -> None:
        """Run on tensors in registers."""
        outs = [held[register(value)] for value in self.outputs]
        ins = [held[register(value)] for value in self.inputs]
        self.code.run(outs, ins, self.rows, self.columns)

    def at(self, twin: Callable[[Any], Any]) -> FusedGroup:
        """Return the group of a graph that is this one at other sizes, by the same code.

        Args:
            twin: returns the other graph's node or value for one of this graph's.

        Raises:
            ValueError: the values lie otherwise over the space there.
        """
        seen = [*self.inputs, *(value for node in self.nodes for value in node.results)]
        whole = next(
            twin(value).type.shape
            for value in seen
            if isinstance(value.type, TensorType) and value.type.shape == self.shape
        )
        made = FusedGroup(whole, [twin(node) for node in self.nodes])
        made.inputs = [twin(value) for value in self.inputs]
        made.outputs = [twin(value) for value in self.outputs]
        made.code = self.code
        if not self.code.serves(made.rows, made.columns):
            raise ValueError(f"{self} has no kernel for {made.rows} x {made.columns}")
        for value in (*seen, *(v for node in self.nodes for v in node.inputs)):
            if _pattern(value, self.shape) != _pattern(twin(value), whole):
                raise ValueError(f"{self} is no group over {whole}")
        return made

    def __str__(self) -> str:
        names = " ".join(node.name for node in self.nodes)
        return f"group over {self.rows} x {self.columns}: {names}"

    def listing(self) -> str:
        """Return what the kernel is, as text."""
        return f"{self}\n{self.code.listing()}"


def pattern_of(value: Value, shape: Shape) -> str | None:
    """Return how a value lies over a space: "full", "row", "column", "scalar"; None: otherwise."""
    type = value.type
    return _lies(type.shape, type.stride, shape) if isinstance(type, TensorType) else None


@lru_cache(maxsize=1 << 12)
def _lies(own: Shape, stride: Shape, shape: Shape) -> str | None:
    if len(own) > len(shape):
        return None
    lead = len(shape) - len(own)
    strides = [0] * lead
    for size, whole, step in zip(own, shape[lead:], stride, strict=True):
        if size not in (1, whole):
            return None
        strides.append(0 if size == 1 else step)
    moving = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    sizes, steps = [n for n, _ in moving], [s for _, s in moving]
    if not any(steps):
        return "scalar"
    if steps == list(contiguous_stride(tuple(sizes))):
        return "full"
    if shape[-1] == 1:
        return None
    if steps[-1] == 0 and steps[:-1] == list(contiguous_stride(tuple(sizes[:-1]))):
        return "row"
    return "column" if steps[-1] == 1 and not any(steps[:-1]) else None


# The shape of a group that a node may be in, how its results lie over that, and the dtype that it
# computes in.
_Space = tuple[Shape, str, str]


class _Open:
    """A group that may still grow.

    Attributes:
        nodes: its nodes, and the dtype that each computes in.
        made: the values that they make, and how these lie over its shape.
        read: the values that they read.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.nodes: dict[Node, str] = {}
        self.made: dict[Value, str] = {}
        self.read: set[Value] = set()

    def take(self, node: Node, results: str, dtype: str, roots: list[Value]) -> None:
        self.nodes[node] = dtype
        for value in node.results:
            self.made[value] = results
        self.read.update(roots)

    def absorb(self, other: _Open) -> None:
        self.nodes |= other.nodes
        self.made |= other.made
        self.read |= other.read


def fuse(graph: Graph, recorded: dict[Node, int] | None = None) -> tuple[list[FusedGroup], str]:
    """Return the groups of a graph, compiled, and a line that tells of them.

    Args:
        graph: the graph.
        recorded: the order of its nodes before they were scheduled: that of the steps of a group,
            so that what was the same in the program has the same code.
    """
    make = _maker(graph)
    if make is None:
        return [], ""
    grown = _grow(graph, make.folds)
    users = graph.users()
    place = _order_of_steps(graph, recorded or {}, users)
    returned = {value.root for value in graph.returned()}
    shown: dict[Value, list[Value]] = {}
    for node in graph.nodes:
        for value in node.results:
            if value.root is not value:
                shown.setdefault(value.root, []).append(value)
    found = []
    for candidate in grown:
        nodes = sorted(candidate.nodes, key=place.__getitem__)
        if len(nodes) < 2 and all(isinstance(v.type, TensorType) for v in nodes[0].inputs):
            continue
        group = FusedGroup(candidate.shape, nodes)
        described, outputs = _describe(group, candidate, users, returned, shown)
        group.code = make.kernel(described) if outputs else None
        if group.code is not None:
            found.append(group)
    if not found:
        return [], ""
    count = sum(len(group.nodes) for group in found)
    return found, f"fusion: {count} calls are {len(found)} kernels"


def _order_of_steps(
    graph: Graph, recorded: dict[Node, int], users: dict[Value, list[Node]]
) -> dict[Node, float]:
    """Return the order of nodes: as recorded; what was added since is where it is first used."""
    if not recorded:
        return {node: k for k, node in enumerate(graph.nodes)}
    place: dict[Node, float] = dict(recorded)
    for node in reversed(graph.nodes):
        if node not in place:
            later = [place[user] for value in node.results for user in users.get(value, ())]
            place[node] = min(later, default=len(recorded)) - 0.5
    return place


class _Maker(NamedTuple):
    """What makes kernels for a device: of a group, or None; and whether it makes those of a fold.

    The latter is asked with the fold's node and its space.
    """

    kernel: Callable[[Group], Any]
    folds: Callable[[Node, _Space], bool]


def _maker(graph: Graph) -> _Maker | None:
    """Return what makes kernels for the graph's device, None where it has no such device."""
    values = [entry.value for entry in graph.inputs]
    values += [value for node in graph.nodes for value in node.results]
    devices = {value.type.device for value in values if isinstance(value.type, TensorType)}
    if len(devices) != 1:
        return None
    device = devices.pop()
    if device == "cpu":
        return _Maker(_compile, lambda node, space: True)
    # Imported here: it brings what makes devices of compilers, which a CPU has no use for.
    from tangrad_jit.codegen.rendered import compiling_driver, folds_in_groups, render_group

    driver = compiling_driver(device)
    if driver is None:
        return None

    def render(group: Group) -> Any:
        made = render_group(group, driver)
        return None if isinstance(made, str) else made

    def folds(node: Node, space: _Space) -> bool:
        shape, _, dtype = space
        if dtype != node.args[0].type.dtype:
            return False
        return folds_in_groups(driver, node.op, dtype, prod(shape[:-1]), shape[-1])

    return _Maker(render, folds)


def _compile(group: Group) -> Any:
    try:
        return compile_group(group)
    except Refused:
        return None


def _grow(graph: Graph, folds: Callable[[Node, _Space], bool]) -> list[_Open]:
    is_open: list[_Open] = []
    closed: list[_Open] = []

    def close(group: _Open) -> None:
        is_open.remove(group)
        closed.append(group)

    for node in graph.nodes:
        kind = node.op.kind
        if kind == "view" and node.form == "call":
            continue  # it only shows what others read
        inputs = node.inputs
        roots = [value.root for value in inputs]
        written = {value.root for value in node.written}
        sources = [g for g in is_open if not g.made.keys().isdisjoint(roots)]
        space = None
        if kind in ("pointwise", "reduction"):
            space = _space_of(node, inputs, sources)
            if kind == "reduction" and space is not None and not folds(node, space):
                space = None
        joined = None
        if space is not None:
            fitting = [
                g for g in sources if g.shape == space[0] and _reads_rightly(inputs, roots, g)
            ]
            if len(fitting) == len(sources):
                joined = _Open(space[0])
                for group in fitting:
                    is_open.remove(group)
                    joined.absorb(group)
                sources = []
        for group in sources:
            close(group)
        if written:
            for group in list(is_open):
                if written & (group.read | group.made.keys()):
                    close(group)
        if space is None:
            continue
        if joined is None:
            joined = _Open(space[0])
        joined.take(node, *space[1:], roots)
        is_open.append(joined)
    return [*closed, *is_open]


def _space_of(node: Node, inputs: list[Value], sources: list[_Open]) -> _Space | None:
    """Return the space of a node that may be in a group, else None.

    Args:
        node: of a pointwise op or a reduction.
        inputs: what it reads.
        sources: the groups that make some of that.
    """
    if node.form != "call" or node.effects or not node.results:
        return None
    if node.name == "pow" and (
        not isinstance(node.args[1], Value) or node.args[1].type == DYNAMIC_SCALAR
    ):
        return None  # the core looks at the number, and may run another op
    pointwise = node.op.kind == "pointwise"
    found = _row_space(node, inputs, sources[0].shape) if pointwise and sources else None
    if found is None:
        if not all(isinstance(v.type, TensorType) or _is_number(v) for v in inputs):
            return None
        found = _pointwise_space(node, inputs) if pointwise else _fold_space(node)
    dtype = None if found is None else _step_dtype(node)
    return None if found is None or dtype is None else (*found, dtype)


def _row_space(node: Node, inputs: list[Value], shape: Shape) -> tuple[Shape, str] | None:
    """Return the space of a group for a pointwise node that has one value per row of it."""
    if any(pattern_of(v, shape) != "row" or not v.type.contiguous for v in node.results):
        return None
    return (
        (shape, "row") if all(pattern_of(v, shape) in ("row", "scalar") for v in inputs) else None
    )


def _pointwise_space(node: Node, inputs: list[Value]) -> tuple[Shape, str] | None:
    type = node.results[0].type
    assert isinstance(type, TensorType)
    if not type.shape or type.numel == 0:
        return None
    if any(not v.type.contiguous or v.type.shape != type.shape for v in node.results):
        return None
    patterns = [pattern_of(v, type.shape) for v in inputs if isinstance(v.type, TensorType)]
    if None in patterns or "full" not in patterns:
        return None
    if node.op.definition.ordered and set(patterns) != {"full"}:
        return None  # what an element is made of follows from its place
    return type.shape, "full"


def _fold_space(node: Node) -> tuple[Shape, str] | None:
    source = node.args[0]
    type = source.type
    named = dict(zip(node.op.parameter_names, node.args, strict=True))
    dims = named.get("dim")
    dims = tuple(range(len(type.shape))) if dims is None else dims
    dims = dims if isinstance(dims, tuple) else (dims,)
    if dims != (len(type.shape) - 1,) or type.numel == 0 or named.get("dtype") is not None:
        return None
    if not type.contiguous or any(not v.type.contiguous for v in node.results):
        return None
    return type.shape, "row"


def _reads_rightly(inputs: list[Value], roots: list[Value], group: _Open) -> bool:
    """Return whether a node sees the group's values as the group has them."""
    for value, root in zip(inputs, roots, strict=True):
        have = group.made.get(root)
        if have is None:
            continue
        if pattern_of(value, group.shape) != have or value.offset != root.offset:
            return False
    return True


class _Signature:
    """What parameters of an op are for a step of a group.

    Attributes:
        described: what the op computes.
        operands: (place, dtype that the op fixes, or None) of each.
        params: (place, name, whether it takes part in drawing random numbers) of all others but
            those that the shape tells.
    """

    __slots__ = ("described", "operands", "params")

    def __init__(self, op: Any) -> None:
        fixed = getattr(op.definition, "fixed", {})
        self.described = describe(op)
        self.operands: list[tuple[int, str | None]] = []
        self.params: list[tuple[int, str, bool]] = []
        for k, (name, kind) in enumerate(zip(op.parameter_names, kinds_of(op), strict=True)):
            if kind in ("Tensor", "Tensor?", "Operand"):
                self.operands.append((k, fixed.get(name)))
            elif name not in ("dim", "keepdim", "dtype"):
                self.params.append((k, name, name in ("seed", "offset")))


_signatures: dict[Any, _Signature] = {}


def _signature(op: Any) -> _Signature:
    found = _signatures.get(op.definition)
    if found is None:
        found = _signatures[op.definition] = _Signature(op)
    return found


def _step_dtype(node: Node) -> str | None:
    """Return the dtype that a node computes in, if a step can say the call, else None."""
    dtypes: list[str] = []
    numbers: list[Any] = []
    signature, args = _signature(node.op), node.args
    for k, _, draws in signature.params:
        item = args[k]
        if isinstance(item, Value):
            if (
                item.type != (DRAWN_NUMBER if draws else DYNAMIC_SCALAR)
                and item.type != DYNAMIC_SCALAR
            ):
                return None
        elif not isinstance(item, (int, float, type(None))):
            return None
    for k, fixed in signature.operands:
        item = args[k]
        if item is None:
            return None
        if not isinstance(item, Value):
            numbers.append(item)
        elif not isinstance(item.type, TensorType):
            if item.type != DYNAMIC_SCALAR:
                return None
            numbers.append(0.0)
        elif fixed is None:
            dtypes.append(item.type.dtype)
        elif item.type.dtype != fixed:
            return None
    half = bool(dtypes) and dtypes[0] in ("float16", "bfloat16")
    if half and all(v.type != DYNAMIC_SCALAR for v in node.inputs):
        # A step rounds constants, where the op does so.
        numbers = [n for n in numbers if not isinstance(n, (int, float))]
    return promoted(node, dtypes, numbers) or _mixed_dtype(node, dtypes, numbers)


def _mixed_dtype(node: Node, dtypes: list[str], numbers: list[Any]) -> str | None:
    """Return the one floating dtype of a node whose other operands are converted to it, or None."""
    floats = {dtype for dtype in dtypes if dtype in _FLOATS}
    types = [value.type for value in node.results]
    made = {type.dtype for type in types if isinstance(type, TensorType) and type.device == "cpu"}
    if len(floats) != 1 or made != floats or not floats.union(_WHOLE).issuperset(dtypes):
        return None
    if node.op.definition.promote not in ("promote", "float"):
        return None
    return promoted(node, list(floats), numbers)


def _describe(
    group: FusedGroup,
    candidate: _Open,
    users: dict[Value, list[Node]],
    returned: set[Value],
    shown: dict[Value, list[Value]],
) -> tuple[Group, list[int]]:
    inputs: dict[tuple[Value, int, str], int] = {}
    places: dict[Value, int] = {}  # of what is read
    made = candidate.made
    given: list[GroupInput] = []
    for node in group.nodes:
        for value in node.inputs:
            if value in places or value.root in made:
                continue
            pattern = _pattern(value, candidate.shape)
            key = (value.root, value.offset, pattern)
            place = inputs.get(key)
            if place is None:
                place = inputs[key] = len(given)
                group.inputs.append(value)
                dtype = _FORMS[value.type] if pattern == "number" else value.type.dtype
                given.append(GroupInput(dtype, pattern))  # type: ignore[arg-type]
            places[value] = place
    numbers: dict[Value, int] = {}
    for node in group.nodes:
        for value in node.results:
            numbers[value] = len(given) + len(numbers)

    def operand(item: Any) -> int | Const:
        if not isinstance(item, Value):
            return Const(item)
        place = places.get(item)
        return numbers[item.root] if place is None else place

    steps = tuple([_step(node, candidate.nodes[node], operand) for node in group.nodes])
    mine = set(group.nodes)
    for value in numbers:
        seen = {user for v in (value, *shown.get(value, ())) for user in users.get(v, ())}
        outside = any(u not in mine and not _is_view(u) for u in seen)
        if outside or value in returned:
            group.outputs.append(value)
    outputs = [numbers[value] for value in group.outputs]
    return Group(tuple(given), steps, tuple(outputs)), outputs


def _pattern(value: Value, shape: Shape) -> str:
    return "number" if _is_number(value) else str(pattern_of(value, shape))


def _is_number(value: Value) -> bool:
    return not isinstance(value.type, TensorType) and value.type in _FORMS


def forms_of_numbers(inputs: list[Value]) -> list[int]:
    """Return what a program is told of a group's inputs: 0 tensor, 1 float, 2 integer."""
    return [
        0 if not _is_number(value) else 1 if value.type == DYNAMIC_SCALAR else 2 for value in inputs
    ]


def _is_view(node: Node) -> bool:
    return node.op.kind == "view" and node.form == "call"


def _step(node: Node, dtype: str, operand: Callable[[Any], int | Const]) -> Step:
    signature, args = _signature(node.op), node.args
    params = {
        name: Number(operand(args[k])) if isinstance(args[k], Value) else args[k]  # type: ignore[arg-type]
        for k, name, _ in signature.params
    }
    return Step(
        signature.described, dtype, tuple([operand(args[k]) for k, _ in signature.operands]), params
    )
