"""Compare two graphs of one model: float, prepared or quantized, node by node.

Weights (`extract_weights`), outputs of both models (`add_loggers`), outputs of one model's nodes
on the very inputs of the other's (`add_shadow_loggers`), and outputs of several quantized forms
of each node on the inputs that it has in float (`prepare_n_shadows_model`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad import fx, nn
from tangrad_quantization.fx.prepare import state_of
from tangrad_quantization.fx.tracer import QuantizationTracer
from tangrad_quantization.ns.fx import n_shadows_utils
from tangrad_quantization.ns.fx.graph_matcher import get_matching_subgraph_pairs
from tangrad_quantization.ns.fx.graph_passes import (
    add_loggers_to_model,
    create_a_shadows_b,
    fqn_of,
)
from tangrad_quantization.ns.fx.mappings import Families
from tangrad_quantization.ns.fx.ns_types import NSResultsType, NSSubgraph
from tangrad_quantization.ns.fx.qconfig_multi_mapping import QConfigMultiMapping
from tangrad_quantization.ns.fx.utils import compute_sqnr, get_target_type_str
from tangrad_quantization.ns.fx.weight_utils import Readers, extract_weight_from_node
from tangrad_quantization.observer import is_observer

__all__ = [
    "NSTracer",
    "OutputComparisonLogger",
    "OutputLogger",
    "add_loggers",
    "add_shadow_loggers",
    "convert_n_shadows_model",
    "extend_logger_results_with_comparison",
    "extract_logger_info",
    "extract_results_n_shadows_model",
    "extract_shadow_logger_info",
    "extract_weights",
    "loggers_set_enabled",
    "loggers_set_save_activations",
    "prepare_n_shadows_model",
    "print_comparisons_n_shadows_model",
]


class OutputLogger(nn.Module):
    """Keep what passes.

    Args:
        ref_node_name: the node for whose sake the logger was put in.
        prev_node_name: the node whose value passes.
        model_name: the name of the model.
        ref_name: the name that both models have for the place.
        prev_node_target_type: what the node calls whose value passes, as text.
        ref_node_target_type: what the other node calls.
        results_type: see `NSSingleResultValuesType`.
        index_within_arg: the place in a list of inputs.
        index_of_arg: the place among the arguments.
        fqn: the path of the module in which the node was traced.
        qconfig_str: the configuration of a quantized form, as text.

    Attributes:
        stats: the tensors that passed.
        stats_rnn: what recurrent layers gave: outputs and states.
        enabled: whether anything is kept.
        save_activations: whether tensors are.
    """

    _is_impure = True  # a graph is not rid of it as of dead code

    def __init__(
        self,
        ref_node_name: str,
        prev_node_name: str,
        model_name: str,
        ref_name: str,
        prev_node_target_type: str,
        ref_node_target_type: str,
        results_type: str,
        index_within_arg: int,
        index_of_arg: int,
        fqn: str | None,
        qconfig_str: str | None = "",
    ) -> None:
        super().__init__()
        self.stats: list[Any] = []
        self.stats_rnn: list[Any] = []
        self.ref_node_name, self.prev_node_name = ref_node_name, prev_node_name
        self.model_name, self.ref_name = model_name, ref_name
        self.prev_node_target_type = prev_node_target_type
        self.ref_node_target_type = ref_node_target_type
        self.results_type = results_type
        self.index_within_arg, self.index_of_arg = index_within_arg, index_of_arg
        self.fqn, self.qconfig_str = fqn, qconfig_str
        self.enabled = self.save_activations = True

    def forward(self, x: Any) -> Any:
        """Keep x, and return it."""
        if self.enabled and self.save_activations:
            self._keep(x)
        return x

    def _keep(self, x: Any) -> None:
        if isinstance(x, tangrad.Tensor):
            self.stats.append(x.detach())
        elif isinstance(x, tuple) and len(x) == 2 and len(x[1]) == 2:
            output, (hidden, cell) = x
            self.stats_rnn.append((output.detach(), (hidden.detach(), cell.detach())))

    def __repr__(self) -> str:
        own = {
            name: value
            for name, value in vars(self).items()
            if name != "training" and not name.startswith("_")
        }
        return f"{type(self).__name__}({own})"


class OutputComparisonLogger(OutputLogger):
    """Keep what passes, and how far it is from what it should be; arguments as of the base.

    Attributes:
        comparison_fn: `compute_sqnr`.
        comparisons: what it said.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.comparison_fn, self.comparison_fn_name = compute_sqnr, "sqnr"
        self.comparisons: list[Any] = []

    def forward(self, x: Any, x_ref: Any) -> Any:  # type: ignore[override]
        """Keep x and its distance from x_ref, and return it.

        Raises:
            AssertionError: it is no tensor.
        """
        if not self.enabled:
            return x
        if not isinstance(x, tangrad.Tensor):
            raise AssertionError(
                f"only tensors are compared, and '{self.prev_node_name}' gave {type(x).__name__}; "
                f"give it the configuration None"
            )
        if self.save_activations:
            self._keep(x)
        self.comparisons.append(self.comparison_fn(x, x_ref))
        return x


