"""Ranks as Ray's actors: many machines, and ranks that are started again when one is lost.

    tangrad.distributed.ray.run(train, num_workers=8, resources={"CPU": 2}, max_restarts=3)

Each rank gets the environment that the launcher gives, so a function runs here as it does there. It
begins by loading the last checkpoint, if there is one: when a rank raises, or dies with its
process or its machine, all ranks are ended and started anew.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from tangrad_distributed.agent import take_environment
from tangrad_distributed.errors import DistBackendError
from tangrad_distributed.stores import frames
from tangrad_distributed.stores.store import follower_key
from tangrad_distributed.stores.tcp_store import TCPStore

# How long a rank that failed because of another one waits for that one's end to be told.
_BLAME = 2.0


class WorkerFailedError(RuntimeError):
    """Tell which rank failed, where it ran, and how; what it raised is the cause."""

    def __init__(self, rank: int, node: str, told: str) -> None:
        super().__init__(f"rank {rank} on {node} {told}")
        self.rank, self.node = rank, node


def _engine() -> Any:
    try:
        import ray
    except ImportError as error:
        raise DistBackendError(
            f"tangrad.distributed.ray needs Ray ({error}): pip install 'tangrad-distributed[ray]'"
        ) from None
    return ray


def _start_here(ray: Any) -> None:
    """Start a cluster on this machine.

    Raises:
        DistBackendError: Ray cannot; a machine that is busy misses its limit of half a minute.
    """
    try:
        ray.init(include_dashboard=False, configure_logging=False)
    except Exception as error:  # Ray raises a bare one
        raise DistBackendError(
            f"ray.run: Ray did not start on this machine: {error} Start a cluster by "
            "`ray start --head`, and call ray.init(address='auto') before"
        ) from error


class _Worker:
    """Be one rank, in a process of its own."""

    def place(self) -> tuple[str, str, int]:
        """Return this process's machine, by its number in Ray and its address, and its number."""
        ray = _engine()
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), os.getpid()

    def work(self, environment: dict[str, str], fn: Any, args: Any, kwargs: Any) -> Any:
        """Call the function as a rank."""
        take_environment(environment)
        return fn(*args, **kwargs)


def run(
    fn: Callable[..., Any],
    num_workers: int,
    resources: dict[str, float] | None = None,
    *,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    max_restarts: int = 0,
    placement: str = "PACK",
    environment: dict[str, str] | None = None,
    start_timeout: timedelta = timedelta(minutes=5),
) -> list[Any]:
    """Call a function in several ranks of a Ray cluster.

    The process that calls it holds the store, so ranks must be able to reach its machine. Without
    a cluster it starts one on this machine, and ends it.

    Args:
        fn: what each rank does; it calls `init_process_group` itself.
        num_workers: how many ranks.
        resources: what Ray reserves for each: `{"CPU": 1}` by default; "GPU" and names of the
            cluster's own.
        args: for the function.
        kwargs: for the function.
        max_restarts: how often all ranks are started again when one fails.
        placement: Ray's strategy: "PACK", "SPREAD", "STRICT_PACK" or "STRICT_SPREAD".
        environment: of the ranks.
        start_timeout: how long to wait for resources.

    Returns:
        What each rank returned.

    Raises:
        ValueError: `num_workers` is below 1.
        DistBackendError: Ray is not installed, does not start, or has not such resources.
        WorkerFailedError: a rank failed more often than it may be started again.
    """
    if num_workers < 1:
        raise ValueError(f"ray.run: num_workers must be at least 1, got {num_workers}")
    ray = _engine()
    own = not ray.is_initialized()
    if own:
        _start_here(ray)
    key = frames.new_key()
    before = os.environ.get(frames.KEY_VARIABLE)
    os.environ[frames.KEY_VARIABLE] = key
    wanted = {"CPU": 1.0, **(resources or {})}
    try:
        for attempt in range(max_restarts + 1):
            given = {
                **(environment or {}),
                frames.KEY_VARIABLE: key,
                "TORCHELASTIC_RESTART_COUNT": str(attempt),
                "TORCHELASTIC_MAX_RESTARTS": str(max_restarts),
            }
            run = _Run(ray, num_workers, wanted, placement, start_timeout)
            try:
                return run.call(attempt, given, (fn, tuple(args), dict(kwargs or {})))
            except WorkerFailedError as error:
                if attempt == max_restarts:
                    raise
                print(f"tangrad: {error}; starting again", file=sys.stderr, flush=True)
            finally:
                run.end()
    finally:
        if before is None:
            del os.environ[frames.KEY_VARIABLE]
        else:
            os.environ[frames.KEY_VARIABLE] = before
        if own:
            ray.shutdown()
    raise AssertionError("the last attempt returns or raises")


