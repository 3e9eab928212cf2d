"""The pytest plugin: options, the choice of cases, and what a device is expected to fail."""

from __future__ import annotations

import warnings
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tangrad_testing.cases import Case

DEFAULT_DEVICES = ("reference", "cpu", "loopback")
#: What is taken of the cases that a device among the default ones would have, if not all are asked
#: for: loopback has no kernels, so what it adds to the reference device are copies.
SHARES = {"loopback": 0.1}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --tangrad-device."""
    parser.addoption(
        "--tangrad-device",
        action="append",
        metavar="NAME",
        help="device whose ops are tested (repeatable); default: " + ", ".join(DEFAULT_DEVICES),
    )
    parser.addoption(
        "--tangrad-op", action="append", metavar="NAME", help="test this op only (repeatable)"
    )


# Whose expected values are PyTorch's: they are left out where it is not installed.
BODIES_OF_TORCH = ("test_forward", "test_derivatives", "test_transforms")
NO_TORCH = "PyTorch is not installed: the oracle is the reference device (NumPy)"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker of the test bodies; refuse devices that cannot be tested here.

    Raises:
        pytest.UsageError: a device that was asked for is unknown or not available.
    """
    config.addinivalue_line(
        "markers", "tangrad_cases(dtypes, always, when): the ops and dtypes that a body runs for"
    )
    for name in config.getoption("--tangrad-device") or ():
        _require(name)


def _require(name: str) -> None:
    """Open a device, or say on one line why that cannot be."""
    import tangrad

    try:
        tangrad.empty(0, device=name)
    except RuntimeError as error:
        raise pytest.UsageError(
            f"--tangrad-device={name}: {' '.join(str(error).split())}"
        ) from None


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which oracle serves, where it is not PyTorch."""
    asked = config.getoption("--tangrad-device")
    return f"tangrad: {NO_TORCH}" if asked and not _has_torch() else None


def _has_torch() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each body that takes a `case` for its part of the matrix, and the plugins' own cases."""
    if "plugin_case" in metafunc.fixturenames:
        _add_cases_of_plugins(metafunc)
    if "level_check" in metafunc.fixturenames:
        _add_levels(metafunc)
    if "case" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("tangrad_cases")
    if marker is None:
        return
    from tangrad_testing import cases

    when = marker.kwargs.get("when")
    always = marker.kwargs.get("always", ())
    chosen_ops = metafunc.config.getoption("--tangrad-op") or cases.op_names()
    devices = _devices(metafunc.config)
    dtypes = cases.DTYPES[marker.kwargs.get("dtypes", "all")]
    # An op that was asked for by name takes all its samples.
    part = 1.0 if metafunc.config.getoption("--tangrad-op") else cases.fraction()
    shares = {} if metafunc.config.getoption("--tangrad-device") or part == 1.0 else SHARES
    if metafunc.function.__module__.endswith(BODIES_OF_TORCH) and not _has_torch():
        part, always, dtypes = 0.0, (), ()
    chosen = [
        c
        for c in cases.matrix(chosen_ops, dtypes, devices)
        if (when is None or when(c))
        and cases.is_chosen(
            metafunc.function.__name__,
            c,
            shares.get(c.device, 1.0) * (1.0 if c.dtype in always else part),
        )
    ]
    metafunc.parametrize("case", chosen, ids=[c.id for c in chosen])


def _devices(config: pytest.Config) -> Sequence[str]:
    return config.getoption("--tangrad-device") or DEFAULT_DEVICES


def _add_cases_of_plugins(metafunc: pytest.Metafunc) -> None:
    from tangrad.plugin import call_hook

    offered = {
        f"{plugin.distribution}:{case.__name__}": case
        for plugin, cases in call_hook("tangrad_add_test_cases")
        for case in cases
    }
    metafunc.parametrize("plugin_case", list(offered.values()), ids=list(offered))
    metafunc.parametrize("device", _devices(metafunc.config))


def _add_levels(metafunc: pytest.Metafunc) -> None:
    from tangrad_testing.levels import plain_checks

    found = [] if metafunc.config.getoption("--tangrad-op") else list(plain_checks())
    metafunc.parametrize("level_check", found, ids=[f"{c.level}-{c.name}" for c in found])
    metafunc.parametrize("device", _devices(metafunc.config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is expected to fail, with the reason."""
    lists: dict[str, dict[str, str]] = {}
    for item in items:
        case = _case_of(item)
        if case is None:
            continue
        if case.device not in lists:
            lists[case.device] = expected_failures(case.device)
        for pattern, reason in lists[case.device].items():
            if fnmatchcase(item.name, pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _case_of(item: Any) -> Case | None:
    """Return the case of the matrix that a test runs; tests of others call theirs so, too."""
    from tangrad_testing.cases import Case

    found = getattr(item, "callspec", None) and item.callspec.params.get("case")
    return found if isinstance(found, Case) else None


def expected_failures(device: str) -> dict[str, str]:
    """Return {pattern of test names: reason}: the intended deviations and the device's own list."""
    from tangrad.plugin import get_driver
    from tangrad_testing.deviations import DEVIATIONS

    return {**DEVIATIONS, **getattr(get_driver(device), "expected_failures", {})}


@pytest.fixture(autouse=True)
def _fallback_is_allowed_off_host(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a device without kernels run by the reference; a host device has no reason to."""
    case = _case_of(request.node)
    if case is None:
        yield
        return
    from tangrad.plugin import FallbackWarning, get_driver

    with warnings.catch_warnings():
        if not get_driver(case.device).host:
            warnings.simplefilter("ignore", FallbackWarning)
        yield
