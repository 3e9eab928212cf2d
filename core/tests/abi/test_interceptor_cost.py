"""With nothing standing between, an op pays one load and one branch for all that could.

What can be counted stands for what would have to be timed: the thread's state is where the
processor finds it without a call, nothing of ours in Python runs around a call, and whatever stood
between leaves none of it behind.
"""

from __future__ import annotations

import os
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tangrad
from tangrad import _C
from tangrad.nn import Module
from tangrad.plugin import pop_observer, push_observer

# Kinds of relocations of a thread's variables: found by a constant offset, or by a call.
CONSTANT = {"x86_64": {18}, "aarch64": {1030}}
BY_CALL = {"x86_64": {16, 17, 36}, "aarch64": {1028, 1029, 1031}}
RELOCATIONS, LITTLE_64 = 4, b"\x7fELF\x02\x01"


def relocations(path: str) -> Iterator[int]:
    """Yield the kinds of the relocations that the loader makes in a library."""
    data = Path(path).read_bytes()
    assert data[:6] == LITTLE_64
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for k in range(count):
        section = struct.unpack_from("<IIQQQQIIQQ", data, table + k * size)
        kind, at, nbytes = section[1], section[4], section[5]
        if kind == RELOCATIONS:
            for entry in range(at, at + nbytes, 24):
                yield struct.unpack_from("<QQq", data, entry)[1] & 0xFFFFFFFF


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux loads")
@pytest.mark.skipif(platform.machine() not in CONSTANT, reason="knows x86-64 and aarch64")
def test_thread_state_is_reached_without_a_call() -> None:
    kinds = set(relocations(_C.__file__))
    assert CONSTANT[platform.machine()] & kinds
    assert not BY_CALL[platform.machine()] & kinds


class Seen:
    """An observer in Python."""

    def enter(self, op: Any) -> None:
        """Nothing."""

    def leave(self, op: Any, token: Any) -> None:
        """Nothing."""


class Function(tangrad.overrides.TorchFunctionMode):
    """Pass every call on."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call it."""
        return func(*args, **(kwargs or {}))


def observed(stack: ExitStack) -> None:
    observer = Seen()
    push_observer(observer)
    stack.callback(pop_observer, observer)


def transformed(stack: ExitStack) -> None:
    tangrad.func.vmap(tangrad.func.grad(lambda x: x * x))(tangrad.ones(3))


BETWEEN: dict[str, Callable[[ExitStack], Any]] = {
    "nothing": lambda stack: None,
    "an observer": observed,
    "autocast": lambda stack: stack.enter_context(tangrad.autocast("cpu", tangrad.bfloat16)),
    "a function mode": lambda stack: stack.enter_context(Function()),
    "a check of numbers": lambda stack: stack.enter_context(
        tangrad.autograd.detect_anomaly(check_finite=True)
    ),
    "transforms": transformed,
}

CALLS: dict[str, Callable[[Any], Any]] = {
    "an operator": lambda x: x + x,
    "a number": lambda x: x * 2.0,
    "in place": lambda x: x.add_(x),
    "a function": lambda x: tangrad.add(x, x),
    "a method": lambda x: x.exp(),
    "an index": lambda x: x[0],
    "a view": lambda x: x.t(),
    "a reduction": lambda x: x.sum(),
}


def frames_of(call: Callable[[Any], Any], x: Any) -> list[str]:
    """Return the functions of this package in Python that a call runs."""
    found: list[str] = []
    package = os.path.dirname(tangrad.__file__)

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            found.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        call(x)
    finally:
        sys.setprofile(None)
    return found


# Device meta has no kernels, so that nothing but the way to them is left.
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_no_python_of_ours_runs_around_a_call_when_nothing_stands_between(
    between: Callable[[ExitStack], Any], call: Callable[[Any], Any]
) -> None:
    x = tangrad.ones(2, 2, device="meta")
    call(x)
    with ExitStack() as stack:
        between(stack)
        call(x)
    assert not _C.is_intercepted()
    assert frames_of(call, x) == []


def test_no_python_of_ours_runs_around_a_module_s_forward() -> None:
    class Same(Module):
        """Give back what came."""

        def forward(self, x: Any) -> Any:
            """Return it."""
            return x

    module = Same()
    module(1)
    assert frames_of(module, 1) == []
