"""Patterns that backends share: each function takes dtypes and returns configurations."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad_quantization.backend_config.backend_config import (
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from tangrad_quantization.fuser_method_mappings import (
    METHODS,
    fuse_conv_bn,
    fuse_conv_bn_relu,
    fuse_convtranspose_bn,
)
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn import qat as nnqat
from tangrad_quantization.nn.intrinsic import qat as nniqat
from tangrad_quantization.nn.quantized import reference as nnqr

_Types = Sequence[DTypeConfig]
_SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT


class _Convolution(NamedTuple):
    """The modules and functions of convolutions over one number of dimensions."""

    places: int
    root: Any
    transposed: Any
    norm: Any
    reference: Any
    transposed_reference: Any
    qat: Any
    with_relu: Any
    with_relu_qat: Any
    with_norm: Any
    with_norm_qat: Any
    with_both: Any
    with_both_qat: Any
    function: Any
    transposed_function: Any


def _convolution(places: int) -> _Convolution:
    end = f"{places}d"
    return _Convolution(
        places,
        getattr(nn, f"Conv{end}"),
        getattr(nn, f"ConvTranspose{end}"),
        getattr(nn, f"BatchNorm{end}"),
        getattr(nnqr, f"Conv{end}"),
        getattr(nnqr, f"ConvTranspose{end}"),
        getattr(nnqat, f"Conv{end}"),
        getattr(nni, f"ConvReLU{end}"),
        getattr(nniqat, f"ConvReLU{end}"),
        getattr(nni, f"ConvBn{end}"),
        getattr(nniqat, f"ConvBn{end}"),
        getattr(nni, f"ConvBnReLU{end}"),
        getattr(nniqat, f"ConvBnReLU{end}"),
        getattr(F, f"conv{end}"),
        getattr(F, f"conv_transpose{end}"),
    )


def two_as(kind: Any) -> Callable[..., Any]:
    """Return a function `(is_qat, first, second)` that makes one module of two."""
    return lambda is_qat, first, second: kind(first, second)


def plain(pattern: Any, types: _Types, kind: ObservationType | None = None) -> Any:
    """Return the configuration of a pattern that is not fused and holds no weight."""
    made = BackendPatternConfig(pattern).set_dtype_configs(types)
    return made if kind is None else made.set_observation_type(kind)


def _rooted(pattern: Any, types: _Types, root: Any, reference: Any, qat: Any = None) -> Any:
    """Return the configuration of a module that holds a weight, or is made of one that does."""
    made = plain(pattern, types).set_root_module(root)
    return made.set_reference_quantized_module(reference).set_qat_module(qat)


def fused(pattern: Any, types: _Types, fuser: Any, module: Any) -> BackendPatternConfig:
    """Return the configuration of modules that are fused."""
    made = BackendPatternConfig(pattern).set_dtype_configs(types)
    return made.set_fuser_method(fuser).set_fused_module(module)


def weighted_function(function: Any, types: _Types) -> BackendPatternConfig:
    """Return the configuration of a function that is given its weight and its bias."""
    return plain(function, types)._set_input_type_to_index({"weight": 1, "bias": 2})


def single_linear_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of linear layers that nothing follows."""
    return [
        _rooted(nn.Linear, types, nn.Linear, nnqr.Linear, nnqat.Linear),
        _rooted(nnqat.Linear, types, nn.Linear, nnqr.Linear),
        weighted_function(F.linear, types),
    ]


