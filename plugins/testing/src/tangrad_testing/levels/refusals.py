"""Level 7: what is wrong is refused by an error that says so, and nothing is broken by it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import tangrad
from tangrad.plugin import Sampler, find_op
from tangrad_testing.calls import describe, tangrad_arguments
from tangrad_testing.levels.check import (
    Check,
    Device,
    Mismatch,
    NotApplicable,
    collected,
    expect,
    expect_error,
)
from tangrad_testing.levels.kernels import everyday, own_kernels
from tangrad_testing.levels.randomness import require_memory

check, PLAIN = collected(7)


def checks(device: Device) -> Iterator[Check]:
    """Yield the checks of the device, then the error samples of ops."""
    if device.driver.meta:
        return
    if not device.ops:
        yield from PLAIN
    for op in device.ops or dict.fromkeys([*own_kernels(device), *everyday(device)]):
        if find_op(op).definition.errors is not None:
            says = f"{op} refuses wrong arguments as its definition says"
            yield Check(7, f"{op}-errors", says, partial(check_errors, op=op))


@check
def no_such_index(device: Device) -> None:
    """A device index that does not exist is refused by a message with it; the host has none."""
    beyond = device.driver.device_count() + 90
    if device.driver.host or device.driver.meta:
        there = tangrad.zeros(3, device=f"{device.name}:{beyond}")
        expect("the device of zeros", str(there.device), device.name)
        return
    message = expect_error(
        f"zeros on '{device.name}:{beyond}'",
        RuntimeError,
        lambda: tangrad.zeros(3, device=f"{device.name}:{beyond}"),
    )
    expect("the message has the index", str(beyond) in message, True)


@check
def devices_do_not_mix(device: Device) -> None:
    """Operands on two devices are refused by a message that names both."""
    other = "cpu" if device.name != "cpu" else "reference"
    x, y = tangrad.ones(3).to(device.name), tangrad.ones(3).to(other)
    for name, call in (("+", lambda: x + y), ("mm", lambda: x.view(1, 3) @ y.view(3, 1))):
        message = expect_error(f"{name} of two devices", RuntimeError, call)
        expect(f"the message names both: {message}", device.name in message, True)
    expect("operands afterwards", (x.cpu().tolist(), y.cpu().tolist()), ([1.0] * 3, [1.0] * 3))


@check
def more_than_there_is(device: Device) -> None:
    """A tensor too large for the device is an OutOfMemoryError, after which it works on."""
    require_memory(device)
    expect_error(
        "a tensor of 2**60 bytes",
        tangrad.OutOfMemoryError,
        lambda: tangrad.empty(2**60, dtype=tangrad.uint8, device=device.name),
    )
    expect("a small one afterwards", tangrad.ones(3).to(device.name).cpu().tolist(), [1.0] * 3)


@check
def indices_out_of_range(device: Device) -> None:
    """Indices beyond a tensor, in integers and in tensors, are IndexErrors or RuntimeErrors."""
    require_memory(device)
    x = tangrad.arange(6.0).to(device.name)
    far = tangrad.tensor([0, 6]).to(device.name)
    before = tangrad.tensor([0, -1]).to(device.name)
    kinds = (IndexError, RuntimeError)
    for name, call in (
        ("x[6]", lambda: x[6]),
        ("x[[0, 6]]", lambda: x[far].cpu()),
        ("index_select", lambda: x.index_select(0, far).cpu()),
        ("gather", lambda: x.gather(0, far).cpu()),
        ("index_select by -1", lambda: x.index_select(0, before).cpu()),
        ("gather by -1", lambda: x.gather(0, before).cpu()),
    ):
        expect_error(f"{name} of 6 elements", kinds, call)
    expect("x afterwards", x.cpu().tolist(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


@check
def errors_of_kernels_reach_the_caller(device: Device) -> None:
    """What cannot be computed is refused, and the next op works."""
    require_memory(device)
    singular = tangrad.zeros(2, 2).to(device.name)
    expect_error("inverse of zeros", RuntimeError, lambda: tangrad.linalg.inv(singular))
    expect("an op afterwards", (singular + 1).cpu().tolist(), [[1.0, 1.0], [1.0, 1.0]])


def check_errors(device: Device, op: str) -> None:
    """Give an op the wrong arguments of its definition, on the device."""
    if device.name == "reference":
        raise NotApplicable("the reference is what devices are compared with")
    found = find_op(op)
    for wrong in found.definition.errors(Sampler("float32")):
        sample, kind, pattern = wrong if isinstance(wrong, tuple) else (wrong, Exception, "")
        args, kwargs = tangrad_arguments(sample, device.name, found.definition)
        refused(f"{op}{describe(sample)}", kind, pattern, partial(found, *args, **kwargs))


def refused(what: str, kind: Any, pattern: str, call: Any) -> None:
    """Raise Mismatch unless a call raises an error of a kind whose message has a pattern."""
    import re

    message = expect_error(what, kind, call)
    if pattern and not re.search(pattern, message):
        raise Mismatch(f"message of {what}", message, pattern)
