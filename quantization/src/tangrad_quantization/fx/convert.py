"""Converting a prepared graph: observers become quantize and dequantize, weights get their scales.

What comes out is the reference form: float modules and functions between `dequantize` and
`quantize_per_tensor`. `lowering.py` makes kernels of it.
"""

from __future__ import annotations

import copy
from typing import Any

import tangrad
from tangrad import fx, nn
from tangrad.nn.utils.parametrize import type_before_parametrizations
from tangrad_quantization.backend_config import BackendConfig
from tangrad_quantization.fx import support
from tangrad_quantization.fx._equalize import equalize
from tangrad_quantization.fx.configuration import (
    configured,
    follow_fusion,
    follow_training,
    require_as_prepared,
)
from tangrad_quantization.fx.custom_config import ConvertCustomConfig
from tangrad_quantization.fx.lowering import lower
from tangrad_quantization.fx.prepare import STATE, Observed, state_of
from tangrad_quantization.nn.intrinsic.modules import _FusedModule
from tangrad_quantization.nn.quantized.modules.weights import observed_qparams
from tangrad_quantization.nn.quantized.reference.modules.weights import qparams_of
from tangrad_quantization.observer import is_observer
from tangrad_quantization.qconfig import qconfig_equals
from tangrad_quantization.qconfig_mapping import QConfigMapping
from tangrad_quantization.quant_type import QuantType
from tangrad_quantization.quantize import _remove_qconfig, require_finite

_STATIC = (tangrad.quint8, tangrad.qint8, tangrad.qint32)
_PER_CHANNEL = (
    tangrad.per_channel_affine,
    tangrad.per_channel_symmetric,
    tangrad.per_channel_affine_float_qparams,
)


def convert(
    model: Any,
    is_reference: bool,
    custom: ConvertCustomConfig,
    remove_qconfig: bool,
    mapping: QConfigMapping | None,
    backend: BackendConfig,
) -> fx.GraphModule:
    """Return the quantized graph module for a prepared one, which is changed.

    Args:
        model: what preparation made.
        is_reference: stop at the reference form.
        custom: what is treated specially.
        remove_qconfig: remove configurations and observers.
        mapping: configurations; None where one is not to be quantized after all.
        backend: what can be quantized.

    Raises:
        AssertionError: the model is not prepared, or the mapping contradicts that of preparation.
        RuntimeError: an observer saw nothing.
    """
    state = state_of(model)
    if state is None:
        raise AssertionError(
            f"incoming model must be produced by prepare_fx, got {type(model).__name__}; "
            "a converted model is not converted once more"
        )
    qconfigs = _qconfigs_of(model, state, mapping, backend)
    equalize(model)
    conversion = _Conversion(model, state, qconfigs, custom, backend, is_reference)
    conversion.run()
    model.graph.eliminate_dead_code()
    made = fx.GraphModule(model, model.graph)
    if not is_reference:
        made = lower(made, qconfigs, state.node_name_to_scope)
    if remove_qconfig:
        _remove_qconfig(made)
    made.delete_all_unused_submodules()
    made.meta.pop(STATE, None)
    return made


def _qconfigs_of(
    model: fx.GraphModule, state: Observed, mapping: QConfigMapping | None, backend: BackendConfig
) -> dict[str, Any]:
    before = state.node_name_to_qconfig
    if mapping is None:
        return before
    mapping = copy.deepcopy(mapping)
    if state.is_qat:
        follow_training(mapping, backend)
    follow_fusion(model, mapping)
    require_as_prepared(state.qconfig_mapping, mapping)
    found = configured(copy.deepcopy(model), mapping, state.node_name_to_scope)
    for name, qconfig in before.items():
        if found.get(name) is not None and not qconfig_equals(qconfig, found[name]):
            raise AssertionError(
                f"Expected {name} to have the same value in prepare and convert QConfigMappings, "
                f"but {qconfig} was updated to {found[name]}"
            )
    return found


