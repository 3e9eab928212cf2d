"""Run tests of one file by pytest in this process, and write a line of JSON for each.

    pytest_worker.py TASK.json

As `worker.py`, for tests that need pytest: the task and the lines are the same, a test's name is
what its identifier has behind the file, and `limit_count` says how many are taken in the order of
their hashes where none are named.
"""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import importlib
import json
import os
import re
import resource
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MEMORY_KB = 6 << 20  # a process that has grown larger gives way to a fresh one


class TimeLimit(BaseException):
    """A test took longer than it may; no `except Exception` of a test catches it."""


def _stop(number: int, frame: Any) -> None:
    raise TimeLimit


def complete(tests: Path, file: str) -> None:
    """Give what a file and the helpers import of the tested library and its version lacks.

    The stand-in is false and decorates nothing: such names choose or mark what is skipped.
    """
    from worker import Former

    for path in (tests / file, *tests.glob("*_utils.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
                continue
            if node.module.partition(".")[0] != "torchvision":
                continue
            try:
                there = importlib.import_module(node.module)
            except ImportError:
                continue
            for alias in node.names:
                if alias.name == "*" or hasattr(there, alias.name):
                    continue
                try:
                    importlib.import_module(f"{node.module}.{alias.name}")
                except ImportError:
                    setattr(there, alias.name, Former())


class Recorder:
    """Chooses the tests of a file and writes what became of each."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.out = open(task["out"], "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self.told: tuple[str, dict[str, str]] = ("pass", {})
        self.names: dict[str, str] = {}
        self.loading = contextlib.ExitStack()

    def write(self, test: str, verdict: str, **more: Any) -> None:
        """Write a line: for a test, or for the file where the name stands in angle brackets."""
        self.out.write(json.dumps({"test": test, "verdict": verdict, **more}) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests that are asked for and have no verdict yet."""
        self.loading.close()
        found = {item.nodeid.partition("::")[2]: item for item in items}
        self.write("<count>", "count", names=list(found))
        found = self.named_as_there(found)
        self.names = {item.nodeid: name for name, item in found.items()}
        wanted = self.task["wanted"]
        if wanted is None:
            runs = [name for name, item in found.items() if not item.get_closest_marker("skip")]
            named = filter(re.compile(self.task["only"]).search, runs)
            wanted = sorted(named, key=lambda name: zlib.crc32(name.encode()))
            wanted = wanted[: self.task["limit_count"] or None]
        for name in set(wanted) - set(found):
            self.write(name, "absent")
        chosen = {name for name in wanted if name in found} - set(self.task["done"])
        # In the order of the file: fixtures of a module are made once.
        items[:] = [item for name, item in found.items() if name in chosen]

    def named_as_there(self, found: dict[str, pytest.Item]) -> dict[str, pytest.Item]:
        """Return tests by the names that they have on PyTorch.

        A parameter's text may be the name of its class: tests of one function are the same ones in
        order, if there are equally many.
        """
        there = Path(self.task["out"].replace(".tangrad.jsonl", ".torch.jsonl"))
        if self.task["lib"] != "tangrad" or not there.exists():
            return found
        lines = map(json.loads, there.read_text("utf-8").splitlines())
        names = next((line["names"] for line in lines if "names" in line), [])
        ours: dict[str, list[str]] = {}
        theirs: dict[str, list[str]] = {}
        for listed, by_function in ((found, ours), (names, theirs)):
            for name in listed:
                by_function.setdefault(name.partition("[")[0], []).append(name)
        alike = [
            (ours[key], theirs[key])
            for key in ours
            if len(ours[key]) == len(theirs.get(key, ())) and set(ours[key]) != set(theirs[key])
        ]
        renamed = {a: b for mine, given in alike for a, b in zip(mine, given, strict=True)}
        return {renamed.get(name, name): item for name, item in found.items()}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run one test within its time."""
        name = self.names[item.nodeid]
        self.write(name, "start")
        self.told = ("pass", {})
        begin = time.monotonic()
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.write(name, self.told[0], seconds=round(time.monotonic() - begin, 2), **self.told[1])
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MEMORY_KB:
            self.out.flush()
            os._exit(4)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Start the clock where the test itself starts."""
        signal.setitimer(signal.ITIMER_REAL, self.task["limit"])
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Iterator[None]:
        """Keep what a phase of a test came to."""
        outcome = yield
        report = outcome.get_result()  # type: ignore[attr-defined]
        if report.passed or self.told[0] != "pass":
            return
        if report.skipped:
            kind = "xfail" if hasattr(report, "wasxfail") else "skip"
            self.told = (kind, {"text": str(report.longrepr)[-300:]})
        elif call.excinfo is None:  # passed where it was marked as failing
            self.told = ("fail", {"kind": "xpass", "text": str(report.longrepr)[:300]})
        elif call.excinfo.type is TimeLimit:
            self.told = ("hang", {})
        else:
            self.told = ("error", self.describe(call.excinfo.value))

    def pytest_collectreport(self, report: Any) -> None:
        """Write where the file could not be loaded."""
        if report.failed:
            self.write("<load>", "load", kind="ImportError", text=str(report.longrepr)[-600:])

    def describe(self, error: BaseException) -> dict[str, str]:
        """Return an exception's kind, words, the name it missed, and the lines where it rose."""
        lines = traceback.extract_tb(error.__traceback__)
        ours = [line for line in lines if line.filename.startswith(self.task["tests"])]
        return {
            "kind": type(error).__name__,
            "text": str(error)[:600],
            "name": str(getattr(error, "name", None) or ""),
            "at": f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "",
            "raised": "/".join(f"{lines[-1].filename}:{lines[-1].lineno}".split("/")[-3:]),
        }


def stand_in(task: dict[str, Any]) -> None:
    """Have the helpers that the tests import answered for."""
    import answers
    import optests
    import stubs

    stubs.REPLACED = ()  # the library itself uses what there is
    stubs.install(task["source"], task["names"])
    importlib.import_module("torch.testing._internal")
    sys.modules["torch.testing._internal.optests"] = optests  # type: ignore[assignment]
    for name, value in answers.IMPORTED.items():
        module, _, last = name.rpartition(".")
        there = importlib.import_module(module)
        if isinstance(there, stubs.StubModule):
            setattr(there, last, value)


def main() -> None:
    """Run the task named on the command line."""
    faulthandler.enable()
    task = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    signal.signal(signal.SIGALRM, _stop)
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    if task["lib"] == "tangrad":
        stand_in(task)
    import torch

    complete(Path(task["tests"]), task["file"])
    sys.path.insert(0, task["tests"])
    torch.set_num_threads(1)
    recorder = Recorder(task)
    if task["lib"] == "tangrad":
        # While files are imported, stubs answer for what tables name and few tests use.
        import stubs

        recorder.loading.enter_context(stubs.importing())
    path = Path(task["tests"], task["file"])
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "--tb=short"]
    status = pytest.main([*options, str(path)], plugins=[recorder])
    recorder.write("<end>", "end")
    recorder.out.flush()
    os._exit(3 if status == pytest.ExitCode.INTERRUPTED else 0)


if __name__ == "__main__":
    main()
