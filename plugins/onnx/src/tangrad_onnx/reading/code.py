"""Write the Python of a model: a function of its graph, and one of each function that it calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, defs

from tangrad.nn import Module
from tangrad_onnx.errors import OnnxError, UnsupportedOperatorError
from tangrad_onnx.operators import OPERATORS
from tangrad_onnx.reading.constants import (
    free_names,
    is_vector_of_integers,
    kind_of,
    uses,
    visited,
)
from tangrad_onnx.reading.names import Names
from tangrad_onnx.reading.protobuf import Folder, array_of, array_of_sparse, checked_shape
from tangrad_onnx.reading.versions import changes
from tangrad_onnx.values import NUMPY_TYPES, Array

__all__ = ["Program", "write_program"]

STANDARD = ("", "ai.onnx")
MOST_CALLS = 5_000_000  # of nodes in a run, loops counted once
MOST_LINES = 1_000_000
DEEPEST = 40  # graphs within graphs, which Python's parser has to read

# Operators that give several values, a tuple even of one.
_TUPLES = frozenset(
    "Attention BatchNormalization CausalConvWithState Dropout DynamicQuantizeLinear GRU If LSTM "
    "LayerNormalization LinearAttention Loop MaxPool RNN Scan ScanOfBatch SequenceMap "
    "SoftmaxCrossEntropyLoss Split StringSplit TopK Unique".split()
)
# What is not computed where only the first value is used.
_SPARED = {"Dropout": "mask", "LayerNormalization": "statistics", "MaxPool": "indices"}


class Origin(NamedTuple):
    """Where a line comes from.

    Attributes:
        node, operator: of the model.
    """

    node: str
    operator: str


class Program(NamedTuple):
    """A model as Python.

    Attributes:
        code: the text.
        origins: {number of a line: node that it comes from}.
        constants: {name: (kind, array)} of what `self` holds.
        inputs, outputs: names of the graph's.
    """

    code: str
    origins: dict[int, Origin]
    constants: dict[str, tuple[str, Array]]
    inputs: list[str]
    outputs: list[str]


class _Scope:
    """Names that are visible in a graph.

    Args:
        writer: of the program.
        opsets: {domain: version} that holds here.
        values: {name in the model: expression}.
        arrays: {expression: array} of constants of the host.
        given: attributes of the function that is written.
    """

    def __init__(
        self,
        opsets: Mapping[str, int],
        values: dict[str, str],
        given: Mapping[str, AttributeProto],
        depth: int = 0,
    ) -> None:
        self.opsets, self.values, self.given, self.depth = opsets, values, given, depth
        self.pending: dict[str, Any] = {}  # initializers that nobody has asked for yet
        self.local: set[str] = set()
        self.outer: _Scope | None = None

    def inner(self) -> _Scope:
        """Return the scope of a graph inside of a node."""
        scope = _Scope(self.opsets, {}, self.given, self.depth + 1)
        scope.outer = self
        return scope


class _Writer:
    def __init__(self, model: ModelProto, folder: Folder) -> None:
        self.model, self.folder = model, folder
        self.names = Names(("self", "ops", "inf", "nan", "forward"))
        self.attributes = Names(dir(Module()))
        self.lines: list[tuple[str, Origin | None]] = []
        self.constants: dict[str, tuple[str, Array]] = {}
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.written: dict[Any, tuple[str, int]] = {}
        self.writing: set[Any] = set()
        bodies: list[Any] = list(visited(model.graph))
        for function in model.functions:
            bodies.append(function)
            bodies += [
                g
                for n in function.node
                for a in n.attribute
                if a.type == AttributeProto.GRAPH
                for g in visited(a.g)
            ]
        self.uses = uses(iter(bodies))

    def program(self) -> Program:
        graph = self.model.graph
        held = {t.name for t in graph.initializer}
        inputs = [v.name for v in graph.input if v.name not in held]
        scope = _Scope(_opsets(self.model.opset_import), {}, {})
        arguments = [self._define(name, scope) for name in inputs]
        body, outputs, _ = self._graph(graph, scope, "    ")
        self.lines.append((f"def forward({', '.join(['self', *arguments])}):", None))
        self.lines += body
        self.lines.append((f"    return {_tuple(outputs)}", None))
        code = "".join(f"{line}\n" for line, _ in self.lines)
        origins = {
            number: origin for number, (_, origin) in enumerate(self.lines, 1) if origin is not None
        }
        return Program(code, origins, self.constants, inputs, [v.name for v in graph.output])

    def _define(self, name: str, scope: _Scope) -> str:
        """Return a new identifier for a value that is computed here."""
        if name in scope.values or name in scope.pending:
            raise OnnxError(f"value {name!r} is written twice")
        expression = self.names.unique(name)
        scope.values[name] = expression
        scope.local.add(expression)
        return expression

    def _resolve(self, name: str, scope: _Scope) -> str:
        """Return the expression of a value."""
        at: _Scope | None = scope
        while at is not None:
            if name in at.values:
                return at.values[name]
            if name in at.pending:
                tensor = at.pending.pop(name)
                dense = array_of_sparse if hasattr(tensor, "indices") else array_of
                at.values[name] = self._hold(name, dense(tensor, self.folder), True)
                return at.values[name]
            at = at.outer
        raise OnnxError(
            f"value {name!r} is used, and nothing has computed it before: it is missing, or "
            "depends on itself"
        )

    def _hold(self, name: str, array: Array, initializer: bool) -> str:
        kind = kind_of(array, self.uses.get(name, set()), initializer)
        attribute = self.attributes.unique(name, "constant")
        self.constants[attribute] = (kind, array)
        return f"self.{attribute}"

    def _graph(
        self, graph: GraphProto, scope: _Scope, indent: str
    ) -> tuple[list[tuple[str, Origin | None]], list[str], int]:
        """Return the lines of a graph, the expressions of its outputs, and the cost of a run."""
        for tensor in graph.initializer:
            if tensor.name in scope.values or tensor.name in scope.pending:
                raise OnnxError(f"value {tensor.name!r} is written twice")
            scope.pending[tensor.name] = tensor
        for sparse in graph.sparse_initializer:
            scope.pending[sparse.values.name] = sparse
        results = [v.name for v in graph.output]
        lines, cost = self._nodes(graph.node, scope, indent, results)
        return lines, [self._resolve(name, scope) for name in results], cost

    def _nodes(
        self, nodes: Any, scope: _Scope, indent: str, results: Iterable[str]
    ) -> tuple[list[tuple[str, Origin | None]], int]:
        last: dict[str, int] = {}
        for number, node in enumerate(nodes):
            for name in free_names(node):
                last[name] = number
        kept = set(results)
        lines: list[tuple[str, Origin | None]] = []
        cost = 0
        for number, node in enumerate(nodes):
            operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            origin = Origin(node.name or f"#{number}", operator)
            try:
                made, work = self._node(node, scope, indent, origin)
            except OnnxError as error:
                if error.node is None:
                    error.node, error.operator = origin.node, origin.operator
                raise
            cost += work
            if cost > MOST_CALLS:
                raise OnnxError(f"functions expand to more than {MOST_CALLS} nodes")
            done = [
                scope.values[name]
                for name in free_names(node)
                if last[name] == number
                and name not in kept
                and scope.values.get(name) in scope.local
            ]
            unused = [
                scope.values[name]
                for name in node.output
                if name and name not in last and name not in kept
            ]
            if done + unused and made:
                text, source = made[-1]
                made[-1] = (f"{text};  {' = '.join([*done, *unused, 'None'])}", source)
            lines += made
            if len(lines) > MOST_LINES:
                raise OnnxError(f"the model has more than {MOST_LINES} lines")
        return lines, cost

    def _node(
        self, node: Any, scope: _Scope, indent: str, origin: Origin
    ) -> tuple[list[tuple[str, Origin | None]], int]:
        attributes = _attributes(node, scope.given)
        key = (node.domain, node.op_type, getattr(node, "overload", ""))
        if key in self.functions:
            return self._call(self.functions[key], key, node, attributes, scope, indent, origin)
        schema = _schema(node, scope.opsets)
        _check(node, schema, attributes)
        if node.domain in STANDARD and node.op_type == "Constant":
            name, value = self._constant_of(attributes)
            scope.values[node.output[0]] = self._hold(node.output[0] or name, value, False)
            return [], 0
        if node.domain in STANDARD and _function(node.op_type, scope.opsets) in OPERATORS:
            return self._operator(node, attributes, scope, indent, origin)
        if schema.has_function:
            function = schema.function_body
            return self._call(
                function, (*key, scope.opsets), node, attributes, scope, indent, origin
            )
        raise UnsupportedOperatorError(
            f"operator {node.op_type!r} of domain {node.domain or 'ai.onnx'!r} is not supported"
        )

    def _constant_of(self, attributes: Mapping[str, AttributeProto]) -> tuple[str, Array]:
        if len(attributes) != 1:
            raise OnnxError("a Constant has one value")
        ((name, attribute),) = attributes.items()
        if name == "value":
            return name, array_of(attribute.t, self.folder)
        if name == "sparse_value":
            return name, array_of_sparse(attribute.sparse_tensor, self.folder)
        if name in {"value_int", "value_ints"}:
            whole = attribute.i if name == "value_int" else list(attribute.ints)
            return name, np.array(whole, np.int64)
        if name in {"value_float", "value_floats"}:
            numbers = attribute.f if name == "value_float" else list(attribute.floats)
            return name, np.array(numbers, np.float32)
        if name == "value_string":
            return name, np.array(attribute.s.decode("utf-8", "replace"), object)
        texts = [text.decode("utf-8", "replace") for text in attribute.strings]
        return name, np.array(texts, object)

    def _operator(
        self,
        node: Any,
        attributes: Mapping[str, AttributeProto],
        scope: _Scope,
        indent: str,
        origin: Origin,
    ) -> tuple[list[tuple[str, Origin | None]], int]:
        opset = _version("", scope.opsets)
        name = node.op_type
        operands: list[Any] = [self._resolve(n, scope) if n else None for n in node.input]
        keywords: dict[str, str] = {}
        lines: list[tuple[str, Origin | None]] = []
        cost = 1
        for attribute_name, attribute in attributes.items():
            if attribute.type == AttributeProto.GRAPH:
                called, inner, work = self._body(attribute, scope, indent, origin)
                lines += inner
                keywords[attribute_name] = called
                cost += work
                if name == "Loop":
                    keywords |= self._scanned(attribute.g, len(node.input) - 2)
            else:
                keywords[attribute_name] = self._literal(attribute)
        for change in changes(name, opset):
            name = change.name or name
            if change.places is not None:
                moved: list[Any] = [None] * (max(change.places) + 1)
                for at, operand in zip(change.places, operands, strict=False):
                    moved[at] = operand
                operands = moved
            for dropped in change.dropped:
                keywords.pop(dropped, None)
            for key, value in {**change.defaults, **change.keywords}.items():
                keywords.setdefault(key, repr(value))
            for key, at in change.operands.items():
                if key in keywords:
                    operands += [None] * (at + 1 - len(operands))
                    operands[at] = keywords.pop(key)
        registered = OPERATORS[name]
        for at in registered.ints:
            if at < len(operands):
                operands[at] = self._integers(operands[at])
        if name == "Split" and len(operands) < 2:
            keywords.setdefault("num_outputs", str(len(node.output)))
        outputs = list(node.output)
        while outputs and not outputs[-1]:
            outputs.pop()
        if len(outputs) == 1 and name in _SPARED:
            keywords[_SPARED[name]] = "False"
        while operands and operands[-1] is None:
            operands.pop()
        given = [str(operand) for operand in operands]
        given += [f"{key}={value}" for key, value in keywords.items()]
        call = f"ops.{name}({', '.join(given)})"
        lines.append((indent + self._assigned(outputs, call, name in _TUPLES, scope), origin))
        return lines, cost

    def _assigned(self, outputs: list[str], call: str, is_tuple: bool, scope: _Scope) -> str:
        if not outputs:
            return call
        targets = [self._define(name, scope) if name else "_" for name in outputs]
        if not is_tuple:
            if len(targets) > 1:
                raise OnnxError(f"{len(targets)} outputs of an operator that has one")
            return f"{targets[0]} = {call}"
        if len(targets) == 1:
            return f"{targets[0]} = {call}[0]"
        return f"{', '.join(targets)} = {call}[:{len(targets)}]"

    def _integers(self, operand: Any) -> Any:
        """Return a constant as the integers that it holds."""
        if not isinstance(operand, str) or not operand.startswith("self."):
            return operand
        _, array = self.constants[operand.removeprefix("self.")]
        if not is_vector_of_integers(array) or array.size > 64:
            return operand
        return repr(tuple(int(number) for number in array.reshape(-1)))

    def _body(
        self, attribute: AttributeProto, scope: _Scope, indent: str, origin: Origin
    ) -> tuple[str, list[tuple[str, Origin | None]], int]:
        """Return the name of a graph's function, its lines and its cost."""
        if scope.depth >= DEEPEST:
            raise OnnxError(f"graphs lie in each other more than {DEEPEST} deep")
        graph = attribute.g
        inner = scope.inner()
        name = self.names.unique(f"{attribute.name}_of_{origin.node}", "body")
        held = {t.name for t in graph.initializer}
        arguments = [self._define(v.name, inner) for v in graph.input if v.name not in held]
        lines, outputs, cost = self._graph(graph, inner, indent + "    ")
        head = (f"{indent}def {name}({', '.join(arguments)}):", None)
        tail = (f"{indent}    return {_tuple(outputs)}", None)
        return name, [head, *lines, tail], cost

    def _scanned(self, body: GraphProto, carried: int) -> dict[str, str]:
        """Return what Loop is told of the values that it collects, which may be none."""
        values = body.output[1 + max(carried, 0) :]
        if not values:
            return {}
        empty = []
        for value in values:
            kind = value.type.tensor_type
            dtype = NUMPY_TYPES.get(kind.elem_type, np.dtype(np.float32))
            shape = checked_shape([dim.dim_value for dim in kind.shape.dim], value.name)
            empty.append(self._hold(f"none_of_{value.name}", np.zeros((0, *shape), dtype), False))
        return {"scanned": str(len(values)), "empty": _tuple(empty)}

    def _literal(self, attribute: AttributeProto) -> str:
        kind = attribute.type
        if kind == AttributeProto.FLOAT:
            return _float(attribute.f)
        if kind == AttributeProto.INT:
            return repr(attribute.i)
        if kind == AttributeProto.STRING:
            return repr(attribute.s.decode("utf-8", "replace"))
        if kind == AttributeProto.FLOATS:
            return _tuple([_float(x) for x in attribute.floats])
        if kind == AttributeProto.INTS:
            return repr(tuple(attribute.ints))
        if kind == AttributeProto.STRINGS:
            return repr(tuple(s.decode("utf-8", "replace") for s in attribute.strings))
        if kind == AttributeProto.TENSOR:
            array = array_of(attribute.t, self.folder)
            name = self.attributes.unique(attribute.t.name or attribute.name, "constant")
            self.constants[name] = ("array", array)
            return f"self.{name}"
        if kind == AttributeProto.TYPE_PROTO:
            return "None"
        raise OnnxError(f"attribute {attribute.name!r} has a kind that is not supported: {kind}")

    def _call(
        self,
        function: FunctionProto,
        key: Any,
        node: Any,
        attributes: Mapping[str, AttributeProto],
        scope: _Scope,
        indent: str,
        origin: Origin,
    ) -> tuple[list[tuple[str, Origin | None]], int]:
        defaults = {a.name: a for a in function.attribute_proto}
        given = {**defaults, **attributes}
        texts = tuple(sorted((n, a.SerializeToString()) for n, a in given.items()))
        identity = (str(key), texts)
        if identity in self.writing:
            raise OnnxError(f"function {function.name!r} calls itself")
        if identity not in self.written:
            if len(self.writing) >= DEEPEST * 4:
                raise OnnxError(f"functions call each other more than {DEEPEST * 4} deep")
            self.writing.add(identity)
            self.written[identity] = self._function(function, given, scope)
            self.writing.remove(identity)
        name, cost = self.written[identity]
        count = len(function.input)
        if len(node.input) > count:
            raise OnnxError(
                f"function {function.name!r} takes {count} values, not {len(node.input)}"
            )
        operands = [self._resolve(n, scope) if n else "None" for n in node.input]
        operands += ["None"] * (count - len(operands))
        outputs = list(node.output)
        while outputs and not outputs[-1]:
            outputs.pop()
        call = f"{name}({', '.join(['self', *operands])})"
        return [(indent + self._assigned(outputs, call, True, scope), origin)], cost

    def _function(
        self, function: FunctionProto, given: Mapping[str, AttributeProto], scope: _Scope
    ) -> tuple[str, int]:
        opsets = {**scope.opsets, **_opsets(function.opset_import)}
        inner = _Scope(opsets, {}, given)
        name = self.names.unique(function.name, "function")
        arguments = [self._define(n, inner) for n in function.input]
        lines, cost = self._nodes(function.node, inner, "    ", function.output)
        outputs = [self._resolve(n, inner) for n in function.output]
        self.lines.append((f"def {name}({', '.join(['self', *arguments])}):", None))
        self.lines += lines
        self.lines += [(f"    return {_tuple(outputs)}", None), ("", None), ("", None)]
        if len(self.lines) > MOST_LINES:
            raise OnnxError(f"the functions have more than {MOST_LINES} lines")
        return name, cost


