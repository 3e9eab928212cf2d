"""What a call of a graph does beside giving a result: which memory it writes, and what it draws."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import tangrad
from tangrad import nn

# That of `node.py`, which asks here what it does.
Node: TypeAlias = Any

side_effectful_functions: set[Any] = {
    *(tangrad._assert, tangrad.set_grad_enabled, tangrad.manual_seed),
    *(operator.setitem, operator.delitem, print, setattr, delattr),
}
_AUGMENTED = "add and concat floordiv lshift matmul mod mul or pow rshift sub truediv xor".split()
_IN_PLACE_OPERATORS = {getattr(operator, f"i{name}") for name in _AUGMENTED}
_WRITING_METHODS = frozenset(
    {"__setitem__", "__delitem__", "__set__", "backward", "register_hook", "retain_grad"}
    | {f"__i{name}__" for name in _AUGMENTED}
    | {"append", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
)
_FRESH_OPERATORS = {
    getattr(operator, name)
    for name in (
        "abs add and_ eq floordiv ge gt invert le lshift lt matmul mod mul ne neg or_ pow rshift "
        "sub truediv xor"
    ).split()
}
_FRESH_OPS = frozenset(
    "addbmm addmm addmv baddbmm bmm cat clone conv1d conv2d conv3d cumprod cumsum dot gather "
    "index_select layer_norm linear log_softmax logsumexp matmul mm mv outer softmax sort stack "
    "topk where".split()
)
_DROPPING = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
    *(nn.FeatureAlphaDropout, nn.RReLU),
)
_NONE: tuple[Any, ...] = ()


def written(node: Node) -> list[Node]:
    """Return the nodes whose memory a call may write."""
    found: list[Node] = []
    for value in (*_written(node), *_out(node)):
        found += _nodes(value)
    return found


def has_effect(node: Node, impure_random: bool = True) -> bool:
    """Return whether a call does something beside its result.

    Args:
        node: the call.
        impure_random: whether drawing random numbers counts.
    """
    if node.op == "call_module":
        return _has_module_effect(_submodule(node), impure_random)
    if node.op == "call_function" and is_declared(node.target):
        return True
    if node.op == "call_method" and node.target in _WRITING_METHODS:
        return True
    if node.op not in ("call_function", "call_method"):
        return False
    return bool(_written(node)) or bool(_out(node)) or (impure_random and _draws(node))


def is_declared(target: Any) -> bool:
    """Return whether a function is one of those that do more than compute."""
    if _is_in(target, side_effectful_functions) or _is_in(target, _IN_PLACE_OPERATORS):
        return True
    if getattr(target, "__name__", "") == "_assert_async":
        return True
    # Ranks must agree on what is sent, whoever uses it.
    return str(getattr(target, "__module__", "")).startswith("tangrad_distributed")


def _is_in(target: Any, known: Any) -> bool:
    try:
        return target in known
    except TypeError:  # which cannot be hashed
        return False


def _written(node: Node) -> tuple[Any, ...]:
    """Return the arguments that a call writes, without those of `out=`."""
    target, args, kwargs = node.target, node.args, node.kwargs
    if node.op == "call_method":
        if target in _WRITING_METHODS or _is_in_place(str(target)):
            return args[:1]
        op: Any = getattr(tangrad.Tensor, str(target), None)
        return _written_by_op(op, args, kwargs)
    if node.op == "call_module":
        return (*args, *kwargs.values()) if _writes_arguments(_submodule(node)) else _NONE
    if node.op != "call_function":
        return _NONE
    if target in (operator.setitem, operator.delitem, setattr, delattr):
        return args[:1]
    if _is_in(target, _IN_PLACE_OPERATORS):
        return args[:1]
    if is_declared(target):
        return (*args, *kwargs.values()) if _sends(target) else _NONE
    return _written_by_op(target, args, kwargs)


def _sends(target: Any) -> bool:
    return str(getattr(target, "__module__", "")).startswith("tangrad_distributed")


def _written_by_op(op: Any, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, ...]:
    schema = getattr(op, "_schema", None)
    if schema is not None:
        return tuple(
            value
            for place, a in enumerate(schema.arguments)
            if a.is_write
            and (value := args[place] if place < len(args) else kwargs.get(a.name)) is not None
        )
    given = _by_name(op, args, kwargs)
    first = tuple(given.values())[:1]
    definition = getattr(op, "definition", None)
    if definition is not None:
        if getattr(op, "functional", None) is not None:
            return first
        places = (definition.schema.written, *definition.schema.written_lists)
        names = [definition.schema.params[i].name for i in places if i >= 0]
        values = tuple(given[name] for name in names if name in given)
        if values or names:
            return values or first
    if given.get("inplace") or _is_in_place(getattr(op, "__name__", "")):
        return first
    return _written_at_times(getattr(op, "__name__", ""), given)


def _written_at_times(name: str, given: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a function writes that writes with some arguments only."""
    if name in ("embedding", "embedding_bag") and given.get("max_norm") is not None:
        return (given.get("weight"),)
    trains = {"batch_norm": "training", "instance_norm": "use_input_stats"}.get(name)
    if trains is None or given.get(trains, name == "instance_norm") is False:
        return _NONE
    statistics = (given.get("running_mean"), given.get("running_var"))
    return tuple(x for x in statistics if x is not None) if trains in given else _NONE


