"""What a process imports when it records for the first time is imported before the tests."""

import pytest

import tangrad


@pytest.fixture(scope="session", autouse=True)
def recorded_before():
    """Record twice: a run in which modules are imported is itself not recorded."""
    fast = tangrad.compile(lambda x: x.t() + 1)
    for _ in range(3):
        fast(tangrad.ones(2, 2))
