"""Compile rendered programs with gcc and call them on arrays through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from tangrad.expr import c_prelude
from tangrad.expr.numpy_eval import dtype_of
from tangrad.expr.program import Program
from tangrad.expr.render import DIALECTS, Dialect

FLAGS = ["-std=c99", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-shared"]


def compile_programs(
    programs: dict[str, Program], folder: Path, dialect: Dialect = DIALECTS["c"]
) -> dict[str, object]:
    """Return, for each program, a function of arrays like that of ``Program.numpy``."""
    functions = "".join(
        program.render_c(f"f_{name}", dialect=dialect) for name, program in programs.items()
    )
    loops = "".join(_loop(f"f_{name}", program, dialect) for name, program in programs.items())
    source = folder / "programs.c"
    source.write_text(c_prelude(dialect, used=functions + loops) + functions + loops)
    library = folder / "programs.so"
    subprocess.run(["gcc", *FLAGS, str(source), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    return {
        name: _bind(getattr(loaded, f"loop_f_{name}"), program)
        for name, program in programs.items()
    }


def _types(program: Program) -> list[str]:
    stored = {step.value: step.storage for step in program.instructions if step.op == "load"}
    return [str(stored.get(name, program.compute)) for name in program.inputs]


def _loop(name: str, program: Program, language: Dialect) -> str:
    """Return a C function that applies ``name`` to every element; it returns the error flag."""
    ins = [f"const {language.type(t)} *in{k}" for k, t in enumerate(_types(program))]
    outs = [f"{language.type(t)} *out{k}" for k, t in enumerate(program.result_types)]
    args = ["i"] * program.indexed + [f"in{k}[i]" for k in range(len(ins))]
    args += [f"out{k} + i" for k in range(len(outs))] + ["&err"] * program.divides
    return (
        f"int loop_{name}(long n, {', '.join(ins + outs)}) {{\n"
        f"    int err = 0;\n    for (long i = 0; i < n; ++i) {name}({', '.join(args)});\n"
        "    return err;\n}\n"
    )


def _bind(function: object, program: Program) -> object:
    types = [dtype_of(name) for name in _types(program)]

    def call(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        ins = [np.ascontiguousarray(a, t) for a, t in zip(arrays, types, strict=True)]
        outs = [np.empty(ins[0].shape, dtype_of(name)) for name in program.result_types]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in ins + outs]
        if function(ctypes.c_int64(ins[0].size), *pointers):  # type: ignore[operator]
            raise ZeroDivisionError("integer division by zero")
        return tuple(outs)

    return call
