"""Which observers a module's output and weight get."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.fake_quantize import (
    FakeQuantize,
    FakeQuantizeBase,
    FixedQParamsFakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    default_dynamic_fake_quant,
    default_embedding_fake_quant,
    default_embedding_fake_quant_4bit,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    fused_per_channel_wt_fake_quant_range_neg_127_to_127,
    fused_wt_fake_quant_range_neg_127_to_127,
)
from tangrad_quantization.observer import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    _PartialWrapper,
    default_debug_observer,
    default_dynamic_quant_observer,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    default_float_qparams_observer,
    default_float_qparams_observer_4bit,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_reuse_input_observer,
    default_weight_observer,
    per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127,
)
from tangrad_quantization.observers.histogram import HistogramObserver

__all__ = [
    "QConfig",
    "QConfigAny",
    "QConfigDynamic",
    "default_activation_only_qconfig",
    "default_debug_qconfig",
    "default_dynamic_qat_qconfig",
    "default_dynamic_qconfig",
    "default_embedding_qat_qconfig",
    "default_embedding_qat_qconfig_4bit",
    "default_per_channel_qconfig",
    "default_per_channel_symmetric_qnnpack_qat_qconfig",
    "default_per_channel_symmetric_qnnpack_qconfig",
    "default_qat_qconfig",
    "default_qat_qconfig_v2",
    "default_qconfig",
    "default_quint8_weight_qconfig",
    "default_reuse_input_qconfig",
    "default_symmetric_qnnpack_qat_qconfig",
    "default_symmetric_qnnpack_qconfig",
    "default_weight_only_qconfig",
    "float16_dynamic_qconfig",
    "float16_static_qconfig",
    "float_qparams_weight_only_qconfig",
    "float_qparams_weight_only_qconfig_4bit",
    "get_default_qat_qconfig",
    "get_default_qat_qconfig_dict",
    "get_default_qconfig",
    "get_default_qconfig_dict",
    "per_channel_dynamic_qconfig",
    "qconfig_equals",
]

BACKENDS = ("fbgemm", "x86", "qnnpack", "onednn")
_FIXED: tuple[tuple[_PartialWrapper, tuple[Any, ...]], ...] = (
    (
        default_fixed_qparams_range_0to1_observer,
        (
            nn.Hardsigmoid,
            F.hardsigmoid,
            "hardsigmoid",
            "hardsigmoid_",
            nn.Sigmoid,
            tangrad.sigmoid,
            "sigmoid",
            "sigmoid_",
            nn.Softmax,
        ),
    ),
    (
        default_fixed_qparams_range_neg1to1_observer,
        (nn.Tanh, tangrad.tanh, "tanh", "tanh_"),
    ),
)
# Their channels do not stand in the first dimension.
_TRANSPOSED = (
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)


class _Pair(NamedTuple):
    activation: Any
    weight: Any


class QConfig(_Pair):
    """Constructors of the observers of a module's output and weight.

    Args:
        activation: constructor of the output's observer.
        weight: constructor of the weight's.

    Raises:
        ValueError: an observer is given instead of its constructor.
    """

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        for given in (activation, weight):
            if isinstance(given, nn.Module):
                raise ValueError(
                    f"QConfig received an observer, {type(given).__name__}; pass its class, or "
                    f"what with_args returns, for every module gets its own"
                )
        return super().__new__(cls, activation, weight)


class QConfigDynamic(_Pair):
    """Deprecated form of `QConfig` for dynamic quantization."""

    __slots__ = ()

    def __new__(cls, activation: Any = nn.Identity, weight: Any = nn.Identity) -> QConfigDynamic:
        if isinstance(weight, nn.Module):
            raise ValueError("QConfigDynamic received an observer; pass its class")
        warnings.warn(
            "QConfigDynamic is going to be deprecated in PyTorch 1.12, please use QConfig instead",
            stacklevel=2,
        )
        return super().__new__(cls, activation, weight)


QConfigAny = Optional[QConfig]  # noqa: UP045 (programs ask for it at run time)

default_qconfig = QConfig(default_observer, default_weight_observer)
default_debug_qconfig = QConfig(default_debug_observer, default_weight_observer)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
float16_dynamic_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=tangrad.float16, is_dynamic=True),
    PlaceholderObserver.with_args(dtype=tangrad.float16),
)
float16_static_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=tangrad.float16),
    PlaceholderObserver.with_args(dtype=tangrad.float16),
)
per_channel_dynamic_qconfig = QConfig(
    default_dynamic_quant_observer, default_per_channel_weight_observer
)
float_qparams_weight_only_qconfig = QConfig(
    default_placeholder_observer, default_float_qparams_observer
)
float_qparams_weight_only_qconfig_4bit = QConfig(
    default_placeholder_observer, default_float_qparams_observer_4bit
)
default_qat_qconfig = QConfig(default_fake_quant, default_weight_fake_quant)
default_dynamic_qat_qconfig = QConfig(default_dynamic_fake_quant, default_weight_fake_quant)
default_weight_only_qconfig = QConfig(nn.Identity, default_weight_fake_quant)
default_activation_only_qconfig = QConfig(default_fake_quant, nn.Identity)
default_qat_qconfig_v2 = QConfig(default_fused_act_fake_quant, default_fused_wt_fake_quant)
default_reuse_input_qconfig = QConfig(default_reuse_input_observer, NoopObserver)
default_embedding_qat_qconfig = QConfig(
    NoopObserver.with_args(dtype=tangrad.float32), default_embedding_fake_quant
)
default_embedding_qat_qconfig_4bit = QConfig(
    NoopObserver.with_args(dtype=tangrad.float32), default_embedding_fake_quant_4bit
)
default_quint8_weight_qconfig = QConfig(HistogramObserver, MinMaxObserver)

_signed = HistogramObserver.with_args(dtype=tangrad.qint8, reduce_range=False, eps=2**-12)
default_symmetric_qnnpack_qconfig = QConfig(_signed, weight_observer_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    _signed, per_channel_weight_observer_range_neg_127_to_127
)
_signed_fake = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver,
    quant_min=-128,
    quant_max=127,
    dtype=tangrad.qint8,
    reduce_range=False,
    eps=2**-12,
)
default_symmetric_qnnpack_qat_qconfig = QConfig(
    _signed_fake, fused_wt_fake_quant_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    _signed_fake, fused_per_channel_wt_fake_quant_range_neg_127_to_127
)


def _check(name: str, backend: str, version: int, versions: tuple[int, ...]) -> None:
    if backend not in BACKENDS:
        raise AssertionError(
            f"backend: {backend} not supported. backend must be one of {list(BACKENDS)}"
        )
    if version not in versions:
        raise AssertionError(
            f"Version number: {version} in {name} is not supported. Version number must be "
            f"{' or '.join(map(str, versions))}"
        )


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """Return the observers for static quantization, as PyTorch's backend of that name wants them.

    Args:
        backend: "x86", "fbgemm", "qnnpack" or "onednn". The first two leave one bit of
            activations unused, which kernels of tangrad do not need.
        version: 0.
    """
    _check("get_default_qconfig", backend, version, (0,))
    activation = HistogramObserver.with_args(reduce_range=backend in ("fbgemm", "x86"))
    if backend == "qnnpack":
        return QConfig(activation, default_weight_observer)
    return QConfig(activation, default_per_channel_weight_observer)


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """Return the fake quantization for training, as PyTorch's backend of that name wants it.

    Args:
        backend: "x86", "fbgemm", "qnnpack" or "onednn".
        version: 1, or 0 for modules that observe and round one after the other.
    """
    _check("get_default_qat_qconfig", backend, version, (0, 1))
    kind = FusedMovingAvgObsFakeQuantize if version else FakeQuantize
    reduce = {} if backend == "onednn" else {"reduce_range": backend != "qnnpack"}
    activation = kind.with_args(
        observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, **reduce
    )
    if backend == "qnnpack":
        weight = default_fused_wt_fake_quant if version else default_weight_fake_quant
    elif version:
        weight = default_fused_per_channel_wt_fake_quant
    else:
        weight = default_per_channel_weight_fake_quant
    return QConfig(activation, weight)


def require_valid(qconfig: Any, module: Any) -> None:
    """Refuse scales per channel for transposed convolutions, whose channels stand elsewhere.

    Raises:
        AssertionError: they are asked for.
    """
    transposed = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    if qconfig is None or qconfig.weight is None or not isinstance(module, transposed):
        return
    observer = qconfig.weight()
    watching = getattr(observer, "activation_post_process", observer)
    if isinstance(watching, (PerChannelMinMaxObserver, MovingAveragePerChannelMinMaxObserver)):
        raise AssertionError(
            "Per channel weight observer is not supported yet for ConvTranspose{n}d: give "
            f"{type(module).__name__} a qconfig whose weight is observed per tensor"
        )


def on_device_of(qconfig: Any, module: Any) -> Any:
    """Return the configuration with constructors that make observers where a module lies."""
    if module is None or qconfig is None or qconfig._fields != ("activation", "weight"):
        return qconfig

    def arguments() -> dict[str, Any] | None:
        devices = {p.device for p in module.parameters()} | {b.device for b in module.buffers()}
        found = next(iter(devices), None)
        return None if found is None else {"device": found}

    def placed(constructor: Any) -> Any:
        if not isinstance(constructor, _PartialWrapper) and not hasattr(constructor, "with_args"):
            return constructor
        try:  # some observers have nothing that lies anywhere
            constructor.with_args(factory_kwargs=None)()
        except (AttributeError, TypeError):
            return constructor
        return constructor.with_callable_args(factory_kwargs=arguments)

    return QConfig(_quiet(placed, qconfig.activation), _quiet(placed, qconfig.weight))


def _quiet(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call without the warnings of an observer that is made for trial only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(argument)


def qconfig_equals(q1: Any, q2: Any) -> bool:
    """Return whether two configurations make the same observers."""
    if q1 is None or q2 is None:
        return q1 is q2
    return all(_same(getattr(q1, key), getattr(q2, key)) for key in ("activation", "weight"))


def _same(first: Any, second: Any) -> bool:
    if not (isinstance(first, _PartialWrapper) and isinstance(second, _PartialWrapper)):
        return bool(first == second)
    one, two = dict(first.p.keywords), dict(second.p.keywords)
    if not _same(one.pop("observer", None), two.pop("observer", None)):
        return False
    same_call = first.p.func == second.p.func and first.p.args == second.p.args
    return bool(same_call and one == two)


def remembers_nothing(qconfig: Any) -> bool:
    """Return whether the output's observer forgets at each tensor: then it watches the input."""
    observer = qconfig.activation()
    if isinstance(observer, FakeQuantizeBase):
        observer = getattr(observer, "activation_post_process", observer)
    return getattr(observer, "averaging_constant", None) == 1


