"""Random programs of the script language: `python random_scripts.py COUNT [FIRST SEED]`.

Each is written to a file, and run as Python, scripted, and saved and loaded; where PyTorch is
there, it runs the same text as a script, and reads our archive.
"""

from __future__ import annotations

import copy
import importlib.util
import io
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from script_writer import Writer

import tangrad
from tangrad_jit.scripting.program.emit import program_of


def load(side: Any, path: Path, name: str) -> Any:
    """Return the function of a program for a side."""
    sys.modules["scripted_side"] = side
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.f


def arguments(side: Any) -> list[tuple[Any, ...]]:
    """Return the arguments of the calls."""
    return [
        (3, 0.5, "ab", [1, 2, 3], {"a": 1}, side.tensor([1.0, -2.0]), None),
        (-7, -1.5, "", [9, 8], {"b": 2, "q": 0}, side.tensor([0.0, 4.0]), 5),
    ]


def plain(value: Any) -> Any:
    """Return a value without what tells the sides apart; NaN equals itself."""
    if hasattr(value, "detach"):
        return "tensor", plain(value.detach().tolist())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    # PyTorch pools constants that are equal, and so takes -0.0 for 0.0 where both stand.
    if isinstance(value, str):
        return repr(re.sub(r"-(0\.0*)(?!\d)", r"\1", value))
    return repr(abs(value) if isinstance(value, float) and value == 0 else value)


def undivided(wanted: Any, found: Any) -> Any:
    """Return what PyTorch gives with the integers as floats that it has not divided by 1.

    It leaves a division by a constant 1 out, also of an integer, which stays one.
    """
    if isinstance(wanted, str) and isinstance(found, str):
        return found if wanted + ".0" == found else wanted
    is_same = type(wanted) is type(found)
    if is_same and isinstance(wanted, (list, tuple)) and len(wanted) == len(found):
        return type(wanted)(map(undivided, wanted, found))
    if isinstance(wanted, dict) and isinstance(found, dict) and wanted.keys() == found.keys():
        return {key: undivided(wanted[key], found[key]) for key in wanted}
    return wanted


def outcomes(function: Any, side: Any) -> list[Any]:
    """Return what the calls give; of errors, that there is one, or that it is PyTorch's own."""
    found = []
    for args in arguments(side):
        try:
            found.append(plain(function(*copy.deepcopy(args))))
        except Exception as error:
            found.append("broken" if "INTERNAL ASSERT" in str(error) else "error")
    return found


def check(
    seed: int, folder: Path, oracle: Any = None, begun: Callable[[], Any] = lambda: None
) -> str:
    """Return what differs in a program, or "".

    Args:
        seed: of the program.
        folder: for its file.
        oracle: PyTorch, or None.
        begun: is called before PyTorch runs the program.
    """
    path = folder / f"script_{seed}.py"
    path.write_text(Writer(seed).program())
    ours = load(tangrad, path, f"random_script_{seed}")
    try:
        scripted = tangrad.jit.script(ours)
    except RuntimeError as error:
        return _refused_by_both(seed, path, oracle, error)
    found = outcomes(scripted, tangrad)
    file = io.BytesIO()
    scripted.save(file)
    again = outcomes(tangrad.jit.load(file), tangrad)
    if again != found:
        return f"{seed}: saved and loaded: {again} != {found}"
    # The machine runs what has loops; the code of Python that runs the rest says the same.
    code = outcomes(program_of(scripted.script_unit), tangrad)
    if code != found:
        return f"{seed}: Python code: {code} != {found}"
    if oracle is None:
        return ""
    begun()
    wanted = outcomes(oracle.jit.script(load(oracle, path, f"random_oracle_{seed}")), oracle)
    # PyTorch leaves out what nobody uses, with the errors that it would raise.
    wanted = [f if a == "broken" else a for a, f in zip(wanted, found, strict=True)]
    known = [a if f == "error" else f for a, f in zip(wanted, found, strict=True)]
    if wanted != known and undivided(wanted, known) != known:
        return f"{seed}: PyTorch: {wanted} != {found}"
    theirs = outcomes(oracle.jit.load(io.BytesIO(file.getvalue())), oracle)
    theirs = [f if a == "broken" else a for a, f in zip(theirs, wanted, strict=True)]
    return "" if theirs == wanted else f"{seed}: PyTorch, from our archive: {theirs} != {found}"


def _refused_by_both(seed: int, path: Path, oracle: Any, error: Exception) -> str:
    """Return what differs where a program is refused: that PyTorch takes it."""
    if oracle is not None:
        try:
            oracle.jit.script(load(oracle, path, f"random_oracle_{seed}"))
        except RuntimeError:
            return ""
    return f"{seed}: refused: {error}"


def check_apart(seed: int, folder: Path, oracle: Any) -> str:
    """Return what differs in a program, which runs in a process of its own.

    PyTorch divides the smallest integer by -1, which ends its process: no difference of ours. Nor
    is a program that runs for a minute, as those do whose lists grow in loops over them.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            said = check(seed, folder, oracle, lambda: os.write(write, b"*"))
        except Exception as error:
            said = f"{seed}: {type(error).__name__}: {error}"
        os.write(write, said.encode()[:1500])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    if status == signal.SIGALRM:
        return ""
    if status and said != "*":
        return f"{seed}: the process ended with {status}"
    return said.removeprefix("*")


def main() -> None:
    import torch

    count = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            said = check_apart(seed, Path(folder), torch)
            if seed > first and not (seed - first) % 100:
                print(f"# {seed - first} programs", file=sys.stderr, flush=True)
            if said:
                failed += 1
                print(said, flush=True)
    print(f"{count} programs, {failed} differ")


if __name__ == "__main__":
    main()
