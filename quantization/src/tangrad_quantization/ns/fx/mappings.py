"""Which functions, modules and methods are one and the same op in different forms."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad.nn.modules.linear import NonDynamicallyQuantizableLinear
from tangrad_quantization import functional
from tangrad_quantization.backend_config import get_native_backend_config
from tangrad_quantization.fx import lowering
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn import qat as nnqat
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.intrinsic import qat as nniqat
from tangrad_quantization.nn.intrinsic import quantized as nniq
from tangrad_quantization.nn.intrinsic.quantized import dynamic as nniqd
from tangrad_quantization.nn.qat import dynamic as nnqatd
from tangrad_quantization.nn.quantized import dynamic as nnqd
from tangrad_quantization.ns.fx.ns_types import NSNodeTargetType
from tangrad_quantization.quantization_mappings import DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS

Families = dict[str, set[NSNodeTargetType]]

# The forms of each op in float. A layer that is called as a function becomes a module when it is
# quantized, hence both are of one family.
_FLOAT: tuple[tuple[Any, ...], ...] = (
    *((getattr(nn, f"Conv{n}d"), getattr(F, f"conv{n}d")) for n in (1, 2, 3)),
    *((getattr(nn, f"ConvTranspose{n}d"), getattr(F, f"conv_transpose{n}d")) for n in (1, 2, 3)),
    (nn.Linear, F.linear, NonDynamicallyQuantizableLinear),
    *((getattr(nn, f"AvgPool{n}d"), getattr(F, f"avg_pool{n}d")) for n in (1, 2, 3)),
    *(
        (getattr(nn, f"AdaptiveAvgPool{n}d"), getattr(F, f"adaptive_avg_pool{n}d"))
        for n in (1, 2, 3)
    ),
    *((getattr(nn, f"MaxPool{n}d"), getattr(F, f"max_pool{n}d")) for n in (1, 2, 3)),
    *((getattr(nn, name),) for name in ("LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell")),
    (tangrad.add, operator.add),
    (tangrad.mul, operator.mul),
    (tangrad.sub, operator.sub),
    (tangrad.cat,),
    (F.relu, nn.ReLU, "relu", "relu_", tangrad.relu),
    (tangrad.sigmoid, "sigmoid", "sigmoid_", nn.Sigmoid, F.sigmoid),
    (nn.Tanh, F.tanh, tangrad.tanh, "tanh", "tanh_"),
    (nn.Hardsigmoid, F.hardsigmoid, "hardsigmoid", "hardsigmoid_"),
    (nn.Hardtanh, F.hardtanh, F.hardtanh_),
    *((getattr(nn, name),) for name in ("BatchNorm2d", "BatchNorm3d", "Embedding", "EmbeddingBag")),
    (nn.ELU, F.elu),
    (nn.GroupNorm, F.group_norm),
    (nn.Hardswish, F.hardswish),
    (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, F.instance_norm),
    (nn.LayerNorm, F.layer_norm),
    (nn.LeakyReLU, F.leaky_relu),
    (nn.ReLU6, F.relu6),
    (nn.SiLU, F.silu),
    (nn.Mish, F.mish),
    (nn.Dropout, F.dropout),
    (nn.Softmax,),
    (nn.PReLU, F.prelu),
    (nn.PixelShuffle, F.pixel_shuffle),
    (nn.PixelUnshuffle, F.pixel_unshuffle),
    (F.interpolate,),
    *(
        (getattr(tangrad, name),)
        for name in (
            *("unsqueeze", "stack", "squeeze", "sort", "repeat_interleave", "min", "mean", "max"),
            *("transpose", "flatten", "clamp", "chunk", "matmul", "narrow"),
        )
    ),
    (operator.floordiv,),
)


def _swaps() -> Iterator[tuple[Any, Any]]:
    """Return pairs of what is put in the place of something, by fusing, training or lowering."""
    for config in get_native_backend_config().configs:
        first = config.nested_pattern()
        while isinstance(first, tuple):
            first = first[-1]
        for made in (config.fused_module, config.qat_module, config.reference_quantized_module):
            if made is not None:
                yield first, made
    for table in (
        *(lowering.STATIC, lowering.DYNAMIC, lowering.WEIGHT_ONLY, lowering.SCALED),
        *(lowering.STATIC_FUSED, lowering.DYNAMIC_FUSED, lowering.SCALED_FUNCTIONS),
        DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
    ):
        yield from table.items()
    for function, forms in lowering.BINARY.items():
        yield from ((function, form) for form in forms if form is not None)


def get_base_name_to_sets_of_related_ops() -> Families:
    """Return the families of forms of one op: float, fused, for training, quantized."""
    families: list[set[Any]] = [set(forms) for forms in _FLOAT]
    of: dict[Any, set[Any]] = {form: family for family in families for form in family}
    for source, made in _swaps():
        family = of.get(source) or of.get(made)
        if family is not None:
            for form in (source, made):
                if form not in of:
                    family.add(form)
                    of[form] = family
    return {str(n): family for n, family in enumerate(families)}


def get_base_name_for_op(
    base_name_to_sets_of_related_ops: Families, op: NSNodeTargetType
) -> str | None:
    """Return the name of an op's family, or None."""
    found = (name for name, family in base_name_to_sets_of_related_ops.items() if op in family)
    return next(found, None)


