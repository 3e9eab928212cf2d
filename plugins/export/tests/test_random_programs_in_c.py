"""Random programs of ops and modules compute in C what they do in eager."""

from __future__ import annotations

import os

import random_programs_in_c
from compiling import needs_compiler

COUNT = 400 if os.environ.get("TANGRAD_TESTS") == "full" else 12


@needs_compiler
def test_programs_are_as_eager_computes_them() -> None:
    assert random_programs_in_c.differences(COUNT, 0) == {}
