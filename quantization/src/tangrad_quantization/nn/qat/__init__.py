"""Modules for training with quantization in view."""

from tangrad.plugin import submodules_on_demand
from tangrad_quantization.nn.qat.modules import (
    Conv1d,
    Conv2d,
    Conv3d,
    Embedding,
    EmbeddingBag,
    Linear,
)

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]

__getattr__ = submodules_on_demand(__name__)
