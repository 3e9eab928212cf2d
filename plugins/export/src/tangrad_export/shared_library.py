"""`tangrad.export.library`: a model as a shared library, with a module of Python beside it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tangrad_export.errors import ExportError
from tangrad_export.exporting import module_of
from tangrad_export.report import Report, report_of
from tangrad_export.text.names import identifier
from tangrad_export.writing import write_files

__all__ = ["library"]

_FLAGS = ("-std=c99", "-O3", "-march=native", "-shared", "-fPIC")

_MODULE = '''"""{title}: written by tangrad.export.library; needs NumPy and {file} beside it."""

import ctypes
import pathlib

import numpy as np

_here = pathlib.Path(__file__).resolve().parent
_library = ctypes.CDLL(str(_here / "{file}"))
_SIZES = {sizes!r}
_INPUTS = {inputs!r}
_OUTPUTS = {outputs!r}
_TARGETS = {targets!r}


def _given(arrays, declared, sizes):
    if len(arrays) != len(declared):
        raise TypeError(f"expected {{len(declared)}} arrays, got {{len(arrays)}}")
    made = []
    for array, (name, dtype, shape) in zip(arrays, declared):
        array = np.asarray(array, order="C")
        if array.dtype != dtype:
            raise TypeError(f"{{name}}: expected {{dtype}}, got {{array.dtype}}")
        if array.ndim != len(shape):
            raise ValueError(f"{{name}}: expected {{len(shape)}} dimensions, got {{array.ndim}}")
        for got, wanted in zip(array.shape, shape):
            if isinstance(wanted, str) and wanted in _SIZES:
                sizes.setdefault(wanted, got)
        made.append(array)
    for array, (name, dtype, shape) in zip(made, declared):
        wanted = tuple(_size(size, sizes) for size in shape)
        if array.shape != wanted:
            raise ValueError(f"{{name}}: expected shape {{wanted}}, got {{array.shape}}")
    return made


def _size(size, sizes):
    if isinstance(size, int):
        return size
    return int(eval(size, {{"__builtins__": {{}}}}, sizes))


def _pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def _numbers(sizes):
    return [ctypes.c_int(sizes[name]) for name in _SIZES]


def run(*arrays):
    """Return what the model computes: an array, or a tuple of several."""
    sizes = {{}}
    given = _given(arrays, _INPUTS, sizes)
    outs = [np.empty([_size(s, sizes) for s in shape], dtype) for _, dtype, shape in _OUTPUTS]
    if _library.{name}_run(*_numbers(sizes), *map(_pointer, given), *map(_pointer, outs)):
        raise ValueError("a size or an index is out of its bounds")
    return outs[0] if len(outs) == 1 else tuple(outs)
'''

_TRAINING = '''

def train_step(*arrays):
    """Take a step of the optimizer; return the loss before it."""
    sizes = {{}}
    given = _given(arrays, _INPUTS + _TARGETS, sizes)
    step = _library.{name}_train_step
    step.restype = ctypes.c_float
    return step(*_numbers(sizes), *map(_pointer, given))


def weights(name):
    """Return a weight by its name in state_dict, flat; what is written into it is used."""
    count = ctypes.c_size_t()
    find = _library.{name}_weights
    find.restype = ctypes.POINTER(ctypes.c_float)
    found = find(name.encode(), ctypes.byref(count))
    if not found:
        raise KeyError(name)
    return np.ctypeslib.as_array(found, (count.value,))
'''

_BOUND = """

_weights = np.fromfile(_here / "{name}_weights.bin", np.uint8)
if _library.{name}_bind(_pointer(_weights), ctypes.c_size_t(_weights.nbytes)):
    raise ImportError("{name}_weights.bin is another file than the library was made with")
"""


def library(
    model: Any,
    example_inputs: Any,
    out: str | os.PathLike[str] = "model",
    *,
    compiler: str | None = None,
    flags: tuple[str, ...] = _FLAGS,
    dynamic_shapes: Any = None,
    training: bool = False,
    loss: Any = None,
    targets: Any = None,
    optimizer: Any = None,
    weights: str = "auto",
    simd: str | None = "auto",
) -> Report:
    """Write a model as a shared library and a module of Python that needs NumPy alone.

    `DIR/NAME` as `out` gives `DIR/NAME.py`, which has `run` (and `train_step`, `weights`), and
    `DIR/libNAME.so`.

    Args:
        model, example_inputs, dynamic_shapes, training, loss, targets, optimizer, weights, simd: as
            of `tangrad.export.c`.
        out: the module; the library stands beside it.
        compiler: a C compiler; `$CC`, `cc`, `gcc` or `clang` by default.
        flags: of the compiler.

    Raises:
        ExportError: there is no compiler, or the model cannot be expressed in C.
        OSError: a file cannot be written.
    """
    path = Path(out)
    stem = identifier(path.name.split(".")[0], True)
    command = (
        compiler
        or os.environ.get("CC")
        or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    )
    if command is None:
        raise ExportError("export.library needs a C compiler: install gcc, or name one by CC")
    module, entries = module_of(
        model,
        example_inputs,
        stem,
        dynamic_shapes=dynamic_shapes,
        training=training,
        loss=loss,
        targets=targets,
        optimizer=optimizer,
        weights=weights,
        arena="static",
        simd=simd,
    )
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, f"{stem}.c"), Path(folder, f"lib{stem}.so")
        source.write_text(module.source(), "utf-8")
        Path(folder, f"{stem}.h").write_text(module.header(), "utf-8")
        line = [*command.split(), *flags, str(source), "-o", str(made), "-lm"]
        said = subprocess.run(line, capture_output=True, text=True, check=False)
        if said.returncode:
            raise ExportError(f"{command} refused the file:\n{said.stderr[-2000:]}")
        binary = made.read_bytes()
    files = {
        path.with_name(f"{stem}.py"): _python(module, entries).encode("utf-8"),
        path.with_name(f"lib{stem}.so"): binary,
    }
    if module.in_file:
        files[path.with_name(f"{stem}_weights.bin")] = module.file_bytes
    write_files(files)
    return report_of(module, entries)


def _in_python(size: Any) -> Any:
    """Return a size, or the Python of one that depends on others, from its C."""
    if isinstance(size, int):
        return size
    # A table of sizes, and sizes by cases, as `plan.sizes` writes them.
    text = re.sub(r"\(\(const int\[\]\)\{([^}]*)\}\)", r"(\1,)", size)
    text = re.sub(r"\(([^()?]*\?[^()]*)\)", lambda found: f"({_choice(found[1])})", text)
    return text.replace(" / ", " // ")


def _choice(cases: str) -> str:
    *others, last = cases.split(" : ")
    for case in reversed(others):
        when, _, value = case.partition(" ? ")
        last = f"{value} if {when.replace('&&', 'and')} else {last}"
    return last


def _python(module: Any, entries: list[Any]) -> str:
    run = entries[0]

    def declared(params: Any) -> list[tuple[str, str, tuple[Any, ...]]]:
        return [(p.name, p.dtype, tuple(map(_in_python, p.shape))) for p in params]

    last = entries[-1]
    targets = last.inputs[len(run.inputs) :] if last.kind == "train_step" else []
    given = {
        "title": module.title,
        "file": f"lib{module.name}.so",
        "name": module.name,
        "sizes": [size.name for size in run.sizes],
        "inputs": declared(run.inputs),
        "outputs": declared(run.outputs),
        "targets": declared(targets),
    }
    text = _MODULE.format(**given)
    if last.kind == "train_step":
        text += _TRAINING.format(**given)
    if module.in_file:
        text += _BOUND.format(**given)
    return text
