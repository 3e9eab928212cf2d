"""Which groups this process, or this thread of the engine `threads`, is in."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from tangrad_distributed.backends import Backend, BackendConfig, open_engine
from tangrad_distributed.constants import default_pg_timeout
from tangrad_distributed.engine import Context
from tangrad_distributed.errors import CollectiveArgumentError, DistBackendError
from tangrad_distributed.process_group import ProcessGroup
from tangrad_distributed.rendezvous import check_rank, rendezvous
from tangrad_distributed.stores.store import PrefixStore, Store
from tangrad_distributed.watching.stacks import StackTeller


class World:
    """Hold the groups of one rank."""

    def __init__(self) -> None:
        self.default: ProcessGroup | None = None
        self.groups: list[ProcessGroup] = []
        self.store: Store | None = None
        self.config: BackendConfig | None = None
        self.names = itertools.count(1)
        self.rank_of_thread = -1
        self.teller: StackTeller | None = None


_of_process = World()
_of_thread = threading.local()


def world() -> World:
    """Return the groups of this rank."""
    return getattr(_of_thread, "world", _of_process)


@contextmanager
def as_rank_of_its_own(found: World) -> Iterator[None]:
    """Give the current thread groups of its own: it is a rank."""
    _of_thread.world = found
    try:
        yield
    finally:
        del _of_thread.world


def default_group(asked_by: str = "") -> ProcessGroup:
    """Return the group of all ranks.

    Raises:
        ValueError: `init_process_group` was not called.
    """
    found = world().default
    if found is None:
        where = f"{asked_by}: " if asked_by else ""
        raise ValueError(
            f"{where}Default process group has not been initialized, "
            "please make sure to call init_process_group."
        )
    return found


class _WorldOfGroup(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """Return the group of all ranks, or None before there is one."""
        return world().default

    @WORLD.setter
    def WORLD(cls, group: ProcessGroup | None) -> None:
        world().default = group


class group(metaclass=_WorldOfGroup):
    """Show the group of all ranks as `group.WORLD`."""


class GroupMember(metaclass=_WorldOfGroup):
    """Show the group of all ranks, and what stands for a group that one is not in."""

    NON_GROUP_MEMBER = -100


def is_initialized() -> bool:
    """Tell whether `init_process_group` was called."""
    return world().default is not None


def is_torchelastic_launched() -> bool:
    """Tell whether the launcher started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Meet all ranks and make the group of all.

    Args:
        backend: which engine: "gloo" (or "local"), "mpi", "threads", one that is installed, or
            `cpu:gloo,cuda:nccl`. None: "gloo".
        init_method: how ranks find each other: `env://` (the default), `file:///path`,
            `tcp://host:port`, or of a registered scheme.
        timeout: how long a collective may take; 30 minutes by default.
        world_size: how many ranks there are, where the address does not tell.
        rank: this one, where the address does not tell.
        store: in place of `init_method`; `rank` and `world_size` have to be given.
        group_name: of the group.
        pg_options: for the engine.
        device_id: changes nothing: engines here work on the host.

    Raises:
        ValueError: it was called before, or rank and world size do not fit.
        DistBackendError: no such engine is installed.
        DistNetworkError: the ranks did not find each other.
    """
    here = world()
    if here.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise ValueError("Cannot specify both init_method and store.")
    limit = _checked_timeout(timeout)
    config = BackendConfig(Backend(backend or "gloo"))
    name = config.host()
    if name == "mpi":
        from tangrad_distributed.engines.mpi import meet

        store, rank, world_size = meet(limit)
    elif store is None:
        store, rank, world_size = next(
            iter(rendezvous(init_method or "env://", rank, world_size, timeout=limit))
        )
    check_rank(rank, world_size, "init_process_group")
    # A world that is made again does not find what the one before left.
    again = store.add(f"generation/{rank}", 1)
    here.store, here.config = PrefixStore(f"world/{again}", store), config
    ranks = list(range(world_size))
    here.default = _make_group(name, ranks, rank, limit, group_name or "", "default_pg")
    if name != "threads":
        here.teller = StackTeller(here.default.store, rank, lambda: _dump(here))


def _dump(found: World) -> None:
    for one in list(found.groups):
        one.recorder.write_where_asked()


def _checked_timeout(timeout: timedelta | None) -> timedelta:
    if timeout is None:
        return default_pg_timeout
    if not isinstance(timeout, timedelta):
        raise TypeError(
            "Expected timeout argument to be of type datetime.timedelta, "
            f"got {type(timeout).__name__}"
        )
    return timeout


def _make_group(
    backend: str, ranks: list[int], rank: int, timeout: timedelta, name: str, description: str
) -> ProcessGroup:
    here = world()
    assert here.store is not None
    store = PrefixStore(f"group/{name}", here.store)
    context = Context(
        rank=ranks.index(rank),
        size=len(ranks),
        store=store,
        timeout=timeout.total_seconds(),
        world_ranks=ranks,
        name=name,
    )
    made = ProcessGroup(open_engine(backend, context), store, timeout, backend, description)
    here.groups.append(made)
    return made


def new_group(
    ranks: list[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """Make a group of some ranks; all ranks of the world have to call it.

    Args:
        ranks: its members; None for all.
        timeout: how long a collective may take; as in the default group by default.
        backend: as in the default group by default.
        pg_options: for the engine.
        use_local_synchronization: only the members call it.
        group_desc: what it is for.
        device_id: changes nothing.
        sort_ranks: number the members by their ranks in the world, not as they are listed.

    Returns:
        The group, or `GroupMember.NON_GROUP_MEMBER` for who is no member.

    Raises:
        ValueError: a rank is not in the world, or is listed twice.
    """
    here, everyone = world(), default_group("new_group")
    members = list(range(everyone.size())) if ranks is None else list(ranks)
    if sort_ranks:
        members.sort()
    if len(set(members)) != len(members):
        raise ValueError(f"new_group: a rank is listed twice in {members}")
    for rank in members:
        if not 0 <= rank < everyone.size():
            raise ValueError(
                f"new_group: rank {rank} is not in the world of {everyone.size()} ranks"
            )
    limit = timedelta(seconds=everyone._timeout) if timeout is None else _checked_timeout(timeout)
    kind = everyone.backend if backend is None else BackendConfig(Backend(backend)).host()
    if use_local_synchronization:
        name = "of-" + "-".join(map(str, members))
        name += f"-{sum(1 for one in here.groups if one.group_name.startswith(name))}"
    else:
        name = str(next(here.names))
    if everyone.rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    return _make_group(kind, members, everyone.rank(), limit, name, group_desc or "undefined")


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave a group, or the world.

    Raises:
        ValueError: there is no world, or the group was destroyed.
    """
    here = world()
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    if here.default is None:
        raise ValueError("Invalid process group specified: there is no default group")
    if group is not None and group is not here.default:
        if group not in here.groups:
            raise ValueError("Invalid process group specified: it was destroyed before")
        here.groups.remove(group)
        group.shutdown()
        return
    if here.teller is not None:
        here.teller.stop()
    for one in reversed(here.groups):
        one.shutdown()
    here.groups, here.default, here.store, here.teller = [], None, None, None
    here.names = itertools.count(1)


