"""Quantization of graphs: trace a model, let it be observed or trained, convert it.

The names and meanings are PyTorch's. It stands on `tangrad.fx`: `pip install "tangrad[fx]"`.
"""

from __future__ import annotations

import warnings
from typing import Any

from tangrad import fx
from tangrad_quantization.backend_config import BackendConfig, get_native_backend_config
from tangrad_quantization.fx import _equalize
from tangrad_quantization.fx import convert as conversion
from tangrad_quantization.fx import prepare as preparation
from tangrad_quantization.fx.custom_config import (
    ConvertCustomConfig,
    FuseCustomConfig,
    PrepareCustomConfig,
)
from tangrad_quantization.fx.fuse import fuse
from tangrad_quantization.fx.tracer import QuantizationTracer
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.qconfig_mapping import QConfigMapping
from tangrad_quantization.quantize import _refuse_quantized

__all__ = [
    "convert_fx",
    "convert_to_reference_fx",
    "fuse_fx",
    "prepare_fx",
    "prepare_qat_fx",
]


def _as(kind: Any, given: Any, usual: Any, what: str) -> Any:
    """Return an object for one, for its dict form, or for None."""
    if given is None:
        return usual()
    if isinstance(given, dict):
        warnings.warn(
            f"Passing a {what}_dict is deprecated and will not be supported in a future version. "
            f"Please pass in a {kind.__name__} instead.",
            FutureWarning,
            stacklevel=4,
        )
        return kind.from_dict(given)
    if not isinstance(given, kind):
        raise AssertionError(f"{what} must be a {kind.__name__}, got {type(given).__name__}")
    return given


def _require_graph_module(model: Any, what: str) -> None:
    if not isinstance(model, fx.GraphModule):
        raise ValueError(
            f"{what}: input model must be a GraphModule, Got type: {type(model)}; it is what "
            f"prepare_fx or prepare_qat_fx returned"
        )


