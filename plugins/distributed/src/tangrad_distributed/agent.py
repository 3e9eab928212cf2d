"""Start the ranks of a program on this machine, watch them, and start them again.

The launcher holds the store, hands out the run's key, and gives each rank the environment that
torchrun gives it. When a rank fails, the others are ended, its traceback has reached the
launcher's output once, and the ranks are started again as often as was asked for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import tangrad
from tangrad_distributed.errors import DistStoreError
from tangrad_distributed.stores import frames
from tangrad_distributed.stores.store import PrefixStore, Store, follower_key
from tangrad_distributed.stores.tcp_store import TCPStore
from tangrad_distributed.watching import recorder

PATIENCE = 3.0
# How long a rank that failed because of another one waits for that one's end to be told.
BLAME = 5.0
_POLL = 0.02


@dataclass
class Settings:
    """Say what to start, and how often.

    `port` 0 has a free one chosen. `command` is what each rank runs.
    """

    command: Sequence[str]
    processes: int = 1
    nodes: int = 1
    node_rank: int = 0
    address: str = "localhost"
    port: int = 0
    restarts: int = 0
    run_id: str = ""
    role: str = "default"
    log_folder: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


def thread_setting(ranks: int) -> dict[str, str]:
    """Return the environment's part that says how many threads a rank takes.

    That is one, where a machine has several ranks and nobody has said otherwise.
    """
    said = os.environ.get("OMP_NUM_THREADS", "1" if ranks > 1 else None)
    return {} if said is None else {"OMP_NUM_THREADS": said}


def take_environment(environment: dict[str, str]) -> None:
    """Take over a rank's environment in a process that has begun already."""
    os.environ.update(environment)
    threads = environment.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > 0:
        tangrad.set_num_threads(int(threads))


class RankFailedError(RuntimeError):
    """Tell which rank failed, and how."""

    def __init__(self, rank: int, status: int, pid: int = 0) -> None:
        how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        super().__init__(f"rank {rank} ended {how}")
        self.rank, self.status, self.pid = rank, status, pid


class _Program(subprocess.Popen[bytes]):
    """Be a rank in a session of its own: signals reach what it started, too."""

    def send_signal(self, sig: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, sig)


