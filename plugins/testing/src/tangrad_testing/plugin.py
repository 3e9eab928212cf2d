"""The pytest plugin: options, the choice of cases, and what a device is expected to fail."""

from __future__ import annotations

import warnings
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEFAULT_DEVICES = ("reference", "cpu", "loopback")


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


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker of the test bodies."""
    config.addinivalue_line(
        "markers", "tangrad_cases(dtypes, always, when): the ops and dtypes that a body runs for"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each body that takes a `case` for its part of the matrix, and the plugins' own cases."""
    if "plugin_case" in metafunc.fixturenames:
        _add_cases_of_plugins(metafunc)
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
    part = cases.fraction()
    chosen = [
        c
        for c in cases.matrix(chosen_ops, dtypes, devices)
        if (when is None or when(c))
        and (c.dtype in always or cases.is_chosen(metafunc.function.__name__, c, part))
    ]
    metafunc.parametrize("case", chosen, ids=[c.id for c in chosen])


def _devices(config: pytest.Config) -> Sequence[str]:
    return config.getoption("--tangrad-device") or DEFAULT_DEVICES


def _add_cases_of_plugins(metafunc: pytest.Metafunc) -> None:
    from tangrad.plugins.hooks import call_hook

    offered = {
        f"{plugin.distribution}:{case.__name__}": case
        for plugin, cases in call_hook("tangrad_add_test_cases")
        for case in cases
    }
    metafunc.parametrize("plugin_case", list(offered.values()), ids=list(offered))
    metafunc.parametrize("device", _devices(metafunc.config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is expected to fail, with the reason."""
    lists: dict[str, dict[str, str]] = {}
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")  # type: ignore[attr-defined]
        if case is None or not hasattr(case, "device"):
            continue
        if case.device not in lists:
            lists[case.device] = expected_failures(case.device)
        for pattern, reason in lists[case.device].items():
            if fnmatchcase(item.name, pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def expected_failures(device: str) -> dict[str, str]:
    """Return {pattern of test names: reason}: the intended deviations and the device's own list."""
    from tangrad import _C
    from tangrad_testing.deviations import DEVIATIONS

    _C.device(device)
    driver: Any = _C.device_types()[device].driver
    return {**DEVIATIONS, **getattr(driver, "expected_failures", {})}


@pytest.fixture(autouse=True)
def _fallback_is_allowed_off_host(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a device without kernels run by the reference; a host device has no reason to."""
    case = getattr(request.node, "callspec", None) and request.node.callspec.params.get("case")
    if case is None or not hasattr(case, "device"):
        yield
        return
    from tangrad import _C
    from tangrad.dispatch.resolution import FallbackWarning

    with warnings.catch_warnings():
        if not _C.device_types()[case.device].host:
            warnings.simplefilter("ignore", FallbackWarning)
        yield
