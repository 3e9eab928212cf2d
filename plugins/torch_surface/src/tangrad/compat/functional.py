"""Functions of the top level by the module that PyTorch defines them in: `torch.functional`."""

from __future__ import annotations

from typing import Any

import tangrad

_NAMES = (
    "atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors"
    " cartesian_prod cdist chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft"
    " svd_lowrank tensordot unique unique_consecutive unravel_index"
)
__all__ = sorted(_NAMES.split())


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(tangrad, name)
