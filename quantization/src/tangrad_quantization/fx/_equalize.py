"""Input-weight equalization: channels whose inputs are wide give some of their range to the weight.

Column c of a layer's weight is divided by s, and channel c of its input multiplied, with
s = sqrt(range of the weight's column / range of the input's channel): the product is the same, and
both fill the integers alike (after Nagel et al.: "Data-free quantization through weight
equalization and bias correction", 2019). Where the layer before can, it multiplies its rows;
elsewhere a multiplication is put into the graph.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import tangrad
from tangrad import fx, nn
from tangrad.nn import functional as F
from tangrad_quantization.fx.configuration import of_layers
from tangrad_quantization.nn.intrinsic import modules as nni
from tangrad_quantization.observer import ObserverBase, PerChannelMinMaxObserver, is_observer
from tangrad_quantization.observers.base import _with_args
from tangrad_quantization.qconfig_mapping import QConfigMapping

_PER_CHANNEL = {
    tangrad.per_tensor_affine: tangrad.per_channel_affine,
    tangrad.per_tensor_symmetric: tangrad.per_channel_symmetric,
}
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FUSED = (nni.LinearReLU, nni.ConvReLU1d, nni.ConvReLU2d, nni.ConvReLU3d)
_FUNCTIONS = (F.linear, F.conv1d, F.conv2d, F.conv3d)


def _require_layer_input(x: Any) -> None:
    if not 2 <= x.dim() <= 5:
        raise ValueError(
            "InputEqualizationObserver only supports Linear and Conv layers, whose inputs have 2 "
            f"to 5 dimensions; got shape {list(x.shape)}"
        )


class _EqualizationObserver(nn.Module):
    """Keep the range of each index of the second dimension.

    Args:
        dtype: that what is seen will have.
        qscheme: of it; one for all stands for that of channels.
        quant_min, quant_max: the outer integers, those of the dtype by default.
        factory_kwargs: device and dtype of what is kept.
    """

    _usual_dtype: Any
    _kept_in: str

    def __init__(
        self,
        dtype: Any = None,
        qscheme: Any = tangrad.per_tensor_affine,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Any = None,
    ) -> None:
        super().__init__()
        self.dtype = self._usual_dtype if dtype is None else dtype
        self.qscheme = qscheme
        observer = PerChannelMinMaxObserver(
            ch_axis=1,
            dtype=self.dtype,
            qscheme=_PER_CHANNEL.get(qscheme, qscheme),
            quant_min=quant_min,
            quant_max=quant_max,
            factory_kwargs=factory_kwargs,
        )
        self.add_module(self._kept_in, observer)
        self.equalization_scale = tangrad.tensor(1)

    def forward(self, x: Any) -> Any:
        """Look at a tensor [rows or batch, columns or channels, ...] and return it."""
        _require_layer_input(x)
        return getattr(self, self._kept_in)(x)

    def _ends(self) -> tuple[Any, Any]:
        observer = getattr(self, self._kept_in)
        return observer.min_val, observer.max_val

    with_args = classmethod(_with_args)


class _InputEqualizationObserver(_EqualizationObserver):
    """Keep the range of each channel of a layer's input; arguments as of the base, per tensor."""

    _usual_dtype = tangrad.quint8
    _kept_in = "input_obs"

    def __init__(
        self,
        dtype: Any = None,
        qscheme: Any = tangrad.per_tensor_affine,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Any = None,
    ) -> None:
        if qscheme not in _PER_CHANNEL:
            raise TypeError(f"Input qscheme must be per-tensor, got {qscheme}")
        super().__init__(dtype, qscheme, quant_min, quant_max, factory_kwargs)
        self.equalization_shape: list[int] = []

    def forward(self, x: Any) -> Any:
        """Look at an input [batch, channels, ...] and return it."""
        seen = super().forward(x)
        self.equalization_shape = [1, x.shape[1], *[1] * (x.dim() - 2)]
        return seen

    def get_input_minmax(self) -> tuple[Any, Any]:
        """Return the least and the largest number of each channel."""
        return self._ends()

    def set_equalization_scale(self, equalization_scale: Any) -> None:
        """Keep what channels are multiplied by, in the shape of the input."""
        if _is_one(equalization_scale):
            return
        self.equalization_scale = equalization_scale.reshape(self.equalization_shape)

    def calculate_scaled_minmax(self) -> tuple[Any, Any]:
        """Return the least and the largest number of all channels after they are multiplied."""
        if _is_one(self.equalization_scale):
            warnings.warn(
                "Must call calculate_equalization_scale before calling calculate_scaled_minmax. "
                "Will not scale the next quantization observer.",
                stacklevel=2,
            )
            return None, None
        low, high = self._ends()
        scale = self.equalization_scale.reshape(-1)
        return (low * scale).min(), (high * scale).max()


