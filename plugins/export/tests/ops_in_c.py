"""Every op of the table on its samples: as C, and as it is.

A script, too: `python ops_in_c.py [NAMES]` prints the table of docs/export.md.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tangrad
from tangrad.plugin import Sampler, all_ops, materialise

FLAGS = ("-std=c99", "-O0", "-Wall", "-Wextra", "-pedantic", "-Werror", "-shared", "-fPIC")
DTYPES = (
    tuple(os.environ["DT"].split())
    if "DT" in os.environ
    else ("float32", "int64", "bool", "float64", "int8", "int32", "uint8", "complex64")
)
BATCH = 40


def ops() -> dict[str, Any]:
    """Return the forward ops that have samples."""
    found = {}
    for name, op in sorted(all_ops().items()):
        definition = op.definition
        if definition.samples is None or name.endswith("_") or "backward" in name:
            continue
        if name.startswith(("empty", "new_empty")) or not _is_required(definition.module):
            continue
        found[name] = op
    return found


def _is_required(module: str) -> bool:
    return module.startswith("tangrad.ops.") and not module.startswith("tangrad.ops.optimizer")


def tensor_of(values: Any, dtype: str) -> Any:
    """Return a sample's tensor."""
    stored = values.view(np.float32) if dtype == "bfloat16" else values
    laid_out = np.ascontiguousarray(stored).reshape(stored.shape)
    return tangrad.tensor(laid_out, dtype=getattr(tangrad, dtype))


class Called(tangrad.nn.Module):
    """An op with the arguments that are no tensors.

    Args:
        op: the op.
        args, kwargs: of the call, whose tensors are given anew.
    """

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.op, self.args, self.kwargs = op, args, kwargs

    def forward(self, *tensors: Any) -> Any:
        """Call the op."""
        left = iter(tensors)

        def filled(value: Any) -> Any:
            if isinstance(value, tangrad.Tensor):
                return next(left)
            if isinstance(value, (list, tuple)):
                return type(value)([filled(v) for v in value])
            return value

        args = tuple(filled(a) for a in self.args)
        return self.op(*args, **{k: filled(v) for k, v in self.kwargs.items()})


