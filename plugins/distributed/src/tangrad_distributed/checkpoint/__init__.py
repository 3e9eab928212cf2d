"""Checkpoints of several ranks: `tangrad.distributed.checkpoint`.

A checkpoint is a folder. Any number of ranks saves it, any other number loads it; it becomes one
by a rename, so that a kill leaves the one before; its pieces have checksums, and no code is run
when it is loaded.
"""

from tangrad_distributed.checkpoint import state_dict as state_dict
from tangrad_distributed.checkpoint.api import CheckpointException
from tangrad_distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from tangrad_distributed.checkpoint.filesystem import (
    FileSystemReader,
    FileSystemWriter,
    remove_checkpoint,
)
from tangrad_distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
    QuantizedHuggingFaceStorageReader,
)
from tangrad_distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    LocalPart,
    Metadata,
    TensorStorageMetadata,
)
from tangrad_distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from tangrad_distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
)
from tangrad_distributed.checkpoint.state_dict_loader import load, load_state_dict
from tangrad_distributed.checkpoint.state_dict_saver import async_save, save, save_state_dict
from tangrad_distributed.checkpoint.storage import StorageReader, StorageWriter

__all__ = [
    "BytesStorageMetadata",
    "CheckpointException",
    "ChunkStorageMetadata",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "HuggingFaceStorageReader",
    "HuggingFaceStorageWriter",
    "LoadPlan",
    "LoadPlanner",
    "LocalPart",
    "Metadata",
    "QuantizedHuggingFaceStorageReader",
    "ReadItem",
    "SavePlan",
    "SavePlanner",
    "StorageReader",
    "StorageWriter",
    "TensorStorageMetadata",
    "WriteItem",
    "async_save",
    "load",
    "load_sharded_optimizer_state_dict",
    "load_state_dict",
    "remove_checkpoint",
    "save",
    "save_state_dict",
    "state_dict",
]
