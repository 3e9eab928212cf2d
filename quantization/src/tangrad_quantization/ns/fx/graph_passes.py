"""Loggers in graphs, and nodes of one graph beside those of another."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple

import tangrad
from tangrad import fx
from tangrad_quantization import functional
from tangrad_quantization.ns.fx.mappings import Families, get_node_type_to_io_type_map
from tangrad_quantization.ns.fx.ns_types import NSSingleResultValuesType, NSSubgraph
from tangrad_quantization.ns.fx.utils import (
    called_module,
    get_arg_indices_of_inputs_to_log,
    get_number_of_non_param_args,
    get_target_type_str,
    getattr_from_fqn,
    nodes_in,
    observes,
    op_type_supports_shadowing,
    return_first_non_observer_node,
    target_type,
)

_INPUT = NSSingleResultValuesType.NODE_INPUT.value
_OUTPUT = NSSingleResultValuesType.NODE_OUTPUT.value


def attach(model: Any, prefix: str, module: Any) -> str:
    """Put a module or a tensor into a model under a free name; return the name."""
    count = 0
    while hasattr(model, f"{prefix}{count}"):
        count += 1
    setattr(model, f"{prefix}{count}", module)
    return f"{prefix}{count}"


class Place(NamedTuple):
    """What a logger says of where it stands.

    Attributes:
        model_name: the name of the model.
        ref_name: the name that both models have for the place.
        ref_node: the node for whose sake it stands there.
        ref_type: what that calls, as text.
        fqn: the path of the module in which the node was traced, or None.
    """

    model_name: str
    ref_name: str
    ref_node: str
    ref_type: str
    fqn: str | None


def fqn_of(node: fx.Node, gm: Any) -> str | None:
    """Return the path of the module in which a node was traced; None where it is not known."""
    scopes = getattr(gm, "_node_name_to_scope", None) or {}
    found = scopes.get(return_first_non_observer_node(node, gm).name)
    return None if found is None else found[0]


def _log(
    node: fx.Node,
    gm: Any,
    logger_cls: Callable[..., Any],
    place: Place,
    kind: str,
    users: Callable[[fx.Node], bool],
    index_within_arg: int = 0,
    index_of_arg: int = 0,
    suffix: str = "_ns_logger_",
) -> fx.Node:
    """Have some users of a node take its value through a logger."""
    logger = logger_cls(
        place.ref_node,
        node.name,
        place.model_name,
        place.ref_name,
        get_target_type_str(node, gm),
        place.ref_type,
        kind,
        index_within_arg,
        index_of_arg,
        place.fqn,
    )
    name = attach(gm, node.name + suffix, logger)
    with gm.graph.inserting_after(node):
        made: fx.Node = gm.graph.call_module(name, (node,))
    node.replace_all_uses_with(made, lambda user: user is not made and users(user))
    return made


def log_inputs(
    node: fx.Node, gm: Any, logger_cls: Callable[..., Any], place: Place, suffix: str
) -> None:
    """Have a node take its inputs through loggers."""
    for index in get_arg_indices_of_inputs_to_log(node):
        for within, value in enumerate(list(nodes_in(node.args[index]))):
            _log(
                value, gm, logger_cls, place, _INPUT, lambda user: user is node, within, index,
                suffix,
            )  # fmt: skip


def log_output(
    node: fx.Node, gm: Any, logger_cls: Callable[..., Any], place: Place, suffix: str
) -> fx.Node:
    """Have all users of a node take its value through a logger."""
    return _log(node, gm, logger_cls, place, _OUTPUT, lambda user: True, suffix=suffix)


def add_loggers_to_model(
    gm: Any,
    node_to_instrument_inputs_to_ref_node_name: dict[fx.Node, tuple[str, str]],
    node_to_instrument_outputs_to_ref_node_name: dict[fx.Node, tuple[str, str]],
    logger_cls: Callable[..., Any],
    model_name: str,
) -> Any:
    """Return a graph module with loggers at inputs and outputs of nodes; it is changed.

    Args:
        gm: the graph module.
        node_to_instrument_inputs_to_ref_node_name: nodes to the name that both models have for
            them, and what they call.
        node_to_instrument_outputs_to_ref_node_name: likewise.
        logger_cls: makes loggers, see `OutputLogger`.
        model_name: the name of the model.
    """
    for node in list(gm.graph.nodes):
        for table, log in (
            (node_to_instrument_inputs_to_ref_node_name, log_inputs),
            (node_to_instrument_outputs_to_ref_node_name, log_output),
        ):
            if node in table:
                place = Place(model_name, table[node][0], node.name, table[node][1], None)
                log(node, gm, logger_cls, place._replace(fqn=fqn_of(node, gm)), "_ns_logger_")
    gm.recompile()
    return gm


class _Held(Enum):
    """What a value is kept in."""

    NUMBERS = auto()
    INTEGERS = auto()
    HALVES = auto()
    UNKNOWN = auto()


_BY_TABLE = (
    ("call_module", "mods_io_type_{}"),
    ("call_function", "funs_io_type_{}"),
    ("call_method", "meths_io_type_{}"),
)


class _Types:
    """What nodes of a graph take and give.

    Args:
        gm: the graph module.
        tables: see `get_node_type_to_io_type_map`.
        logger_cls: the class of loggers, which give what they take.
    """

    def __init__(self, gm: Any, tables: Families, logger_cls: Any) -> None:
        self.gm, self.tables, self.logger_cls = gm, tables, logger_cls

    def _is(self, node: fx.Node, held: str) -> bool:
        table = self.tables.get(dict(_BY_TABLE)[node.op].format(held), set())
        return target_type(node, self.gm) in table

    def _passes(self, node: fx.Node) -> bool:
        """Return whether a node gives what it takes."""
        if isinstance(called_module(node, self.gm), self.logger_cls) or observes(node, self.gm):
            return True
        return self._is(node, "fp32_or_int8")

    def taken(self, node: fx.Node) -> _Held:
        """Return what a node takes as its first argument."""
        if not node.op.startswith("call_"):
            return _Held.UNKNOWN
        if node.op == "call_method" and node.target in ("dequantize", "to"):
            return self._given_before(node)
        if self._passes(node):
            return self._given_before(node)
        for held, found in (
            ("fp32", _Held.NUMBERS),
            ("fp16", _Held.HALVES),
            ("int8", _Held.INTEGERS),
        ):
            if self._is(node, held):
                return found
        quantized = getattr(node.target, "__module__", "") == functional.__name__
        return _Held.INTEGERS if quantized else _Held.UNKNOWN

    def given(self, node: fx.Node) -> _Held:
        """Return what a node gives."""
        if node.op == "call_method" and node.target == "dequantize":
            return _Held.NUMBERS
        if node.op == "call_method" and node.target == "to":
            half = node.args[1:2] == (tangrad.float16,)
            return _Held.HALVES if half else _Held.UNKNOWN
        if node.op == "call_function" and node.target is tangrad.quantize_per_tensor:
            return _Held.INTEGERS
        return self.taken(node)

    def _given_before(self, node: fx.Node) -> _Held:
        before = next(nodes_in(node.args[:1]), None)
        return _Held.UNKNOWN if before is None else self.given(before)

    def scale_taken(self, node: fx.Node) -> tuple[Any, Any] | None:
        """Return the scale and the zero point of a node's first argument, where they are known."""
        before = node.args[0] if node.args else None
        while isinstance(before, fx.Node) and before.op == "call_module":
            module = called_module(before, self.gm)
            if hasattr(module, "zero_point"):
                return module.scale, module.zero_point
            if not self._passes(before):
                return None
            before = before.args[0]
        if not isinstance(before, fx.Node) or before.op != "call_function":
            return None
        at = 1 if before.target is tangrad.quantize_per_tensor else 2
        known = (tangrad.quantize_per_tensor, functional.add, functional.add_relu)
        if before.target not in (*known, functional.mul, functional.mul_relu):
            return None
        scale, zero = (getattr_from_fqn(self.gm, str(n.target)) for n in before.args[at : at + 2])  # type: ignore[union-attr]
        return scale, zero