def member(group: Any, asked_by: str) -> ProcessGroup | None:
    """Return the group that a collective is asked of, or None where this rank is no member.

    Raises:
        ValueError: there is no world.
        TypeError: it is no group.
    """
    if group is None:
        return default_group(asked_by)
    if group == GroupMember.NON_GROUP_MEMBER and not isinstance(group, ProcessGroup):
        import warnings

        rank = default_group(asked_by).rank()
        warnings.warn(
            f"Running {asked_by} on global rank {rank} which does not belong to the given group.",
            stacklevel=3,
        )
        return None
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"{asked_by}: group must be a ProcessGroup, got {group!r}")
    return group


def get_rank(group: Any = None) -> int:
    """Return this process's rank in a group, -1 if it is no member."""
    if group == GroupMember.NON_GROUP_MEMBER and not isinstance(group, ProcessGroup):
        return -1
    return (default_group("get_rank") if group is None else group).rank()


def get_world_size(group: Any = None) -> int:
    """Return how many ranks a group has, -1 if this one is no member."""
    if group == GroupMember.NON_GROUP_MEMBER and not isinstance(group, ProcessGroup):
        return -1
    return (default_group("get_world_size") if group is None else group).size()


def get_backend(group: Any = None) -> str:
    """Return the name of a group's backend."""
    return Backend((default_group("get_backend") if group is None else group).backend)


