"""Run the tests of one file of PyTorch's in this process, and write a line of JSON for each.

    worker.py TASK.json

Started by `runner`: as it is for PyTorch, through `python -m tangrad run` for tangrad. The task
names the folder of tests, the file, the library, where to write, the seconds for a test, and the
tests to run in their order (none named: all that match a pattern, by their hashes). A test's name
is written with the verdict "start" before it runs, so that one that ends the process is known.
"""

from __future__ import annotations

import ast
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
import types
import unittest
import warnings
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

HELPERS = "torch.testing._internal"  # taken from the installed PyTorch, whichever library runs
MEMORY_KB = 5 << 20  # a process that has grown larger gives way to a fresh one


class TimeLimit(BaseException):
    """A test took longer than it may; no `except Exception` of a test catches it."""


def _stop(number: int, frame: types.FrameType | None) -> NoReturn:
    raise TimeLimit


class Former:
    """Stands for a name that the tests' version of the helpers had and the installed one has not.

    Most of them were decorators that skip a test on some device, so it decorates nothing.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what is decorated, or itself."""
        alone = len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType))
        return args[0] if alone else self

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __add__(self, other: Any) -> Any:
        return other

    __radd__ = __add__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()


class Names:
    """Gives what a test file imports by name and the installed helpers no longer have."""

    def __init__(self, tests: str, lib: str, source: str) -> None:
        self.tests, self.source = tests, source
        # A name that PyTorch lacks is no finding about PyTorch; one that tangrad lacks is.
        self.prefixes = (HELPERS,) if lib == "tangrad" else ("torch", "functorch")

    def give(self, path: str) -> None:
        """Provide for one test file and for the test files that it imports."""
        with open(path, encoding="utf-8") as stream:
            body = ast.parse(stream.read()).body
        for node in body:
            if not isinstance(node, ast.ImportFrom) or not node.module or node.level:
                continue
            other = os.path.join(self.tests, *node.module.split(".")) + ".py"
            if os.path.exists(other) and other != path:
                self.give(other)
            elif node.module.startswith(self.prefixes):
                self._complete(node.module, [alias.name for alias in node.names])

    def _complete(self, module: str, names: list[str]) -> None:
        try:
            there = importlib.import_module(module)
        except ImportError:
            file = os.path.join(self.source, *module.split(".")[1:])
            if not module.startswith(HELPERS):
                return
            if os.path.exists(f"{file}.py") or os.path.isdir(file):
                raise
            there = sys.modules[module] = types.ModuleType(module)
        for name in names:
            if name == "*" or hasattr(there, name):
                continue
            try:
                importlib.import_module(f"{module}.{name}")
            except ImportError:
                setattr(there, name, Former())


def imported(path: str, tests: str) -> list[str]:
    """Return a test file and the test files that it imports names from."""
    found = [path]
    with open(path, encoding="utf-8") as stream:
        body = ast.parse(stream.read()).body
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            other = os.path.join(tests, *node.module.split(".")) + ".py"
            if os.path.exists(other) and other != path:
                found.extend(imported(other, tests))
    return found


def allow_plain(base: Any) -> None:
    """Let instances of an abstract class be made, as files of PyTorch 2.4 make them."""
    plain = type(base.__name__, (base,), {"__call__": lambda self, *a, **k: base.__call__(self)})
    base.__new__ = lambda cls, *a, **k: object.__new__(plain if cls is base else cls)


def allow_no_ops() -> None:
    """Let tests of ops stand that no op of the installed helpers' table is for: they make none."""
    there: Any = importlib.import_module(f"{HELPERS}.common_device_type")
    of_ops = there.ops._parametrize_test

    def parametrized(self: Any, *args: Any) -> Iterator[Any]:
        if self.op_list:
            yield from of_ops(self, *args)

    there.ops._parametrize_test = parametrized