class _WeightEqualizationObserver(_EqualizationObserver):
    """Keep the range of each column of a weight; arguments as of the base."""

    _usual_dtype = tangrad.qint8
    _kept_in = "weight_col_obs"
    ch_axis = 1

    def get_weight_col_minmax(self) -> tuple[Any, Any]:
        """Return the least and the largest number of each column."""
        return self._ends()

    def set_equalization_scale(self, equalization_scale: Any) -> None:
        """Keep what columns are divided by."""
        self.equalization_scale = equalization_scale


def _is_one(scale: Any) -> bool:
    return scale.numel() == 1 and bool(scale == 1)


def calculate_equalization_scale(input_obs: Any, weight_obs: Any) -> Any:
    """Return what each channel of an input is multiplied by.

    Args:
        input_obs: what saw the input.
        weight_obs: what saw the weight.

    Raises:
        ValueError: the input has another number of channels than the weight has columns.
    """
    (low, high), (least, most) = input_obs.get_input_minmax(), weight_obs.get_weight_col_minmax()
    if not (low.numel() and least.numel()):
        warnings.warn(
            "Must run observer before calling calculate_equalization_scale. Returning default "
            "equalization scale tangrad.tensor(1).",
            stacklevel=2,
        )
        return tangrad.tensor(1)
    if low.shape != least.shape:
        raise ValueError(
            "Input and Weight must have the same column dimension. Found "
            f"{list(low.shape)} and {list(least.shape)} shapes instead."
        )
    scale = ((most - least) / (high - low)).sqrt()
    # A channel or column that is constant stays as it is.
    return tangrad.where((scale == 0) | ~scale.isfinite(), tangrad.ones_like(scale), scale)


class EqualizationQConfig(
    NamedTuple("EqualizationQConfig", [("input_activation", Any), ("weight", Any)])
):
    """Makers of what looks at a layer's input and weight.

    Attributes:
        input_activation: makes a module for the input.
        weight: makes one for the weight.
    """

    __slots__ = ()

    def __new__(
        cls, input_activation: Any = nn.Identity, weight: Any = nn.Identity
    ) -> EqualizationQConfig:
        if isinstance(input_activation, nn.Module) or isinstance(weight, nn.Module):
            raise ValueError(
                "EqualizationQConfig received observer instance, please pass observer class "
                "instead. Use MyObserver.with_args(x=1) to override arguments to constructor if "
                "needed"
            )
        return super().__new__(cls, input_activation, weight)


input_equalization_observer = _InputEqualizationObserver.with_args(
    dtype=tangrad.quint8, qscheme=tangrad.per_tensor_symmetric
)
weight_equalization_observer = _WeightEqualizationObserver.with_args(
    dtype=tangrad.qint8, qscheme=tangrad.per_channel_symmetric
)
default_equalization_qconfig = EqualizationQConfig(
    input_activation=input_equalization_observer, weight=weight_equalization_observer
)


class _Place(NamedTuple):
    """Where a layer keeps its weight and bias: module and attribute, None for no bias."""

    weight: tuple[Any, str]
    bias: tuple[Any, str] | None


