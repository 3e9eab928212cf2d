"""Modules for training with quantization in view."""

from tangrad_quantization import submodules
from tangrad_quantization.nn.qat.modules import (
    Conv1d,
    Conv2d,
    Conv3d,
    Embedding,
    EmbeddingBag,
    Linear,
)

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]

API = 1
__getattr__ = submodules.of(__name__)
