"""Preparing a graph: observers go where values will be quantized.

Each node is asked which observer its inputs, its weight and its output are to have. A value gets
an observer where what it is made as and what it is used as differ.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import tangrad
from tangrad import fx
from tangrad.nn import functional as F
from tangrad_quantization.backend_config import BackendConfig, ObservationType
from tangrad_quantization.fx import support
from tangrad_quantization.fx.configuration import (
    Scopes,
    configured,
    follow_fusion,
    follow_training,
    swap_for_training,
)
from tangrad_quantization.fx.custom_config import PrepareCustomConfig, StandaloneModuleConfigEntry
from tangrad_quantization.fx.matching import Match, find_matches, quantizations
from tangrad_quantization.observer import PlaceholderObserver, is_observer
from tangrad_quantization.qconfig_mapping import QConfigMapping
from tangrad_quantization.quant_type import QuantType

STATE = "_observed_graph_module_attrs"  # PyTorch's key in `meta`
_QUINT8 = PlaceholderObserver.with_args(dtype=tangrad.quint8)
# Weights of these stay float.
_FLOAT_WEIGHTS = (F.layer_norm, F.group_norm, F.instance_norm)
_ASKING = {"size", "dim", "ndimension", "numel", "nelement", "item", "tolist"}
# Methods with arguments that are no numbers to be observed: from which on.
_PLAIN_ARGUMENTS = {
    "masked_fill": 1,
    **dict.fromkeys(("permute", "repeat", "reshape", "size", "transpose", "view"), 1),
    **dict.fromkeys(("unsqueeze", "unsqueeze_"), 1),
}


@dataclass
class Wanted:
    """The observers that a node is to have: constructors, None where there are no numbers.

    Attributes:
        activation: of inputs.
        output: of the output.
        weight, bias: of these arguments of a function.
        weight_index, bias_index: where they stand.
        shares: whether the output has the input's observer.
        reuses: whether inputs are not observed for this node.
        standalone: whether the node is a module that is prepared by itself.
    """

    activation: Any = support.plain
    output: Any = support.plain
    weight: Any = None
    bias: Any = None
    weight_index: int | None = None
    bias_index: int | None = None
    shares: bool = False
    reuses: bool = False
    standalone: bool = False

    def role_of(self, node: fx.Node, argument: fx.Node) -> str:
        """Return whether an argument of a node is its "weight", "bias" or an "activation"."""
        for role, index in (("weight", self.weight_index), ("bias", self.bias_index)):
            placed = index is not None and index < len(node.args) and node.args[index] is argument
            if placed or node.kwargs.get(role) is argument:
                return role
        return "activation"


@dataclass
class Observed:
    """What conversion has to know of a prepared graph.

    Attributes:
        node_name_to_qconfig: configurations by nodes.
        node_name_to_scope: modules in which nodes were traced.
        prepare_custom_config: what was said beside them.
        qconfig_mapping: where they come from.
        is_qat: whether the model was prepared for training.
        observed_node_names: nodes that a backend quantizes.
        is_observed_standalone_module: whether the graph is a module prepared by itself.
    """

    node_name_to_qconfig: dict[str, Any]
    node_name_to_scope: Scopes
    prepare_custom_config: PrepareCustomConfig
    qconfig_mapping: QConfigMapping
    is_qat: bool
    observed_node_names: set[str] = field(default_factory=set)
    is_observed_standalone_module: bool = False


def state_of(model: Any) -> Observed | None:
    """Return what a prepared graph module knows of itself; None for other modules."""
    found = getattr(model, "meta", {}).get(STATE) if isinstance(model, fx.GraphModule) else None
    return found if isinstance(found, Observed) else None


Standalone = Callable[[Any, QConfigMapping, PrepareCustomConfig, BackendConfig], Any]


def prepare(
    model: fx.GraphModule,
    mapping: QConfigMapping,
    is_qat: bool,
    scopes: Scopes,
    custom: PrepareCustomConfig,
    backend: BackendConfig,
    standalone: Standalone | None = None,
) -> fx.GraphModule:
    """Return the graph module with observers.

    Args:
        model: traced and fused.
        mapping: configurations.
        is_qat: whether modules with fake quantization are put in.
        scopes: modules in which nodes were traced.
        custom: what is treated specially.
        backend: what can be quantized.
        standalone: prepares a module by itself.
    """
    mapping = copy.deepcopy(mapping)
    follow_fusion(model, mapping)
    qconfigs = configured(model, mapping, scopes)
    if is_qat:
        swap_for_training(model, backend)
        follow_training(mapping, backend)
    observation = _Observation(model, qconfigs, custom, backend, is_qat)
    observation.prepare_standalone(standalone)
    observation.insert()
    made = fx.GraphModule(model, model.graph)
    made.meta[STATE] = Observed(
        qconfigs, scopes, custom, mapping, is_qat, observation.observed_names
    )
    return made


class _Observation:
    """The insertion of observers into one graph."""

    def __init__(
        self,
        model: fx.GraphModule,
        qconfigs: dict[str, Any],
        custom: PrepareCustomConfig,
        backend: BackendConfig,
        is_qat: bool,
    ) -> None:
        self.model, self.graph = model, model.graph
        self.qconfigs, self.custom, self.backend, self.is_qat = qconfigs, custom, backend, is_qat
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.matches = find_matches(self.graph, self.modules, quantizations(backend))
        self.observed_names: set[str] = set()
        self._plain: dict[fx.Node, bool] = {}
        self._count = 0
        devices = {p.device for p in model.parameters()} | {b.device for b in model.buffers()}
        self._device = next(iter(devices), None)
        self.standalone = {
            node: entry for node in self.graph.nodes if (entry := self._entry(node)) is not None
        }
        table = custom.float_to_observed_mapping.get(QuantType.STATIC, {})
        self.observing = {
            node: table[type(self.modules[str(node.target)])]
            for node in self.graph.nodes
            if node.op == "call_module" and type(self.modules[str(node.target)]) in table
        }
        self.wanted = {node: Wanted() for node in self.graph.nodes}

    # -- modules that are prepared by themselves

    def _entry(self, node: fx.Node) -> StandaloneModuleConfigEntry | None:
        if node.op != "call_module":
            return None
        kind = type(self.modules[str(node.target)])
        by_class = self.custom.standalone_module_classes.get(kind)
        return self.custom.standalone_module_names.get(str(node.target), by_class)

    def prepare_standalone(self, prepare: Standalone | None) -> None:
        """Prepare the modules that are to be prepared by themselves."""
        for node, entry in self.standalone.items():
            assert prepare is not None
            qconfig = self.qconfigs[node.name]
            made = prepare(
                self.modules[str(node.target)],
                entry.qconfig_mapping or QConfigMapping().set_global(qconfig),
                entry.prepare_custom_config or PrepareCustomConfig(),
                entry.backend_config or self.backend,
            )
            self.model.set_submodule(str(node.target), made)
            self.modules[str(node.target)] = made

    # -- what each node wants

    def _is_plain(self, node: fx.Node) -> bool:
        """Return whether a node is computed of no tensors, as sizes are."""
        if node not in self._plain:
            self._plain[node] = self._computed_of_none(node)
        return self._plain[node]

    def _computed_of_none(self, node: fx.Node) -> bool:
        if node.op in ("placeholder", "get_attr", "call_module", "output"):
            return False
        if node.op == "call_method" and node.target in _ASKING:
            return True
        if node.op == "call_function" and node.target is getattr:
            return node.args[1] in ("shape", "ndim", "device", "dtype")
        return all(map(self._is_plain, node.all_input_nodes))

    def _decide(self) -> None:
        for match in self._each_match():
            qconfig = self.qconfigs.get(match.last.name)
            for node in match.own_nodes():
                if qconfig is not None and not self._is_plain(node):
                    self.wanted[node] = self._wanted_of(node, match, qconfig)
        for node in (*self.standalone, *self.observing):
            qconfig = self.qconfigs.get(node.name)
            if qconfig is not None:
                alone = node in self.standalone
                self.wanted[node] = Wanted(
                    qconfig.activation, qconfig.activation, qconfig.weight, standalone=alone
                )
        self._decide_ends()
        for match in self._each_match():
            qconfig = self.qconfigs.get(match.last.name)
            if qconfig is not None and not self._is_supported(match, qconfig):
                for node in match.own_nodes():
                    if self.wanted[node].output is not None:
                        self.wanted[node] = Wanted()

    def _decide_ends(self) -> None:
        """Decide for inputs and outputs of the graph, and for what is no tensor."""
        places = [node for node in self.graph.nodes if node.op == "placeholder"]
        for index in self.custom.input_quantized_indexes:
            if index < len(places):
                self.wanted[places[index]] = Wanted(_QUINT8, _QUINT8)
        for node in self.graph.nodes:
            if node.op.startswith("call_") and self._is_plain(node):
                self.wanted[node] = Wanted(None, None)
            first = _PLAIN_ARGUMENTS.get(node.target) if node.op == "call_method" else None
            for argument in node.args[first:] if first is not None else ():
                self._make_plain(argument)

    def _make_plain(self, argument: Any) -> None:
        if isinstance(argument, (list, tuple)):
            for part in argument:
                self._make_plain(part)
        if isinstance(argument, fx.Node):
            self.wanted[argument] = replace(self.wanted[argument], activation=None, output=None)
            match = self.matches.get(argument)
            if match is not None and self._shares(match, argument) and argument.args:
                self._make_plain(argument.args[0])

    def _each_match(self) -> Iterable[Match]:
        """Return the matches that count, in the order of the graph."""
        special = {*self.standalone, *self.observing}
        for node in self.graph.nodes:
            match = self.matches.get(node)
            if match is not None and match.last is node and node not in special:
                yield match

    def _shares(self, match: Match, node: fx.Node) -> bool:
        kinds = match.config._num_tensor_args_to_observation_type
        if kinds:
            tensors = [
                argument
                for argument in match.root.args
                if isinstance(argument, fx.Node) and not self._is_plain(argument)
            ]
            kind = kinds.get(len(tensors), match.config.observation_type)
        else:
            kind = match.config.observation_type
        return kind is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT

    def _wanted_of(self, node: fx.Node, match: Match, qconfig: Any) -> Wanted:
        config = self.backend.config_of(node.target) if node.op == "call_function" else None
        places = config._input_type_to_index if config is not None else {}
        if match.config.observation_type is ObservationType.INPUT_OUTPUT_NOT_OBSERVED:
            return Wanted(None, None)
        return Wanted(
            activation=qconfig.activation,
            output=qconfig.activation,
            weight=qconfig.weight,
            bias=support.bias_observer(qconfig),
            weight_index=places.get("weight"),
            bias_index=places.get("bias"),
            shares=self._shares(match, node),
            reuses=support.reuses_input(qconfig),
        )

    def _is_supported(self, match: Match, qconfig: Any) -> bool:
        root = match.root
        wanted = self.wanted[root]
        arguments = root.all_input_nodes
        checks = {
            "activation": (support.takes_activation, wanted.activation),
            "weight": (support.takes_weight, wanted.weight),
            "bias": (support.takes_bias, wanted.bias),
        }
        roles = {wanted.role_of(root, argument) for argument in arguments}
        for config in match.config.dtype_configs:
            taken = all(checks[role][0](config, checks[role][1]) for role in roles)
            if taken and support.gives_output(config, self.wanted[match.last].output):
                return True
        return False

    # -- insertion

    def insert(self) -> None:
        """Insert all observers."""
        self._decide()
        supported = {
            match.last: match
            for match in self._each_match()
            if self.qconfigs.get(match.last.name) is not None
            and self._is_supported(match, self.qconfigs[match.last.name])
        }
        roots = {match.root: match for match in supported.values()}
        for node in list(self.graph.nodes):
            if node in (*self.standalone, *self.observing):
                self._observe_special(node)
                continue
            if node in roots:
                self.observed_names |= {own.name for own in roots[node].own_nodes()}
                self._observe_inputs(node)
            if node in supported:
                self._observe_output(node)

    def _observe_special(self, node: fx.Node) -> None:
        if self.qconfigs.get(node.name) is None:
            return
        self.observed_names.add(node.name)
        self._observe_inputs(node)
        if node in self.observing:
            self._swap_observing(node)
            self._observe_output(node)

    def _swap_observing(self, node: fx.Node) -> None:
        module = self.modules[str(node.target)]
        if type(module) in self.custom.float_to_observed_mapping.get(QuantType.STATIC, {}):
            made = self.observing[node].from_float(module)
            made.qconfig = self.qconfigs[node.name]
            self.model.set_submodule(str(node.target), made)
            self.modules[str(node.target)] = made

    def _is_observer(self, node: Any) -> bool:
        return (
            isinstance(node, fx.Node)
            and node.op == "call_module"
            and is_observer(self.modules[str(node.target)])
        )

    def _made_as(self, node: fx.Node) -> Any:
        """Return the dtype as which a value goes on."""
        source = node.args[0] if self._is_observer(node) else node
        assert isinstance(source, fx.Node)
        wanted = self.wanted[source]
        if wanted.standalone:
            entry = self.standalone[source].prepare_custom_config
            quantized = entry is not None and 0 in entry.output_quantized_indexes
            return tangrad.quint8 if quantized else tangrad.float32
        dtype, dynamic = support.aim_of(wanted.output)
        return tangrad.float32 if dynamic else dtype

    def _observe_inputs(self, node: fx.Node) -> None:
        def observed(argument: Any) -> Any:
            if isinstance(argument, (list, tuple)):
                return type(argument)(observed(part) for part in argument)
            return self._observed(node, argument) if isinstance(argument, fx.Node) else argument

        node.args = tuple(observed(argument) for argument in node.args)
        node.kwargs = {key: observed(argument) for key, argument in node.kwargs.items()}

    def _observed(self, node: fx.Node, argument: fx.Node) -> fx.Node:
        """Return an argument, or the observer that it gets for a node."""
        constructor = self._needed(node, argument)
        if constructor is None:
            return argument
        observer = support.made(constructor)
        for user in argument.users:
            if self._is_observer(user):
                found = self.modules[str(user.target)]
                if type(found) is type(observer) and found.dtype == observer.dtype:
                    return user
        return self._insert(argument, constructor)

    def _needed(self, node: fx.Node, argument: fx.Node) -> Any:
        """Return the constructor of the observer that an argument needs, or None."""
        wanted = self.wanted[node]
        role = wanted.role_of(node, argument)
        constructor = getattr(wanted, role)
        if role == "weight" and node.target in _FLOAT_WEIGHTS:
            return None
        if wanted.standalone and not self._enters_quantized(node, argument):
            return None
        dtype, dynamic = support.aim_of(constructor)
        if dynamic:
            first = bool(node.args) and argument is node.args[0]
            return constructor if first else None
        if wanted.reuses or dtype in (None, tangrad.float32):
            return None
        made_as = self._made_as(argument)
        return None if made_as is None or made_as == dtype else constructor

    def _enters_quantized(self, node: fx.Node, argument: fx.Node) -> bool:
        entry = self.standalone[node].prepare_custom_config
        places = entry.input_quantized_indexes if entry is not None else []
        return any(index < len(node.args) and node.args[index] is argument for index in places)

    def _insert(self, node: fx.Node, constructor: Any) -> fx.Node:
        """Put an observer behind a node."""
        while hasattr(self.model, f"activation_post_process_{self._count}"):
            self._count += 1
        name = f"activation_post_process_{self._count}"
        observer = constructor()
        if self._device is not None:
            observer.to(self._device)
        for part in observer.modules():
            part.path = node.name
        self.model.add_submodule(name, observer)
        self.modules[name] = observer
        with self.graph.inserting_after(node):
            return self.graph.call_module(name, (node,))

    def _observe_output(self, node: fx.Node) -> None:
        wanted = self.wanted[node]
        dtype, dynamic = support.aim_of(wanted.output)
        if dynamic or dtype in (None, tangrad.float32):
            return
        observer = self._insert(node, wanted.output)
        node.replace_all_uses_with(observer, lambda user: user is not observer)
        if (wanted.shares or wanted.reuses) and not self._share(node, observer):
            observer.replace_all_uses_with(node)
            self.graph.erase_node(observer)

    def _share(self, node: fx.Node, observer: fx.Node) -> bool:
        """Give a node's inputs and its output one observer; return whether there is one."""
        first = next((a for a in node.args if isinstance(a, (fx.Node, list, tuple))), None)
        parts = list(first) if isinstance(first, (list, tuple)) else [first]
        found = [self._observer_above(part) for part in parts]
        if not found or any(part is None for part in found):
            return False
        shared = self.modules[str(found[0].target)]  # type: ignore[union-attr]
        for other in (*found[1:], observer):
            assert other is not None
            self.model.set_submodule(str(other.target), shared)
            self.modules[str(other.target)] = shared
        return True

    def _observer_above(self, node: Any) -> fx.Node | None:
        """Return the nearest observer that a value came through."""
        while isinstance(node, fx.Node) and not self._is_observer(node):
            if node.op == "placeholder":
                return None
            node = next((part for part in node.args if isinstance(part, fx.Node)), None)
        return node if isinstance(node, fx.Node) else None
