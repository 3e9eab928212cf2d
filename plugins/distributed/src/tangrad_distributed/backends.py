"""Which engine serves which name of a backend."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from tangrad.plugin import load_by_name, plugin_names
from tangrad_distributed.engine import Context, Engine
from tangrad_distributed.errors import DistBackendError

GROUP = "tangrad.collectives"
# PyTorch's names for what the embedded engine does.
_ALIASES = {"gloo": "local", "ucc": "local"}
_WANTED = {
    "nccl": "NCCL needs GPUs and an engine for them; for tensors on the host use 'gloo'",
    "xccl": "XCCL needs Intel GPUs; for tensors on the host use 'gloo'",
}


class Backend(str):
    """Name an engine: `Backend.GLOO` and its like; `Backend("gloo")` checks and lowers a name.

    Raises:
        ValueError: it is not a name.
    """

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    FAKE = "fake"
    LOCAL = "local"
    THREADS = "threads"
    _creators: ClassVar[dict[str, Callable[..., Any]]] = {}
    backend_list: ClassVar[list[str]] = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": GLOO, "cuda": NCCL}

    def __new__(cls, name: str) -> Backend:
        """Return the name in lower case."""
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        return str.__new__(cls, name.lower())

    @classmethod
    def register_backend(
        cls,
        name: str,
        func: Callable[[Context], Engine],
        extended_api: bool = False,
        devices: Any = None,
    ) -> None:
        """Register an engine of this program; a package uses the entry-point group.

        Args:
            name: what `init_process_group` is given.
            func: makes the engine of a rank, given its `Context`.
            extended_api: changes nothing.
            devices: types of devices whose default it becomes.

        Raises:
            RuntimeError: the name is taken.
        """
        if name.lower() in cls._creators or name.lower() in plugin_names(GROUP):
            raise RuntimeError(f"a backend {name!r} is registered already; choose another name")
        cls._creators[name.lower()] = func
        setattr(cls, name.upper(), name.lower())
        for device in [devices] if isinstance(devices, str) else devices or ():
            cls.default_device_backend_map[device] = name.lower()


class BackendConfig:
    """Tell which backend serves which type of device.

    Args:
        backend: a name for all, or `cpu:gloo,cuda:nccl`.
    """

    def __init__(self, backend: str) -> None:
        self.device_backend_map: dict[str, str] = {}
        if ":" not in backend:
            self.device_backend_map["cpu"] = Backend(backend)
            return
        for pair in backend.split(","):
            device, colon, name = pair.partition(":")
            if not colon or not name:
                raise ValueError(
                    f"Invalid device:backend pairing: {pair!r}, in {backend!r}: "
                    "expected a form such as 'cpu:gloo,cuda:nccl'"
                )
            if device in self.device_backend_map:
                raise ValueError(f"Duplicate device type {device} in {backend!r}")
            self.device_backend_map[device] = Backend(name)

    def get_device_backend_map(self) -> dict[str, str]:
        """Return device type to backend."""
        return self.device_backend_map

    def host(self) -> str:
        """Return the backend that serves tensors on the host, as all engines here do."""
        return self.device_backend_map.get("cpu") or next(iter(self.device_backend_map.values()))

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())


def is_backend_available(backend: str) -> bool:
    """Tell whether an engine of that name is installed."""
    name = backend.lower()
    name = _ALIASES.get(name, name)
    if name == "mpi":
        return is_mpi_available()
    return name in Backend._creators or name in plugin_names(GROUP)


def is_gloo_available() -> bool:
    """Tell whether `gloo`, which is the embedded engine here, is there."""
    return True


# What the launchers of MPICH and its relatives, of PMIx and of Open MPI tell a process.
_RANK_OF_MPI = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")


def is_mpi_available() -> bool:
    """Tell whether mpi4py is installed and MPI's launcher started this process.

    Programs take MPI where it is available. A process that no `mpiexec` started is alone in MPI's
    world, whatever library is installed, so there they are to take another engine.
    """
    import importlib.util

    started = any(name in os.environ for name in _RANK_OF_MPI)
    return started and importlib.util.find_spec("mpi4py") is not None


def is_nccl_available() -> bool:
    """Tell whether an engine named `nccl` is installed."""
    return is_backend_available("nccl")


def is_ucc_available() -> bool:
    """Tell whether UCC is there: never."""
    return False


def is_xccl_available() -> bool:
    """Tell whether an engine named `xccl` is installed."""
    return is_backend_available("xccl")


def get_default_backend_for_device(device: Any) -> str:
    """Return which backend serves a device's tensors by default.

    Raises:
        ValueError: none does.
    """
    kind = str(getattr(device, "type", device)).partition(":")[0]
    found = Backend.default_device_backend_map.get(kind)
    if found is None:
        raise ValueError(f"Default backend not registered for device : {device}")
    return found


def open_engine(backend: str, context: Context) -> Engine:
    """Make a rank's engine.

    Raises:
        DistBackendError: nobody installed one of that name.
    """
    name = _ALIASES.get(backend, backend)
    make = Backend._creators.get(name)
    if make is None and name in plugin_names(GROUP):
        make = load_by_name(GROUP, name)
    if make is None:
        known = sorted({*plugin_names(GROUP), *Backend._creators, "gloo"})
        why = _WANTED.get(name, "a package brings one by the entry-point group " + GROUP)
        raise DistBackendError(f"no engine {backend!r} is installed ({why}). Known: {known}")
    return make(context)
