"""Which module is swapped for which, when a model is prepared for training or converted."""

from __future__ import annotations

import copy
from typing import Any

from tangrad import nn
from tangrad.nn import functional as F
from tangrad.nn.modules.linear import NonDynamicallyQuantizableLinear
from tangrad_quantization import operators
from tangrad_quantization.fake_quantize import (
    default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant,
)
from tangrad_quantization.nn import intrinsic as nni
from tangrad_quantization.nn import qat as nnqat
from tangrad_quantization.nn import quantizable
from tangrad_quantization.nn import quantized as nnq
from tangrad_quantization.nn.intrinsic import qat as nniqat
from tangrad_quantization.nn.intrinsic import quantized as nniq
from tangrad_quantization.nn.intrinsic.quantized import dynamic as nniqd
from tangrad_quantization.nn.qat import dynamic as nnqatd
from tangrad_quantization.nn.quantized import dynamic as nnqd
from tangrad_quantization.nn.quantized import reference as nnqr
from tangrad_quantization.nn.sparse import quantized as sparse
from tangrad_quantization.nn.sparse.quantized import dynamic as sparse_dynamic
from tangrad_quantization.stubs import DeQuantStub, QuantStub

__all__ = [
    "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS",
    "DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS",
    "DEFAULT_MODULE_TO_ACT_POST_PROCESS",
    "DEFAULT_QAT_MODULE_MAPPINGS",
    "DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS",
    "get_default_compare_output_module_list",
    "get_default_dynamic_quant_module_mappings",
    "get_default_dynamic_sparse_quant_module_mappings",
    "get_default_float_to_quantized_operator_mappings",
    "get_default_qat_module_mappings",
    "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings",
    "get_default_static_quant_reference_module_mappings",
    "get_default_static_sparse_quant_module_mappings",
    "get_dynamic_quant_module_class",
    "get_embedding_qat_module_mappings",
    "get_embedding_static_quant_module_mappings",
    "get_quantized_operator",
    "get_static_quant_module_class",
    "no_observer_set",
]


def _of_one_name(*names: str) -> dict[Any, Any]:
    """Return float modules to the quantized ones of the same names."""
    return {getattr(nn, name): getattr(nnq, name) for name in names}


DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    **_of_one_name(
        *("BatchNorm2d", "BatchNorm3d", "Dropout", "Conv1d", "Conv2d", "Conv3d"),
        *("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "ELU", "Embedding"),
        *("EmbeddingBag", "GroupNorm", "Hardswish", "InstanceNorm1d", "InstanceNorm2d"),
        *("InstanceNorm3d", "LayerNorm", "LeakyReLU", "Linear", "ReLU6", "PReLU"),
    ),
    NonDynamicallyQuantizableLinear: nnq.Linear,
    nnq.FloatFunctional: nnq.QFunctional,
    **{getattr(nni, name): getattr(nniq, name) for name in nniq.__all__},
    nniqat.ConvBn1d: nnq.Conv1d,
    nniqat.ConvBn2d: nnq.Conv2d,
    nniqat.ConvBn3d: nnq.Conv3d,
    nniqat.ConvBnReLU1d: nniq.ConvReLU1d,
    nniqat.ConvBnReLU2d: nniq.ConvReLU2d,
    nniqat.ConvBnReLU3d: nniq.ConvReLU3d,
    nniqat.ConvReLU2d: nniq.ConvReLU2d,
    nniqat.ConvReLU3d: nniq.ConvReLU3d,
    nniqat.LinearReLU: nniq.LinearReLU,
    nniqat.LinearBn1d: nnq.Linear,
    nnqat.Linear: nnq.Linear,
    nnqat.Conv2d: nnq.Conv2d,
    nnqat.Conv3d: nnq.Conv3d,
}
DEFAULT_QAT_MODULE_MAPPINGS: dict[Any, Any] = {
    nn.Conv2d: nnqat.Conv2d,
    nn.Conv3d: nnqat.Conv3d,
    nn.Linear: nnqat.Linear,
    NonDynamicallyQuantizableLinear: nnqat.Linear,
    **{
        getattr(nni, name): getattr(nniqat, name)
        for name in (
            *("ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d"),
            *("ConvBnReLU3d", "ConvReLU2d", "ConvReLU3d", "LinearReLU", "LinearBn1d"),
        )
    },
}
DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    nn.GRUCell: nnqd.GRUCell,
    nn.Linear: nnqd.Linear,
    nnqatd.Linear: nnqd.Linear,
    NonDynamicallyQuantizableLinear: nnqd.Linear,
    nn.LSTM: nnqd.LSTM,
    nn.GRU: nnqd.GRU,
    nn.LSTMCell: nnqd.LSTMCell,
    nn.RNNCell: nnqd.RNNCell,
    nni.LinearReLU: nniqd.LinearReLU,
    nn.EmbeddingBag: nnq.EmbeddingBag,
    nn.Embedding: nnq.Embedding,
}
DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    **{
        getattr(nn, name): getattr(nnqr, name)
        for name in (
            *("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d"),
            *("ConvTranspose3d", "Embedding", "EmbeddingBag", "GRUCell", "LSTMCell", "RNNCell"),
            "LSTM",
        )
    },
}
DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {nn.Linear: sparse.Linear}
DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {nn.Linear: sparse_dynamic.Linear}
DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS: dict[Any, Any] = {
    F.elu: operators.elu,
    F.hardswish: operators.hardswish,
    F.instance_norm: operators.instance_norm,
    F.layer_norm: operators.layer_norm,
    F.leaky_relu: operators.leaky_relu,
    F.dropout: operators.dropout,
}
# Modules whose output has a range known beforehand.
DEFAULT_MODULE_TO_ACT_POST_PROCESS: dict[Any, Any] = {
    nn.Hardsigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Sigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Softmax: default_fixed_qparams_range_0to1_fake_quant,
    nn.Tanh: default_fixed_qparams_range_neg1to1_fake_quant,
}