def get_backend_config(group: Any = None) -> str:
    """Return which backend serves which type of device."""
    found = default_group("get_backend_config") if group is None else group
    return f"cpu:{found.backend}"


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Return the rank in the world of a group's member.

    Raises:
        ValueError: the group has no such rank.
    """
    found = default_group("get_global_rank") if group is None else group
    if not 0 <= group_rank < found.size():
        raise CollectiveArgumentError(f"Group rank {group_rank} is not part of group {found}")
    return found.world_ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Return the rank in a group of a rank of the world.

    Raises:
        ValueError: it is no member.
    """
    found = default_group("get_group_rank") if group is None else group
    if global_rank not in found.world_ranks:
        raise CollectiveArgumentError(f"Global rank {global_rank} is not part of group {found}")
    return found.world_ranks.index(global_rank)


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """Return a group's members, as ranks of the world."""
    found = default_group("get_process_group_ranks") if group is None else group
    return list(found.world_ranks)


def get_pg_count() -> int:
    """Return how many groups this rank is in."""
    return len(world().groups)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Return this process's rank on its machine, which the launcher tells.

    Raises:
        RuntimeError: it does not, and there is no `fallback_rank`.
    """
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to "
        "`get_node_local_rank`, or starting by `python -m tangrad.distributed.run`."
    )


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """Make a group of each list of ranks of a group, and return the own one.

    Raises:
        ValueError: the lists share a rank, or name one that the group does not have.
    """
    parent = default_group("split_group") if parent_pg is None else parent_pg
    if not split_ranks:
        raise ValueError("split_group: split_ranks must list the ranks of each new group")
    listed = [rank for ranks in split_ranks for rank in ranks]
    if len(set(listed)) != len(listed):
        raise ValueError(f"the split ranks cannot have overlaps: {split_ranks}")
    for rank in listed:
        if not 0 <= rank < parent.size():
            raise ValueError(f"split_group: rank {rank} is not in a group of {parent.size()} ranks")
    mine = None
    for ranks in split_ranks:
        members = [parent.world_ranks[rank] for rank in ranks]
        made = new_group(members, timeout, backend, pg_options, True, group_desc)
        mine = made if parent.rank() in ranks else mine
    return mine


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | None, list[Any]]:
    """Cut the world into groups of neighbours of one size; return the own one and all.

    Raises:
        ValueError: the size does not divide the world's.
    """
    everyone = default_group("new_subgroups") if group is None else group
    if group_size is None:
        group_size = int(os.environ.get("LOCAL_WORLD_SIZE", everyone.size()))
    if group_size < 1:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if everyone.size() < group_size:
        raise ValueError(
            f"The arg 'group_size' ({group_size}) must not exceed the world size "
            f"({everyone.size()})"
        )
    if everyone.size() % group_size:
        raise ValueError(f"The world size must be divisible by group_size={group_size!r}")
    ranks = everyone.world_ranks
    lists = [ranks[at : at + group_size] for at in range(0, len(ranks), group_size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: list[list[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | None, list[Any]]:
    """Make a group of each list of ranks; return the own one and all.

    Raises:
        ValueError: there is no list, or two share a rank.
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    listed = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if len(set(listed)) != len(listed):
        raise ValueError(f"a rank belongs to more than one subgroup: {ranks_per_subgroup_list}")
    mine, groups = None, []
    for ranks in ranks_per_subgroup_list:
        made = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        groups.append(made)
        if get_rank() in ranks:
            mine = made
    return mine, groups


def shrink_group(
    ranks_to_exclude: list[int],
    group: ProcessGroup | None = None,
    shrink_flags: int = 0,
    pg_options: Any = None,
) -> Any:
    """Make a group of those that remain when some ranks leave; those left out must not call it.

    Raises:
        DistBackendError: nobody would remain, or this rank is to leave.
    """
    found = default_group("shrink_group") if group is None else group
    remain = [at for at in range(found.size()) if at not in set(ranks_to_exclude)]
    if found.rank() not in remain:
        raise DistBackendError("shrink_group: this rank is to leave, and must not call it")
    members = [found.world_ranks[rank] for rank in remain]
    return new_group(members, use_local_synchronization=True)
