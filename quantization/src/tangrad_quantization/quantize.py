"""Eager quantization: prepare a model, show it data or train it, convert it."""

from __future__ import annotations

import copy
import inspect
import warnings
from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn.utils.parametrize import type_before_parametrizations
from tangrad_quantization.layers.hooks import (
    hooks_after,
    hooks_before,
    register_after,
    register_before,
)
from tangrad_quantization.nn import quantizable
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.intrinsic.modules import _FusedModule
from tangrad_quantization.nn.quantized import reference as nnqr
from tangrad_quantization.nn.quantized.modules.weights import WeightedQuantizedModule
from tangrad_quantization.nn.quantized.reference.modules.weights import qparams_of
from tangrad_quantization.observer import is_observer
from tangrad_quantization.qconfig import (
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
    on_device_of,
    remembers_nothing,
    require_valid,
)
from tangrad_quantization.quantization_mappings import (
    DEFAULT_MODULE_TO_ACT_POST_PROCESS,
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
    get_default_static_quant_reference_module_mappings,
    no_observer_set,
)
from tangrad_quantization.stubs import DeQuantStub, QuantWrapper

__all__ = [
    "add_quant_dequant",
    "convert",
    "get_default_custom_config_dict",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "swap_module",
]

is_activation_post_process = is_observer


def get_default_custom_config_dict() -> dict[str, Any]:
    """Return how modules that observe themselves are made and converted."""
    kinds = ("LSTM", "MultiheadAttention")
    return {
        "float_to_observed_custom_module_class": {
            getattr(nn, kind): getattr(quantizable, kind) for kind in kinds
        },
        "observed_to_quantized_custom_module_class": {
            getattr(quantizable, kind): getattr(nnq, kind) for kind in kinds
        },
    }


def propagate_qconfig_(
    module: Any, qconfig_dict: Any = None, prepare_custom_config_dict: Any = None
) -> None:
    """Give every module its configuration: its own, its name's, its type's, or its parent's.

    Args:
        module: the model.
        qconfig_dict: names and types of modules to configurations.
        prepare_custom_config_dict: {"non_traceable_module_name": names, ...}, left alone.
    """
    _propagate(module, qconfig_dict or {}, None, "", prepare_custom_config_dict or {})


def _propagate(module: Any, table: Any, parents: Any, path: str, custom: Any) -> None:
    qconfig = table.get(type_before_parametrizations(module), parents)
    qconfig = table.get(path, qconfig)
    qconfig = getattr(module, "qconfig", qconfig)
    require_valid(qconfig, module)
    module.qconfig = qconfig = on_device_of(qconfig, module)
    for name, child in module.named_children():
        left = name in custom.get("non_traceable_module_name", ())
        if not left and type(child) not in custom.get("non_traceable_module_class", ()):
            _propagate(child, table, qconfig, f"{path}.{name}" if path else name, custom)


def _observe_output(self: Any, input: Any, output: Any) -> Any:
    return self.activation_post_process(output)


def _observe_input(self: Any, input: Any) -> Any:
    return self.activation_post_process(input[0])


def _insert_observer(module: Any, device: Any, path: str, special: Any = None) -> None:
    if getattr(module, "qconfig", None) is None or isinstance(module, DeQuantStub):
        return
    observer = (special or module.qconfig.activation)()
    if device is not None:
        observer.to(device)
    for part in observer.modules():
        part.path = path
    module.add_module("activation_post_process", observer)
    if remembers_nothing(module.qconfig):
        module.register_forward_pre_hook(_observe_input, prepend=True)
    else:
        module.register_forward_hook(_observe_output, prepend=True)


def _devices(module: Any) -> set[Any]:
    held = [*module.parameters(), *module.buffers()]
    return {t.device for t in held if t.device.type != "meta"}


