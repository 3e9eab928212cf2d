"""From the reference form to kernels: what stands between `dequantize` and a quantize is one op.

Each table says what a float module or function becomes. What no table names stays as it is, in
float between the two: slower, and equal to what training saw.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import tangrad
from tangrad import fx, nn
from tangrad.nn import functional as F
from tangrad_quantization import functional
from tangrad_quantization.fx.weighted_functions import dynamic_module, static_module
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.intrinsic import quantized as nniq
from tangrad_quantization.nn.intrinsic.quantized import dynamic as nniqd
from tangrad_quantization.nn.quantized import dynamic as nnqd
from tangrad_quantization.nn.quantized import reference as nnqr

_QUANTIZE = (tangrad.quantize_per_tensor,)

STATIC: dict[Any, Any] = {
    **{getattr(nnqr, n): getattr(nnq, n) for n in ("Linear", "Conv1d", "Conv2d", "Conv3d")},
    **{
        getattr(nnqr, n): getattr(nnq, n)
        for n in ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
    },
}
STATIC_FUSED: dict[Any, Any] = {
    getattr(nni, name): getattr(nniq, name)
    for name in (
        *("LinearReLU", "LinearLeakyReLU", "LinearTanh", "ConvReLU1d", "ConvReLU2d"),
        *("ConvReLU3d", "ConvAdd2d", "ConvAddReLU2d"),
    )
}
# Made of the fused module, not of the layer in it.
_OF_WHOLE = (nniq.LinearLeakyReLU,)
DYNAMIC: dict[Any, Any] = {
    getattr(nnqr, name): getattr(nnqd, name)
    for name in ("Linear", "GRUCell", "LSTMCell", "RNNCell", "LSTM", "GRU")
}
DYNAMIC_FUSED: dict[Any, Any] = {nni.LinearReLU: nniqd.LinearReLU}
WEIGHT_ONLY: dict[Any, Any] = {nnqr.Embedding: nnq.Embedding, nnqr.EmbeddingBag: nnq.EmbeddingBag}
# Modules with an output scale of their own that are made of float ones.
SCALED: dict[Any, Any] = {
    **{
        getattr(nn, name): getattr(nnq, name)
        for name in (
            *("BatchNorm2d", "BatchNorm3d", "ELU", "LeakyReLU", "Hardswish", "InstanceNorm1d"),
            *("InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "Dropout", "Softmax", "PReLU"),
        )
    },
    nni.BNReLU2d: nniq.BNReLU2d,
    nni.BNReLU3d: nniq.BNReLU3d,
}
# Functions with an output scale of their own.
SCALED_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    F.elu: functional.elu,
    F.hardswish: functional.hardswish,
    F.leaky_relu: functional.leaky_relu,
    F.dropout: functional.dropout,
    F.layer_norm: functional.layer_norm,
    F.group_norm: functional.group_norm,
    F.instance_norm: functional.instance_norm,
}
BINARY: dict[Any, tuple[Any, Any, Any, Any]] = {
    # of two tensors; with ReLU; of a tensor and a number; with ReLU
    **dict.fromkeys(
        (operator.add, tangrad.add),
        (functional.add, functional.add_relu, functional.add_scalar, functional.add_scalar_relu),
    ),
    **dict.fromkeys(
        (operator.mul, tangrad.mul),
        (functional.mul, functional.mul_relu, functional.mul_scalar, functional.mul_scalar_relu),
    ),
    tangrad.matmul: (functional.matmul, None, None, None),
}
# What takes quantized tensors as it is: no new scale, or one known beforehand.
SAME_FUNCTIONS = {
    *(F.hardsigmoid, tangrad.sigmoid, F.sigmoid, tangrad.tanh, F.adaptive_avg_pool1d),
    *(F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.hardtanh, F.hardtanh_, F.interpolate),
    *(F.max_pool1d, F.max_pool2d, F.max_pool3d, F.relu, F.relu6, F.avg_pool1d, F.avg_pool2d),
    *(F.avg_pool3d, tangrad.clamp, tangrad.flatten, tangrad.mean, tangrad.channel_shuffle),
    *(tangrad.narrow, tangrad.transpose, tangrad.repeat_interleave, tangrad.squeeze),
    *(tangrad.stack, tangrad.unsqueeze, F.pixel_shuffle, F.pixel_unshuffle, tangrad.cat),
    *(tangrad.relu, tangrad.permute, tangrad.reshape),
}
_SAME_METHODS = {
    *("hardsigmoid", "hardsigmoid_", "sigmoid", "sigmoid_", "tanh", "tanh_", "clamp", "mean"),
    *("relu", "relu_", "contiguous", "detach", "detach_", "permute", "repeat"),
    *("repeat_interleave", "reshape", "resize_", "squeeze", "squeeze_", "transpose"),
    *("unsqueeze", "unsqueeze_", "view"),
}
_SAME_MODULES = {
    *(nn.Hardsigmoid, nn.Sigmoid, nn.Tanh, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
    *(nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.Hardtanh),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.ReLU, nn.ReLU6, nn.ChannelShuffle),
    *(nn.Identity, nn.PixelShuffle, nn.PixelUnshuffle, nn.Flatten),
}
_ASKING = ("size", "shape", "dim", "numel")


def lower(
    model: fx.GraphModule, qconfigs: dict[str, Any], scopes: dict[str, tuple[str, Any]]
) -> fx.GraphModule:
    """Return the graph module with kernels in the place of reference forms.

    Args:
        model: in the reference form; it is changed.
        qconfigs: configurations by nodes; what has none stays as it is.
        scopes: modules in which nodes were traced.
    """
    lowering = _Lowering(model, qconfigs, scopes)
    for node in list(model.graph.nodes):
        lowering.lower_quantize(node)
    for node in list(model.graph.nodes):
        lowering.lower_call(node)
    model.graph.eliminate_dead_code()
    _drop_unread_buffers(model)
    model.graph.lint()
    return fx.GraphModule(model, model.graph)


def _drop_unread_buffers(model: fx.GraphModule) -> None:
    read = {str(node.target) for node in model.graph.nodes if node.op == "get_attr"}
    for name, _ in list(model.named_buffers(recurse=False)):
        if name not in read:
            delattr(model, name)


def _is_dequantize(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_method" and node.target == "dequantize"


class _Scale(NamedTuple):
    """The scale and the zero point of a quantize, as nodes and as numbers."""

    scale_node: Any
    zero_node: Any
    scale: float
    zero_point: int


class _Lowering:
    """The lowering of one graph."""

    def __init__(
        self,
        model: fx.GraphModule,
        qconfigs: dict[str, Any],
        scopes: dict[str, tuple[str, Any]],
    ) -> None:
        self.model, self.graph = model, model.graph
        self.qconfigs, self.scopes = qconfigs, scopes
        self._swapped: set[str] = set()
        self.modules = dict(model.named_modules(remove_duplicate=False))

    def _module(self, node: Any) -> Any:
        if not isinstance(node, fx.Node) or node.op != "call_module":
            return None
        return self.modules.get(str(node.target))

    def _kept_float(self, node: fx.Node) -> bool:
        return node.name in self.qconfigs and self.qconfigs[node.name] is None

    def _is_relu(self, node: Any) -> bool:
        if not isinstance(node, fx.Node) or len(node.users) != 1:
            return False
        if node.op == "call_module":
            return type(self._module(node)) is nn.ReLU
        if node.op == "call_method":
            return node.target in ("relu", "relu_")
        return node.op == "call_function" and node.target in (F.relu, tangrad.relu)

    def _held(self, node: Any) -> Any:
        """Return the tensor that a node reads."""
        found: Any = self.model
        for name in str(node.target).split("."):
            found = getattr(found, name)
        return found

    def _swap(self, node: fx.Node, made: Any) -> None:
        """Put a module in the place of a call's; each call gets its own, for its own scale."""
        path, count = str(node.target), 0
        while path in self._swapped:
            count += 1
            path = f"{node.target}_{count}"
        self._swapped.add(path)
        if count:
            self.model.add_submodule(path, made)
            node.target = path
        else:
            self.model.set_submodule(path, made)

    # -- what ends in a quantize

    def lower_quantize(self, node: fx.Node) -> None:
        """Lower what stands between dequantize and this node, if it is a quantize."""
        if node.op != "call_function" or node.target not in _QUANTIZE or node.kwargs:
            return
        call = node.args[0]
        if not isinstance(call, fx.Node) or len(call.users) != 1 or node.args[1].op != "get_attr":
            return
        scale = _Scale(
            node.args[1],
            node.args[2],
            float(self._held(node.args[1])),
            int(self._held(node.args[2])),
        )
        self._lower_between(node, call, scale)

    def _lower_between(self, quantize: fx.Node, call: fx.Node, scale: _Scale) -> None:
        relu = call if self._is_relu(call) else None
        inner = call.args[0] if relu is not None else call
        if isinstance(inner, fx.Node) and len(inner.users) == 1 and not self._kept_float(inner):
            for attempt in (self._weighted_function, self._binary):
                made = attempt(inner, relu, scale)
                if made is not None:
                    return self._take_place(quantize, made, [inner, relu])
        if self._kept_float(call):
            return None
        for attempt_one in (self._weighted_module, self._scaled, self._same):
            made = attempt_one(call, scale)
            if made is not None:
                return self._take_place(quantize, made, [call])
        return None

    def _take_place(self, quantize: fx.Node, made: fx.Node, gone: list[Any]) -> None:
        quantize.replace_all_uses_with(made)
        self.graph.erase_node(quantize)
        for node in reversed(gone):
            if node is not None and node is not made:
                self.graph.erase_node(node)

    def _undequantized(self, node: fx.Node) -> bool:
        """Have a call take the quantized tensors of its dequantized arguments; say if all are."""
        arguments: list[Any] = []
        for argument in (*node.args, *node.kwargs.values()):
            arguments += argument if isinstance(argument, (list, tuple)) else [argument]
        values = [a for a in arguments if isinstance(a, fx.Node) and self._is_number(a)]
        if not values or not all(map(_is_dequantize, values)):
            return False
        for value in dict.fromkeys(values):
            source = value.args[0]
            assert isinstance(source, fx.Node)
            node.replace_input_with(value, source)
        return True

    def _is_number(self, node: fx.Node) -> bool:
        """Return whether a node may stand for a tensor of numbers, not a size or a parameter."""
        if node.op == "get_attr":
            return False
        if node.op == "call_method" and node.target in _ASKING:
            return False
        if node.op == "call_function" and (
            node.target in (getattr, operator.getitem) or node.target in _ARITHMETIC
        ):
            return any(map(self._is_number, node.all_input_nodes)) and node.target is not getattr
        return True

    def _weighted_module(self, call: fx.Node, scale: _Scale) -> fx.Node | None:
        module = self._module(call)
        if type(module) in STATIC:
            kind, source = STATIC[type(module)], module
        elif type(module) in STATIC_FUSED and type(module[0]) in STATIC:
            kind = STATIC_FUSED[type(module)]
            source = module if kind in _OF_WHOLE else module[0]
        else:
            return None
        inner = source[0] if kind in _OF_WHOLE else source
        if inner.weight_dtype != tangrad.qint8 or not self._undequantized(call):
            return None
        self._swap(call, kind.from_reference(source, scale.scale, scale.zero_point))
        return call

    def _scaled(self, call: fx.Node, scale: _Scale) -> fx.Node | None:
        module = self._module(call)
        if type(module) in SCALED:
            if not self._undequantized(call):
                return None
            self._swap(
                call, SCALED[type(module)].from_reference(module, scale.scale, scale.zero_point)
            )
            return call
        if call.op == "call_function" and call.target in SCALED_FUNCTIONS:
            if not self._undequantized(call):
                return None
            kwargs = {key: value for key, value in call.kwargs.items() if key != "inplace"}
            kwargs |= {"output_scale": scale.scale_node, "output_zero_point": scale.zero_node}
            return self._called(scale, SCALED_FUNCTIONS[call.target], call.args, kwargs)
        return None

    def _called(self, scale: _Scale, function: Any, args: Any, kwargs: Any) -> fx.Node:
        """Add a call behind everything that it takes."""
        nodes = [scale.scale_node, scale.zero_node]
        for argument in (*args, *kwargs.values()):
            parts = argument if isinstance(argument, (list, tuple)) else [argument]
            nodes += [part for part in parts if isinstance(part, fx.Node)]
        with self.graph.inserting_after(max(nodes)):
            return self.graph.call_function(function, tuple(args), kwargs)

    def _same(self, call: fx.Node, scale: _Scale) -> fx.Node | None:
        takes = {
            "call_function": lambda: call.target in SAME_FUNCTIONS,
            "call_method": lambda: call.target in _SAME_METHODS,
            "call_module": lambda: type(self._module(call)) in _SAME_MODULES,
        }
        if call.op not in takes or not takes[call.op]() or not self._undequantized(call):
            return None
        if call.op == "call_function" and call.target is tangrad.cat:
            # What keeps its input's scale, as pooling, may not have the one that all here share.
            dim = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)
            ends = (dim, scale.scale_node, scale.zero_node)
            return self._called(scale, functional.cat, (call.args[0], *ends), {})
        return call

    # -- functions

    def _binary(self, call: fx.Node, relu: Any, scale: _Scale) -> fx.Node | None:
        if call.op != "call_function" or call.target not in BINARY or call.kwargs:
            return None
        of_two, of_two_relu, of_one, of_one_relu = BINARY[call.target]
        tensors = [a for a in call.args if isinstance(a, fx.Node) and self._is_number(a)]
        single = len(tensors) == 1
        if single and not isinstance(call.args[1], (int, float)):
            return None  # a number in front, or one that is computed
        function = (
            (of_one_relu if relu is not None else of_one)
            if single
            else (of_two_relu if relu is not None else of_two)
        )
        if function is None or not self._undequantized(call):
            return None
        ends = () if single else (scale.scale_node, scale.zero_node)
        return self._called(scale, function, (*call.args, *ends), {})

    def _weighted_function(self, call: fx.Node, relu: Any, scale: _Scale) -> fx.Node | None:
        if not _is_dequantize(call.args[0] if call.args else None):
            return None
        made = static_module(self.model, call, relu is not None, scale.scale, scale.zero_point)
        if made is None:
            return None
        source = call.args[0].args[0]  # type: ignore[union-attr]
        return self._as_module(call, made, source)

    def _as_module(self, call: fx.Node, made: Any, source: Any) -> fx.Node:
        path = self.scopes.get(call.name, ("", None))[0].replace(".", "_")
        prefix, count = f"{path}_packed_" if path else "packed_", 0
        while hasattr(self.model, f"{prefix}{count}"):
            count += 1
        self.model.add_submodule(f"{prefix}{count}", made)
        self.modules[f"{prefix}{count}"] = made
        with self.graph.inserting_before(call):
            return self.graph.call_module(f"{prefix}{count}", (source,))

    # -- what gives numbers

    def lower_call(self, node: fx.Node) -> None:
        """Lower what gives numbers: dynamic layers, embeddings, questions about sizes."""
        if node.op == "call_module" and not self._kept_float(node):
            self._lower_module(node)
        elif node.op == "call_function" and not self._kept_float(node):
            self._lower_dynamic_function(node)
        asks = node.op == "call_method" and node.target in _ASKING
        asks = asks or (node.op == "call_function" and node.target is getattr)
        if asks and _is_dequantize(node.args[0]):
            node.replace_input_with(node.args[0], node.args[0].args[0])  # type: ignore

    def _lower_module(self, node: fx.Node) -> None:
        module = self._module(node)
        if type(module) in WEIGHT_ONLY and module.weight_dtype != tangrad.float32:
            return self._swap(node, WEIGHT_ONLY[type(module)].from_reference(module))
        source = self._numbers_of_dynamic(node)
        if source is None:
            return None
        if type(module) in DYNAMIC:
            made = DYNAMIC[type(module)].from_reference(module)
        elif type(module) in DYNAMIC_FUSED and type(module[0]) in DYNAMIC:
            made = DYNAMIC_FUSED[type(module)].from_reference(module[0])
        else:
            return None
        self._swap(node, made)
        return node.update_arg(0, source)

    def _numbers_of_dynamic(self, node: fx.Node) -> fx.Node | None:
        """Return the numbers that a node's first argument quantizes in each call, if it does."""
        argument = node.args[0] if node.args else None
        if not _is_dequantize(argument):
            return None
        quantize = argument.args[0]  # type: ignore[union-attr]
        half = quantize.op == "call_method" and quantize.target == "to"
        if not half and quantize.target is not tangrad.quantize_per_tensor_dynamic:
            return None
        found = quantize.args[0]
        return found if isinstance(found, fx.Node) else None

    def _lower_dynamic_function(self, node: fx.Node) -> None:
        source = self._numbers_of_dynamic(node)
        if source is None:
            return
        user = next(iter(node.users), None)
        relu = user if len(node.users) == 1 and self._is_follower(user) else None
        made = dynamic_module(self.model, node, relu is not None)
        if made is None:
            return
        last = node if relu is None else relu
        last.replace_all_uses_with(self._as_module(node, made, source))
        self.graph.erase_node(last)
        if relu is not None:
            self.graph.erase_node(node)

    def _is_follower(self, node: Any) -> bool:
        if node is None:
            return False
        if node.op == "call_module":
            return type(self._module(node)) is nn.ReLU
        return node.op == "call_function" and node.target in (F.relu, tangrad.relu)


_ARITHMETIC = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.neg}
