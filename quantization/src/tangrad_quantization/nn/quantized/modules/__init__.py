"""Quantized modules."""

from tangrad.nn import MaxPool2d
from tangrad_quantization.nn.quantized.modules.activation import (
    ELU,
    Hardswish,
    LeakyReLU,
    PReLU,
    ReLU6,
    Sigmoid,
    Softmax,
)
from tangrad_quantization.nn.quantized.modules.attention import MultiheadAttention
from tangrad_quantization.nn.quantized.modules.batchnorm import BatchNorm2d, BatchNorm3d
from tangrad_quantization.nn.quantized.modules.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from tangrad_quantization.nn.quantized.modules.dropout import Dropout
from tangrad_quantization.nn.quantized.modules.embedding_ops import Embedding, EmbeddingBag
from tangrad_quantization.nn.quantized.modules.functional_modules import (
    FloatFunctional,
    FXFloatFunctional,
    QFunctional,
)
from tangrad_quantization.nn.quantized.modules.linear import Linear
from tangrad_quantization.nn.quantized.modules.normalization import (
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
)
from tangrad_quantization.nn.quantized.modules.rnn import LSTM
from tangrad_quantization.nn.quantized.modules.stubs import DeQuantize, Quantize

__all__ = [
    "ELU",
    "LSTM",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DeQuantize",
    "Dropout",
    "Embedding",
    "EmbeddingBag",
    "FXFloatFunctional",
    "FloatFunctional",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MaxPool2d",
    "MultiheadAttention",
    "PReLU",
    "QFunctional",
    "Quantize",
    "ReLU6",
    "Sigmoid",
    "Softmax",
]