class Agent:
    """Run a program in several ranks.

    Args:
        settings: what, and how many.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._children: dict[int, Any] = {}
        # Given a rank and its environment, it returns a process.
        self.start: Callable[[int, dict[str, str]], Any] = self._start_program
        self._stopping = 0
        self._starting = False
        self._relays: list[threading.Thread] = []
        self._writing = threading.Lock()

    def run(self) -> None:
        """Run until all ranks have ended well.

        Raises:
            RankFailedError: one failed more often than it may be started again.
            KeyboardInterrupt: Ctrl-C, or the launcher was asked to end; all ranks have ended.
        """
        s = self.settings
        os.environ.setdefault(frames.KEY_VARIABLE, frames.new_key() if s.nodes == 1 else "")
        store = self._open_store()
        if s.processes > 1 and not {"OMP_NUM_THREADS"} & {*os.environ, *s.environment}:
            print(
                f"tangrad: OMP_NUM_THREADS is 1 for each of the {s.processes} ranks, so that they "
                "do not overload the machine; set it to have another number",
                file=sys.stderr,
                flush=True,
            )
        # Only the main thread may be asked to end.
        main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if main else ()
        before = {number: signal.signal(number, self._stop) for number in numbers}
        try:
            for attempt in range(s.restarts + 1):
                try:
                    self._run_once(attempt, store)
                    self._meet(store, "done")
                    return
                except RankFailedError as error:
                    if attempt == s.restarts:
                        raise
                    print(f"tangrad: {error}; starting again", file=sys.stderr, flush=True)
        finally:
            self._end_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _open_store(self) -> Store:
        s = self.settings
        master = s.node_rank == 0
        store = TCPStore(s.address, s.port, None, master, timedelta(seconds=300))
        s.port = store.port
        return store

    def _meet(self, store: Store, what: str) -> None:
        """Wait for the launchers of the other machines; the one that holds the store goes last."""
        s = self.settings
        if s.nodes == 1:
            return
        mine = PrefixStore("launchers", store)
        mine.barrier(what, s.nodes)
        if s.node_rank:
            mine.set(f"{what}/left/{s.node_rank}", b"1")
            return
        with suppress(DistStoreError):  # one that died meanwhile needs no store
            others = [f"{what}/left/{node}" for node in range(1, s.nodes)]
            mine.wait(others, timedelta(seconds=PATIENCE))

    def _stop(self, number: int, frame: Any) -> None:
        # Once: what ends the ranks must not be interrupted, nor a start before it is noted.
        if not self._stopping:
            self._stopping = number
            if not self._starting:
                raise KeyboardInterrupt

    def _run_once(self, attempt: int, store: Store) -> None:
        s = self.settings
        for local in range(s.processes):
            self._starting = True
            try:
                self._children[local] = self._begin(local, attempt)
            finally:
                self._starting = False
            if self._stopping:
                raise KeyboardInterrupt
        failed: dict[int, Any] = {}
        deadline = 0.0
        while self._children:
            for local, child in list(self._children.items()):
                status = child.poll()
                if status is not None:
                    del self._children[local]
                    if status:
                        failed[local] = child
            if failed:
                deadline = deadline or time.monotonic() + BLAME
                first = self._first_to_fail(failed, attempt, store)
                if first is not None or time.monotonic() > deadline:
                    break
            time.sleep(_POLL)
        if failed:
            first = self._first_to_fail(failed, attempt, store)
            blamed = next(iter(failed)) if first is None else first
            child = failed[blamed]
            status = child.poll()
            self._have_survivors_write()
            self._children |= failed
            self._end_all()
            raise RankFailedError(s.node_rank * s.processes + blamed, status, child.pid)

    def _have_survivors_write(self) -> None:
        """Let ranks that are left write what they did last, where the environment asks for it.

        One that was killed writes nothing itself: the others tell where they wait for it.
        """
        folder = {**os.environ, **self.settings.environment}.get(recorder.WHERE)
        if not folder:
            return
        with suppress(OSError):
            recorder.ask(folder)
        deadline = time.monotonic() + recorder.PATIENCE
        while time.monotonic() < deadline:
            if all(child.poll() is not None for child in self._children.values()):
                break
            time.sleep(_POLL)

    def _first_to_fail(self, failed: dict[int, Any], attempt: int, store: Store) -> int | None:
        """Return a rank that did not fail because of another one; None if all did so far."""
        s = self.settings
        for local in failed:
            if not store.check([follower_key(s.node_rank * s.processes + local, attempt)]):
                return local
        return None

    def _begin(self, local: int, attempt: int) -> Any:
        s = self.settings
        rank = s.node_rank * s.processes + local
        # Ranks that share a machine would each take all of its processors.
        return self.start(
            rank,
            {
                **thread_setting(s.processes),
                **s.environment,
                "RANK": str(rank),
                "LOCAL_RANK": str(local),
                "GROUP_RANK": str(s.node_rank),
                "ROLE_RANK": str(rank),
                "ROLE_NAME": s.role,
                "WORLD_SIZE": str(s.nodes * s.processes),
                "LOCAL_WORLD_SIZE": str(s.processes),
                "GROUP_WORLD_SIZE": str(s.nodes),
                "ROLE_WORLD_SIZE": str(s.nodes * s.processes),
                "MASTER_ADDR": s.address,
                "MASTER_PORT": str(s.port),
                "TORCHELASTIC_RESTART_COUNT": str(attempt),
                "TORCHELASTIC_MAX_RESTARTS": str(s.restarts),
                "TORCHELASTIC_RUN_ID": s.run_id or uuid.uuid4().hex,
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            },
        )

    def _start_program(self, rank: int, environment: dict[str, str]) -> subprocess.Popen[Any]:
        s = self.settings
        whole = {**os.environ, **environment}
        if s.log_folder:
            os.makedirs(s.log_folder, exist_ok=True)
            attempt = environment["TORCHELASTIC_RESTART_COUNT"]
            with open(os.path.join(s.log_folder, f"rank-{rank}.{attempt}.log"), "wb") as log:
                return _Program(
                    s.command, env=whole, stdout=log, stderr=log, start_new_session=True
                )
        pipe = subprocess.PIPE
        child = _Program(s.command, env=whole, stdout=pipe, stderr=pipe, start_new_session=True)
        self._relays += [
            _relay(child.stdout, sys.stdout, self._writing),
            _relay(child.stderr, sys.stderr, self._writing),
        ]
        return child

    def _end_all(self) -> None:
        """End all ranks: ask first, insist after a few seconds."""
        for child in self._children.values():
            child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        for child in self._children.values():
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for child in self._children.values():
            child.kill()  # what it started may not have ended with it
        self._children.clear()
        self._finish_output()

    def _finish_output(self) -> None:
        """Wait until what ranks wrote has been shown; what they started may hold the pipe open."""
        deadline = time.monotonic() + PATIENCE
        for relay in self._relays:
            relay.join(max(0.0, deadline - time.monotonic()))
        self._relays.clear()


def _relay(source: Any, target: Any, writing: threading.Lock) -> threading.Thread:
    """Show what a rank writes, by whole lines: several ranks' tracebacks stay readable."""

    def run() -> None:
        for line in source:
            with writing:
                target.write(line.decode("utf-8", "replace"))
                target.flush()
        source.close()

    thread = threading.Thread(target=run, name="tangrad output", daemon=True)
    thread.start()
    return thread
