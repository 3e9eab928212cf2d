"""Run the checks of a device, level by level."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from importlib import import_module

from tangrad.plugin import FallbackWarning
from tangrad_testing.levels.check import Check, Device, Mismatch, NotApplicable, Outcome
from tangrad_testing.levels.kernels import own_kernels

# Number -> (module, what it is about).
LEVELS: dict[int, tuple[str, str]] = {
    0: ("contract", "driver contract"),
    1: ("computing", "ops"),
    2: ("views", "views, strides, in-place"),
    3: ("gradients", "gradients to second order"),
    4: ("concurrency", "streams, events, threads"),
    5: ("randomness", "random numbers"),
    6: ("files", "serialization"),
    7: ("refusals", "errors"),
    8: ("speed", "speed"),
}


def checks_of(device: Device, levels: Iterable[int] = LEVELS) -> Iterator[Check]:
    """Yield the checks of some levels, in order."""
    # Before any op runs: then the core's tables hold what it resolved, too.
    own_kernels(device)
    for level in levels:
        module = import_module(f"tangrad_testing.levels.{LEVELS[level][0]}")
        yield from module.checks(device)


def plain_checks() -> Iterator[Check]:
    """Yield the checks that are the same for every device: all but those of single ops."""
    for module in (
        "contract",
        "lifetime",
        "views",
        "gradients",
        "concurrency",
        "streams",
        "randomness",
        "files",
        "refusals",
    ):
        yield from import_module(f"tangrad_testing.levels.{module}").PLAIN


def run(device: Device, levels: Iterable[int] = LEVELS) -> Iterator[Outcome]:
    """Run the checks of some levels, each whatever came of those before it."""
    for check in checks_of(device, levels):
        yield run_check(check, device)


def run_check(check: Check, device: Device) -> Outcome:
    """Run one check; whatever it raises is an answer, too."""
    started = time.perf_counter()
    status, message = "passed", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            warnings.simplefilter("ignore", UserWarning)  # an op's advice on its arguments
            check.body(device)
    except NotApplicable as reason:
        status, message = "not applicable", str(reason)
    except Mismatch as mismatch:
        status, message = "failed", str(mismatch)
    except Exception as error:
        status = "failed"
        message = f"{check.says}: got {type(error).__name__}: {error}, expected no error"
    return Outcome(check, status, time.perf_counter() - started, message)
