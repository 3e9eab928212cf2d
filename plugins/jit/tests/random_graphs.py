"""Random programs, compiled and as they are: `python random_graphs.py COUNT [FIRST]`.

The programs are those of `tests/random_programs.py`. Each becomes one function, which is called
three times; what the variables hold at the end must be the same.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from typing import Any

import random_programs

import tangrad

LEAF = re.compile(r"^(x\d+) = T\.tensor\(")


def function_of(lines: list[str]) -> tuple[Any, Any]:
    """Return (a function that makes a program's leaves, one that runs the rest on them)."""
    first = 0
    while first < len(lines) and LEAF.match(lines[first]):
        first += 1
    leaves = [LEAF.match(line)[1] for line in lines[:first]]  # type: ignore[index]
    made = sorted(set(re.findall(r"^(x\d+) = ", "\n".join(lines), re.MULTILINE)))
    names = dict(random_programs.fresh_state(tangrad))
    returned = "{" + ", ".join(f"'{name}': {name}" for name in made) + "}"
    # A line may hold two statements.
    inside = [line.replace("\n", "\n    ") for line in lines[first:]]
    body = "\n    ".join([*inside, f"return {returned}"])
    begin = "\n    ".join([*lines[:first], f"return ({', '.join(leaves)},)"])
    exec(f"def leaves():\n    {begin}\ndef program({', '.join(leaves)}):\n    {body}", names)
    return names["leaves"], names["program"]


def outcome(leaves: Any, function: Any) -> Any:
    """Return what a call gives: values, what can be differentiated and how; or its error's kind."""
    tangrad.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given = leaves()
            made = function(*given)
            tensors = {k: t for k, t in made.items() if isinstance(t, tangrad.Tensor)}
            told = [(k, shown(t)) for k, t in tensors.items()]
            outs = [t for t in tensors.values() if t.requires_grad and t.is_floating_point()]
            try:
                sum((t * 0.5).sum() for t in outs).backward() if outs else None
            except RuntimeError:
                told.append(("backward", "refused"))
                return told
            # Where derivatives of several results meet, a graph may add them in another order.
            told += [("grad", shown(t.grad, digits=10)) for t in given if t.is_leaf]
        except Exception as error:  # any error at all is an outcome
            return type(error).__name__
    return told


def shown(t: Any, digits: int | None = None) -> Any:
    """Return what two results must have in common: all bits, or so many digits."""
    if t is None:
        return None
    values = t.detach().reshape(-1).tolist()
    if digits is not None:
        values = [f"{value:.{digits}g}" for value in values]
    return str(t.dtype), tuple(t.shape), repr(values)


def compared(seed: int, fullgraph: bool) -> str:
    """Return "same", "refused", "error" or the difference of a seed's program."""
    program = random_programs.write(seed, tangrad)
    leaves, function = function_of(program.lines)
    wanted = outcome(leaves, function)
    if isinstance(wanted, str):
        return "error"
    compiled = tangrad.compile(function, fullgraph=fullgraph, options={"measure": False})
    found = [outcome(leaves, compiled) for _ in range(3)]
    if fullgraph and "CaptureError" in found:
        return "refused"
    if any(one != wanted for one in found):
        return f"seed {seed}: {found} is not {wanted}\n{program}"
    return "same" if compiled.compiled.executables else "as it is"


def queued_compared(seed: int) -> str:
    """Return "same", "error" or the difference of a seed's program whose work is queued."""
    from tangrad_jit.compiling.queued import QueuedCalls

    program = random_programs.write(seed, tangrad)
    leaves, function = function_of(program.lines)
    wanted = outcome(leaves, function)
    calls = QueuedCalls(function, False, [])
    for _ in range(4):
        found = outcome(leaves, lambda *given: calls.run(given, {}))
        if found != wanted:
            return f"seed {seed}: {found} is not {wanted}\n{program}"
    return "error" if isinstance(wanted, str) else "same"


def main(count: int, first: int = 0) -> int:
    """Compare programs and print how many of which outcome there were."""
    told: Counter[str] = Counter()
    for seed in range(first, first + count):
        for fullgraph in (True, False):
            said = compared(seed, fullgraph)
            if said not in ("same", "refused", "error", "as it is"):
                print(said[:3000])
                said = "different"
            told[f"{'fullgraph' if fullgraph else 'default'}: {said}"] += 1
        said = queued_compared(seed)
        if said not in ("same", "error"):
            print(said[:3000])
            said = "different"
        told[f"queued: {said}"] += 1
    print(dict(sorted(told.items())))
    return int(any("different" in key for key in told))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