def tensors_of(value: Any) -> list[Any]:
    """Return the tensors in nested arguments."""
    if isinstance(value, tangrad.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    return []


class Case:
    """One sample, exported.

    Args:
        label: what messages call it.
        module: the files.
        entry: the function.
    """

    def __init__(self, label: str, op: str, module: Any, entry: Any) -> None:
        self.label, self.op, self.module, self.entry = label, op, module, entry


def exported(op: Any, sample: Any, name: str, label: str) -> Any:
    """Return a `Case`, the reason why there is none, or None where eager refuses the sample."""
    from tangrad_export.exporting import module_of

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            args, kwargs = materialise(sample, tensor_of, lambda n: getattr(tangrad, n))
            tangrad.manual_seed(3)
            result = op(*args, **kwargs)
        except Exception:
            return None
        if not tensors_of(result) and not isinstance(result, tangrad.Tensor):
            return None
        model = Called(op, args, kwargs)
        given = tuple(t.clone() for t in tensors_of((args, kwargs)))
        tangrad.manual_seed(3)
        try:
            module, entries = module_of(
                model,
                given,
                name,
                dynamic_shapes=None,
                training=False,
                loss=None,
                targets=None,
                optimizer=None,
                weights="source",
                arena="static",
                simd="auto",
            )
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return Case(label, op.name, module, entries[0])


def compared(cases: list[Case], folder: Path) -> dict[str, str]:
    """Compile programs, run them and return {label: how it differs, or ""}."""
    files, found = [], {}
    for case in cases:
        try:
            (folder / f"{case.module.name}.c").write_text(case.module.source())
        except Exception as error:
            found[case.label] = f"{type(error).__name__}: {error}"
            continue
        (folder / f"{case.module.name}.h").write_text(case.module.header())
        files.append(case)
    library = folder / f"lib{cases[0].module.name}.so"
    said = _built(files, folder, library)
    if said:
        if len(files) == 1:
            return found | {files[0].label: f"compiler: {said[:600]}"}
        half = len(files) // 2
        return found | compared(files[:half], folder) | compared(files[half:], folder)
    return found | _run(files, library)


def _built(files: list[Case], folder: Path, library: Path) -> str:
    names = [f"{case.module.name}.c" for case in files]
    command = ["gcc", *FLAGS, *names, "-o", str(library), "-lm"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr


def _run(files: list[Case], library: Path) -> dict[str, str]:
    """Run in a child, which may die."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            loaded = ctypes.CDLL(str(library))
            for case in files:
                pipe.write(f"{case.label}\t")
                pipe.flush()
                pipe.write(difference(loaded, case).replace("\n", " ") + "\n")
                pipe.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = pipe.read().split("\n")
    os.waitpid(child, 0)
    found = {}
    for line in lines:
        if "\t" in line:
            label, _, told = line.partition("\t")
            found[label] = told
    last = lines[-1].partition("\t")[0]
    if last:
        found[last] = "crashed"
    for case in files:
        found.setdefault(case.label, "not run: a program before it crashed")
    return found


def difference(library: Any, case: Case) -> str:
    """Return how what a program computes differs from eager."""
    entry = case.entry
    given = [array_of(p.example) for p in entry.inputs]
    outs = [np.zeros_like(array_of(p.example)) for p in entry.outputs]
    run = getattr(library, f"{case.module.name}_run")
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*given, *outs)]
    if run(*pointers):
        return "refused"
    for got, p in zip(outs, entry.outputs, strict=True):
        wanted = array_of(p.example)
        if p.dtype in ("float16", "bfloat16"):
            got, wanted = got.astype(np.int64), wanted.astype(np.int64)
            if np.abs(got - wanted).max(initial=0) > 1:
                return f"{got.ravel()[:4]} is not {wanted.ravel()[:4]}"
            continue
        if wanted.dtype.kind in "fc":
            with np.errstate(all="ignore"):
                close = np.isclose(got, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
        else:
            close = got == wanted
        if not close.all():
            at = np.argwhere(~close)[0]
            return f"{p.name}{list(at)}: {got[tuple(at)]} is not {wanted[tuple(at)]}"
    return ""


def array_of(t: Any) -> Any:
    """Return a tensor as an array of its own."""
    t = t.detach().contiguous()
    if t.dtype.name == "bfloat16":
        t = t.view(tangrad.int16)
    made = np.array(t.numpy(), copy=True)
    return made.view(np.uint16) if made.dtype == np.float16 else made


def sweep(
    names: Sequence[str] | None = None, most: int = 6, every_dtype: bool = False
) -> dict[str, dict[str, str]]:
    """Return {op: {label of a sample: how it differs, "" where it does not}}.

    Args:
        names: of the ops; all by default.
        most: samples of an op and a dtype.
        every_dtype: whether an op is asked for all dtypes, not for the first that has samples.
    """
    found: dict[str, dict[str, str]] = {}
    waiting: list[Case] = []
    with tempfile.TemporaryDirectory() as folder:

        def flush() -> None:
            by = {case.label: case.op for case in waiting}
            for label, told in (compared(waiting, Path(folder)) if waiting else {}).items():
                found.setdefault(by[label], {})[label] = told
                if told and "-v" in sys.argv:
                    print(label, told[:300], file=sys.stderr, flush=True)
            waiting.clear()

        number = 0
        for name, op in ops().items():
            if names is not None and name not in names:
                continue
            for dtype in DTYPES:
                ran = False
                for k, sample in enumerate(list(op.definition.samples(Sampler(dtype)))[:most]):
                    number += 1
                    case = exported(op, sample, f"s{number}", f"{name} {dtype} {k}")
                    ran = ran or case is not None
                    if isinstance(case, Case):
                        case.op = name
                        waiting.append(case)
                    elif case is not None:
                        found.setdefault(name, {})[f"{name} {dtype} {k}"] = case
                    if len(waiting) == BATCH:
                        flush()
                if ran and not every_dtype:
                    break
        flush()
    return found


_REASONS = {
    "sizes or branches depend on values": ("looks at a value", "asks for a value"),
    "writes into its argument": ("writes into its input",),
    "no kernel in C": ("has no kernel in C",),
}


def reason_of(told: str) -> str:
    """Return the kind of a failure."""
    for reason, marks in _REASONS.items():
        if any(mark in told for mark in marks):
            return reason
    return "differs"


def table(found: dict[str, dict[str, str]]) -> list[str]:
    """Return the lines of the table of docs/export.md."""
    whole = [name for name, told in found.items() if not any(told.values())]
    lines = [
        f"{len(whole)} of {len(found)} forward ops ({100 * len(whole) / len(found):.0f} %) "
        "are written from all samples that were tried.",
        "",
        "| not written | ops |",
        "|---|---|",
    ]
    groups: dict[str, list[str]] = {}
    for name, told in found.items():
        wrong = [text for text in told.values() if text]
        if wrong:
            groups.setdefault(reason_of(wrong[0]), []).append(f"`{name}`")
    return lines + [f"| {reason} | {', '.join(groups[reason])} |" for reason in sorted(groups)]


def main() -> None:
    """Print the table, and what differs."""
    names = [a for a in sys.argv[1:] if not a.startswith("-")] or None
    found = sweep(names, int(os.environ.get("MOST", "2")), "--every-dtype" in sys.argv)
    for told in found.values():
        for label, text in told.items():
            if text and reason_of(text) == "differs":
                print(f"{label}: {text[:300]}")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
