"""Run a program on the emulator."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tangrad_cuda_emulator.settings import environment


def main(arguments: Sequence[str] | None = None) -> None:
    """Become the program, with the stand-in in the place of the driver.

    Args:
        arguments: those of the command line; the process's own by default.
    """
    parser = _parser()
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser.parse_args(given)
    if "-m" in given and options.module is not None:
        # What comes after `--` is the module's, too.
        options.module = given[given.index("-m") + 1 :]
    command = _command(options)
    if not command:
        parser.error("there is no program to run")
    try:
        variables = environment(
            devices=options.devices,
            memory=options.memory,
            engine=options.engine,
            races=options.races,
            fail=options.fail,
            sources=options.sources,
            capability=options.capability,
            eager=options.eager,
            nvcc=True,
        )
    except ValueError as error:
        parser.error(str(error))
    variables["TANGRAD_CUDA_EMULATOR_PYTHON"] = sys.executable
    os.environ.update(variables)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")


def _command(options: argparse.Namespace) -> list[str]:
    if options.module is not None:
        return [sys.executable, "-m", *options.module]
    program: list[str] = options.program
    is_python = bool(program) and program[0].endswith(".py")
    return [sys.executable, *program] if is_python else program


def _bytes(text: str) -> int:
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    number = text if unit is None else text[:-1]
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes, such as 512M")
    return int(number) << (unit or 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tangrad_cuda_emulator", description="Run a program on a GPU that is none."
    )
    add = parser.add_argument
    add("--devices", type=int, default=1, metavar="N", help="how many GPUs there are")
    add("--memory", type=_bytes, metavar="BYTES", help="memory of each, such as 512M")
    add("--engine", choices=["host", "ptx"], default="host", help="what runs kernels (%(default)s)")
    add("--races", action="store_true", help="find races between threads of a block; needs ptx")
    add("--fail", default="", metavar="NAME:N", help="calls that fail: cuMemAlloc:3,cuInit:1+:100")
    add("--sources", metavar="DIR", help="sources of images, by the images' SHA-256")
    add("--capability", metavar="X.Y", help="compute capability (9.0)")
    add("--eager", action="store_true", help="do work when it is asked for")
    add("-m", dest="module", nargs=argparse.REMAINDER, help="a module of Python's, its arguments")
    add("program", nargs=argparse.REMAINDER, help="or a program or a .py file, its arguments")
    return parser


if __name__ == "__main__":
    main()