def linear_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of linear layers."""
    root, reference = nn.Linear, nnqr.Linear
    relu = two_as(nni.LinearReLU)
    return [
        *single_linear_configs(types),
        fused((root, nn.ReLU), types, relu, nni.LinearReLU),
        fused((root, F.relu), types, relu, nni.LinearReLU),
        _rooted(nni.LinearReLU, types, root, reference, nniqat.LinearReLU),
        _rooted(nniqat.LinearReLU, types, root, reference),
        plain((F.linear, nn.ReLU), types),
        plain((F.linear, F.relu), types),
        fused((root, nn.BatchNorm1d), types, METHODS[root, nn.BatchNorm1d], nni.LinearBn1d),
        _rooted(nni.LinearBn1d, types, root, reference, nniqat.LinearBn1d),
        _rooted(nniqat.LinearBn1d, types, root, reference),
    ]


def _forward_conv_configs(c: _Convolution, types: _Types) -> list[BackendPatternConfig]:
    relu = two_as(c.with_relu)
    return [
        _rooted(c.root, types, c.root, c.reference, c.qat),
        _rooted(c.qat, types, c.root, c.reference),
        weighted_function(c.function, types),
        fused((c.root, nn.ReLU), types, relu, c.with_relu),
        fused((c.root, F.relu), types, relu, c.with_relu),
        _rooted(c.with_relu, types, c.root, c.reference, c.with_relu_qat),
        _rooted(c.with_relu_qat, types, c.root, c.reference),
        plain((c.function, nn.ReLU), types),
        plain((c.function, F.relu), types),
        fused((c.root, c.norm), types, fuse_conv_bn, c.with_norm),
        fused((c.root, c.norm, nn.ReLU), types, fuse_conv_bn_relu, c.with_both),
        fused((c.root, c.norm, F.relu), types, fuse_conv_bn_relu, c.with_both),
        plain(c.with_norm, types).set_qat_module(c.with_norm_qat),
        plain(c.with_both, types).set_qat_module(c.with_both_qat),
        _rooted(c.with_norm_qat, types, c.root, c.reference),
        _rooted(c.with_both_qat, types, c.root, c.reference),
    ]


def _transposed_conv_configs(c: _Convolution, types: _Types) -> list[BackendPatternConfig]:
    whole = _rooted((c.transposed, c.norm), types, c.transposed, c.transposed_reference)
    return [
        _rooted(c.transposed, types, c.transposed, c.transposed_reference),
        whole.set_fuser_method(fuse_convtranspose_bn),
        weighted_function(c.transposed_function, types),
    ]


def image_conv_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of convolutions over two dimensions, without transposed ones."""
    return _forward_conv_configs(_convolution(2), types)


def conv_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of convolutions over one, two and three dimensions."""
    made: list[BackendPatternConfig] = []
    for c in map(_convolution, (1, 2, 3)):
        made += _forward_conv_configs(c, types) + _transposed_conv_configs(c, types)
    return made


def of_two_configs(types: _Types, functions: Sequence[Any]) -> list[BackendPatternConfig]:
    """Return the patterns of functions of two; with a number, the range follows the input's."""
    by_tensors = {
        0: ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT,
        1: _SHARED,
        2: ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT,
    }
    made = []
    for function in functions:
        relus = [(function, relu) for relu in (nn.ReLU, F.relu, tangrad.relu)]
        for pattern in (*relus, function):
            config = plain(pattern, types)
            made.append(config._set_num_tensor_args_to_observation_type(by_tensors))
    return made


def binary_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of sums and products."""
    functions = (operator.add, tangrad.add, operator.mul, tangrad.mul)
    return [*of_two_configs(types, functions), plain(tangrad.matmul, types)]


def shared(types: _Types, patterns: Sequence[Any]) -> list[BackendPatternConfig]:
    """Return the configurations of patterns whose output has the input's scale."""
    return [plain(pattern, types, _SHARED) for pattern in patterns]


def cat_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the pattern of joining tensors, which all get one scale."""
    return shared(types, [tangrad.cat])


_OWN_SCALE = (
    *(nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.InstanceNorm1d, nn.InstanceNorm2d),
    *(nn.InstanceNorm3d, nn.Dropout, nn.PReLU, F.elu, F.hardswish, F.leaky_relu, F.dropout),
)


def default_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of what computes a new range from one tensor."""
    made = [plain(pattern, types) for pattern in _OWN_SCALE]
    for function, first in ((F.group_norm, 2), (F.instance_norm, 3)):
        places = {"weight": first, "bias": first + 1}
        made.append(plain(function, types)._set_input_type_to_index(places))
    return made


