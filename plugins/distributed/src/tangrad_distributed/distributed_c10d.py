"""All of `tangrad.distributed` that is about groups, by PyTorch's path."""

from tangrad_distributed import *  # noqa: F403
from tangrad_distributed.communication.coalescing import _coalescing_manager, _CoalescingManager
from tangrad_distributed.communication.former_names import (
    _all_gather_base,
    _get_process_group_name,
    _rank_not_in_group,
    _reduce_scatter_base,
    _Work,
)
from tangrad_distributed.communication.reductions import reduce_op
from tangrad_distributed.constants import default_pg_nccl_timeout as default_pg_nccl_timeout
from tangrad_distributed.world import default_group as _get_default_group

__all__ = [
    "_CoalescingManager",
    "_Work",
    "_all_gather_base",
    "_coalescing_manager",
    "_get_default_group",
    "_get_process_group_name",
    "_rank_not_in_group",
    "_reduce_scatter_base",
    "default_pg_nccl_timeout",
    "reduce_op",
]
