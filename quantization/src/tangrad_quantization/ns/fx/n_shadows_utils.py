"""Several quantized forms of each part of one model, beside the part and on its inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import tangrad
from tangrad import fx
from tangrad_quantization.fx.configuration import of_layers
from tangrad_quantization.fx.matching import find_matches, quantizations
from tangrad_quantization.ns.fx.ns_types import NSResultsType, NSSingleResultValuesType
from tangrad_quantization.ns.fx.utils import (
    called_module,
    get_target_type_str,
    getattr_from_fqn,
    nodes_in,
)
from tangrad_quantization.qconfig_mapping import QConfigMapping

SHADOW_NODE_NAME_PREFIX = "shadow"
SHADOW_WRAPPER_NODE_NAME_PREFIX = "shadow_wrapper"


class OutputProp(fx.Interpreter):
    """Run a graph module on examples, and keep each node's value.

    Args:
        mod: the graph module.

    Attributes:
        values: {node: value} of the last run.
    """

    def __init__(self, mod: Any) -> None:
        super().__init__(mod, garbage_collect_values=False)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one node."""
        self.values[n] = super().run_node(n)
        return self.values[n]

    def propagate(self, *args: Any) -> None:
        """Run the graph on examples."""
        self.run(*args)


def chains(model: Any, backend_config: Any) -> list[list[fx.Node]]:
    """Return the parts of a graph that a backend quantizes as one, first nodes first.

    Args:
        model: the graph module.
        backend_config: what can be quantized.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    matches = find_matches(model.graph, modules, quantizations(backend_config))
    found: list[list[fx.Node]] = []
    for node in model.graph.nodes:
        match = matches.get(node)
        if match is not None and match.root is node:
            found.append(sorted(match.own_nodes()))
    return [nodes for nodes in found if _follow_each_other(nodes)]


def _follow_each_other(nodes: list[fx.Node]) -> bool:
    """Return whether each node takes the one before, and nothing else that is computed."""
    return all(
        list(nodes_in([node.args, dict(node.kwargs)])) == [before]
        for before, node in pairwise(nodes)
    )


def create_submodule_from_subgraph(
    model: Any, first_node: fx.Node, last_node: fx.Node
) -> fx.GraphModule:
    """Return a graph module of copies of nodes that follow each other.

    Args:
        model: the graph module.
        first_node: its inputs become inputs, and parameters that it reads are copied.
        last_node: its value becomes the output.
    """
    made = fx.GraphModule(tangrad.nn.Module(), fx.Graph())
    copied: dict[fx.Node, fx.Node] = {}
    for value in dict.fromkeys(nodes_in([first_node.args, dict(first_node.kwargs)])):
        if value.op == "get_attr":
            name = f"held_{len(copied)}"
            setattr(made, name, copy.deepcopy(getattr_from_fqn(model, str(value.target))))
            copied[value] = made.graph.get_attr(name)
        else:
            copied[value] = made.graph.placeholder(f"{value.name}_0")
    node = first_node
    for count in range(len(model.graph.nodes)):
        copied[node] = made.graph.node_copy(node, copied.__getitem__)
        if node.op == "call_module":
            copied[node].target = f"mod_{count}"
            setattr(made, f"mod_{count}", copy.deepcopy(called_module(node, model)))
        if node is last_node:
            break
        node = next(iter(node.users))
    made.graph.output(copied[last_node])
    made.recompile()
    return made


class _Candidates:
    """The quantized forms of one part.

    Args:
        model: the graph module; it is changed.
        index: the number of the part.
        nodes: of the part.
        fqn: the path of the module in which they were traced.
    """

    def __init__(self, model: Any, index: int, nodes: list[fx.Node], fqn: str | None) -> None:
        self.model, self.index = model, index
        self.first, self.last, self.fqn = nodes[0], nodes[-1], fqn
        self.behind = self.last  # what was inserted last

    def log(self, number: int, logger_cls: Any, values: tuple[Any, ...], qconfig: str) -> None:
        """Insert a logger, which waits to be enabled.

        Args:
            number: of the form; 0 for the part itself.
            logger_cls: makes the logger.
            values: what it is given.
            qconfig: the configuration, as text.
        """
        logger = logger_cls(
            self.first.name,
            self.last.name,
            f"subgraph_{self.index}_{number}",
            "model",
            get_target_type_str(self.last, self.model),
            get_target_type_str(self.first, self.model),
            NSSingleResultValuesType.NODE_OUTPUT.value,
            0,
            0,
            self.fqn or "",
            qconfig,
        )
        logger.enabled = False  # calibration is not what is compared
        self._call(f"{SHADOW_NODE_NAME_PREFIX}_{self.index}_{number}", logger, values)

    def copied(self) -> fx.GraphModule:
        """Return a copy of the part as a graph module."""
        return create_submodule_from_subgraph(self.model, self.first, self.last)

    def inputs(self) -> tuple[fx.Node, ...]:
        """Return the nodes whose values the part takes, without parameters."""
        given = dict.fromkeys(nodes_in([self.first.args, dict(self.first.kwargs)]))
        return tuple(value for value in given if value.op != "get_attr")

    def add(self, number: int, logger_cls: Any, form: Any, qconfig: Any) -> None:
        """Insert a prepared copy and the logger that compares it."""
        name = f"{SHADOW_WRAPPER_NODE_NAME_PREFIX}_{self.index}_{number}"
        made = self._call(name, form, self.inputs())
        self.log(number, logger_cls, (made, self.last), str(qconfig))

    def _call(self, name: str, module: Any, values: tuple[Any, ...]) -> fx.Node:
        self.model.add_submodule(name, module)
        with self.model.graph.inserting_after(self.behind):
            self.behind = self.model.graph.call_module(name, values)
        return self.behind


def add_candidates(
    model: Any,
    scopes: Any,
    example_inputs: Any,
    mappings: list[QConfigMapping],
    backend_config: Any,
    prepare: Callable[[Any, QConfigMapping, tuple[Any, ...]], Any],
    loggers: tuple[Any, Any],
) -> None:
    """Insert the quantized forms of all parts of a graph module, in place.

    Args:
        model: the graph module.
        scopes: modules in which nodes were traced.
        example_inputs: of the model.
        mappings: a configuration of each form for each part; None for no form.
        backend_config: what can be quantized.
        prepare: of (graph module, configuration, examples), prepares a form.
        loggers: makers of what keeps the part's output, and of what compares a form's with it.
    """
    examples = OutputProp(model)
    examples.propagate(*example_inputs)
    configured = [of_layers(model, mapping, scopes) for mapping in mappings]
    for index, nodes in enumerate(chains(model, backend_config)):
        qconfigs = [found.get(nodes[0].name) for found in configured]
        if all(qconfig is None for qconfig in qconfigs):
            continue
        part = _Candidates(model, index, nodes, scopes.get(nodes[0].name, (None,))[0])
        inputs = tuple(examples.values[node] for node in part.inputs())
        part.log(0, loggers[0], (part.last,), "")
        for number, qconfig in enumerate(qconfigs, 1):
            if qconfig is not None:
                form = prepare(part.copied(), QConfigMapping().set_global(qconfig), inputs)
                part.add(number, loggers[1], form, qconfig)
    model.recompile()


def group_results_by_subgraph(results: NSResultsType) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what loggers kept by part and form: {"subgraph_0": {"0": ..., "1": ...}}."""
    kept = (
        *("ref_node_name", "ref_node_target_type", "fqn", "values", "qconfig_str"),
        *("comparisons", "comparison_fn_name"),
    )
    grouped: dict[str, dict[str, dict[str, Any]]] = {}
    by_name: Iterable[tuple[str, Any]] = next(iter(results["model"].values())).items()
    for name, found in by_name:
        part, _, number = name.rpartition("_")
        grouped.setdefault(part, {})[number] = {key: found[0][key] for key in kept}
    return grouped