def no_observer_set() -> set[Any]:
    """Return modules that observe themselves."""
    return {quantizable.LSTM, quantizable.MultiheadAttention}


def get_default_static_quant_module_mappings() -> dict[Any, Any]:
    """Return what static quantization swaps."""
    return copy.copy(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_embedding_static_quant_module_mappings() -> dict[Any, Any]:
    """Return what static quantization swaps, with embeddings that were trained for it."""
    return {
        **DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        nnqat.EmbeddingBag: nnq.EmbeddingBag,
        nnqat.Embedding: nnq.Embedding,
    }


def get_default_qat_module_mappings() -> dict[Any, Any]:
    """Return what preparation for training swaps."""
    return copy.copy(DEFAULT_QAT_MODULE_MAPPINGS)


def get_embedding_qat_module_mappings() -> dict[Any, Any]:
    """Return what preparation for training swaps, with embeddings."""
    return {
        **DEFAULT_QAT_MODULE_MAPPINGS,
        nn.EmbeddingBag: nnqat.EmbeddingBag,
        nn.Embedding: nnqat.Embedding,
    }


def get_default_dynamic_quant_module_mappings() -> dict[Any, Any]:
    """Return what dynamic quantization swaps."""
    return DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS


def get_default_static_quant_reference_module_mappings() -> dict[Any, Any]:
    """Return what static quantization swaps for reference modules."""
    return copy.copy(DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_static_sparse_quant_module_mappings() -> dict[Any, Any]:
    """Return what static quantization of sparse weights swaps."""
    return copy.copy(DEFAULT_STATIC_SPARSE_QUANT_MODULE_MAPPINGS)


def get_default_dynamic_sparse_quant_module_mappings() -> dict[Any, Any]:
    """Return what dynamic quantization of sparse weights swaps."""
    return DEFAULT_DYNAMIC_SPARSE_QUANT_MODULE_MAPPINGS


def _class_for(kind: Any, table: dict[Any, Any], additional: Any, what: str) -> Any:
    found = {**table, **(additional or {})}.get(kind)
    if found is None:
        raise AssertionError(
            f"Floating point module class {kind} does not have a corresponding {what} module class"
        )
    return found


def get_static_quant_module_class(
    float_module_class: Any,
    additional_static_quant_mapping: Any = None,
    is_reference: bool = False,
) -> Any:
    """Return the statically quantized class for a float one.

    Raises:
        AssertionError: there is none.
    """
    table = (
        get_default_static_quant_reference_module_mappings()
        if is_reference
        else DEFAULT_STATIC_QUANT_MODULE_MAPPINGS
    )
    return _class_for(float_module_class, table, additional_static_quant_mapping, "quantized")


def get_dynamic_quant_module_class(
    float_module_class: Any, additional_dynamic_quant_mapping: Any = None
) -> Any:
    """Return the dynamically quantized class for a float one.

    Raises:
        AssertionError: there is none.
    """
    return _class_for(
        float_module_class,
        DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
        additional_dynamic_quant_mapping,
        "quantized",
    )


def get_default_qconfig_propagation_list() -> set[Any]:
    """Return the types of modules that are observed."""
    return {
        *DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        *DEFAULT_QAT_MODULE_MAPPINGS,
        *DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
        nn.Sequential,
    }


def get_default_compare_output_module_list() -> set[Any]:
    """Return the types of modules whose outputs are compared when a model is examined."""
    tables = (
        DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        DEFAULT_QAT_MODULE_MAPPINGS,
        DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
    )
    return {nn.Sequential, *(kind for table in tables for pair in table.items() for kind in pair)}


def get_default_float_to_quantized_operator_mappings() -> dict[Any, Any]:
    """Return functions to their quantized forms."""
    return copy.copy(DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS)


def get_quantized_operator(float_op: Any) -> Any:
    """Return the quantized form of a function.

    Raises:
        AssertionError: there is none.
    """
    found = DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS.get(float_op)
    if found is None:
        raise AssertionError(f"Operator {float_op} does not have corresponding quantized op")
    return found