class _Insertion:
    """Where observers go in a model.

    Args:
        observed: types of leaf modules that are observed.
        whole: types of modules that are observed though they have children.
        custom: types of modules to classes that observe themselves.
        device: where observers lie.
    """

    def __init__(self, observed: Any, whole: Any, custom: Any, device: Any) -> None:
        self.observed, self.whole, self.custom, self.device = observed, whole, custom, device

    def into(self, module: Any, path: str) -> None:
        """Observe a module and those within."""
        for name, child in module.named_children():
            self._child(module, name, child, f"{path}.{name}" if path else name)
        kind = type_before_parametrizations(module)
        leaf = not any(name != "parametrizations" for name, _ in module.named_children())
        trained = hasattr(module, "weight_fake_quant")
        if (leaf or trained) and kind in self.observed and not isinstance(module, nn.Sequential):
            _insert_observer(module, self.device, path)

    def _child(self, module: Any, name: str, child: Any, path: str) -> None:
        kind = type_before_parametrizations(child)
        if kind is nn.Dropout:
            return
        if isinstance(child, (nnq.FloatFunctional, nnq.QFunctional)):
            if getattr(child, "qconfig", None) is not None:
                observer = child.qconfig.activation()
                for part in observer.modules():
                    part.path = path
                child.activation_post_process = observer
        elif isinstance(child, _FusedModule) or (self.whole and kind in self.whole):
            _insert_observer(child, self.device, path)
        elif (
            kind in DEFAULT_MODULE_TO_ACT_POST_PROCESS
            and getattr(child, "qconfig", None) is not None
            and child.training
        ):
            special = DEFAULT_MODULE_TO_ACT_POST_PROCESS[kind]
            _insert_observer(child, self.device, path, special)
        elif kind in self.custom and getattr(child, "qconfig", None) is not None:
            observed = self.custom[kind].from_float(child)
            setattr(module, name, observed)
            if not issubclass(self.custom[kind], tuple(no_observer_set())):
                _insert_observer(observed, self.device, path)
        else:
            self.into(child, path)


def prepare(
    model: Any,
    inplace: bool = False,
    allow_list: Any = None,
    observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: Any = None,
) -> Any:
    """Return a model whose modules observe their outputs; show it calibration data, then convert.

    Args:
        model: the model; what is to be quantized has a `qconfig`, itself or an outer module.
        inplace: change the model itself.
        allow_list: types of modules that are observed.
        observer_non_leaf_module_list: types of modules that are observed though they have children.
        prepare_custom_config_dict: see `get_default_custom_config_dict`.

    Raises:
        RuntimeError: the model is quantized or prepared already, or lies on several devices.
    """
    custom = prepare_custom_config_dict or get_default_custom_config_dict()
    _refuse_quantized(model, "prepare")
    _refuse_prepared(model, "prepare")
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    if not any(getattr(module, "qconfig", None) for module in model.modules()):
        warnings.warn(
            "None of the submodule got qconfig applied. Make sure you passed correct "
            "configuration through `qconfig_dict` or by assigning the `.qconfig` attribute "
            "directly on submodules",
            stacklevel=2,
        )
    insert_observers(
        model,
        get_default_qconfig_propagation_list() if allow_list is None else allow_list,
        observer_non_leaf_module_list,
        custom.get("float_to_observed_custom_module_class", {}),
    )
    return model


def _refuse_prepared(model: Any, name: str) -> None:
    for path, module in model.named_modules():
        if _observe_output in module._forward_hooks.values():
            raise RuntimeError(
                f"{name}: '{path}' ({type(module).__name__}) is observed already, and its "
                f"statistics would be lost; show the prepared model calibration data and convert "
                f"it, or prepare the float model anew"
            )


def insert_observers(model: Any, observed: Any, whole: Any, custom: Any) -> None:
    """Insert observers into a model whose modules have their configurations; see `_Insertion`.

    Raises:
        RuntimeError: the model lies on several devices.
    """
    devices = _devices(model)
    if len(devices) > 1:
        raise RuntimeError(
            f"prepare: the model lies on several devices, {sorted(map(str, devices))}; move it "
            f"to one"
        )
    _Insertion(observed, whole, custom, next(iter(devices), None)).into(model, "")


def _refuse_quantized(model: Any, name: str) -> None:
    for path, module in model.named_modules():
        if isinstance(module, (WeightedQuantizedModule, nnq.Quantize)):
            raise RuntimeError(
                f"{name}: the model is quantized already ('{path}' is {type(module).__name__}); "
                f"start from the float model"
            )


def add_quant_dequant(module: Any) -> Any:
    """Put every leaf module that has a configuration between stubs; return the model."""
    leaf = not any(name != "parametrizations" for name, _ in module.named_children())
    if leaf and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        module._modules[name] = add_quant_dequant(child)
    return module


def _remove_observer(module: Any) -> None:
    if is_observer(getattr(module, "activation_post_process", None)):
        delattr(module, "activation_post_process")
    for hooks, own in (
        (module._forward_pre_hooks, _observe_input),
        (module._forward_hooks, _observe_output),
    ):
        for key in [key for key, hook in hooks.items() if hook is own]:
            hooks.pop(key)


