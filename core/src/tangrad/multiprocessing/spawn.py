"""Processes that run one function and are joined together."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]

_PATIENCE = 30.0  # seconds for a process to end after it was asked to


class ProcessException(Exception):
    """A process has failed.

    Attributes:
        msg: the message.
        error_index: the number of the process.
        error_pid: its id.
    """

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process has ended by an exception."""


class ProcessExitedException(ProcessException):
    """A process has ended by a signal or with an exit code.

    Attributes:
        exit_code: negative: the signal.
        signal_name: the signal's name, or None.
    """

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        more = (self.exit_code, self.signal_name)
        return type(self), (self.msg, self.error_index, self.error_pid, *more)


def _run(fn: Callable[..., Any], number: int, args: tuple[Any, ...], error_file: str) -> None:
    try:
        fn(number, *args)
    except KeyboardInterrupt:
        pass  # the parent is ending
    except Exception:
        with open(error_file, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """Processes that were started together.

    Args:
        processes: the processes.
        error_files: the file where each leaves its traceback.
    """

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.error_files = error_files
        self.processes = processes
        self.sentinels = {process.sentinel: number for number, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Return the ids of the processes."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until some of the processes have ended; when one has failed, end all others.

        Args:
            timeout: seconds to wait; None: without end.
            grace_period: seconds that the others have to end by themselves after a failure.

        Returns:
            Whether all have ended.

        Raises:
            ProcessRaisedException: a process has ended by an exception.
            ProcessExitedException: one has ended by a signal or with an exit code.
        """
        if not self.sentinels:
            return True
        for sentinel in wait(list(self.sentinels), timeout):
            number = self.sentinels.pop(sentinel)
            self.processes[number].join()
            if self.processes[number].exitcode:
                self._end_all(grace_period)
                self._raise(number)
        return not self.sentinels

    def _join_all(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))

    def _end_all(self, grace_period: float | None) -> None:
        if grace_period is not None:
            self._join_all(grace_period)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        self._join_all(_PATIENCE if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()

    def _raise(self, number: int) -> None:
        process, path = self.processes[number], self.error_files[number]
        if os.access(path, os.R_OK):
            with open(path, "rb") as file:
                trace = pickle.load(file)
            os.unlink(path)
            raise ProcessRaisedException(
                f"\n\n-- Process {number} terminated with the following error:\n{trace}",
                number,
                process.pid,
            )
        code = process.exitcode
        if code >= 0:
            raise ProcessExitedException(
                f"process {number} terminated with exit code {code}", number, process.pid, code
            )
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"<Unknown signal {-code}>"
        raise ProcessExitedException(
            f"process {number} terminated with signal {name}", number, process.pid, code, name
        )


class SpawnContext(ProcessContext):
    """The old name of ProcessContext."""

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        warnings.warn("SpawnContext is renamed to ProcessContext", stacklevel=2)
        super().__init__(processes, error_files)


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Start processes that run `fn(number, *args)`.

    Args:
        fn: the function; unless processes are forked, one that can be pickled.
        args: arguments after the process's number.
        nprocs: how many.
        join: wait until all have ended.
        daemon: whether the processes end with this one.
        start_method: "spawn", "fork" or "forkserver".

    Returns:
        None after joining, otherwise the processes.

    Raises:
        ProcessException: a process has failed; the others are ended.
        ValueError: there is no such way to start processes.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes: list[Any] = []
    error_files: list[str] = []
    for number in range(nprocs):
        # The name only: a process that fails makes the file.
        handle, path = tempfile.mkstemp(prefix="tangrad-error-", suffix=".pickle")
        os.close(handle)
        os.unlink(path)
        process = context.Process(target=_run, args=(fn, number, args, path), daemon=daemon)
        process.start()
        processes.append(process)
        error_files.append(path)
    started = ProcessContext(processes, error_files)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Start fresh processes that run `fn(number, *args)`; see `start_processes`.

    Args:
        fn: the function; it can be pickled.
        args: arguments after the process's number.
        nprocs: how many.
        join: wait until all have ended.
        daemon: whether the processes end with this one.
        start_method: "spawn"; another one is ignored, with a warning.

    Raises:
        ProcessException: a process has failed; the others are ended.
    """
    if start_method != "spawn":
        warnings.warn(
            "This method only supports start_method=spawn (got: "
            f"{start_method}). To use a different start_method use start_processes().",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
