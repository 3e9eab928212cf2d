"""Run a test file on one library, in as many processes as it takes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DEATHS = 60  # processes that a file may lose before it is given up
LOADING_S = 180  # what importing a test file may take longer than a test
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu",
    "PYTHONDONTWRITEBYTECODE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    # Tests hold numbers that PyTorch draws, and bounds that hold for them.
    "TANGRAD_RNG": "mt19937",
}
# What each name of these modules is to PyTorch decides whether a stub answers for it.
LIST_NAMES = """
import importlib, json, sys
print(json.dumps({name: dir(importlib.import_module(name)) for name in sys.argv[1:]}))
"""
LISTED = ("torch", "torch._C", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft",
          "torch.overrides")  # fmt: skip


@dataclass
class Runner:
    """Runs test files of the folder `tests`; verdicts lie in `work`, and are taken from there.

    Args:
        tests: the folder `test` of some version of PyTorch.
        work: where verdicts are kept, one file for each test file and library.
        limit: seconds for one test.
        only: a regular expression that the names of tests match, where none are wanted by name.
        environment: variables for the processes, beside those that keep to one thread.
        fixtures: whether `setUpClass` and `tearDownClass` run; PyTorch's own tests do without.
        worker: the file that runs the tests of a process.
        oracle: the Python that has PyTorch, where it is another than this one.
        limit_count: how many tests of a file a worker of pytest takes; 0: all.
    """

    tests: Path
    work: Path
    limit: float = 30.0
    only: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    fixtures: bool = False
    worker: str = "worker.py"
    oracle: str = sys.executable
    limit_count: int = 0

    def verdicts(self, file: str, lib: str) -> dict[str, dict[str, Any]]:
        """Return the last line about each test, by name."""
        found: dict[str, dict[str, Any]] = {}
        place = self._place(file, lib)
        if place.exists():
            for line in place.read_text("utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:  # a process was killed while it wrote
                    continue
                found.pop(entry["test"], None)  # the order is that of the last lines
                found[entry["test"]] = entry
        return found

    def forget(self, file: str, lib: str) -> None:
        """Drop what is known about a file."""
        self._place(file, lib).unlink(missing_ok=True)

    def run(self, file: str, lib: str, wanted: list[str] | None, seconds: float) -> None:
        """Run the wanted tests (None: all) that have no verdict yet, for at most `seconds`."""
        until = time.monotonic() + seconds
        for _ in range(DEATHS):
            known = self.verdicts(file, lib)
            done = [name for name, entry in known.items() if entry["verdict"] != "start"]
            if (wanted is None and "<end>" in known) or "<load>" in known:
                return
            if wanted is not None and set(wanted) <= set(done):
                return
            if time.monotonic() > until or self._process(file, lib, wanted, done, until):
                return

    def _process(
        self, file: str, lib: str, wanted: list[str] | None, done: list[str], until: float
    ) -> bool:
        """Run one process; return whether the file is finished with."""
        place = self._place(file, lib)
        task = {
            "tests": str(self.tests), "file": file, "lib": lib, "out": str(place),
            "limit": self.limit, "only": self.only, "wanted": wanted, "done": done,
            "fixtures": self.fixtures,
            "names": self._names(), "limit_count": self.limit_count,
            "source": str(Path(importlib.util.find_spec("torch").origin).parent),  # type: ignore[arg-type,union-attr]
        }  # fmt: skip
        start = [sys.executable, "-m", "tangrad", "run"] if lib == "tangrad" else [self.oracle]
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
            given = Path(folder, "task.json")
            given.write_text(json.dumps(task), "utf-8")
            process = subprocess.Popen(
                [*start, str(HERE / self.worker), str(given)],
                env={**os.environ, **ENVIRONMENT, **self.environment}, cwd=folder,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
                start_new_session=True,
            )  # fmt: skip
            ended = self._watch(process, place, until)
            said.seek(0)
            words = said.read()[-1000:].decode("utf-8", "replace")
        if ended == "budget" or process.returncode == 0:
            return True
        last = next(reversed(self.verdicts(file, lib).values()), {"test": "", "verdict": ""})
        verdict = {"kind": f"exit {process.returncode}", "text": words}
        if last["verdict"] == "start":
            self._append(place, {"test": last["test"], "verdict": ended or "crash", **verdict})
        elif process.returncode not in (3, 4):
            self._append(place, {"test": "<load>", "verdict": "load", **verdict})
        return False

    def _watch(self, process: subprocess.Popen[bytes], place: Path, until: float) -> str:
        """Wait for the process; kill it and return why where it stands still or time is up."""
        size, changed = -1, time.monotonic() + LOADING_S
        while process.poll() is None:
            time.sleep(0.2)
            now = time.monotonic()
            if place.exists() and place.stat().st_size != size:
                size, changed = place.stat().st_size, max(now, changed if size < 0 else now)
            # The worker's own alarm comes first; what runs no Python does not hear it.
            why = "hang" if now - changed > self.limit + 15 else "budget" if now > until else ""
            if why:
                os.killpg(process.pid, 9)
                process.wait()
                return why
        return ""

    def _names(self) -> dict[str, list[str]]:
        place = self.work / "names.json"
        if not place.exists():
            told = subprocess.run(
                [sys.executable, "-c", LIST_NAMES, *LISTED], check=True, capture_output=True
            )
            place.write_bytes(told.stdout)
        return dict(json.loads(place.read_text("utf-8")))

    def _place(self, file: str, lib: str) -> Path:
        return self.work / f"{file.replace('/', '.')}.{lib}.jsonl"

    @staticmethod
    def _append(place: Path, entry: dict[str, Any]) -> None:
        with place.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
