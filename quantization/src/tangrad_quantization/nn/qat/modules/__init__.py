"""Modules whose weights are rounded as they will be when quantized."""

from tangrad_quantization.nn.qat.modules.conv import Conv1d, Conv2d, Conv3d
from tangrad_quantization.nn.qat.modules.embedding_ops import Embedding, EmbeddingBag
from tangrad_quantization.nn.qat.modules.linear import Linear

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]
