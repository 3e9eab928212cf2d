"""Ranks in a grid, with a group for each line of each dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad_distributed.process_group import ProcessGroup
from tangrad_distributed.world import (
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
)


class DeviceMesh:
    """Arrange ranks in a grid.

    Args:
        device_type: of the tensors that are communicated.
        mesh: ranks of the world in a tensor or nested lists; every rank of the world makes it.
        mesh_dim_names: a name for each dimension.
        backend_override: for each dimension the backend of its groups, None as in the world, and
            the backend's options.

    Raises:
        RuntimeError: a rank stands twice, or is not in the world.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: Sequence[tuple[str | None, Any]] | None = None,
        _groups: list[ProcessGroup | None] | None = None,
    ) -> None:
        if not is_initialized():
            init_process_group()
        self.device_type = device_type
        given = mesh if isinstance(mesh, tangrad.Tensor) else tangrad.tensor(mesh)
        self.mesh = given.detach().to(device="cpu", dtype=tangrad.int32)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        ranks = self.mesh.flatten().tolist()
        if len(set(ranks)) != len(ranks) or not all(0 <= r < get_world_size() for r in ranks):
            raise RuntimeError(
                f"DeviceMesh cannot have duplicate values or ranks outside of the world of "
                f"{get_world_size()}, but found {self.mesh.tolist()}"
            )
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.dim():
            raise RuntimeError(
                f"mesh_dim_names {self.mesh_dim_names} must have as many names as the mesh has "
                f"dimensions ({self.mesh.dim()})"
            )
        where = (self.mesh == get_rank()).nonzero()
        self._place = where[0].tolist() if len(where) else None
        chosen = backend_override or [(None, None)] * self.mesh.dim()
        self._groups = self._lines(chosen) if _groups is None else _groups

    def _lines(self, chosen: Sequence[tuple[str | None, Any]]) -> list[ProcessGroup | None]:
        """Make the group of each line, and keep those through this rank."""
        mine: list[ProcessGroup | None] = []
        for dim in range(self.mesh.dim()):
            lines = self.mesh.movedim(dim, -1).reshape(-1, self.mesh.shape[dim]).tolist()
            own = None
            backend, options = chosen[dim]
            description = f"mesh_{self._name(dim)}"
            for line in lines:
                made = new_group(line, backend=backend, pg_options=options, group_desc=description)
                own = made if get_rank() in line else own
            mine.append(own)
        return mine

    def _name(self, dim: int) -> str:
        return str(dim) if self.mesh_dim_names is None else self.mesh_dim_names[dim]

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.mesh.dim() != 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.mesh.dim()} dimensions. "
                    "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1."
                )
            return 0
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise KeyError(f"Invalid mesh_dim_name {mesh_dim!r}; known: {self.mesh_dim_names}")
            return self.mesh_dim_names.index(mesh_dim)
        return mesh_dim

    @property
    def ndim(self) -> int:
        """Return how many dimensions the grid has."""
        return self.mesh.dim()

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the grid's sizes."""
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """Return how many ranks there are, in all or along a dimension."""
        return self.mesh.numel() if mesh_dim is None else self.mesh.shape[mesh_dim]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """Return the group of this rank's line along a dimension.

        Raises:
            RuntimeError: this rank is not in the mesh, or the dimension has to be named.
        """
        found = self._groups[self._dim(mesh_dim)]
        if found is None:
            raise RuntimeError(f"rank {get_rank()} is not in {self}")
        return found

    def get_all_groups(self) -> list[ProcessGroup]:
        """Return the groups of this rank's lines."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def get_rank(self) -> int:
        """Return this process's rank in the world."""
        return get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Return this rank's place along a dimension."""
        return self.get_group(mesh_dim).rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Return this rank's place, or None if it is not in the mesh."""
        return None if self._place is None else tuple(self._place)

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._dim(name) for name in wanted]
        if self._place is None:
            raise RuntimeError(f"rank {get_rank()} is not in {self}")
        at = tuple(slice(None) if d in dims else self._place[d] for d in range(self.ndim))
        kept = sorted(dims)
        part = self.mesh[at].permute(*(kept.index(dim) for dim in dims))
        groups = [self._groups[dim] for dim in dims]
        return DeviceMesh(self.device_type, part, mesh_dim_names=wanted, _groups=groups)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DeviceMesh)
            and self.mesh.tolist() == other.mesh.tolist()
            and self.device_type == other.device_type
            and self.mesh_dim_names == other.mesh_dim_names
        )

    def __hash__(self) -> int:
        return hash((str(self.mesh.tolist()), self.device_type, self.mesh_dim_names))

    def __repr__(self) -> str:
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {self.mesh.tolist()}{names})"

    @staticmethod
    def from_group(
        group: ProcessGroup | list[ProcessGroup],
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> DeviceMesh:
        """Make a mesh of groups that are there already.

        Raises:
            ValueError: several groups are given without `mesh`.
        """
        groups = group if isinstance(group, list) else [group]
        if mesh is None:
            if len(groups) != 1:
                raise ValueError("Must pass mesh if passing multiple ProcessGroups")
            mesh = groups[0].world_ranks
        kept: list[ProcessGroup | None] = list(groups)
        return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=kept)


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: dict[int | str, Any] | None = None,
) -> DeviceMesh:
    """Arrange all ranks in a grid, by rows.

    Args:
        device_type: of the tensors that are communicated, without an index.
        mesh_shape: the grid's sizes, whose product is the number of ranks.
        mesh_dim_names: a name for each dimension.
        backend_override: by the name or number of a dimension, the backend of its groups, its
            options, or both in a tuple.

    Raises:
        RuntimeError: the sizes or names do not fit, or `device_type` has an index.
    """
    if not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. "
            "If you maintained a 'device' variable, pass device.type."
        )
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(f"Each mesh_dim_name must be unique, got {mesh_dim_names}")
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError("mesh_shape and mesh_dim_names should have same length!")
    chosen = _chosen_backends(backend_override or {}, len(mesh_shape), mesh_dim_names)
    if not is_initialized():
        init_process_group()
    if math.prod(mesh_shape) != get_world_size():
        raise RuntimeError(
            f"a mesh of {tuple(mesh_shape)} needs {math.prod(mesh_shape)} ranks, the world has "
            f"{get_world_size()}"
        )
    mesh = tangrad.arange(get_world_size()).view(*mesh_shape)
    return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, backend_override=chosen)


def _chosen_backends(
    given: dict[int | str, Any], dims: int, names: Sequence[str] | None
) -> list[tuple[str | None, Any]]:
    """Return backend and options for each dimension."""
    left, known = dict(given), names or ()
    chosen: list[tuple[str | None, Any]] = []
    for dim in range(dims):
        keys = [key for key in (dim, known[dim] if known else dim) if key in left]
        if len(set(keys)) > 1:
            raise RuntimeError(
                f"Found redundant dim index {dim} and name {known[dim]} in backend_override"
            )
        value = left.pop(keys[0]) if keys else None
        if isinstance(value, tuple):
            chosen.append((value[0], value[1]))
        else:
            chosen.append((value, None) if isinstance(value, str) else (None, value))
    if left:
        among = f" or one of {tuple(known)}" if known else ""
        raise RuntimeError(
            f"Found invalid keys in backend_override: got {list(left)}, expected integers in "
            f"range [0, {dims}){among}"
        )
    return chosen
