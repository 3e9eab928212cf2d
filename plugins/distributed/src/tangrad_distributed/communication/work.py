"""Collectives that run while their caller goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tangrad.plugin import phase
from tangrad_distributed.errors import CollectiveTimeoutError
from tangrad_distributed.futures import Future


class Work:
    """Stand for a collective or a message that may still be under way.

    Args:
        result: the tensors that it writes.
        kind: its name.
    """

    def __init__(self, result: list[Any], kind: str = "") -> None:
        self._future: Future[list[Any]] = Future()
        self._result, self._kind = result, kind
        self._source = -1

    def is_completed(self) -> bool:
        """Tell whether it is over, well or not."""
        return self._future.done()

    def is_success(self) -> bool:
        """Tell whether it is over and went well."""
        return self._future.done() and self._future._error is None

    def exception(self) -> BaseException | None:
        """Return what went wrong, if anything did."""
        return self._future._error

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is over.

        Returns:
            True.

        Raises:
            DistBackendError: it failed.
            CollectiveTimeoutError: `timeout` is over and it is not.
        """
        if timeout is not None and timeout.total_seconds() > 0:
            done = threading.Event()
            self._future.add_done_callback(lambda _: done.set())
            if not done.wait(timeout.total_seconds()):
                raise CollectiveTimeoutError(
                    f"{self._kind} did not end within {timeout.total_seconds():g} s"
                )
        if self._future.done():
            self._future.wait()
        else:
            with phase(f"wait for {self._kind}"):
                self._future.wait()
        return True

    def synchronize(self) -> None:
        """Wait until it is over, as `wait` does."""
        self.wait()

    def block_current_stream(self) -> None:
        """Wait until it is over, as `wait` does: engines of the host have no streams."""
        self.wait()

    def result(self) -> list[Any]:
        """Return the tensors that were written."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """Return who sent what was received from anybody."""
        return self._source

    def get_future(self) -> Future[list[Any]]:
        """Return a future of the tensors that are written."""
        return self._future

    def _succeed(self) -> None:
        self._future.set_result(self._result)

    def _fail(self, error: BaseException) -> None:
        self._future.set_exception(error)


class Queue:
    """Run what it is given one after the other, in a thread that starts with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[tuple[Callable[[], None], Work] | None] | None = None
        self._pending = 0
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """Tell whether something is under way or waits."""
        return self._pending > 0

    def put(self, run: Callable[[], None], work: Work) -> None:
        """Run something after all before it, and tell its work how it went."""
        with self._lock:
            self._pending += 1
            if self._tasks is None:
                self._tasks = queue.SimpleQueue()
                # The queue by itself: `stop` may forget it before the thread looks.
                given = (self._tasks,)
                threading.Thread(
                    target=self._loop, args=given, name=self._name, daemon=True
                ).start()
            self._tasks.put((run, work))

    def _loop(self, tasks: queue.SimpleQueue[Any]) -> None:
        while (task := tasks.get()) is not None:
            run, work = task
            try:
                run()
            except BaseException as error:
                self._over()
                work._fail(error)
            else:
                self._over()
                work._succeed()
            # Or the last task's tensors would live until the next one.
            del task, run, work

    def _over(self) -> None:
        with self._lock:
            self._pending -= 1

    def stop(self) -> None:
        """End the thread after what it has to do."""
        with self._lock:
            if self._tasks is not None:
                self._tasks.put(None)
                self._tasks = None