def layer_norm_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of layer normalization."""
    function = plain(F.layer_norm, types)
    return [
        plain(nn.LayerNorm, types),
        function._set_input_type_to_index({"weight": 2, "bias": 3}),
    ]


_OF_0_TO_1 = DTypeWithConstraints(
    dtype=tangrad.quint8,
    quant_min_lower_bound=0,
    quant_max_upper_bound=255,
    scale_exact_match=1.0 / 256.0,
    zero_point_exact_match=0,
)
_OF_MINUS_1_TO_1 = DTypeWithConstraints(
    dtype=tangrad.quint8,
    quant_min_lower_bound=0,
    quant_max_upper_bound=255,
    scale_exact_match=2.0 / 256.0,
    zero_point_exact_match=128,
)
_FIXED: tuple[tuple[DTypeWithConstraints, tuple[Any, ...]], ...] = (
    (
        _OF_0_TO_1,
        (
            *(nn.Hardsigmoid, F.hardsigmoid, "hardsigmoid", "hardsigmoid_"),
            *(nn.Sigmoid, tangrad.sigmoid, "sigmoid", "sigmoid_", nn.Softmax),
        ),
    ),
    (_OF_MINUS_1_TO_1, (nn.Tanh, tangrad.tanh, "tanh", "tanh_")),
)


def _within(types: _Types, constraints: DTypeWithConstraints) -> list[DTypeConfig]:
    made = copy.deepcopy(list(types))
    for config in made:
        for given in (config.input_dtype_with_constraints, config.output_dtype_with_constraints):
            if given.dtype == constraints.dtype:
                _restrict(given, constraints)
    return made


def _restrict(given: DTypeWithConstraints, constraints: DTypeWithConstraints) -> None:
    for bound in ("scale_min_lower_bound", "scale_max_upper_bound"):
        if getattr(given, bound) is not None:
            raise ValueError(f"{bound} is invalid for fixed qparams ops: {given}")
    for name in ("quant_min_lower_bound", "quant_max_upper_bound"):
        setattr(given, name, getattr(constraints, name))
    given.scale_exact_match = constraints.scale_exact_match
    given.zero_point_exact_match = constraints.zero_point_exact_match


def fixed_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of functions whose range is known beforehand.

    Raises:
        ValueError: a dtype has bounds of the scale, which contradict a fixed one.
    """
    return [
        plain(pattern, _within(types, constraints))
        for constraints, patterns in _FIXED
        for pattern in patterns
    ]


SHARING: tuple[Any, ...] = (
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.Hardtanh, nn.Identity),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.PixelShuffle, nn.PixelUnshuffle),
    *(nn.ReLU, nn.ReLU6, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d),
    *(F.hardtanh, F.hardtanh_, F.interpolate, F.max_pool1d, F.max_pool2d, F.max_pool3d),
    *(F.pixel_shuffle, F.pixel_unshuffle, F.relu, F.relu6, F.avg_pool1d, F.avg_pool2d),
    *(F.avg_pool3d, tangrad.clamp, tangrad.flatten, tangrad.mean, tangrad.narrow),
    *(tangrad.repeat_interleave, tangrad.transpose, tangrad.squeeze, tangrad.stack),
    *(tangrad.unsqueeze, operator.floordiv, "contiguous", "clamp", "detach", "detach_", "mean"),
    *("permute", "repeat", "repeat_interleave", "reshape", "resize_", "relu", "relu_"),
    *("squeeze", "squeeze_", "transpose", "unsqueeze", "unsqueeze_", "view"),
)


def sharing_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of what moves, clips or averages elements, without a new scale."""
    return shared(types, SHARING)


def batch_norm_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of batch norms that no convolution precedes."""
    made = []
    for norm, both in ((nn.BatchNorm2d, nni.BNReLU2d), (nn.BatchNorm3d, nni.BNReLU3d)):
        made += [
            fused((norm, nn.ReLU), types, two_as(both), both),
            fused((norm, F.relu), types, two_as(both), both),
            plain(norm, types),
            plain(both, types),
        ]
    return made


def recurrent_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of recurrent layers and cells."""
    names = ("GRUCell", "LSTMCell", "RNNCell", "LSTM", "GRU")
    return [_rooted(getattr(nn, n), types, getattr(nn, n), getattr(nnqr, n)) for n in names]


def embedding_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of embeddings."""
    made = []
    for name in ("Embedding", "EmbeddingBag"):
        root, qat, reference = (getattr(side, name) for side in (nn, nnqat, nnqr))
        made += [_rooted(root, types, root, reference, qat), _rooted(qat, types, root, reference)]
    return made


def size_configs(types: _Types) -> list[BackendPatternConfig]:
    """Return the patterns of what asks for sizes."""
    kind = ObservationType.INPUT_OUTPUT_NOT_OBSERVED
    return [plain(name, types, kind) for name in ("shape", "size")]
