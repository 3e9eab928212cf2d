"""Which kernels a device has, op by op and dtype by dtype."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import tangrad
from tangrad.plugin import all_ops
from tangrad_testing.levels.check import Device

# How long a device is asked which kernels it makes on demand; compiling them may be slow.
SECONDS_TO_ASK = 12.0
MADE = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
# By what the reference's own kernels are known: a device may hand them out as its own.
REFERENCE = "tangrad.devices.reference"
# What nearly every program calls, by whatever it is served.
EVERYDAY = (
    "add mul div neg exp relu where sum mean amax argmax all cumsum mm bmm matmul linear softmax "
    "log_softmax layer_norm cat stack gather index_select masked_fill sort topk conv2d "
    "max_pool2d embedding cross_entropy dropout tril arange clone eq"
).split()


@lru_cache(maxsize=4)
def own_kernels(device: Device) -> dict[str, list[str]]:
    """Return {op: dtypes} of a device's own kernels: what it registered and what it makes.

    Asked first when the device has just opened, and kept: later, the core's tables also hold the
    decompositions and the ways to the host that it found for ops without a kernel.
    """
    driver = device.driver
    names = {name: op for name, op in all_ops().items() if name == op.definition.name}
    if device.ops:
        names = {name: op for name, op in names.items() if name in forms(device.ops)}
    made: dict[str, list[str]] = {}
    if asks(driver):
        deadline = time.perf_counter() + SECONDS_TO_ASK
        for name, op in names.items():
            if op.kind not in ("composite", "view", "overload") and time.perf_counter() < deadline:
                made[name] = [d for d in MADE.split() if makes(driver, op, d)]
    found = {}
    for name, op in names.items():
        registered = op.kernels().get((device.name, "strided"), [])
        dtypes = [d for d in registered if name not in made or d in made[name]]
        dtypes += [d for d in made.get(name, ()) if d not in dtypes]
        if dtypes:
            found[name] = dtypes
    return found


def asks(driver: Any) -> bool:
    """Tell whether a driver makes kernels on demand."""
    from tangrad.plugin import DeviceDriver

    return type(driver).kernel_for is not DeviceDriver.kernel_for


def makes(driver: Any, op: Any, dtype: str) -> bool:
    """Tell whether a driver makes a kernel of its own for an op and dtype."""
    try:
        found = driver.kernel_for(op, getattr(tangrad, dtype))
    except (NotImplementedError, TypeError, RuntimeError):
        return False
    return found is not None and getattr(found, "__module__", None) != REFERENCE


def forms(names: Any) -> set[str]:
    """Return the names, and those of the forms that they stand for."""
    ops = all_ops()
    found = set(names)
    for name in names:
        found |= {member.name for member in ops[name].definition.members} if name in ops else set()
    return found


def everyday(device: Device) -> list[str]:
    """Return what is asked of a device without kernels: what all call, and what it says anew.

    The latter are the composites that its driver computes in its own way, and ops of packages.
    """
    known = all_ops()
    own = [name for name in device.driver.composites if name in known]
    return list(dict.fromkeys([*EVERYDAY, *own, *of_third_parties()]))


def of_third_parties() -> list[str]:
    """Return the names of the ops that plugins define."""
    return sorted(
        name
        for name, op in all_ops().items()
        if name == op.definition.name
        and not op.definition.module.startswith("tangrad.")
        and op.definition.samples is not None
    )