def get_default_qconfig_dict(backend: str = "x86", version: int = 0) -> dict[str, Any]:
    """Return `get_default_qconfig_mapping(...)` as a dict; deprecated in PyTorch."""
    _warn_of("get_default_qconfig_dict", "get_default_qconfig_mapping")
    return default_qconfigs(backend, version)


def get_default_qat_qconfig_dict(backend: str = "x86", version: int = 1) -> dict[str, Any]:
    """Return `get_default_qat_qconfig_mapping(...)` as a dict; deprecated in PyTorch."""
    _warn_of("get_default_qat_qconfig_dict", "get_default_qat_qconfig_mapping")
    return default_qat_qconfigs(backend, version)


def _warn_of(old: str, new: str) -> None:
    warnings.warn(
        f"`{old}` is deprecated and will be removed in a future version. Please use `{new}` "
        f"instead.",
        FutureWarning,
        stacklevel=3,
    )


def default_qconfigs(backend: str, version: int) -> dict[str, Any]:
    """Return the configurations for static quantization, as `QConfigMapping.to_dict` does."""
    qconfig = get_default_qconfig(backend, version)
    return _by_type(qconfig, default_weight_observer, backend, lambda observer: observer)


def default_qat_qconfigs(backend: str, version: int) -> dict[str, Any]:
    """Return the configurations for training, as `QConfigMapping.to_dict` does."""
    qconfig = get_default_qat_qconfig(backend, version)
    return _by_type(
        qconfig,
        default_weight_fake_quant,
        backend,
        lambda observer: FixedQParamsFakeQuantize.with_args(observer=observer),
    )


def _by_type(qconfig: QConfig, weight: Any, backend: str, fixed: Any) -> dict[str, Any]:
    per_tensor = QConfig(qconfig.activation, weight)
    float_weight = QConfig(qconfig.activation, default_placeholder_observer)
    of_transposed = per_tensor if backend in ("fbgemm", "x86") else qconfig
    by_type: list[tuple[Any, Any]] = [
        ("reshape", default_reuse_input_qconfig),
        *((kind, of_transposed) for kind in _TRANSPOSED),
        *((kind, float_weight) for kind in (F.layer_norm, nn.LayerNorm)),
        (nn.PReLU, default_quint8_weight_qconfig),
    ]
    for observer, kinds in _FIXED:
        of_fixed = QConfig(fixed(observer), weight)
        by_type += [(kind, of_fixed) for kind in kinds]
    places = ("module_name_regex", "module_name", "module_name_object_type_order")
    return {"": qconfig, "object_type": by_type, **{place: [] for place in places}}