def _remove_qconfig(module: Any) -> None:
    for child in module.children():
        _remove_qconfig(child)
    if hasattr(module, "qconfig"):
        del module.qconfig
    _remove_observer(module)


def quantize(
    model: Any, run_fn: Any, run_args: Any, mapping: Any = None, inplace: bool = False
) -> Any:
    """Quantize a model statically: prepare it, call `run_fn(model, *run_args)`, convert it."""
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    prepare(model, inplace=True)
    run_fn(model, *run_args)
    convert(model, mapping or get_default_static_quant_module_mappings(), inplace=True)
    return model


def _dynamic_defaults(dtype: Any) -> dict[Any, Any]:
    recurrent = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.RNNCell, nn.GRUCell)
    embeddings = (nn.EmbeddingBag, nn.Embedding)
    table = {
        tangrad.qint8: dict.fromkeys(recurrent, default_dynamic_qconfig),
        tangrad.float16: dict.fromkeys(recurrent, float16_dynamic_qconfig),
        tangrad.quint8: dict.fromkeys(embeddings, float_qparams_weight_only_qconfig),
        tangrad.quint4x2: {nn.EmbeddingBag: float_qparams_weight_only_qconfig_4bit},
    }
    if dtype not in table:
        raise ValueError(
            f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig "
            f"please"
        )
    return table[dtype]


_OF_DTYPE = {
    "qint8": default_dynamic_qconfig,
    "float16": float16_dynamic_qconfig,
    "quint8": float_qparams_weight_only_qconfig,
    "quint4x2": float_qparams_weight_only_qconfig_4bit,
}


def quantize_dynamic(
    model: Any,
    qconfig_spec: Any = None,
    dtype: Any = None,
    mapping: Any = None,
    inplace: bool = False,
) -> Any:
    """Quantize the weights of linear and recurrent layers; inputs are quantized in each call.

    Args:
        model: the model.
        qconfig_spec: names and types of modules to configurations, or a set of names and types.
        dtype: of the weights, where no configuration says it; qint8 by default.
        mapping: types of modules to those that they are swapped for.
        inplace: change the model itself.

    Raises:
        ValueError: nothing is known for the dtype, or the model has no module of a given name.
        RuntimeError: a module asked for by name has no quantized form.
    """
    dtype = tangrad.qint8 if dtype is None else dtype
    if qconfig_spec is None:
        qconfig_spec = _dynamic_defaults(dtype)
    elif isinstance(qconfig_spec, set):
        if dtype.name not in _OF_DTYPE:
            raise RuntimeError(f"Unknown dtype specified for quantize_dynamic: {dtype}")
        qconfig_spec = dict.fromkeys(qconfig_spec, _OF_DTYPE[dtype.name])
    mapping = mapping or get_default_dynamic_quant_module_mappings()
    _require_forms(model, [key for key, value in qconfig_spec.items() if value], mapping)
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    convert(model, mapping, inplace=True)
    return model


def _require_forms(model: Any, wanted: list[Any], mapping: Any) -> None:
    """Refuse names of modules within which nothing would be quantized."""
    modules = dict(model.named_modules())
    for name in wanted:
        if not isinstance(name, str):
            continue
        if name not in modules:
            raise ValueError(
                f"quantize_dynamic: the model has no module '{name}'; named_modules() lists its "
                f"names"
            )
        within = modules[name].modules()
        if not any(type_before_parametrizations(module) in mapping for module in within):
            kind = type(modules[name]).__name__
            forms = ", ".join(sorted({key.__name__ for key in mapping if isinstance(key, type)}))
            raise RuntimeError(
                f"quantize_dynamic: '{name}' ({kind}) has no quantized form; leave it out, or give "
                f"mapping= one. There are forms of {forms}"
            )


def prepare_qat(model: Any, mapping: Any = None, inplace: bool = False) -> Any:
    """Return a model that rounds weights and outputs as it will when quantized; train, convert.

    Args:
        model: the model, in training mode; what is to be quantized has a `qconfig`.
        mapping: types of modules to those that they are swapped for.
        inplace: change the model itself.

    Raises:
        AssertionError: the model is in evaluation mode.
    """
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    mapping = mapping or get_default_qat_module_mappings()
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    _convert_children(model, mapping, {}, False, "")
    prepare(model, observer_non_leaf_module_list=set(mapping.values()), inplace=True)
    return model


