"""Modules on several devices."""

from typing import Any

from tangrad.nn.parallel.data_parallel import DataParallel as DataParallel
from tangrad.nn.parallel.data_parallel import data_parallel as data_parallel


def __getattr__(name: str) -> Any:
    if name != "DistributedDataParallel":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from tangrad.plugins.namespaces import resolve

    return getattr(resolve("distributed"), name)