def _attribute(model: Any, node: Any) -> tuple[Any, str] | None:
    """Return where a `get_attr` node, or an observer of one, reads; None for other nodes."""
    if isinstance(node, fx.Node) and node.op == "call_module":
        node = node.args[0]
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    path, _, name = str(node.target).rpartition(".")
    return (model.get_submodule(path) if path else model), name


def _place(model: fx.GraphModule, node: Any) -> _Place | None:
    """Return where a layer's parameters are; None for what cannot be equalized.

    Parameters that several nodes of the graph use cannot be: each would need others.
    """
    if not isinstance(node, fx.Node):
        return None
    if node.op == "call_module":
        module = model.get_submodule(str(node.target))
        if sum(other.target == node.target for other in model.graph.nodes) > 1:
            return None
        if type(module) in _FUSED:
            module = module[0]
        if type(module) not in _LAYERS:
            return None
        return _Place((module, "weight"), (module, "bias"))
    if node.op != "call_function" or node.target not in _FUNCTIONS:
        return None
    given = dict(zip(("input", "weight", "bias"), node.args, strict=False)) | node.kwargs
    weight = _attribute(model, given.get("weight"))
    bias = given.get("bias")
    place = None if bias is None else _attribute(model, bias)
    if weight is None or (bias is not None and place is None):
        return None
    return _Place(weight, place)


def insert(model: fx.GraphModule, mapping: QConfigMapping, scopes: Any) -> None:
    """Put observers of channels before the layers of a prepared graph that are to be equalized.

    Args:
        model: the prepared graph; changed.
        mapping: of `EqualizationQConfig`s.
        scopes: modules in which nodes were traced.
    """
    qconfigs = of_layers(model, mapping, scopes)
    for node in list(model.graph.nodes):
        place = _place(model, node)
        observer = node.args[0] if place is not None and node.args else None
        if not isinstance(observer, fx.Node) or observer.op != "call_module":
            continue
        watching = model.get_submodule(str(observer.target))
        qconfig = qconfigs.get(node.name)
        if qconfig is None or not is_observer(watching) or getattr(watching, "is_dynamic", False):
            continue
        count = 0
        while hasattr(model, f"{observer.args[0]}_equalization_process_{count}"):
            count += 1
        name = f"{observer.args[0]}_equalization_process_{count}"
        made = qconfig.input_activation()
        if not isinstance(made, _InputEqualizationObserver):
            continue
        made.weight_observer = qconfig.weight
        model.add_submodule(name, made)
        with model.graph.inserting_before(node):
            node.args = (model.graph.call_module(name, (observer,)), *node.args[1:])
    model.recompile()


