"""All workloads of the table, by group."""

from __future__ import annotations

from workloads import convolution, data, inference, matmul, overhead, pointwise, quantized, training
from workloads.workload import Workload

GROUPS = {
    "overhead": overhead.WORKLOADS,
    "pointwise": pointwise.WORKLOADS,
    "matmul": matmul.WORKLOADS,
    "convolution": convolution.WORKLOADS,
    "training": training.WORKLOADS,
    "data": data.WORKLOADS,
    "inference": inference.WORKLOADS,
    "quantization": quantized.WORKLOADS,
}


def workloads() -> dict[tuple[str, str], Workload]:
    """Return all workloads by group and name."""
    return {(group, row.name): row for group, rows in GROUPS.items() for row in rows}


def chosen(only: str) -> list[tuple[str, str]]:
    """Return the keys of the workloads that have `only` in their group or name."""
    return [key for key in workloads() if only.lower() in " ".join(key).lower()]
