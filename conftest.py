"""Shared by the tests of all packages: comparing with PyTorch; slow tests run in the full form."""

from __future__ import annotations

import math
import os
import re
from importlib.util import find_spec

import pytest

import tangrad

FULL = os.environ.get("TANGRAD_TESTS") == "full"

if find_spec("hypothesis") is not None:  # who runs the documents or the libraries has it not
    from hypothesis import HealthCheck, settings

    # No test fails because a machine is slow; and the short form is the same test every time.
    settings.register_profile(
        "tangrad", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not FULL
    )
    settings.load_profile("tangrad")


# What test modules draw when they are imported is the same in every process that runs them.
tangrad.manual_seed(0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a test that seeds nothing draw the same numbers each time, alone or after others."""
    tangrad.manual_seed(0)


def plain(value):
    """Return a result as Python data: tensors as lists, names without the framework's."""
    if hasattr(value, "detach"):
        return plain(value.detach().tolist())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"\b(?:torch|tangrad)(?=[.\s])", "FRAMEWORK", value)
    return value


def close(a, b, tolerance):
    """Say whether two results of `plain` agree, floats within the tolerance."""
    if isinstance(a, float) and isinstance(b, float):
        same_nan = math.isnan(a) and math.isnan(b)
        return same_nan or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(close(a[key], b[key], tolerance) for key in a)
    return type(a) is type(b) and a == b


def outcome(program, framework, message):
    """Run a program; its error, if it raises, is part of the result."""
    try:
        return plain(program(framework))
    except Exception as error:
        name = type(error).__name__
        return {name: plain(str(error))} if message else {name: ...}


@pytest.fixture
def agree():
    """Assert that `program(framework)` does the same for tangrad and for torch.

    Values must agree within the tolerance, errors in their type and, unless told otherwise, in
    their message.
    """
    torch = pytest.importorskip("torch", reason="torch is the oracle")

    def check(program, *, tolerance=1e-5, message=True):
        ours = outcome(program, tangrad, message)
        theirs = outcome(program, torch, message)
        assert close(ours, theirs, tolerance), f"tangrad: {ours}\ntorch:   {theirs}"

    return check


@pytest.fixture
def vectorised_torch():
    """Skip where PyTorch computes without vectors: it rounds otherwise there than elsewhere."""
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("PyTorch rounds otherwise where it computes without vectors")


@pytest.fixture
def mt19937():
    """Draw what PyTorch draws, if the package of that engine is there."""
    pytest.importorskip("tangrad_mersenne", reason="the engine is a package of its own")
    import tangrad

    tangrad.random.set_engine("mt19937")
    yield
    tangrad.random.set_engine("philox")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `slow`, unless all tests are asked for."""
    if FULL:
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: runs with TANGRAD_TESTS=full"))
