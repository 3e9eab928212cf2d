"""Many processes and machines: process groups, messages, data parallelism; `tangrad.distributed`.

`engine.py` is what an engine of a third party has to give; `process_group.py` what every
collective is made of; `world.py` which groups there are; `communication` what programs call;
`training` what they train by.
"""

from __future__ import annotations

from typing import Any

from tangrad_distributed.backends import (
    Backend,
    BackendConfig,
    get_default_backend_for_device,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_ucc_available,
    is_xccl_available,
)
from tangrad_distributed.communication.collectives import (
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_gather_single,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    record_comm,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
    scatter,
    supports_complex,
)
from tangrad_distributed.communication.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from tangrad_distributed.communication.point_to_point import (
    P2POp,
    batch_isend_irecv,
    irecv,
    isend,
    recv,
    send,
)
from tangrad_distributed.communication.reductions import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    reduce_op,
)
from tangrad_distributed.communication.work import Work
from tangrad_distributed.constants import default_pg_timeout
from tangrad_distributed.device_mesh import DeviceMesh, init_device_mesh
from tangrad_distributed.engine import Engine
from tangrad_distributed.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
    RankLostError,
    WaitCycleError,
)
from tangrad_distributed.process_group import ProcessGroup
from tangrad_distributed.rendezvous import register_rendezvous_handler, rendezvous
from tangrad_distributed.stores.store import FileStore, HashStore, PrefixStore, Store
from tangrad_distributed.stores.tcp_store import TCPStore
from tangrad_distributed.watching.debugging import (
    DebugLevel,
    breakpoint,
    get_debug_level,
    set_debug_level,
    set_debug_level_from_env,
)
from tangrad_distributed.world import (
    GroupMember,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_initialized,
    is_torchelastic_launched,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    shrink_group,
    split_group,
)

API = 1
GroupName = str
ProcessGroupGloo = ProcessGroup
_PARTS = (
    "_functional_collectives",
    "algorithms",
    "checkpoint",
    "constants",
    "distributed_c10d",
    "elastic",
    "launch",
    "launcher",
    "nn",
    "optim",
    "ray",
    "run",
)
_LAZY = {
    "_CoalescingManager": "tangrad_distributed.communication.coalescing",
    "_coalescing_manager": "tangrad_distributed.communication.coalescing",
    **dict.fromkeys(
        (
            "_Work",
            "_all_gather_base",
            "_get_process_group_name",
            "_rank_not_in_group",
            "_reduce_scatter_base",
        ),
        "tangrad_distributed.communication.former_names",
    ),
    "CollectiveArgumentError": "tangrad_distributed.errors",
    "FixedShards": "tangrad_distributed.training.fixed_shards",
    "BuiltinCommHookType": "tangrad_distributed.training.gradient_buckets",
    "GradBucket": "tangrad_distributed.training.gradient_buckets",
    "run_threads": "tangrad_distributed.thread_ranks",
}


def is_available() -> bool:
    """Tell whether this package is installed: it is."""
    return True


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'tangrad.distributed' has no attribute {name!r}")


__all__ = [
    "AllToAllOptions",
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "Backend",
    "BackendConfig",
    "BarrierOptions",
    "BroadcastOptions",
    "BuiltinCommHookType",
    "CollectiveArgumentError",
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "DebugLevel",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "Engine",
    "FileStore",
    "FixedShards",
    "GatherOptions",
    "GradBucket",
    "GroupMember",
    "GroupName",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "ProcessGroupGloo",
    "QueueEmptyError",
    "RankLostError",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ScatterOptions",
    "Store",
    "TCPStore",
    "WaitCycleError",
    "Work",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "breakpoint",
    "broadcast",
    "broadcast_object_list",
    "default_pg_timeout",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_backend_config",
    "get_debug_level",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "record_comm",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "register_rendezvous_handler",
    "rendezvous",
    "run_threads",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "set_debug_level",
    "set_debug_level_from_env",
    "shrink_group",
    "split_group",
    "supports_complex",
]
