"""What `python -m tangrad check` asks of a device, beside its ops: one test for each question."""

from __future__ import annotations

import warnings

import pytest

from tangrad.plugin import FallbackWarning
from tangrad_testing.levels import Check, Device, NotApplicable


def test_device_conforms(level_check: Check, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        try:
            level_check.body(Device(device))
        except NotApplicable as reason:
            pytest.skip(f"not applicable to '{device}': {reason}")
