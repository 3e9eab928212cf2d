"""Run `measure.py` for rows of the table, and go on behind a row that kills the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measuring.limits import Limits
from measuring.paired import Figure, Pace, from_data

WORKER = Path(__file__).resolve().parents[1] / "measure.py"
SILENCE = 90.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environment(threads: int) -> dict[str, str]:
    """Return an environment in which every framework uses so many threads."""
    flags = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
    return {
        **os.environ,
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "XLA_FLAGS": flags,
        "JAX_PLATFORMS": "cpu",
    }


def messages(job: dict[str, Any]) -> Iterator[dict[str, Any] | int]:
    """Yield what a worker says about a job, and last its exit status."""
    command = [sys.executable, str(WORKER)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(job["threads"]),
    ) as worker:
        worker.stdin.write(json.dumps(job))
        worker.stdin.close()
        while True:
            watch = threading.Timer(SILENCE, worker.kill)
            watch.start()
            line = worker.stdout.readline()
            watch.cancel()
            if not line:
                break
            yield json.loads(line)
        yield worker.wait()


def measured(rows: list[tuple[str, str]], threads: int, pace: Pace) -> Iterator[Limits | Figure]:
    """Yield the machine's limits, then the figure of each row.

    Raises:
        RuntimeError: if a worker fails before its first row.
    """
    bound = None
    while rows:
        job = {"rows": rows, "threads": threads, "pace": asdict(pace), "limits": bound}
        for message in messages(job):
            if isinstance(message, int):
                if message and bound is None:
                    raise RuntimeError(f"measure.py failed with exit status {message}")
                if rows:
                    (group, name), *rows = rows
                    yield Figure(name, group, "us", {}, absent=_cause(message))
            elif "limits" in message:
                bound = message["limits"]
                yield Limits.from_data(bound)
            else:
                rows = rows[1:]
                yield from from_data([message["figure"]])


def _cause(status: int) -> str:
    if status == -9:
        return f"no answer within {SILENCE:g} s, or killed for memory"
    return f"the process died with exit status {status}"
