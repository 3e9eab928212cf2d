"""The checks of a device by levels, each runnable alone; they need neither pytest nor PyTorch.

A level is a module with `checks(device)`, which yields what there is to check on that device. A
check is a function that returns if the device conforms, raises `Mismatch` if it does not, and
`NotApplicable` with the reason where the question has no sense for the device.
"""

from __future__ import annotations

from tangrad_testing.levels.check import Check, Device, Mismatch, NotApplicable, Outcome
from tangrad_testing.levels.run import LEVELS, checks_of, plain_checks, run

__all__ = [
    "LEVELS",
    "Check",
    "Device",
    "Mismatch",
    "NotApplicable",
    "Outcome",
    "checks_of",
    "plain_checks",
    "run",
]
