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
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tangrad_distributed import frames
from tangrad_distributed.store import PrefixStore, Store
from tangrad_distributed.tcp_store import TCPStore

PATIENCE = 3.0
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


class RankFailedError(RuntimeError):
    """Tell which rank failed, and how."""

    def __init__(self, rank: int, status: int) -> None:
        how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        super().__init__(f"rank {rank} ended {how}")
        self.rank, self.status = rank, status


class Launcher:
    """Run a program in several ranks.

    Args:
        settings: what, and how many.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._children: dict[int, subprocess.Popen[Any]] = {}
        self._stopping = 0
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
        before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            for attempt in range(s.restarts + 1):
                try:
                    self._run_once(attempt)
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
        """Wait for the launchers of the other machines: the first one holds the store."""
        if self.settings.nodes > 1:
            PrefixStore("launchers", store).barrier(what, self.settings.nodes)

    def _stop(self, number: int, frame: Any) -> None:
        self._stopping = number
        raise KeyboardInterrupt

    def _run_once(self, attempt: int) -> None:
        s = self.settings
        for local in range(s.processes):
            self._children[local] = self._start(local, attempt)
        while self._children:
            for local, child in list(self._children.items()):
                status = child.poll()
                if status is None:
                    continue
                del self._children[local]
                if status:
                    self._end_all()
                    raise RankFailedError(s.node_rank * s.processes + local, status)
            time.sleep(_POLL)

    def _start(self, local: int, attempt: int) -> subprocess.Popen[Any]:
        s = self.settings
        rank = s.node_rank * s.processes + local
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
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
        }
        if s.log_folder:
            os.makedirs(s.log_folder, exist_ok=True)
            with open(os.path.join(s.log_folder, f"rank-{rank}.{attempt}.log"), "wb") as log:
                return subprocess.Popen(s.command, env=environment, stdout=log, stderr=log)
        pipe = subprocess.PIPE
        child = subprocess.Popen(s.command, env=environment, stdout=pipe, stderr=pipe)
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
        self._children.clear()
        self._finish_output()

    def _finish_output(self) -> None:
        """Wait until what ranks wrote has been shown; what they started may hold the pipe open."""
        for relay in self._relays:
            relay.join(PATIENCE)
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
