"""Start a function in several ranks of this machine, and start them again when one fails."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tangrad_distributed.agent import Agent, RankFailedError, Settings, take_environment
from tangrad_distributed.run import address, child_failed


@dataclass
class LaunchConfig:
    """Say how many ranks there are and where they meet; see the flags of the launcher.

    What is not named here is taken for PyTorch's sake and changes nothing.
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: Any = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "static"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None


class _Called:
    """Be a process that calls a function, with the methods of one that runs a program."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int | None:
        import subprocess

        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("rank", timeout or 0.0)
        return self.poll()


def _call(environment: dict[str, str], function: Any, args: Sequence[Any], path: str) -> None:
    take_environment(environment)
    result = function(*args)
    with open(path, "wb") as file:
        pickle.dump(result, file)


class elastic_launch:
    """Call a function in several ranks.

    Args:
        config: how many.
        entrypoint: the function, which other processes can import; or a program's path.
        health_check_server: changes nothing.
    """

    def __init__(
        self,
        config: LaunchConfig,
        entrypoint: Callable[..., Any] | str | None,
        health_check_server: Any = None,
    ) -> None:
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        """Run the ranks; return what each rank of this machine returned.

        Raises:
            ChildFailedError: one failed more often than it may be started again.
        """
        return launch_agent(self._config, self._entrypoint, list(args))


def launch_agent(
    config: LaunchConfig,
    entrypoint: Callable[..., Any] | str | None,
    args: list[Any],
    health_check_server: Any = None,
) -> dict[int, Any]:
    """Call a function, or run a program, in several ranks; see `elastic_launch`.

    Raises:
        ChildFailedError: a rank failed more often than it may be started again.
        ValueError: `entrypoint` is missing.
    """
    if entrypoint is None:
        raise ValueError("launch_agent: entrypoint is missing: give a function or a program")
    host, port = address(config.rdzv_endpoint, "localhost", 0)
    node = int(config.rdzv_configs.get("rank", 0))
    settings = Settings(
        command=[str(entrypoint), *map(str, args)],
        processes=config.nproc_per_node,
        nodes=config.min_nodes,
        node_rank=max(0, node),
        address=host,
        port=port,
        restarts=config.max_restarts,
        run_id=config.run_id,
        role=config.role,
    )
    with tempfile.TemporaryDirectory(prefix="tangrad-") as folder:
        agent = Agent(settings)
        if callable(entrypoint):
            processes: Any = multiprocessing.get_context(config.start_method)

            def start(rank: int, environment: dict[str, str]) -> Any:
                path = str(Path(folder, f"{rank}"))
                given = (environment, entrypoint, args, path)
                process = processes.Process(target=_call, args=given, name=f"rank {rank}")
                process.start()
                return _Called(process)

            agent.start = start
        try:
            agent.run()
        except RankFailedError as error:
            raise child_failed(_name(entrypoint), config.nproc_per_node, error) from None
        return {
            int(path.name): pickle.loads(path.read_bytes())
            for path in sorted(Path(folder).iterdir(), key=lambda path: int(path.name))
        }


def _name(entrypoint: Any) -> str:
    return getattr(entrypoint, "__qualname__", str(entrypoint))