class _Run:
    """Hold the actors of one attempt."""

    def __init__(
        self,
        ray: Any,
        size: int,
        resources: dict[str, float],
        placement: str,
        timeout: timedelta,
    ) -> None:
        self._ray, self._size, self._resources = ray, size, resources
        self._placement, self._timeout = placement, timeout.total_seconds()
        self._group: Any = None
        self._store: TCPStore | None = None
        self._workers: list[Any] = []
        self._places: list[tuple[str, str, int]] = []

    def call(self, attempt: int, environment: dict[str, str], work: tuple[Any, Any, Any]) -> Any:
        """Start the ranks, and return what they return."""
        self._start()
        address = self._open_store()
        calls = [
            worker.work.remote({**environment, **address, **self._rank(rank)}, *work)
            for rank, worker in enumerate(self._workers)
        ]
        return self._wait(calls, attempt)

    def _start(self) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        ray, wanted = self._ray, dict(self._resources)
        self._group = ray.util.placement_group([wanted] * self._size, strategy=self._placement)
        if not self._group.wait(self._timeout):
            raise DistBackendError(
                f"ray.run: the cluster has no room for {self._size} workers with {wanted} each "
                f"within {self._timeout:g} s; it has {ray.cluster_resources()}"
            )
        options = {"num_cpus": wanted.pop("CPU"), "num_gpus": wanted.pop("GPU", 0)}
        make = ray.remote(_Worker)
        for rank in range(self._size):
            where = PlacementGroupSchedulingStrategy(self._group, rank)
            made = make.options(**options, resources=wanted, scheduling_strategy=where)
            self._workers.append(made.remote())
        try:
            self._places = ray.get([w.place.remote() for w in self._workers], timeout=self._timeout)
        except ray.exceptions.RayError as error:
            raise WorkerFailedError(-1, "the cluster", f"could not start: {error}") from error

    def _open_store(self) -> dict[str, str]:
        """Make the store here; return where ranks find it."""
        ray = self._ray
        here = ray.util.get_node_ip_address()
        alone = {address for _, address, _ in self._places} == {here}
        host = "localhost" if alone else here
        self._store = TCPStore(host, 0, None, True, timedelta(seconds=self._timeout))
        return {"MASTER_ADDR": host, "MASTER_PORT": str(self._store.port)}

    def _rank(self, rank: int) -> dict[str, str]:
        """Return the part of the environment that tells a rank which one it is."""
        nodes = [node for node, _, _ in self._places]
        order = list(dict.fromkeys(nodes))
        mine = nodes[rank]
        reserved = int(self._resources.get("CPU", 1))
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self._size),
            "LOCAL_RANK": str(nodes[:rank].count(mine)),
            "LOCAL_WORLD_SIZE": str(nodes.count(mine)),
            "GROUP_RANK": str(order.index(mine)),
            "GROUP_WORLD_SIZE": str(len(order)),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, reserved))),
            "TORCHELASTIC_RUN_ID": "ray",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }

    def _wait(self, calls: list[Any], attempt: int) -> list[Any]:
        ray, left = self._ray, list(calls)
        failed: dict[int, Exception] = {}
        deadline = 0.0
        while left:
            done, left = ray.wait(left, timeout=0.2)
            for call in done:
                try:
                    ray.get(call)
                except ray.exceptions.RayError as error:
                    failed[calls.index(call)] = error
            if failed:
                deadline = deadline or time.monotonic() + _BLAME
                first = self._first_to_fail(failed, attempt)
                if first is not None or not left or time.monotonic() > deadline:
                    raise self._told(
                        self._followed(next(iter(failed)), attempt) if first is None else first,
                        failed,
                    )
        return ray.get(calls)

    def _first_to_fail(self, failed: dict[int, Exception], attempt: int) -> int | None:
        """Return a rank that did not fail because of another one; None if all did so far."""
        assert self._store is not None
        return next((r for r in failed if not self._store.check([follower_key(r, attempt)])), None)

    def _followed(self, rank: int, attempt: int) -> int:
        """Return the rank because of which this one failed, whatever Ray has seen so far.

        Ray takes long to tell that a machine is gone; a rank beside it sees at once.
        """
        assert self._store is not None
        seen: set[int] = set()
        while rank not in seen and self._store.check([follower_key(rank, attempt)]):
            seen.add(rank)
            lost = int(self._store.get(follower_key(rank, attempt)))
            rank = lost if 0 <= lost < self._size else rank
        return rank

    def _told(self, rank: int, failed: dict[int, Exception]) -> WorkerFailedError:
        # One that Ray has not seen fail is told by what others raised.
        error = failed.get(rank, next(iter(failed.values())))
        _, address, process = self._places[rank]
        cause = getattr(error, "cause", None) if rank in failed else None
        if cause is not None:
            made = WorkerFailedError(rank, address, f"raised {type(cause).__name__}: {cause}")
        else:
            made = WorkerFailedError(rank, address, f"died (process {process})")
        made.__cause__ = error
        return made

    def end(self) -> None:
        """End the ranks and give back what was reserved."""
        for worker in self._workers:
            self._ray.kill(worker)
        self._wait_for_the_end()
        if self._group is not None:
            self._ray.util.remove_placement_group(self._group)
        if self._store is not None:
            self._store.close()

    def _wait_for_the_end(self) -> None:
        """Wait until the processes are gone: what they write must not meet their successors'."""
        for worker in self._workers:
            try:
                self._ray.get(worker.place.remote(), timeout=10)
            except self._ray.exceptions.RayError:
                continue