class _Conversion:
    """The conversion of one graph to the reference form."""

    def __init__(
        self,
        model: fx.GraphModule,
        state: Observed,
        qconfigs: dict[str, Any],
        custom: ConvertCustomConfig,
        backend: BackendConfig,
        is_reference: bool,
    ) -> None:
        self.model, self.graph, self.state = model, model.graph, state
        self.qconfigs, self.backend, self.is_reference = qconfigs, backend, is_reference
        self.modules = dict(model.named_modules(remove_duplicate=False))
        table = custom.observed_to_quantized_mapping
        self.to_quantized = {
            kind: quantized for entries in table.values() for kind, quantized in entries.items()
        }
        self.static_custom = set(table.get(QuantType.STATIC, {}))
        self.references = {
            config.root_module: config.reference_quantized_module
            for config in backend.configs
            if config.root_module is not None
        }
        self.trained = {config.qat_module for config in backend.configs if config.qat_module}
        self._custom_nodes: set[fx.Node] = set()

    def run(self) -> None:
        """Convert every node."""
        self._observe_weights()
        nodes = list(self.graph.nodes)
        places = [node for node in nodes if node.op == "placeholder"]
        for index in self.state.prepare_custom_config.input_quantized_indexes:
            if index < len(places):
                self._dequantize(places[index])
        for node in nodes:
            if node.op == "call_module":
                self._convert_module(node)
        self._keep_outputs_quantized()

    def _observe_weights(self) -> None:
        """Let observers of constants see them: not all ran when data came through."""
        for node in self.graph.nodes:
            if node.op != "call_module" or not is_observer(self.modules[str(node.target)]):
                continue
            (source,) = node.args
            if isinstance(source, fx.Node) and source.op == "get_attr":
                constant = _attribute(self.model, str(source.target))
                self.modules[str(node.target)](constant)

    def _convert_module(self, node: fx.Node) -> None:
        module = self.modules[str(node.target)]
        kind = type_before_parametrizations(module)
        if is_observer(module):
            self._convert_observer(node, module)
        elif state_of(module) is not None:
            self._convert_standalone(node, module)
        elif kind in self.to_quantized:
            self._convert_custom(node, kind)
        elif kind in self.references or kind in self.trained or isinstance(module, _FusedModule):
            self._convert_weighted(node, module)

    # -- observers

    def _skipped(self, node: fx.Node) -> bool:
        """Return whether nothing at an observer is to be quantized any more."""
        ends = [*node.args, *node.users]
        return all(
            isinstance(end, fx.Node)
            and end.name in self.qconfigs
            and self.qconfigs[end.name] is None
            for end in ends
        )

    def _convert_observer(self, node: fx.Node, observer: Any) -> None:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        if source in self._custom_nodes:
            with self.graph.inserting_before(node):
                made = self.graph.call_method("dequantize", (source,))
            return self._replace(node, made)
        dtype, dynamic = observer.dtype, bool(getattr(observer, "is_dynamic", False))
        if self._skipped(node):
            return self._replace(node, source)
        if dynamic and dtype in (*_STATIC, tangrad.float16):
            return self._replace(node, self._in_each_call(node, source, observer))
        if dtype == tangrad.float16:
            return self._replace(node, self._as_half(node, source))
        if dtype in _STATIC:
            return self._replace(node, self._by_scale(node, source, observer))
        return self._replace(node, source)

    def _replace(self, node: fx.Node, made: fx.Node) -> None:
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)

    def _in_each_call(self, node: fx.Node, source: fx.Node, observer: Any) -> fx.Node:
        if observer.dtype == tangrad.float16:
            return self._as_half(node, source)
        reduce_range = True  # as the dynamic modules do, and PyTorch on such processors
        with self.graph.inserting_before(node):
            made = self.graph.call_function(
                tangrad.quantize_per_tensor_dynamic, (source, observer.dtype, reduce_range)
            )
            return self.graph.call_method("dequantize", (made,))

    def _as_half(self, node: fx.Node, source: fx.Node) -> fx.Node:
        with self.graph.inserting_before(node):
            made = self.graph.call_method("to", (source, tangrad.float16))
            return self.graph.call_method("dequantize", (made,))

    def _by_scale(self, node: fx.Node, source: fx.Node, observer: Any) -> fx.Node:
        scale, zero_point = observed_qparams(observer, str(node.target))
        per_channel = observer.qscheme in _PER_CHANNEL
        if not per_channel:
            scale, zero_point = scale.reshape(()), zero_point.reshape(())
        prefix = self._prefix(node)
        with self.graph.inserting_before(node):
            held = [
                self.graph.get_attr(_held(self.model, f"{prefix}_{name}_", value))
                for name, value in (("scale", scale), ("zero_point", zero_point))
            ]
            if per_channel:
                arguments = (source, *held, int(observer.ch_axis), observer.dtype)
                made = self.graph.call_function(tangrad.quantize_per_channel, arguments)
            else:
                arguments = (source, *held, observer.dtype)
                made = self.graph.call_function(tangrad.quantize_per_tensor, arguments)
            return self.graph.call_method("dequantize", (made,))

    def _prefix(self, node: fx.Node) -> str:
        """Return what the names of an observer's scale begin with, as PyTorch has them."""
        (source,) = node.args
        assert isinstance(source, fx.Node)
        place: fx.Node | None = source
        of_input = source.name in self.qconfigs and self.qconfigs[source.name] is None
        if of_input:
            users = list(node.users)
            linear = [user for user in users if user.target is nn.functional.linear]
            place = next(iter(linear or users), None)
        scopes = self.state.node_name_to_scope
        path = scopes[place.name][0] if place is not None and place.name in scopes else ""
        return (path + ("_input" if of_input else "")).replace(".", "_")

    # -- ends of the graph

    def _dequantize(self, node: fx.Node) -> None:
        with self.graph.inserting_after(node):
            made = self.graph.call_method("dequantize", (node,))
        node.replace_all_uses_with(made, lambda user: user is not made)

    def _keep_outputs_quantized(self) -> None:
        indexes = self.state.prepare_custom_config.output_quantized_indexes
        if not indexes:
            return
        node = self.graph.output_node()
        value = node.args[0]
        if isinstance(value, (list, tuple)):
            for index in indexes:
                self._undequantize(value[index], node)
        elif 0 in indexes:
            self._undequantize(value, node)

    def _undequantize(self, value: Any, output: fx.Node) -> None:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            for part in value:
                self._undequantize(part, output)
        elif isinstance(value, fx.Node) and is_dequantize(value):
            source = value.args[0]
            assert isinstance(source, fx.Node)
            output.replace_input_with(value, source)

    # -- modules

    def _convert_standalone(self, node: fx.Node, module: Any) -> None:
        state = state_of(module)
        assert state is not None
        inner = state.prepare_custom_config
        made = convert(module, self.is_reference, ConvertCustomConfig(), True, None, self.backend)
        self._swap(node, made)
        for index in inner.input_quantized_indexes:
            self._take_quantized(node, index)
        if 0 in inner.output_quantized_indexes:
            self._dequantize(node)

    def _take_quantized(self, node: fx.Node, index: int) -> None:
        argument = node.args[index]
        if isinstance(argument, fx.Node) and is_dequantize(argument):
            source = argument.args[0]
            assert isinstance(source, fx.Node)
            node.replace_input_with(argument, source)

    def _convert_custom(self, node: fx.Node, kind: Any) -> None:
        module = self.modules[str(node.target)]
        if kind in self.static_custom:
            for index in range(len(node.args)):
                self._take_quantized(node, index)
            for user in node.users:
                found = self.modules.get(str(user.target)) if user.op == "call_module" else None
                if is_observer(found):
                    module.activation_post_process = found
            self._custom_nodes.add(node)
        self._swap(node, self.to_quantized[kind].from_observed(module))

    def _swap(self, node: fx.Node, made: Any) -> None:
        self.model.set_submodule(str(node.target), made)
        self.modules[str(node.target)] = made

    def _convert_weighted(self, node: fx.Node, module: Any) -> None:
        qconfig = getattr(module, "qconfig", None)
        fake = getattr(module, "weight_fake_quant", None)
        kind = type_before_parametrizations(module)
        if fake is not None:
            module = module.to_float()
            self._swap(node, module)
            module.qconfig = qconfig
        unwanted = self.qconfigs.get(node.name, qconfig) is None or qconfig is None
        if unwanted or node.name not in self.state.observed_node_names:
            return
        config = self.backend.config_of(kind)
        types = config.dtype_configs if config is not None else []
        if not any(support.module_weight_fits(one, qconfig) for one in types):
            return
        weight = support.made(qconfig.weight) if fake is None else fake
        if weight.dtype not in (*_STATIC, tangrad.quint8, tangrad.quint4x2, tangrad.float16):
            return
        require_finite(module, str(node.target))
        self._refer(node, module, qconfig, weight)

    def _refer(self, node: fx.Node, module: Any, qconfig: Any, weight: Any) -> None:
        """Put a reference module in the place of a float one."""
        inner = module[0] if isinstance(module, _FusedModule) else module
        reference = self.references.get(type_before_parametrizations(inner))
        if reference is None:
            return
        if isinstance(inner, (nn.LSTM, nn.GRU, nn.modules.rnn.RNNCellBase)):
            found = {}
            for name, parameter in inner.named_parameters():
                if name.startswith("weight"):
                    observer = support.made(qconfig.weight)
                    observer(parameter.detach())
                    found[name] = qparams_of(observer)
        else:
            weight(inner.weight.detach())
            found = qparams_of(weight)
        try:
            made = reference.from_float(inner, found)
        except AssertionError as error:
            raise AssertionError(f"convert_fx: '{node.target}': {error}") from error
        if inner is not module:
            module[0] = made
            made = module
        self._swap(node, made)


def is_dequantize(node: Any) -> bool:
    """Return whether a node makes numbers of a quantized tensor."""
    return isinstance(node, fx.Node) and node.op == "call_method" and node.target == "dequantize"


def _attribute(model: Any, path: str) -> Any:
    for name in path.split("."):
        model = getattr(model, name)
    return model


def _held(model: Any, prefix: str, value: Any) -> str:
    """Keep a tensor as a buffer of a model under a new name, which is returned."""
    count = 0
    while hasattr(model, f"{prefix}{count}"):
        count += 1
    model.register_buffer(f"{prefix}{count}", value.detach().clone())
    return f"{prefix}{count}"