class NSTracer(QuantizationTracer):
    """Trace a model as for quantization, and look into no observer."""

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """Return whether a module becomes one node."""
        return is_observer(m) or super().is_leaf_module(m, module_qualified_name)


def _traced(model: Any, tracer: Any = None) -> Any:
    """Return the graph module of a model: itself, if it is one."""
    if isinstance(model, fx.GraphModule):
        observed = state_of(model)
        if observed is not None:
            model._node_name_to_scope = observed.node_name_to_scope
        return model
    tracer = tracer or NSTracer([], [])
    made = fx.GraphModule(model, tracer.trace(model))
    made._node_name_to_scope = tracer.node_name_to_scope
    return made


def extract_weights(
    model_name_a: str,
    model_a: Any,
    model_name_b: str,
    model_b: Any,
    base_name_to_sets_of_related_ops: Families | None = None,
    unmatchable_types_map: Families | None = None,
    op_to_type_to_weight_extraction_fn: Readers | None = None,
) -> NSResultsType:
    """Return the weights of nodes that two models have in common.

    Args:
        model_name_a: name of the first model in the result.
        model_a: the first model.
        model_name_b: name of the second; the result has the names of its nodes.
        model_b: the second model.
        base_name_to_sets_of_related_ops: the forms of each op, see `ns.fx.mappings`.
        unmatchable_types_map: what is not compared.
        op_to_type_to_weight_extraction_fn: where weights are, see `ns.fx.weight_utils`.

    Raises:
        GraphMatchingException: the models do not have the same ops in the same order.
    """
    models = {model_name_a: _traced(model_a), model_name_b: _traced(model_b)}
    pairs = get_matching_subgraph_pairs(
        *models.values(), base_name_to_sets_of_related_ops, unmatchable_types_map
    )
    results: NSResultsType = {}
    for ref_name, parts in pairs.items():
        for (name, model), part in zip(models.items(), parts, strict=True):
            node = part.base_op_node
            found = extract_weight_from_node(node, model, op_to_type_to_weight_extraction_fn)
            if found is not None:
                found["fqn"] = fqn_of(node, model)
                results.setdefault(ref_name, {}).setdefault(found["type"], {})[name] = [found]
    return _named_after(results, model_name_b)


def add_loggers(
    name_a: str,
    model_a: Any,
    name_b: str,
    model_b: Any,
    logger_cls: Callable[..., Any],
    should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: Families | None = None,
    unmatchable_types_map: Families | None = None,
) -> tuple[Any, Any]:
    """Return two models with loggers at the outputs of nodes that they have in common.

    Graph modules are changed.

    Args:
        name_a: name of the first model.
        model_a: the first model.
        name_b: name of the second.
        model_b: the second model.
        logger_cls: makes loggers: `OutputLogger`, or a class with its arguments.
        should_log_inputs: whether inputs are kept, too.
        base_name_to_sets_of_related_ops: the forms of each op, see `ns.fx.mappings`.
        unmatchable_types_map: what is not compared.

    Raises:
        GraphMatchingException: the models do not have the same ops in the same order.
    """
    models = _traced(model_a), _traced(model_b)
    pairs = get_matching_subgraph_pairs(
        *models, base_name_to_sets_of_related_ops, unmatchable_types_map
    )

    def places(index: int, end: str) -> dict[fx.Node, tuple[str, str]]:
        found = {}
        for ref_name, parts in pairs.items():
            part: NSSubgraph = parts[index]
            kind = get_target_type_str(part.base_op_node, models[index])
            found[getattr(part, end)] = (ref_name, kind)
        return found

    made = [
        add_loggers_to_model(
            model,
            places(index, "start_node") if should_log_inputs else {},
            places(index, "end_node"),
            logger_cls,
            name,
        )
        for index, (name, model) in enumerate(zip((name_a, name_b), models, strict=True))
    ]
    return made[0], made[1]