def _by_name(op: Any, args: tuple[Any, ...], kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call by name, as far as their names are known."""
    names = _parameters(op)
    given = {names[i] if i < len(names) else f"*{i}": value for i, value in enumerate(args)}
    return given | dict(kwargs)


@lru_cache(maxsize=4096)
def _parameters(op: Any) -> tuple[str, ...]:
    definition = getattr(op, "definition", None)
    if definition is not None:
        return tuple(p.name for p in definition.schema.params)
    try:
        return tuple(inspect.signature(op).parameters)
    except (TypeError, ValueError):  # it is written in C
        return ()


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__") and name != "_"


def _out(node: Node) -> tuple[Any, ...]:
    out = node.kwargs.get("out") if node.op in ("call_function", "call_method") else None
    return _NONE if out is None else (out,)


def _draws(node: Node) -> bool:
    """Return whether a call draws random numbers."""
    target: Any = node.target
    op = target if node.op == "call_function" else getattr(tangrad.Tensor, target, None)
    definition = getattr(op, "definition", None)
    if definition is None:
        return getattr(op, "__name__", "") in ("native_dropout", "rrelu", "gumbel_softmax")
    given = _by_name(op, node.args, node.kwargs)
    if given.get("training", given.get("train", True)) is False:
        return False
    forms = (definition, *(member.definition for member in definition.members))
    return any(d.random or any(p.name == "generator" for p in d.schema.params) for d in forms)


# -- modules


def _submodule(node: Node) -> Any:
    root = node.graph.owning_module
    if root is None:
        raise AssertionError("self.graph.owning_module not set for purity check")
    return root.get_submodule(node.target)


def _has_module_effect(module: Any, impure_random: bool) -> bool:
    """Return whether a module says that it has effects, or one of those known to have is in it."""
    if getattr(module, "_is_impure", False):
        return True
    graph = getattr(module, "graph", None)
    if graph is not None and hasattr(graph, "nodes"):
        return any(has_effect(n, impure_random) for n in graph.nodes)
    return any(_writes_itself(m, impure_random) for m in module.modules())


def _writes_arguments(module: Any) -> bool:
    graph = getattr(module, "graph", None)
    if graph is not None and hasattr(graph, "nodes"):
        return any(written(n) for n in graph.nodes)
    return any(getattr(m, "inplace", False) is True for m in module.modules())


def _writes_itself(module: Any, impure_random: bool) -> bool:
    if getattr(module, "inplace", False) is True:
        return True
    if getattr(module, "max_norm", None) is not None:
        return True
    if not module.training:
        return False
    if getattr(module, "track_running_stats", False) is True:
        return True
    drops = isinstance(module, _DROPPING)
    return impure_random and (drops or bool(getattr(module, "dropout", 0)))


# -- memory


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _nodes(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _nodes(part)
    elif hasattr(value, "all_input_nodes"):
        yield value


def is_fresh(node: Node) -> bool:
    """Return whether a result is known to have memory of its own."""
    if node.kwargs.get("out") is not None or _written(node):
        return False
    target: Any = node.target
    if node.op == "call_method":
        target = getattr(tangrad.Tensor, str(target), None)
    elif node.op != "call_function":
        return False
    if _is_in(target, _FRESH_OPERATORS):
        return True
    definition = getattr(target, "definition", None)
    if definition is None:
        return False
    if type(definition).__name__ in ("PointwiseDefinition", "ReductionDefinition"):
        return True
    return definition.schema.name in _FRESH_OPS
