"""Any call of the driver may fail: some of them by hash; `failing_calls.py` tries them all."""

from __future__ import annotations

import os

import pytest
from failing_calls import by_hash, calls, failures, judge

COUNT = 400 if os.environ.get("TANGRAD_TESTS") == "full" else 5


@pytest.fixture(scope="module")
def setting(variables, tmp_path_factory):
    return {**variables, "SOURCES": str(tmp_path_factory.mktemp("sources"))}


def test_the_program_calls_what_a_driver_is_for(setting):
    counted = calls(setting)
    families = "MemAlloc MemHostAlloc MemcpyHtoDAsync MemcpyDtoHAsync MemFree LaunchKernel"
    families += " StreamCreateWithPriority StreamWaitEvent EventRecord EventSynchronize"
    missing = [name for name in families.split() if f"cu{name}" not in counted]
    assert not missing, counted
    assert sum(counted.values()) > 100


def test_a_call_that_fails_ends_in_an_error_that_says_what_to_do(setting):
    wrong = [judge(fail, setting) for fail in by_hash(list(failures(calls(setting), False)), COUNT)]
    assert [(verdict.fail, verdict.wrong) for verdict in wrong if verdict.wrong] == []


def test_a_hang_and_a_crash_are_found(setting, monkeypatch):
    monkeypatch.setattr("failing_calls.PROGRAM", "import os; os.abort()")
    assert judge("cuInit:9", setting).wrong.startswith("status -6")
    monkeypatch.setattr("failing_calls.PROGRAM", "import time; time.sleep(60)")
    monkeypatch.setattr("failing_calls.LIMIT", 1)
    assert judge("cuInit:9", setting).wrong == "it hangs"