def _kept_by(model: Any, results: NSResultsType, logger_cls: Any) -> None:
    """Add what loggers of a model kept to the results."""
    for module in model.modules():
        if not isinstance(module, logger_cls):
            continue
        of_place = results.setdefault(module.ref_name, {}).setdefault(module.results_type, {})
        found = of_place.setdefault(module.model_name, [])
        names = (
            *("ref_node_name", "ref_node_target_type", "prev_node_name", "prev_node_target_type"),
            *("index_within_arg", "index_of_arg", "fqn", "qconfig_str"),
        )
        found.append(
            {
                "type": module.results_type,
                "values": module.stats_rnn or module.stats,
                **{name: getattr(module, name) for name in names},
                "comparisons": getattr(module, "comparisons", []),
                "comparison_fn_name": getattr(module, "comparison_fn_name", ""),
            }
        )
        found.sort(key=lambda kept: (kept["index_of_arg"], kept["index_within_arg"]))


def extract_logger_info(
    model_a: Any, model_b: Any, logger_cls: Any, model_name_to_use_for_layer_names: str
) -> NSResultsType:
    """Return what the loggers of two models kept.

    Args:
        model_a: a model of `add_loggers`, after calls.
        model_b: the other.
        logger_cls: the class of the loggers.
        model_name_to_use_for_layer_names: the name of the model whose nodes name the places.
    """
    results: NSResultsType = {}
    for model in (model_a, model_b):
        _kept_by(model, results, logger_cls)
    return _named_after(results, model_name_to_use_for_layer_names)


def add_shadow_loggers(
    name_a: str,
    model_a: Any,
    name_b: str,
    model_b: Any,
    logger_cls: Callable[..., Any],
    should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: Families | None = None,
    node_type_to_io_type_map: Families | None = None,
    unmatchable_types_map: Families | None = None,
) -> Any:
    """Return the second model, in which nodes of the first run beside its own on their inputs.

    Numbers are quantized, and integers dequantized, as the first model's nodes take them. Nodes
    of several tensors, and nodes of which it is not known what they take, get no shadow, with a
    warning. The second model is changed, if it is a graph module.

    Args:
        name_a: name of the first model.
        model_a: the first model.
        name_b: name of the second.
        model_b: the second model.
        logger_cls: makes loggers: `OutputLogger`, or a class with its arguments.
        should_log_inputs: whether inputs are kept, too.
        base_name_to_sets_of_related_ops: the forms of each op, see `ns.fx.mappings`.
        node_type_to_io_type_map: what takes numbers and integers.
        unmatchable_types_map: what is not compared.

    Raises:
        GraphMatchingException: the models do not have the same ops in the same order.
    """
    traced_a, traced_b = _traced(model_a), _traced(model_b)
    pairs = get_matching_subgraph_pairs(
        traced_a, traced_b, base_name_to_sets_of_related_ops, unmatchable_types_map
    )
    return create_a_shadows_b(
        name_a,
        traced_a,
        name_b,
        traced_b,
        pairs,
        logger_cls,
        should_log_inputs,
        node_type_to_io_type_map,
    )


def extract_shadow_logger_info(
    model_a_shadows_b: Any, logger_cls: Any, model_name_to_use_for_layer_names: str
) -> NSResultsType:
    """Return what the loggers of a model of `add_shadow_loggers` kept.

    Args:
        model_a_shadows_b: the model, after calls.
        logger_cls: the class of the loggers.
        model_name_to_use_for_layer_names: the name of the model whose nodes name the places.
    """
    results: NSResultsType = {}
    _kept_by(model_a_shadows_b, results, logger_cls)
    return _named_after(results, model_name_to_use_for_layer_names)


def _named_after(results: NSResultsType, model_name: str) -> NSResultsType:
    """Return results by the names of one model's nodes; paths that one model lacks are the other's.

    What a quantized model keeps of its modules' paths is little.
    """
    made: NSResultsType = {}
    for ref_name, by_type in results.items():
        for by_model in by_type.values():
            for kept in zip(*by_model.values(), strict=False):
                known = next((one["fqn"] for one in kept if one["fqn"] is not None), None)
                for one in kept:
                    one["fqn"] = known if one["fqn"] is None else one["fqn"]
        named = [by_model[model_name] for by_model in by_type.values() if model_name in by_model]
        made[named[-1][0]["ref_node_name"] if named else ref_name] = by_type
    return made


