"""Names that PyTorch has kept beside their successors, and that packages still call."""

from __future__ import annotations

from typing import Any

from tangrad_distributed.communication.collectives import (
    all_gather_into_tensor as _all_gather_base,
)
from tangrad_distributed.communication.collectives import (
    reduce_scatter_tensor as _reduce_scatter_base,
)
from tangrad_distributed.communication.work import Work as _Work
from tangrad_distributed.process_group import ProcessGroup
from tangrad_distributed.world import GroupMember

__all__ = [
    "_Work",
    "_all_gather_base",
    "_get_process_group_name",
    "_rank_not_in_group",
    "_reduce_scatter_base",
]


def _rank_not_in_group(group: Any) -> bool:
    """Tell whether this rank is no member of a group; None is the group of all ranks."""
    return group is not None and group == GroupMember.NON_GROUP_MEMBER


def _get_process_group_name(pg: ProcessGroup) -> str:
    """Return the name of a group, which is the same on each rank."""
    return pg.group_name
