"""Modules on several devices."""

from typing import Any

from tangrad.nn.parallel.data_parallel import DataParallel as DataParallel
from tangrad.nn.parallel.data_parallel import data_parallel as data_parallel
from tangrad.nn.parallel.parallel_apply import parallel_apply as parallel_apply
from tangrad.nn.parallel.replicate import replicate as replicate
from tangrad.nn.parallel.scatter_gather import gather as gather
from tangrad.nn.parallel.scatter_gather import scatter as scatter
from tangrad.plugin import resolve


def __getattr__(name: str) -> Any:
    if name == "DistributedDataParallel":
        return getattr(resolve("nn.parallel.distributed"), name)
    return resolve(f"nn.parallel.{name}")