def create_results_comparison(
    results_grouped: dict[str, dict[str, dict[str, Any]]],
) -> dict[str, dict[str, Any]]:
    """Return for each part what it is, and for each form of it the comparisons and their mean."""
    made: dict[str, dict[str, Any]] = {}
    for name, forms in results_grouped.items():
        candidates = {}
        for number, form in forms.items():
            if number == "0":
                continue
            compared = tangrad.stack(form["comparisons"])
            candidates[number] = {
                "qconfig_str": form["qconfig_str"],
                "comparison_fn_name": form["comparison_fn_name"],
                "cmp_raw": compared,
                "cmp_mean": compared.mean(),
            }
        said = {key: forms["0"][key] for key in ("ref_node_name", "ref_node_target_type", "fqn")}
        made[name] = {**said, "candidates": candidates}
    return made


def print_n_shadows_summary(results_comparison: dict[str, dict[str, Any]]) -> None:
    """Print a line for each part: its node, and the mean of the comparisons of each form."""
    count = max((len(part["candidates"]) for part in results_comparison.values()), default=0)
    table = [["node_name", "node_type", "fqn", *map(str, range(count))]]
    for part in results_comparison.values():
        means = [
            f"{tangrad.as_tensor(form['cmp_mean']).item():.4f}"
            for form in part["candidates"].values()
        ]
        means += [""] * (count - len(means))
        table.append([part["ref_node_name"], part["ref_node_target_type"], part["fqn"], *means])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    table.insert(1, ["-" * width for width in widths])
    for row in table:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