def write_program(model: ModelProto, folder: Folder) -> Program:
    """Return a model as Python.

    Raises:
        OnnxError: the model is not valid; `UnsupportedOperatorError`: it has an unknown operator.
    """
    return _Writer(model, folder).program()


def _opsets(imports: Any) -> dict[str, int]:
    versions: dict[str, int] = {}
    for entry in imports:
        domain = "" if entry.domain in STANDARD else entry.domain
        versions[domain] = entry.version
    newest = defs.onnx_opset_version()
    if versions.get("", 1) > newest:
        raise OnnxError(
            f"the model is of opset {versions['']}; the installed onnx package knows up to "
            f"{newest}: upgrade it"
        )
    return versions


def _version(domain: str, opsets: Mapping[str, int]) -> int:
    return opsets.get("" if domain in STANDARD else domain, 1)


def _function(operator: str, opsets: Mapping[str, int]) -> str:
    """Return the function that serves an operator of the standard."""
    name = operator
    for change in changes(operator, _version("", opsets)):
        name = change.name or name
    return name


def _schema(node: Any, opsets: Mapping[str, int]) -> Any:
    domain = "" if node.domain in STANDARD else node.domain
    try:
        return defs.get_schema(node.op_type, _version(node.domain, opsets), domain)
    except (defs.SchemaError, ValueError, TypeError, OverflowError):
        shown = domain or "ai.onnx"
        raise UnsupportedOperatorError(
            f"there is no operator {node.op_type!r} in version {_version(node.domain, opsets)} of "
            f"{shown!r}"
        ) from None