def _is_relu(model: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return type(model.get_submodule(str(node.target))) is nn.ReLU
    if node.op == "call_method":
        return node.target in ("relu", "relu_")
    return node.op == "call_function" and node.target in (tangrad.relu, F.relu)


def _layer_before(model: fx.GraphModule, watched: fx.Node, seeing: fx.Node) -> fx.Node | None:
    """Return the layer that can multiply its rows for the next one, if its output goes there only.

    Args:
        model: the graph.
        watched: the observer of the output.
        seeing: the observer of channels behind it.
    """
    node, user = watched, seeing
    while isinstance(node, fx.Node) and list(node.users) == [user]:
        if _place(model, node) is not None:
            return node
        if node is not watched and not _is_relu(model, node):
            return None
        node, user = node.args[0], node  # type: ignore[assignment]
    return None


def equalize(model: fx.GraphModule) -> None:
    """Replace observers of channels by what they have found, in a calibrated graph.

    Weights are scaled, ranges follow, and the graph multiplies where no layer does.
    """
    seen = []
    for node in list(model.graph.nodes):
        module = model.get_submodule(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, _InputEqualizationObserver):
            seen.append((node, module, next(iter(node.users))))
    for _, module, layer in seen:
        place = _place(model, layer)
        assert place is not None
        look = module.weight_observer()
        look(getattr(*place.weight).detach())
        module.set_equalization_scale(calculate_equalization_scale(module, look))
    for node, module, layer in seen:
        if not _is_one(module.equalization_scale):
            _apply(model, node, module, layer)
        node.replace_all_uses_with(node.args[0])
        model.graph.erase_node(node)
    model.recompile()


def _apply(model: fx.GraphModule, node: fx.Node, module: Any, layer: fx.Node) -> None:
    scale = module.equalization_scale.reshape(-1)
    watched = node.args[0]
    assert isinstance(watched, fx.Node)
    before = _layer_before(model, watched, node)
    if before is None:
        watched = _multiplied(model, node, module)
    else:
        rows = _place(model, before)
        assert rows is not None
        _scale(model, before, rows.weight, scale, 0)
        if rows.bias is not None and getattr(*rows.bias) is not None:
            _scale(model, before, rows.bias, scale, 0)
    low, high = module.calculate_scaled_minmax()
    observer = model.get_submodule(str(watched.target))
    observer = getattr(observer, "activation_post_process", observer)
    if isinstance(observer, ObserverBase) and hasattr(observer, "min_val"):
        observer.min_val, observer.max_val = low, high
    place = _place(model, layer)
    assert place is not None
    _scale(model, layer, place.weight, scale.reciprocal(), 1)


def _multiplied(model: fx.GraphModule, node: fx.Node, module: Any) -> fx.Node:
    """Put a multiplication before the observer of a layer's input; return the observer."""
    watched = node.args[0]
    assert isinstance(watched, fx.Node)
    source = watched.args[0]
    assert isinstance(source, fx.Node)
    count = 0
    while hasattr(model, f"{source}_equalization_scale{count}"):
        count += 1
    name = f"{source}_equalization_scale{count}"
    model.register_buffer(name, module.equalization_scale)
    with model.graph.inserting_before(watched):
        held = model.graph.get_attr(name)
        product = model.graph.call_function(tangrad.mul, (source, held))
    if list(watched.users) == [node]:
        watched.args = (product,)
        return watched
    # Others want the input as it was: it is quantized a second time.
    own = f"{name}_observer"
    model.add_submodule(own, copy.deepcopy(model.get_submodule(str(watched.target))))
    with model.graph.inserting_before(node):
        made = model.graph.call_module(own, (product,))
    node.args = (made,)
    return made


def _scale(
    model: fx.GraphModule, layer: fx.Node, place: tuple[Any, str], scale: Any, dim: int
) -> None:
    """Multiply a parameter along a dimension, and let what observed it forget."""
    owner, name = place
    parameter = getattr(owner, name)
    shape = [1] * parameter.dim()
    shape[dim] = -1
    setattr(owner, name, nn.Parameter(parameter.detach() * scale.reshape(shape)))
    for argument in (*layer.args[1:], *layer.kwargs.values()):
        if isinstance(argument, fx.Node) and argument.op == "call_module":
            watching = model.get_submodule(str(argument.target))
            if hasattr(watching, "reset_min_max_vals"):
                watching.reset_min_max_vals()


def _convert_equalization_ref(model: fx.GraphModule) -> fx.GraphModule:
    """Return a prepared and calibrated graph with equalized layers, not quantized yet."""
    equalize(model)
    return fx.GraphModule(model, model.graph)


def get_equalization_qconfig_dict(
    layer_sqnr_dict: dict[str, float], num_layers_to_equalize: int
) -> dict[str, Any]:
    """Return the equalization of the layers whose signal to noise is lowest.

    Args:
        layer_sqnr_dict: signal to noise by layer.
        num_layers_to_equalize: how many.
    """
    names = sorted(layer_sqnr_dict, key=lambda name: layer_sqnr_dict[name])
    chosen = names[:num_layers_to_equalize]
    return {"module_name": [(name, default_equalization_qconfig) for name in chosen]}
