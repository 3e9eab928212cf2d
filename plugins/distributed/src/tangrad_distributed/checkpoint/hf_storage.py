"""Storages of safetensors files, by PyTorch's path: absent."""

from tangrad_distributed.absent import absent

_WHY = "load and save safetensors files by tangrad.load and tangrad.save on one rank"
HuggingFaceStorageReader = absent("checkpoint", "HuggingFaceStorageReader", _WHY)
HuggingFaceStorageWriter = absent("checkpoint", "HuggingFaceStorageWriter", _WHY)
QuantizedHuggingFaceStorageReader = absent("checkpoint", "QuantizedHuggingFaceStorageReader", _WHY)