def _check(node: Any, schema: Any, attributes: Mapping[str, AttributeProto]) -> None:
    """Refuse what an operator's schema does not allow."""
    for name, attribute in attributes.items():
        declared = schema.attributes.get(name)
        if declared is None:
            raise OnnxError(f"{node.op_type} has no attribute {name!r}")
        if int(declared.type.value) != attribute.type:
            raise OnnxError(f"attribute {name!r} of {node.op_type} has another type than declared")
    for name, declared in schema.attributes.items():
        if declared.required and name not in attributes:
            raise OnnxError(f"{node.op_type} lacks the attribute {name!r}")
    count, most = len(node.input), schema.max_input
    if not schema.min_input <= count <= most:
        raise OnnxError(f"{node.op_type} takes {schema.min_input} to {most} values, not {count}")
    for formal, name in zip(schema.inputs, node.input, strict=False):
        if not name and formal.option == defs.OpSchema.FormalParameterOption.Single:
            raise OnnxError(f"{node.op_type} needs its operand {formal.name!r}")
    if not schema.min_output <= len(node.output) <= schema.max_output:
        raise OnnxError(f"{node.op_type} does not have {len(node.output)} outputs")


def _attributes(node: Any, given: Mapping[str, AttributeProto]) -> dict[str, AttributeProto]:
    """Return a node's attributes; those that refer to the function's are the call's."""
    found: dict[str, AttributeProto] = {}
    for attribute in node.attribute:
        if attribute.name in found:
            raise OnnxError(f"attribute {attribute.name!r} is given twice")
        if attribute.ref_attr_name:
            value = given.get(attribute.ref_attr_name)
            if value is not None:
                renamed = AttributeProto()
                renamed.CopyFrom(value)
                renamed.name = attribute.name
                found[attribute.name] = renamed
        else:
            found[attribute.name] = attribute
    return found


def _float(value: float) -> str:
    """Write a number of single precision as briefly as it is read back."""
    if math.isinf(value) or math.isnan(value):
        return str(value)
    return repr(float(str(np.float32(value))))


def _tuple(expressions: list[str]) -> str:
    return f"({', '.join(expressions)}{',' if len(expressions) == 1 else ''})"
