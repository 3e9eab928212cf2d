"""The worker processes of a loader, seen from the loader."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from typing import Any

from tangrad.plugin import find_op
from tangrad.utils.data import transport
from tangrad.utils.data.worker import LOOK, Task, run

__all__ = ["Workers"]

# Data sets read samples by these, and batches are joined by them.
_USUAL_OPS = ("index", "index_select", "stack")


class Workers:
    """Start processes, send them orders and receive their answers.

    Args:
        count: how many.
        context: of multiprocessing; how they are started.
        task: makes what a worker is started with, from its number.

    Raises:
        OSError: a process cannot be started.
        Exception: what a spawned process needs cannot be pickled.
    """

    def __init__(self, count: int, context: Any, task: Callable[[int], Task]) -> None:
        self.owner = os.getpid()
        self.processes: list[Any] = []
        self.channels: dict[int, socket.socket] = {}
        self.inbox: deque[tuple[int, Any]] = deque()
        if context.get_start_method() == "fork":
            # Each process would load them again by itself.
            for name in _USUAL_OPS:
                find_op(name)
        try:
            for number in range(count):
                self._start(number, context, task(number))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.processes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.processes)

    def _start(self, number: int, context: Any, task: Task) -> None:
        ours, theirs = socket.socketpair()
        self.channels[number] = ours
        forks = context.get_start_method() == "fork"
        inherited = list(self.channels.values()) if forks else []
        process = context.Process(target=run, args=(theirs, inherited, task), daemon=True)
        try:
            process.start()
        finally:
            theirs.close()
        self.processes.append(process)

    def send(self, number: int, order: Any) -> None:
        """Send an order to a worker.

        Raises:
            RuntimeError: it has died.
        """
        message = transport.Message(order)
        channel = self.channels[number]
        if message.size:  # tensors as keys
            message.send(channel)
            return
        # A worker that is sending a large answer does not read: that is taken first, lest both
        # wait for each other.
        channel.setblocking(False)
        rest = memoryview(message.framed())
        try:
            while rest:
                try:
                    rest = rest[channel.send(rest) :]
                except BlockingIOError:
                    channel.setblocking(True)
                    if wait([channel], 0.001):
                        self._take(number)
                    channel.setblocking(False)
        except ConnectionError as error:
            raise self._death(number) from error
        finally:
            channel.setblocking(True)

    def receive(self, timeout: float = 0) -> tuple[int, Any]:
        """Return the next answer of any worker, and the worker's number.

        Args:
            timeout: seconds to wait at most; 0: without end.

        Raises:
            RuntimeError: a worker has died, or it took too long.
        """
        end = time.monotonic() + timeout if timeout else None
        while not self.inbox:
            left = LOOK if end is None else min(LOOK, end - time.monotonic())
            if left <= 0:
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
            by_channel = {channel: number for number, channel in self.channels.items()}
            ready = wait(list(by_channel), left)
            for channel in ready:
                self._take(by_channel[channel])  # type: ignore[index]
            if not ready:
                self._look()
        return self.inbox.popleft()

    def _take(self, number: int) -> None:
        try:
            self.inbox.append((number, transport.receive(self.channels[number])))
        except EOFError:
            if not self.inbox:
                raise self._death(number) from None

    def _look(self) -> None:
        for number in self.channels:
            if not self.processes[number].is_alive():
                raise self._death(number)

    def _death(self, number: int) -> RuntimeError:
        process = self.processes[number]
        process.join(LOOK)
        code = process.exitcode
        if code is None:
            how = "it closed its channel"
        elif code < 0:
            how = f"killed by signal: {signal.strsignal(-code) or -code}"
        else:
            how = f"exit code {code}"
        return RuntimeError(
            f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly ({how}). It may have "
            "run out of memory, or its data set may have ended the process; num_workers=0 shows "
            "errors in the calling process"
        )

    def finish(self, number: int) -> None:
        """Let a worker end, whose answers are no longer wanted."""
        _hang_up(self.channels.pop(number))

    def close(self) -> None:
        """End all workers. Those that do not end by themselves in time are killed."""
        mine = os.getpid() == self.owner  # a forked process has copies
        for channel in self.channels.values():
            if mine:
                _hang_up(channel)
            else:
                channel.close()
        self.channels.clear()
        self.inbox.clear()
        if not mine:
            return
        end = time.monotonic() + LOOK
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.terminate()
                process.join(1)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self.processes.clear()


def _hang_up(channel: socket.socket) -> None:
    # Closing does not suffice where a process that was forked meanwhile has the channel as well.
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)
    channel.close()
