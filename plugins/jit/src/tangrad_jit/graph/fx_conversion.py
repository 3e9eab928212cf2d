"""To and from the graphs of `tangrad.fx`, where people and other back ends edit programs."""

from __future__ import annotations

import functools
import operator
from typing import Any

import tangrad
from tangrad.plugin import all_ops, call_recorded, dispatch, is_intercepted
from tangrad_jit.graph.ir import DRAW, Graph, Node, Value, map_values

__all__ = ["from_fx", "to_fx"]


def draw(op: Any, *args: Any) -> Any:
    """Take the seed and the offset that a random op is to use."""
    return op.definition.draw(args)


def write(op: Any, target: Any, *args: Any) -> Any:
    """Run an op and write its result to a tensor."""
    inplace = bool(args) and args[0] is target
    return _offered(op.inplace if inplace and op.inplace is not None else op, op, args, target)


def _offered(op: Any, functional: Any, args: tuple[Any, ...], out: Any) -> Any:
    """Run a bound call through what stands between, so that tracers see it; else directly."""
    if is_intercepted():
        return dispatch(op, functional, args, out)
    return call_recorded(functional, args, out, out is not None and args[0] is out)


def to_fx(graph: Graph) -> Any:
    """Return a graph as a module of `tangrad.fx` whose placeholders are the graph's inputs.

    Raises:
        MissingPluginError: tangrad-fx is not installed.
    """
    import tangrad.fx

    made = tangrad.fx.Graph()
    env: dict[Value, Any] = {}
    for k, entry in enumerate(graph.inputs):
        env[entry.value] = made.placeholder(f"in{k}")
    for node in graph.nodes:
        args = map_values(env.__getitem__, node.args)
        if node.form == DRAW:
            call = made.call_function(draw, (node.op, *args))
        elif node.form == "inplace":
            call = made.call_function(write, (node.op, args[0], *args))
        elif node.form == "out":
            outs = tuple(env[value] for value in node.outs)
            call = made.call_function(write, (node.op, outs[0] if len(outs) == 1 else outs, *args))
        elif node.op.kind == "number":
            call = made.call_function(node.op.compute, args)
        else:
            call = made.call_function(*_as_written(node.op, args))
        call.meta["module"], call.meta["stack_trace"] = node.module, node.line
        several = len(node.results) > 1 or (node.results and _returns_list(node))
        for k, value in enumerate(node.results):
            env[value] = made.call_function(operator.getitem, (call, k)) if several else call
            env[value].meta["type"] = value.type
    made.output(tuple(map_values(env.__getitem__, item) for item in graph.outputs))
    return tangrad.fx.GraphModule(tangrad.nn.Module(), made, "JitGraph")


def _as_written(op: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the call of an op as a program writes it: what back ends look for.

    Of `add_plain(x, 1)` that is `add(x, 1)`; arguments that have their defaults at the end are
    left out.
    """
    params = op.definition.schema.params
    named = {p.name: a for p, a in zip(params, args, strict=True) if p.keyword_only}
    placed = [(p, a) for p, a in zip(params, args, strict=True) if not p.keyword_only]
    while placed and _is_default(*placed[-1]):
        placed.pop()
    defaults = {p.name for p, a in zip(params, args, strict=True) if _is_default(p, a)}
    kwargs = {name: a for name, a in named.items() if name not in defaults}
    return _shown_forms().get(op, op), tuple(a for _, a in placed), kwargs


def _is_default(param: Any, argument: Any) -> bool:
    return type(argument) is type(param.default) and argument == param.default


@functools.cache
def _shown_forms() -> dict[Any, Any]:
    """Return for ops that are one case of another, which programs call: that other."""
    shown = (op for op in all_ops().values() if op.definition.function)
    return {case: op for op in shown for case in op.overloads or ()}


def _returns_list(node: Node) -> bool:
    if node.op.kind == "number":
        return False
    return bool(node.op.definition.schema.result == "Tensor[]")


def from_fx(module: Any, *examples: Any) -> Graph:
    """Return the graph of a `tangrad.fx` module, by running it on example inputs.

    Args:
        module: a GraphModule.
        *examples: its inputs.

    Raises:
        CaptureError: its code looks at values, or uses tensors of unknown origin.
    """
    from tangrad.plugin import traced_calls
    from tangrad_jit.capture.recorder import Recorder, memory_of

    held = [*module.named_parameters(), *module.named_buffers()]
    known = {memory_of(t): ("capture", name, t) for name, t in held}
    recorder = Recorder("fx", lambda t: known.get(memory_of(t)))
    for k, example in enumerate(examples):
        recorder.argument(example, f"in{k}")
    with traced_calls(recorder), tangrad.no_grad():
        result = module(*examples)
    recorder.finish()
    several = result if isinstance(result, (tuple, list)) else (result,)
    recorder.graph.outputs = [
        recorder.value_of(item) if isinstance(item, tangrad.Tensor) else item for item in several
    ]
    return recorder.graph
