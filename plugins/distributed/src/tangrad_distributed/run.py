"""`python -m tangrad.distributed.run`: start a program in several ranks, by torchrun's flags."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tangrad_distributed.agent import Agent, RankFailedError, Settings
from tangrad_distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    ProcessFailure,
    record,
)
from tangrad_distributed.errors import DistNetworkError

# Flags of torchrun that are taken and have nothing to change.
NO_EFFECT = (
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "local-addr",
    "logs-specs",
    "numa-binding",
    "signals-to-handle",
    "shutdown-timeout",
)


def get_args_parser() -> argparse.ArgumentParser:
    """Return what reads the command line, by PyTorch's name."""
    return parser()


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = argparse.ArgumentParser(
        prog="python -m tangrad.distributed.run",
        description="Run a program in several ranks.",
        allow_abbrev=False,
    )
    both = lambda name: (f"--{name}", f"--{name.replace('-', '_')}")  # noqa: E731
    made.add_argument(*both("nproc-per-node"), default="1", help="ranks on this machine, or auto")
    made.add_argument("--nnodes", default="1", help="machines; MIN:MAX takes MIN")
    made.add_argument(*both("node-rank"), type=int, default=0, help="which machine this is")
    made.add_argument(*both("master-addr"), default="localhost", help="where machine 0 is")
    made.add_argument(*both("master-port"), type=int, default=0, help="its port; 0: a free one")
    made.add_argument("--standalone", action="store_true", help="one machine, a free port")
    made.add_argument(*both("max-restarts"), type=int, default=0, help="how often to start again")
    made.add_argument(*both("rdzv-backend"), default="static", help="static or c10d: alike here")
    made.add_argument(*both("rdzv-endpoint"), default="", help="HOST:PORT of machine 0")
    made.add_argument(*both("rdzv-id"), default="", help="name of the run")
    made.add_argument(*both("rdzv-conf"), default="", help="changes nothing")
    for name in NO_EFFECT:
        made.add_argument(*both(name), default=None, help="changes nothing")
    made.add_argument("-r", "--redirects", default="0", help="changes nothing; see --log-dir")
    made.add_argument("-t", "--tee", default="0", help="changes nothing; see --log-dir")
    made.add_argument("--role", default="default", help="ROLE_NAME of the ranks")
    made.add_argument(*both("log-dir"), default=None, help="write each rank's output there")
    made.add_argument("-m", "--module", action="store_true", help="the program is a module")
    made.add_argument(*both("no-python"), action="store_true", help="the program runs by itself")
    made.add_argument(
        *both("as-torch"), action="store_true", help="`import torch` gives the program tangrad"
    )
    made.add_argument("program", help="what to run")
    made.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return made


def processes(text: str) -> int:
    """Return how many ranks `--nproc-per-node` asks for.

    Raises:
        ValueError: it is no positive number, nor a known word.
    """
    if text in ("auto", "cpu"):
        return len(os.sched_getaffinity(0))
    if text == "gpu":
        raise ValueError("--nproc-per-node gpu: ranks here work on the host; give a number")
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"--nproc-per-node must be a positive number or auto, got {text!r}")
    return int(text)


def settings(options: argparse.Namespace) -> Settings:
    """Return what the command line asks for.

    Raises:
        ValueError: numbers do not fit together.
    """
    nodes = options.nnodes.partition(":")[0]
    if not nodes.isdigit() or int(nodes) < 1:
        raise ValueError(f"--nnodes must be a positive number, got {options.nnodes!r}")
    host, port = options.master_addr, options.master_port
    if options.rdzv_endpoint and not options.standalone:
        host, port = address(options.rdzv_endpoint, host, port or 29400)
    count = 1 if options.standalone else int(nodes)
    if not 0 <= options.node_rank < count:
        raise ValueError(f"--node-rank must be from 0 to {count - 1}, got {options.node_rank}")
    if count > 1 and port == 0:
        raise ValueError("several machines need --master-port or --rdzv-endpoint HOST:PORT")
    if options.max_restarts < 0:
        raise ValueError(f"--max-restarts must not be negative, got {options.max_restarts}")
    return Settings(
        command=_command(options),
        processes=processes(options.nproc_per_node),
        nodes=count,
        node_rank=options.node_rank,
        address=host,
        port=port,
        restarts=options.max_restarts,
        run_id=options.rdzv_id,
        role=options.role,
        log_folder=options.log_dir,
    )


def address(endpoint: str, host: str, port: int) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; what is missing there is as given.

    Raises:
        ValueError: the port is no number.
    """
    found, _, given = endpoint.partition(":")
    if given and not given.isdigit():
        raise ValueError(f"an endpoint is HOST:PORT, got {endpoint!r}")
    return found or host, int(given or port)


def _command(options: argparse.Namespace) -> list[str]:
    program = [options.program, *options.arguments]
    if options.no_python:
        return program
    how = ["-m"] if options.module else []
    if options.as_torch or _stands_in():
        how = ["-m", "tangrad", "run", *how]
    return [sys.executable, "-u", *how, *program]


def _stands_in() -> bool:
    """Tell whether `import torch` is tangrad in this process: then it is so for the ranks, too."""
    return sys.modules.get("torch") is sys.modules["tangrad"]


@record
def main(args: Sequence[str] | None = None) -> None:
    """Start what a command line asks for, and return when all ranks have ended well.

    A program that calls this sees a failure as an exception; see `command` for what ends a process.

    Raises:
        ChildFailedError: a rank failed more often than it may be started again.
        ValueError: flags do not fit together.
    """
    run(parser().parse_args(args))


def run(args: argparse.Namespace) -> None:
    """Start what flags ask for; see `main`.

    Raises:
        ChildFailedError: a rank failed more often than it may be started again.
        ValueError: flags do not fit together.
    """
    asked = settings(args)
    try:
        Agent(asked).run()
    except RankFailedError as error:
        raise child_failed(args.program, asked.processes, error) from error


def child_failed(name: str, processes: int, error: RankFailedError) -> ChildFailedError:
    """Return PyTorch's exception for a rank that failed.

    Args:
        name: of what the ranks ran.
        processes: ranks of each machine.
        error: which rank it was.
    """
    failure = ProcessFailure(error.rank % processes, error.pid, error.status)
    return ChildFailedError(name, {error.rank: failure})


def command(args: Sequence[str] | None = None) -> int:
    """Start what a command line asks for, and return the exit status.

    It is that of the first rank that failed. The rank has shown its traceback; there is none of
    the launcher's.
    """
    try:
        main(args)
    except ChildFailedError as error:
        print(f"tangrad: {error.__cause__}; the others were ended", file=sys.stderr, flush=True)
        status = error.get_first_failure()[1].exitcode
        return 128 - status if status < 0 else status
    except ValueError as error:
        print(f"{parser().prog}: {error}", file=sys.stderr, flush=True)
        return 2
    except DistNetworkError as error:
        print(f"tangrad: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(command())