def add_op_to_sets_of_related_ops(
    base_name_to_sets_of_related_ops: Families,
    op: NSNodeTargetType,
    related_op: NSNodeTargetType | None,
) -> None:
    """Add an op to the family of another, or as a family of its own; in place.

    Raises:
        AssertionError: the other is of no family.
    """
    if related_op is None:
        names = map(str, range(len(base_name_to_sets_of_related_ops) + 1))
        free = next(name for name in names if name not in base_name_to_sets_of_related_ops)
        base_name_to_sets_of_related_ops[free] = {op}
        return
    name = get_base_name_for_op(base_name_to_sets_of_related_ops, related_op)
    if name is None:
        raise AssertionError(f"{related_op} was not found")
    base_name_to_sets_of_related_ops[name].add(op)


def _public(*modules: Any) -> set[Any]:
    return {getattr(module, name) for module in modules for name in module.__all__}


def _float_modules() -> Iterable[Any]:
    names = (
        *("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d"),
        *("ConvTranspose3d", "LSTM", "GRU", "BatchNorm2d", "BatchNorm3d", "ELU", "GroupNorm"),
        *("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "Hardswish"),
        *("LeakyReLU", "SiLU", "Mish", "Softmax", "PReLU", "Embedding", "EmbeddingBag"),
    )
    return (getattr(nn, name) for name in names)


def get_node_type_to_io_type_map() -> Families:
    """Return what takes and gives numbers, integers, or either as it gets them."""
    scaled = set(lowering.SCALED_FUNCTIONS)
    passing = {
        *(nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Hardsigmoid, nn.Hardtanh, nn.Identity, nn.ReLU6),
        *(nn.Dropout, nn.PixelShuffle, nn.PixelUnshuffle, nn.Flatten),
        *(getattr(nn, f"{k}Pool{n}d") for k in ("AdaptiveAvg", "Avg", "Max") for n in (1, 2, 3)),
    }
    return {
        "funs_io_type_fp32": {
            *(F.linear, F.conv1d, F.conv2d, F.conv3d, F.silu, F.mish, F.prelu, tangrad.sum),
            *(operator.add, tangrad.add, operator.mul, tangrad.mul, *scaled),
        },
        "funs_io_type_fp16": set(),
        "funs_io_type_int8": {*lowering.SCALED_FUNCTIONS.values(), functional.cat},
        "funs_io_type_fp32_or_int8": set(lowering.SAME_FUNCTIONS)
        | {operator.floordiv, tangrad.chunk, tangrad.max, tangrad.min, tangrad.sort, F.tanh},
        "mods_io_type_fp32": {
            *_float_modules(),
            *_public(nni, nnqat, nniqat, nnqatd, nnqd, nniqd),
            *(NonDynamicallyQuantizableLinear, nnq.Embedding, nnq.EmbeddingBag),
        },
        "mods_io_type_int8": _public(nnq, nniq)
        - {nnq.Quantize, nnq.DeQuantize, nnq.FloatFunctional, nnq.FXFloatFunctional}
        - {nnq.Embedding, nnq.EmbeddingBag},
        "mods_io_type_fp32_or_int8": passing,
        "meths_io_type_fp32_or_int8": {
            *("sigmoid", "sigmoid_", "tanh", "tanh_", "hardsigmoid", "hardsigmoid_", "relu"),
            "relu_",
        },
    }


def get_unmatchable_types_map() -> Families:
    """Return what is not compared: conversions, and what moves or asks."""
    return {
        "funs_unmatchable": {
            *(tangrad.quantize_per_tensor, tangrad.quantize_per_tensor_dynamic),
            *(operator.getitem, getattr),
        },
        "mods_unmatchable": {nn.Identity},
        "meths_unmatchable": {
            *("to", "dequantize", "reshape", "view", "unsqueeze_", "unsqueeze", "transpose"),
            *("squeeze_", "squeeze", "size", "shape", "resize_", "repeat_interleave", "repeat"),
            *("permute", "numel", "mean", "detach_", "detach", "contiguous", "clamp", "chunk"),
        },
    }