def create_a_shadows_b(
    name_a: str,
    gm_a: Any,
    name_b: str,
    gm_b: Any,
    matched_subgraph_pairs: dict[str, tuple[NSSubgraph, NSSubgraph]],
    logger_cls: Callable[..., Any],
    should_log_inputs: bool,
    node_type_to_io_type_map: Families | None = None,
) -> Any:
    """Return graph B with the nodes of A beside its own, on the same inputs; it is changed.

    Args:
        name_a: name of the model of A.
        gm_a: graph module A.
        name_b: name of the model of B.
        gm_b: graph module B.
        matched_subgraph_pairs: what belongs together.
        logger_cls: makes the loggers of both outputs.
        should_log_inputs: whether inputs are kept, too.
        node_type_to_io_type_map: what takes and gives numbers and integers.
    """
    tables = node_type_to_io_type_map or get_node_type_to_io_type_map()
    types = _Types(gm_a, tables, logger_cls), _Types(gm_b, tables, logger_cls)
    for ref_name, (a, b) in matched_subgraph_pairs.items():
        reason = _obstacle(a, b, types)
        if reason is not None:
            warnings.warn(
                f"'{b.base_op_node.name}' gets no shadow: {reason}", UserWarning, stacklevel=4
            )
            continue
        _Shadow(ref_name, a, b, gm_a, gm_b, types, logger_cls).put(
            name_a, name_b, should_log_inputs
        )
    gm_b.recompile()
    return gm_b


def _obstacle(a: NSSubgraph, b: NSSubgraph, types: tuple[_Types, _Types]) -> str | None:
    """Return why A cannot run beside B, or None."""
    if not all(op_type_supports_shadowing(part.start_node) for part in (a, b)):
        return "ops of several tensors have none"
    held = [of.taken(part.start_node) for part, of in zip((a, b), types, strict=True)]
    if _Held.UNKNOWN in held:
        return "it is not known whether it takes numbers or integers"
    quantizes = held[0] is _Held.INTEGERS and held[1] is not _Held.INTEGERS
    if quantizes and types[0].scale_taken(a.start_node) is None:
        return "the scale of its quantized form's input is not known"
    for node in _between(a):
        own = get_number_of_non_param_args(node, types[0].gm) if node is a.start_node else 1
        rest = [*node.args[own:], *node.kwargs.values()]
        if any(_source(value, types[0].gm) is None for value in nodes_in(rest)):
            return f"'{node.name}' takes values of other nodes"
    return None