def quantize_qat(model: Any, run_fn: Any, run_args: Any, inplace: bool = False) -> Any:
    """Prepare a model for training, call `run_fn(model, *run_args)`, and convert it."""
    model = model if inplace else copy.deepcopy(model)
    model.train()
    prepare_qat(model, inplace=True)
    run_fn(model, *run_args)
    convert(model, inplace=True)
    return model


def convert(
    module: Any,
    mapping: Any = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> Any:
    """Return a model whose prepared modules are swapped for quantized ones.

    Args:
        module: the prepared model.
        mapping: types of modules to those that they are swapped for.
        inplace: change the model itself.
        remove_qconfig: remove configurations and observers.
        is_reference: take reference modules.
        convert_custom_config_dict: see `get_default_custom_config_dict`.
        use_precomputed_fake_quant: do not let weights be observed once more.

    Raises:
        RuntimeError: the model is quantized already, or an observer saw nothing.
    """
    _refuse_quantized(module, "convert")
    module = module if inplace else copy.deepcopy(module)
    if mapping is None:
        mapping = (
            get_default_static_quant_reference_module_mappings()
            if is_reference
            else get_default_static_quant_module_mappings()
        )
    custom = convert_custom_config_dict or get_default_custom_config_dict()
    classes = custom.get("observed_to_quantized_custom_module_class", {})
    _convert_children(module, mapping, classes, use_precomputed_fake_quant, "")
    if remove_qconfig:
        _remove_qconfig(module)
    return module


def _convert_children(module: Any, mapping: Any, custom: Any, precomputed: bool, path: str) -> None:
    swapped = {}
    for name, child in module.named_children():
        kind, where = type_before_parametrizations(child), f"{path}.{name}" if path else name
        if not isinstance(child, _FusedModule) and kind not in custom:
            _convert_children(child, mapping, custom, precomputed, where)
        if kind in mapping and getattr(child, "qconfig", None) is not None:
            require_finite(child, where)
        try:
            swapped[name] = swap_module(child, mapping, custom, precomputed)
        except AssertionError as error:
            raise AssertionError(f"convert: '{where}': {error}") from error
    module._modules.update(swapped)


def require_finite(module: Any, path: str) -> None:
    """Refuse a module whose parameters have no integers.

    Raises:
        ValueError: a parameter holds NaN or infinity.
    """
    for name, parameter in module.named_parameters():
        if parameter.is_floating_point() and not bool(parameter.isfinite().all()):
            raise ValueError(
                f"convert: '{path}.{name}' holds NaN or infinity, which have no integers; look for "
                f"the step of training that makes them with tangrad.autograd.detect_anomaly"
            )


_REFERENCES = {getattr(nnqr, name) for name in nnqr.__all__}


def _referred(mod: Any, kind: Any) -> Any:
    """Return the reference module for a float one, between the stubs of its model."""
    weights = [name for name, _ in mod.named_parameters() if name.startswith("weight")]
    found = {}
    for name in weights:
        observer = mod.qconfig.weight()
        observer(getattr(mod, name).detach())
        found[name] = qparams_of(observer)
    return kind.from_float(mod, found["weight"] if weights == ["weight"] else found)


def swap_module(
    mod: Any,
    mapping: Any,
    custom_module_class_mapping: Any,
    use_precomputed_fake_quant: bool = False,
) -> Any:
    """Return the module that a mapping has for one with a configuration; itself for others."""
    kind = type_before_parametrizations(mod)
    if getattr(mod, "qconfig", None) is None:
        return mod
    if kind in custom_module_class_mapping:
        made = custom_module_class_mapping[kind].from_observed(mod)
    elif kind in mapping:
        if mapping[kind] in _REFERENCES:
            return _referred(mod, mapping[kind])
        make = mapping[kind].from_float
        takes = "use_precomputed_fake_quant" in inspect.signature(make).parameters
        extra = {"use_precomputed_fake_quant": use_precomputed_fake_quant} if takes else {}
        made = make(mod, **extra)
    else:
        return mod
    register_before(made, [h for h in hooks_before(mod) if h.call is not _observe_input])
    register_after(made, [h for h in hooks_after(mod) if h.call is not _observe_output])
    devices = _devices(mod)
    if len(devices) > 1:
        raise RuntimeError(
            f"convert: {kind.__name__} lies on several devices, {sorted(map(str, devices))}"
        )
    return made.to(next(iter(devices))) if devices else made
