"""Checkpoints of many files as one file, and back."""

from __future__ import annotations

import os
from typing import Any

import tangrad
from tangrad_distributed.checkpoint.state_dict_loader import load_whole
from tangrad_distributed.checkpoint.state_dict_saver import save


def dcp_to_torch_save(
    dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]
) -> None:
    """Write all that a checkpoint holds into one file, as `tangrad.save` writes it.

    Args:
        dcp_checkpoint_dir: folder of the checkpoint.
        torch_save_path: the file.
    """
    tangrad.save(load_whole(dcp_checkpoint_dir), torch_save_path)


def torch_save_to_dcp(
    torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]
) -> None:
    """Write what one file holds, PyTorch's ones too, as a checkpoint.

    Args:
        torch_save_path: the file.
        dcp_checkpoint_dir: folder of the checkpoint.
    """
    state: Any = tangrad.load(torch_save_path)
    save(state, checkpoint_id=dcp_checkpoint_dir, no_dist=True)