def _between(part: NSSubgraph) -> list[fx.Node]:
    """Return the nodes of a part, the first first."""
    nodes = [part.end_node]
    while nodes[0] is not part.start_node:
        nodes.insert(0, nodes[0].args[0])  # type: ignore[arg-type]
    return nodes


def _source(node: fx.Node, gm: Any) -> list[fx.Node] | None:
    """Return the nodes from a constant to a node; None where it does not come of one."""
    node = return_first_non_observer_node(node, gm)
    if node.op == "get_attr":
        return [node]
    if node.op != "call_method" or node.target not in ("dequantize", "to"):
        return None
    before = _source(node.args[0], gm)  # type: ignore[arg-type]
    return None if before is None else [*before, node]


class _Shadow:
    """The nodes of a part of A beside those of a part of B."""

    def __init__(
        self,
        ref_name: str,
        a: NSSubgraph,
        b: NSSubgraph,
        gm_a: Any,
        gm_b: Any,
        types: tuple[_Types, _Types],
        logger_cls: Callable[..., Any],
    ) -> None:
        self.ref_name, self.a, self.b = ref_name, a, b
        self.gm_a, self.gm_b, self.types, self.logger_cls = gm_a, gm_b, types, logger_cls
        self.graph = gm_b.graph

    def put(self, name_a: str, name_b: str, log_both_inputs: bool) -> None:
        """Insert the nodes and their loggers."""
        start, end = self.b.start_node, self.b.end_node
        place_a = self._place(name_a, self.a, self.gm_a)
        place_b = self._place(name_b, self.b, self.gm_b)
        with self.graph.inserting_before(start):
            value: Any = self._cast(start.args[0])
            first: fx.Node | None = None
            for node in _between(self.a):
                value = self._copied(node, value)
                first = first or value
        assert first is not None
        if log_both_inputs:
            at_b = place_b._replace(ref_node=start.name)
            log_inputs(start, self.gm_b, self.logger_cls, at_b, "_ns_logger_b_inp_")
            at_a = place_a._replace(ref_node=first.name)
            log_inputs(first, self.gm_b, self.logger_cls, at_a, "_ns_logger_a_inp_")
        at_a, at_b = place_a._replace(ref_node=value.name), place_b._replace(ref_node=end.name)
        log_output(value, self.gm_b, self.logger_cls, at_a, "_ns_logger_a_")
        log_output(end, self.gm_b, self.logger_cls, at_b, "_ns_logger_b_")

    def _place(self, name: str, part: NSSubgraph, gm: Any) -> Place:
        kind = get_target_type_str(part.base_op_node, gm)
        return Place(name, self.ref_name, "", kind, fqn_of(part.base_op_node, gm))

    def _cast(self, value: Any) -> Any:
        """Return what B takes, as A takes it."""
        wanted, held = (
            of.taken(part.start_node) for of, part in zip(self.types, (self.a, self.b), strict=True)
        )
        if wanted is held:
            return value
        if wanted is _Held.NUMBERS:
            return self.graph.call_method("dequantize", (value,))
        if wanted is _Held.HALVES:
            return self.graph.call_method("to", (value, tangrad.float16))
        found = self.types[0].scale_taken(self.a.start_node)
        assert found is not None
        scale, zero = float(found[0]), int(found[1])
        arguments = (value, scale, zero, tangrad.quint8)
        return self.graph.call_function(tangrad.quantize_per_tensor, arguments)

    def _copied(self, node: fx.Node, value: Any) -> fx.Node:
        """Return a copy of a node of A in B, with another first argument."""
        own: tuple[Any, ...] = (value,)
        if node is self.a.start_node:
            count = get_number_of_non_param_args(node, self.gm_a)
            own += tuple(self.b.start_node.args[1:count])
        args = (*own, *(self._constant(argument) for argument in node.args[len(own) :]))
        kwargs = {key: self._constant(argument) for key, argument in node.kwargs.items()}
        name = f"{self.b.start_node.name}_shadow_copy_"
        if node.op == "call_module":
            target = attach(self.gm_b, name, called_module(node, self.gm_a))
            return self.graph.call_module(target, args, kwargs)
        return self.graph.create_node(node.op, node.target, args, kwargs, name=f"{name}0")

    def _constant(self, argument: Any) -> Any:
        if not isinstance(argument, fx.Node):
            return argument
        made: Any = None
        for node in _source(argument, self.gm_a) or ():
            if node.op == "get_attr":
                held = getattr_from_fqn(self.gm_a, str(node.target))
                if isinstance(held, tangrad.Tensor):
                    held = held.detach()
                made = self.graph.get_attr(attach(self.gm_b, f"{node.name}_shadow_copy_", held))
            else:
                made = self.graph.call_method(node.target, (made, *node.args[1:]))
        return made