def extend_logger_results_with_comparison(
    results: NSResultsType,
    model_name_1: str,
    model_name_2: str,
    comparison_fn: Callable[[Any, Any], Any],
    comparison_name: str,
) -> None:
    """Add comparisons of what two models kept to what the second kept, in place.

    Args:
        results: of `extract_weights`, `extract_logger_info` or `extract_shadow_logger_info`.
        model_name_1: the name of one model.
        model_name_2: the name of the other.
        comparison_fn: of two tensors, such as `ns.fx.utils.compute_sqnr`.
        comparison_name: the key of what it says.

    Raises:
        AssertionError: a model kept nothing at a place.
    """
    for place, by_type in results.items():
        for by_model in by_type.values():
            for name in (model_name_1, model_name_2):
                if name not in by_model:
                    found = ", ".join(by_model)
                    raise AssertionError(f"{name} not found in results of '{place}', but {found}")
            first = {
                (kept["index_within_arg"], kept["index_of_arg"]): kept
                for kept in by_model[model_name_1]
            }
            for kept in by_model[model_name_2]:
                at = kept["index_within_arg"], kept["index_of_arg"]
                if at not in first:
                    raise AssertionError(f"'{place}': {model_name_1} kept nothing of input {at}")
                kept[comparison_name] = [
                    comparison_fn(one, other)
                    for one, other in zip(first[at]["values"], kept["values"], strict=False)
                ]


def prepare_n_shadows_model(
    model: Any,
    example_inputs: Any,
    qconfig_multi_mapping: QConfigMultiMapping,
    backend_config: Any,
    custom_prepare_fn: Callable[..., Any] | None = None,
    custom_prepare_kwargs: dict[str, Any] | None = None,
    custom_tracer: Any = None,
) -> Any:
    """Return a graph module in which quantized forms of each part run beside it.

    Each part that the backend quantizes as one gets a form for each of its configurations, on the
    inputs that the part has in float. Show the model calibration data, call
    `convert_n_shadows_model` and `loggers_set_enabled`, show it more data, and read what
    `extract_results_n_shadows_model` returns.

    Args:
        model: the model, in evaluation mode. Its modules are shared with the result.
        example_inputs: inputs of the model.
        qconfig_multi_mapping: configurations.
        backend_config: what can be quantized.
        custom_prepare_fn: prepares a form in the place of `prepare_fx`.
        custom_prepare_kwargs: further arguments of it.
        custom_tracer: traces the model.

    Raises:
        AssertionError: the further arguments are those that are given anyway.
    """
    from tangrad_quantization.quantize_fx import prepare_fx

    extra = custom_prepare_kwargs or {}
    for name in ("example_inputs", "prepare_custom_config", "qconfig_mapping"):
        if name in extra:
            raise AssertionError(f"cannot specify {name} in custom_prepare_kwargs")

    def prepared(form: Any, mapping: Any, examples: tuple[Any, ...]) -> Any:
        if custom_prepare_fn is None:
            return prepare_fx(form, mapping, examples)
        return custom_prepare_fn(form, example_inputs=examples, qconfig_mapping=mapping, **extra)

    traced = _traced(model, custom_tracer or QuantizationTracer([], []))
    n_shadows_utils.add_candidates(
        traced,
        getattr(traced, "_node_name_to_scope", {}),
        example_inputs,
        qconfig_multi_mapping.qconfig_mappings_list,
        backend_config,
        prepared,
        (OutputLogger, OutputComparisonLogger),
    )
    return traced


def loggers_set_enabled(model: Any, enabled: bool) -> None:
    """Have the loggers of a model keep what passes, or not."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.enabled = enabled


def loggers_set_save_activations(model: Any, save_activations: bool) -> None:
    """Have the loggers of a model keep tensors, or comparisons alone."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.save_activations = save_activations


def convert_n_shadows_model(
    model: Any,
    custom_convert_fn: Callable[..., Any] | None = None,
    custom_convert_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Convert the quantized forms in a model of `prepare_n_shadows_model`, in place.

    Args:
        model: the model, after it saw calibration data.
        custom_convert_fn: converts a form in the place of `convert_fx`.
        custom_convert_kwargs: further arguments of it.
    """
    from tangrad_quantization.quantize_fx import convert_fx

    for name, form in list(model.named_children()):
        if name.startswith(n_shadows_utils.SHADOW_WRAPPER_NODE_NAME_PREFIX):
            convert = custom_convert_fn or convert_fx
            model.set_submodule(name, convert(form, **(custom_convert_kwargs or {})))
    return model


def extract_results_n_shadows_model(model: Any) -> NSResultsType:
    """Return what the loggers of a model of `prepare_n_shadows_model` kept."""
    results: NSResultsType = {}
    _kept_by(model, results, OutputLogger)
    return results


def print_comparisons_n_shadows_model(results: NSResultsType) -> None:
    """Print a line for each part, with the mean ratio of signal to noise of each form."""
    grouped = n_shadows_utils.group_results_by_subgraph(results)
    n_shadows_utils.print_n_shadows_summary(n_shadows_utils.create_results_comparison(grouped))
