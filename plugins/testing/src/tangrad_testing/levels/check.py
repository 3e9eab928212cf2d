"""What a check is, what it is given, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import tangrad
from tangrad.plugin import get_driver
from tangrad_testing.closeness import agrees, as_array, dtype_name

LONGEST_VALUE = 160


class Mismatch(AssertionError):
    """A device does not do what it should.

    Args:
        case: what was tried.
        got: what came.
        expected: what should have come.
    """

    def __init__(self, case: str, got: Any, expected: Any) -> None:
        self.case, self.got, self.expected = case, shortened(got), shortened(expected)
        super().__init__(f"{case}: got {self.got}, expected {self.expected}")


class NotApplicable(Exception):
    """A check has no sense for a device; the message says why."""


@dataclass(frozen=True)
class Device:
    """The device under test.

    Attributes:
        name: the device type.
        ops: the only ops to be checked; all if empty.
        large: also ask what takes gigabytes of memory.
    """

    name: str
    ops: frozenset[str] = field(default_factory=frozenset)
    large: bool = False

    @cached_property
    def driver(self) -> Any:
        """Return its opened driver."""
        tangrad.empty(0, device=self.name)
        return get_driver(self.name)

    def tensor(self, array: Any, dtype: str | None = None) -> Any:
        """Make a tensor of an array on the device."""
        made = tangrad.from_numpy(np.array(array, order="C"))
        return (made if dtype is None else made.to(getattr(tangrad, dtype))).to(self.name)

    def require_own_memory(self) -> None:
        """Refuse to go on for devices whose memory the core itself serves.

        Raises:
            NotApplicable: the device has no memory of its own.
        """
        if self.driver.meta:
            raise NotApplicable("its tensors have no memory")
        if self.driver.host:
            raise NotApplicable("its memory is the host's, which the core serves by itself")


@dataclass(frozen=True)
class Check:
    """One question to a device.

    Attributes:
        level: number of the level.
        name: short name, unique on a device.
        says: what holds, as a sentence.
        body: raises Mismatch or NotApplicable.
    """

    level: int
    name: str
    says: str
    body: Callable[[Device], None]


@dataclass(frozen=True)
class Outcome:
    """What came of a check.

    Attributes:
        check: the check.
        status: "passed", "failed" or "not applicable".
        seconds: how long it took.
        message: the reason, unless it passed.
    """

    check: Check
    status: str
    seconds: float
    message: str = ""


def collected(level: int) -> tuple[Callable[..., Any], list[Check]]:
    """Return (a decorator that adds a body to a level, the list that it adds to)."""
    found: list[Check] = []

    def add(body: Callable[[Device], None]) -> Callable[[Device], None]:
        says = (body.__doc__ or "").partition("\n")[0].rstrip(".")
        found.append(Check(level, body.__name__, says, body))
        return body

    return add, found


def expect(case: str, got: Any, expected: Any) -> None:
    """Raise Mismatch unless two plain values, or two buffers, are equal."""
    if isinstance(expected, (bytes, bytearray)):
        got = bytes(got)
        if got != bytes(expected):
            raise Mismatch(case, *first_difference(got, bytes(expected)))
    elif isinstance(expected, np.ndarray):
        if not np.array_equal(got, expected):
            raise Mismatch(case, got, expected)
    elif got != expected:
        raise Mismatch(case, got, expected)


def first_difference(got: bytes, expected: bytes) -> tuple[str, str]:
    """Describe where two byte strings part."""
    if len(got) != len(expected):
        return f"{len(got)} bytes", f"{len(expected)} bytes"
    a, b = np.frombuffer(got, np.uint8), np.frombuffer(expected, np.uint8)
    where = np.flatnonzero(a != b)
    first = int(where[0])
    return (
        f"byte {first} = {a[first]:#04x} ({len(where)} of {len(a)} bytes differ)",
        f"{b[first]:#04x}",
    )


def expect_error(case: str, kinds: type[BaseException] | tuple[Any, ...], action: Any) -> str:
    """Return the message of the error that an action must raise."""
    wanted = " or ".join(k.__name__ for k in (kinds if isinstance(kinds, tuple) else (kinds,)))
    try:
        result = action()
    except kinds as error:
        return str(error)
    except Exception as error:
        raise Mismatch(case, f"{type(error).__name__}: {error}", wanted) from error
    raise Mismatch(case, f"{result!r} and no error", wanted)


def expect_close(case: str, got: Any, expected: Any, slack: float = 1.0) -> None:
    """Raise Mismatch unless tensors agree in number, shape, dtype and value.

    Args:
        case: what was computed.
        got: the tensors of the device under test.
        expected: those of the oracle.
        slack: factor on the tolerance of their dtype.
    """
    if len(got) != len(expected):
        raise Mismatch(case, f"{len(got)} tensors", f"{len(expected)}")
    for i, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        where = f"{case}, tensor {i}" if len(expected) > 1 else case
        expect(f"{where}, shape", tuple(ours.shape), tuple(theirs.shape))
        expect(f"{where}, dtype", dtype_name(ours), dtype_name(theirs))
        a, e = as_array(ours), as_array(theirs)
        good = agrees(a, e, dtype_name(ours), slack)
        if not good.all():
            place = tuple(int(k) for k in np.argwhere(~np.asarray(good))[0]) if good.ndim else ()
            wrong = int(good.size - np.count_nonzero(good))
            raise Mismatch(
                f"{where}, element {list(place)} ({wrong} of {good.size} wrong)", a[place], e[place]
            )


def shortened(value: Any) -> str:
    """Return a value as a short text."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} ..."