def load(path: str, tests: str) -> types.ModuleType:
    """Execute a test file as a module that is found both by its name and as `__main__`.

    Its own guard for the command line must not run, and helpers look for classes in `__main__`.
    Files of PyTorch 2.4 ask for the class above that of a test's instance, which the installed
    helpers have derived once more.
    """
    name = os.path.splitext(os.path.relpath(path, tests))[0].replace(os.sep, ".")
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = sys.modules["__main__"] = module
    sys.argv = [path]
    with open(path, encoding="utf-8") as stream:
        text = stream.read().replace("super(self.__class__, self)", "super()")
    code = compile(text, path, "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return module


def cases(suite: Any) -> Iterator[unittest.TestCase]:
    """Yield the tests of a suite of suites."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


def made_cases(module: Any) -> tuple[list[unittest.TestCase], dict[str, Exception]]:
    """Return a module's tests; of those whose class cannot make them, by name, the error."""
    loader = unittest.defaultTestLoader
    try:
        return list(cases(loader.loadTestsFromModule(module))), {}
    except Exception:
        made, unmade = [], {}
    for cls in list(vars(module).values()):
        if not isinstance(cls, type) or not issubclass(cls, unittest.TestCase):
            continue
        for name in loader.getTestCaseNames(cls):
            try:
                made.append(cls(name))
            except Exception as error:
                unmade[f"{cls.__name__}.{name}"] = error
    return made, unmade


class Record(unittest.TestResult):
    """Keeps what unittest tells of one test, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, Any]] = []

    def addError(self, test: Any, err: Any) -> None:
        """Keep an exception that is no assertion's."""
        self.told.append(("error", err))

    def addFailure(self, test: Any, err: Any) -> None:
        """Keep a failed assertion."""
        self.told.append(("fail", err))

    def addSkip(self, test: Any, reason: str) -> None:
        """Keep that the test skipped itself."""
        self.told.append(("skip", reason))

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        """Keep that the test is known to fail."""
        self.told.append(("xfail", None))

    def addUnexpectedSuccess(self, test: Any) -> None:
        """Keep that the test was expected to fail."""
        self.told.append(("xpass", None))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        """Keep what failed in a part of the test."""
        if err is not None:
            self.told.append(("fail" if issubclass(err[0], AssertionError) else "error", err))


class Worker:
    """Runs the tests of one file and writes what became of each."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.entered: Any = None
        self.out = open(task["out"], "a", encoding="utf-8", buffering=1)  # noqa: SIM115

    def write(self, test: str, verdict: str, **more: Any) -> None:
        """Write a line: for a test, or for the file where the name stands in angle brackets."""
        self.out.write(json.dumps({"test": test, "verdict": verdict, **more}) + "\n")

    def describe(self, error: BaseException) -> dict[str, str]:
        """Return an exception's kind, words, the name it missed, and the lines where it rose."""
        while type(error) is Exception and error.__cause__ is not None:
            error = error.__cause__  # tests of ops add which sample it was
        there = ""
        lines = traceback.extract_tb(error.__traceback__)
        for line in lines:
            if line.filename.startswith(self.task["tests"]):
                there = f"{os.path.basename(line.filename)}:{line.lineno}"
        last = f"{lines[-1].filename}:{lines[-1].lineno}" if lines else ""
        return {
            "kind": type(error).__name__,
            "text": str(error)[:600],
            "name": str(getattr(error, "name", None) or ""),
            "at": there,
            "raised": "/".join(last.split("/")[-3:]),
        }

    def load(self) -> types.ModuleType:
        """Load the test file, with everything in place that it takes from private modules."""
        tests, lib, source = (self.task[key] for key in ("tests", "lib", "source"))
        path = os.path.join(tests, self.task["file"])
        sys.path[:0] = [tests, os.path.dirname(path)]
        names = Names(tests, lib, source)
        if lib != "tangrad":
            allow_plain(importlib.import_module("torch._ops").HigherOrderOperator)
            names.give(path)
            allow_no_ops()
            return load(path, tests)
        import stubs

        stubs.install(source, self.task["names"])
        with stubs.importing():
            for file in imported(path, tests):
                stubs.provide(file)
            names.give(path)
            allow_no_ops()
            return load(path, tests)

    def run(self) -> None:
        """Run the tests that are asked for and have no verdict yet."""
        try:
            module = self.load()
        except BaseException as error:
            self.write("<load>", "load", **self.describe(error))
            raise SystemExit(3) from None
        helpers = sys.modules.get(f"{HELPERS}.common_utils")
        if getattr(helpers, "GRAPH_EXECUTOR", 0) is None:  # what its command line would choose
            helpers.GRAPH_EXECUTOR = helpers.ProfilingMode.PROFILING  # type: ignore[union-attr]
        torch: Any = sys.modules["torch"]
        torch.set_num_threads(1)
        if self.task["lib"] == "tangrad" and vars(module).get("types") is types:
            # An op of ours is what a builtin function is there.
            builtin = types.BuiltinFunctionType | type(torch.add)
            module.types = SimpleNamespace(**{**vars(types), "BuiltinFunctionType": builtin})  # type: ignore[attr-defined]
        made, unmade = made_cases(module)
        found = {
            ".".join(case.id().split(".")[-2:]): case
            for case in made
            if not self.is_of_another(case, module)
        }
        self.write("<count>", "count", count=len(found))
        wanted = self.task["wanted"]
        if wanted is None:
            named = filter(re.compile(self.task["only"]).search, found)
            wanted = list(named)
            if not self.task["fixtures"]:  # a class is made ready once, for its tests in a row
                wanted.sort(key=lambda name: zlib.crc32(name.encode()))
        for name in wanted:
            if name in self.task["done"]:
                continue
            if name in unmade:
                self.write(name, "error", **self.describe(unmade[name]))
                continue
            if name not in found:
                self.write(name, "absent")
                continue
            self.one(name, found[name])
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MEMORY_KB:
                raise SystemExit(4)
        self.leave()
        if not self.task["only"]:
            self.write("<end>", "end")

    def enter(self, cls: Any) -> None:
        """Make a class ready for its tests, and end the one before."""
        if cls is not self.entered:
            self.leave()
            self.entered = cls
            cls.setUpClass()

    def leave(self) -> None:
        """End the class whose tests have run."""
        if self.entered is not None:
            self.entered.tearDownClass()
            self.entered.doClassCleanups()
            self.entered = None

    def is_of_another(self, case: unittest.TestCase, module: types.ModuleType) -> bool:
        """Return whether a test's class is that of another test file, which has imported it."""
        made = sys.modules.get(type(case).__module__)
        place = getattr(made, "__file__", None) or ""
        return made is not module and place.startswith(self.task["tests"])

    def one(self, name: str, case: unittest.TestCase) -> None:
        """Run one test."""
        self.write(name, "start")
        record, late = Record(), False
        begin = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, self.task["limit"])
        try:
            try:
                if self.task["fixtures"]:
                    self.enter(type(case))
                case.run(record)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except TimeLimit:
            late = True
        except BaseException as error:
            record.told.append(("error", (type(error), error, error.__traceback__)))
        verdict, more = ("hang", {}) if late else self.verdict(record)
        self.write(name, verdict, seconds=round(time.monotonic() - begin, 2), **more)
        # What a failed test leaves behind must not fail those after it.
        torch = sys.modules["torch"]
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.use_deterministic_algorithms(False)

    def verdict(self, record: Record) -> tuple[str, dict[str, str]]:
        """Return what became of a test, and of a failure its description."""
        verdict, more = "pass", {}
        for kind, told in record.told:
            reason = told
            if kind in ("error", "fail"):
                reason = error = told[1]
                if isinstance(error, TimeLimit):
                    return "hang", {}
                if not isinstance(error, unittest.SkipTest):
                    return kind, self.describe(error)
                kind = "skip"
            verdict, more = kind, {"text": str(reason)} if kind == "skip" else {}
        return verdict, more


def main() -> None:
    """Run the task named on the command line."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _stop)
    with open(sys.argv[1], encoding="utf-8") as stream:
        task = json.load(stream)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    worker = Worker(task)
    worker.run()
    worker.out.flush()
    os._exit(0)  # without the finalizers of what the tests left


if __name__ == "__main__":
    main()
