"""A pytest plugin that writes down each test as it starts and ends, and leaves out those known.

For `tangrad_testing.whole`, whose processes load it by ``-p``: what a process was at when it
crashed is told by the last line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "TANGRAD_TEST_RECORD"
STARTED = "started"
# Of a test that was running when all was stopped from outside: it runs again.
INTERRUPTED = "interrupted"
# What a failure says is cut to 600 characters, of up to 6 bytes each.
LONGEST_LINE = 8192


def lines_of(record: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a record; one that a killed process left unfinished is passed over."""
    if not record.exists():
        return
    for line in record.read_text("utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def last_line(record: Path) -> dict[str, Any]:
    """Return the last whole line of a record without reading the others; {} if there is none."""
    with record.open("rb") as file:
        file.seek(max(0, record.stat().st_size - LONGEST_LINE))
        lines = file.read().splitlines()
    for line in reversed(lines):
        try:
            found: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        return found
    return {}


def outcomes(record: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of each test of a record."""
    return {line["test"]: line for line in lines_of(record) if "test" in line}


def write(record: Path, **line: Any) -> None:
    """Add a line to a record."""
    with record.open("a", encoding="utf-8") as file:
        # Behind what a killed process left unfinished, the line would be lost with it.
        file.write(("" if _ends_a_line(record) else "\n") + json.dumps(line) + "\n")


def _ends_a_line(record: Path) -> bool:
    if not record.stat().st_size:
        return True
    with record.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def name_of(item: pytest.Item) -> str:
    """Name a test of the kit as `expected_failures` does."""
    return f"{item.path.name}::{item.name}"


def _record() -> Path:
    return Path(os.environ[VARIABLE])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose outcome is known."""
    known = {t for t, line in outcomes(_record()).items() if line["outcome"] != INTERRUPTED}
    again = [item for item in items if name_of(item) not in known]
    config.hook.pytest_deselected(items=[item for item in items if name_of(item) in known])
    items[:] = again


def pytest_sessionfinish(exitstatus: int) -> None:
    """Write that a process came to its end."""
    write(_record(), ended=int(exitstatus))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write that a test starts."""
    write(_record(), test=name_of(item), outcome=STARTED)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Write what became of a test: by its body, or by what failed before or after that."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        outcome = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.outcome == "skipped" else "failed"
        says = _first_line(call) or str(getattr(report, "longrepr", "") or "")[:300]
        seconds = round(call.duration, 3)
        write(_record(), test=name_of(item), outcome=outcome, seconds=seconds, says=says)
    return report


def _first_line(call: pytest.CallInfo[None]) -> str:
    if call.excinfo is None:
        return ""
    return f"{call.excinfo.typename}: {call.excinfo.value}"[:600]
