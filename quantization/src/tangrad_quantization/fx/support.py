"""Whether a backend can quantize a pattern as a configuration says."""

from __future__ import annotations

import warnings
from typing import Any

import tangrad
from tangrad_quantization.backend_config import DTypeConfig, DTypeWithConstraints
from tangrad_quantization.observer import (
    FixedQParamsObserver,
    NoopObserver,
    PlaceholderObserver,
    ReuseInputObserver,
)

half = PlaceholderObserver.with_args(dtype=tangrad.float16)
plain = PlaceholderObserver.with_args(dtype=tangrad.float32)


def made(constructor: Any) -> Any:
    """Call the constructor of an observer, without the warnings that it makes at each use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return constructor()


def aim_of(constructor: Any) -> tuple[Any, bool]:
    """Return the dtype that an observer aims at, and whether in each call; None for no observer."""
    if constructor is None:
        return None, False
    observer = made(constructor)
    return getattr(observer, "dtype", None), bool(getattr(observer, "is_dynamic", False))


def reuses_input(qconfig: Any) -> bool:
    """Return whether a configuration says that the output has the input's scale."""
    if qconfig is None:
        return False
    return isinstance(made(qconfig.activation), ReuseInputObserver) and isinstance(
        made(qconfig.weight), NoopObserver
    )


def bias_observer(qconfig: Any) -> Any:
    """Return the constructor of a bias's observer: half precision where all is."""
    activation, dynamic = aim_of(qconfig.activation)
    weight, _ = aim_of(qconfig.weight)
    whole = activation == tangrad.float16 and weight == tangrad.float16 and not dynamic
    return half if whole else plain


def keeps_to(constructor: Any, wanted: DTypeWithConstraints) -> bool:
    """Return whether an observer keeps to the constraints of a dtype."""
    given = made(constructor)
    observer = getattr(given, "activation_post_process", given)
    if getattr(given, "dtype", None) != wanted.dtype:
        return True  # of another dtype: dtypes are compared elsewhere
    exact = wanted.scale_exact_match is not None and wanted.zero_point_exact_match is not None
    if exact and not _is_fixed(observer, wanted):
        warnings.warn(
            "a function whose range is known beforehand stays float: its qconfig must have a "
            f"FixedQParamsObserver of scale {wanted.scale_exact_match} and zero point "
            f"{wanted.zero_point_exact_match}, got {type(observer).__name__}; take "
            "get_default_qconfig_mapping()",
            stacklevel=2,
        )
        return False
    low, high = (getattr(observer, name, None) for name in ("quant_min", "quant_max"))
    if wanted.quant_min_lower_bound is not None and wanted.quant_max_upper_bound is not None:
        if low is None or high is None:
            return False
        if low < wanted.quant_min_lower_bound or high > wanted.quant_max_upper_bound:
            return False
    if wanted.scale_min_lower_bound is not None:
        eps = getattr(observer, "eps", None)
        return eps is not None and float(eps) >= wanted.scale_min_lower_bound
    return True


def _is_fixed(observer: Any, wanted: DTypeWithConstraints) -> bool:
    if not isinstance(observer, FixedQParamsObserver):
        return False
    return (
        float(observer.scale) == wanted.scale_exact_match
        and int(observer.zero_point) == wanted.zero_point_exact_match
    )


def takes_activation(config: DTypeConfig, constructor: Any) -> bool:
    """Return whether an input may be observed so."""
    if config.input_dtype is None:
        return True
    if constructor is None:
        return False
    dtype, dynamic = aim_of(constructor)
    fits = dtype == config.input_dtype and dynamic == bool(config.is_dynamic)
    return fits and keeps_to(constructor, config.input_dtype_with_constraints)


def takes_weight(config: DTypeConfig, constructor: Any) -> bool:
    """Return whether a weight may be observed so."""
    if config.weight_dtype is None:
        return True
    if aim_of(constructor)[0] != config.weight_dtype:
        return False
    return keeps_to(constructor, config.weight_dtype_with_constraints)


def takes_bias(config: DTypeConfig, constructor: Any) -> bool:
    """Return whether a bias may be observed so."""
    return config.bias_dtype is None or aim_of(constructor)[0] == config.bias_dtype


def gives_output(config: DTypeConfig, constructor: Any) -> bool:
    """Return whether an output may be observed so; inputs quantized in each call give floats."""
    if config.output_dtype is None:
        return True
    dtype, dynamic = aim_of(constructor)
    if (tangrad.float32 if dynamic else dtype) != config.output_dtype:
        return False
    return constructor is None or keeps_to(constructor, config.output_dtype_with_constraints)


def module_weight_fits(config: DTypeConfig, qconfig: Any) -> bool:
    """Return whether a module may be quantized as a configuration says, by all its dtypes."""
    activation, dynamic = aim_of(qconfig.activation)
    weight, _ = aim_of(qconfig.weight)
    plain32 = tangrad.float32
    wanted_input, wanted_weight = config.input_dtype or plain32, config.weight_dtype or plain32
    wanted_output = config.output_dtype or plain32
    if wanted_input != activation or wanted_weight != weight:
        return False
    if config.is_dynamic:
        return dynamic and wanted_output == plain32
    bias = aim_of(bias_observer(qconfig))[0]
    return wanted_output == activation and (config.bias_dtype or plain32) == bias