def _preserved(source: Any, names: list[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names if hasattr(source, name)}


def _keep(model: Any, attributes: dict[str, Any]) -> Any:
    for name, value in attributes.items():
        setattr(model, name, value)
    model.meta["_user_preserved_attributes"] = dict(attributes)
    return model


def _traceable_functionals(model: Any) -> None:
    """Put modules that can be traced in the place of those that observe in eager mode."""
    for name, child in model.named_children():
        if isinstance(child, nnq.FloatFunctional):
            model._modules[name] = nnq.FXFloatFunctional()
        else:
            _traceable_functionals(child)


def fuse_fx(
    model: Any, fuse_custom_config: Any = None, backend_config: Any = None
) -> fx.GraphModule:
    """Return a graph module with convolutions, batch norms and ReLUs fused; for evaluation.

    Args:
        model: the model, in evaluation mode.
        fuse_custom_config: what is treated specially.
        backend_config: what is fused; the native backend's by default.
    """
    custom = _as(FuseCustomConfig, fuse_custom_config, FuseCustomConfig, "fuse_custom_config")
    backend = _as(BackendConfig, backend_config, get_native_backend_config, "backend_config")
    kept = _preserved(model, custom.preserved_attributes)
    traced = fx.GraphModule(model, QuantizationTracer([], []).trace(model))
    return _keep(fuse(traced, False, backend), kept)  # type: ignore[no-any-return]


def _prepare(
    model: Any,
    mapping: QConfigMapping,
    is_qat: bool,
    custom: PrepareCustomConfig,
    backend: BackendConfig,
    alone: bool = False,
) -> fx.GraphModule:
    _refuse_quantized(model, "prepare_fx")
    if preparation.state_of(model) is not None:
        raise RuntimeError("prepare_fx: the model is prepared already; start from the float model")
    _traceable_functionals(model)
    kept = _preserved(model, custom.preserved_attributes)
    names = [*custom.non_traceable_module_names]
    classes = [*custom.non_traceable_module_classes]
    if not alone:
        names += custom.standalone_module_names
        classes += custom.standalone_module_classes
    for table in custom.float_to_observed_mapping.values():
        classes += table
    tracer = QuantizationTracer(names, classes)
    graph = tracer.trace(model)
    fused = fuse(fx.GraphModule(model, graph), is_qat, backend)

    def standalone(
        module: Any, inner: QConfigMapping, special: PrepareCustomConfig, of: BackendConfig
    ) -> Any:
        made = _prepare(module, inner, is_qat, special, of, alone=True)
        made.meta[preparation.STATE].is_observed_standalone_module = True
        return made

    made = preparation.prepare(
        fused, mapping, is_qat, tracer.node_name_to_scope, custom, backend, standalone
    )
    return _keep(made, kept)  # type: ignore[no-any-return]


def prepare_fx(
    model: Any,
    qconfig_mapping: Any,
    example_inputs: tuple[Any, ...],
    prepare_custom_config: Any = None,
    _equalization_config: Any = None,
    backend_config: Any = None,
) -> fx.GraphModule:
    """Return a graph module whose values are observed; show it calibration data, then convert.

    Args:
        model: the model, in evaluation mode. Its modules are shared with the result.
        qconfig_mapping: configurations, see `get_default_qconfig_mapping`.
        example_inputs: inputs of the model; the graph does not depend on them.
        prepare_custom_config: what is treated specially.
        _equalization_config: `EqualizationQConfig`s of the layers whose channels are given like
            ranges; see `tangrad.ao.quantization.fx._equalize`.
        backend_config: what can be quantized; the native backend's by default.

    Raises:
        RuntimeError: the model is quantized or prepared already.
        MissingPluginError: tangrad-fx is not installed: pip install "tangrad[fx]".
    """
    made = _prepare(
        model,
        _as(QConfigMapping, qconfig_mapping, QConfigMapping, "qconfig_mapping"),
        False,
        _as(
            PrepareCustomConfig,
            prepare_custom_config,
            PrepareCustomConfig,
            "prepare_custom_config",
        ),
        _as(BackendConfig, backend_config, get_native_backend_config, "backend_config"),
    )
    if _equalization_config is not None:
        wanted = _as(QConfigMapping, _equalization_config, QConfigMapping, "_equalization_config")
        _equalize.insert(made, wanted, made.meta[preparation.STATE].node_name_to_scope)
    return made


def prepare_qat_fx(
    model: Any,
    qconfig_mapping: Any,
    example_inputs: tuple[Any, ...],
    prepare_custom_config: Any = None,
    backend_config: Any = None,
) -> fx.GraphModule:
    """Return a graph module that rounds weights and values as it will; train it, then convert.

    Args:
        model: the model, in training mode. Its parameters are shared with the result.
        qconfig_mapping: configurations, see `get_default_qat_qconfig_mapping`.
        example_inputs: inputs of the model; the graph does not depend on them.
        prepare_custom_config: what is treated specially.
        backend_config: what can be quantized; the native backend's by default.

    Raises:
        RuntimeError: the model is quantized or prepared already.
    """
    return _prepare(
        model,
        _as(QConfigMapping, qconfig_mapping, QConfigMapping, "qconfig_mapping"),
        True,
        _as(
            PrepareCustomConfig,
            prepare_custom_config,
            PrepareCustomConfig,
            "prepare_custom_config",
        ),
        _as(BackendConfig, backend_config, get_native_backend_config, "backend_config"),
    )


def _convert(
    what: str,
    graph_module: Any,
    is_reference: bool,
    convert_custom_config: Any,
    remove_qconfig: bool,
    qconfig_mapping: Any,
    backend_config: Any,
) -> fx.GraphModule:
    _require_graph_module(graph_module, what)
    custom = _as(
        ConvertCustomConfig, convert_custom_config, ConvertCustomConfig, "convert_custom_config"
    )
    mapping = None
    if qconfig_mapping is not None:
        mapping = _as(QConfigMapping, qconfig_mapping, QConfigMapping, "qconfig_mapping")
    backend = _as(BackendConfig, backend_config, get_native_backend_config, "backend_config")
    kept = _preserved(graph_module, custom.preserved_attributes)
    made = conversion.convert(graph_module, is_reference, custom, remove_qconfig, mapping, backend)
    return _keep(made, kept)  # type: ignore[no-any-return]


def convert_fx(
    graph_module: Any,
    convert_custom_config: Any = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
    keep_original_weights: bool = False,
) -> fx.GraphModule:
    """Return the quantized graph module for a prepared one, which is used up.

    Args:
        graph_module: what `prepare_fx` or `prepare_qat_fx` returned.
        convert_custom_config: what is treated specially.
        _remove_qconfig: remove configurations and observers.
        qconfig_mapping: as for preparation; None where a module is not to be quantized after all.
        backend_config: as for preparation.
        keep_original_weights: refused: packed weights are read back by `weight()`.

    Raises:
        ValueError: the model is no graph module, or original weights are to be kept.
        AssertionError: it is not prepared, or the mapping contradicts that of preparation.
        RuntimeError: an observer saw nothing.
    """
    if keep_original_weights:
        raise ValueError(
            "convert_fx: keep_original_weights is not offered; keep a copy of the float model"
        )
    return _convert(
        "convert_fx",
        graph_module,
        False,
        convert_custom_config,
        _remove_qconfig,
        qconfig_mapping,
        backend_config,
    )


def convert_to_reference_fx(
    graph_module: Any,
    convert_custom_config: Any = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
) -> fx.GraphModule:
    """Return the graph with float modules between quantize and dequantize, for other backends.

    Arguments and errors as of `convert_fx`.
    """
    return _convert(
        "convert_to_reference_fx",
        graph_module,
        True,
        convert_custom_config,
        _remove_qconfig,
        qconfig_mapping,
        backend_config,
    )
