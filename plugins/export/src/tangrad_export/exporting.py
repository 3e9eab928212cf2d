"""`tangrad.export.c`: a model as one C file and its header."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tangrad
from tangrad.export import ExportedProgram
from tangrad.nn import Module as Model
from tangrad_export.entries import program_of, run_entry
from tangrad_export.errors import ExportError
from tangrad_export.plan.entry import Entry
from tangrad_export.program.layouts import with_numbers
from tangrad_export.program.training import train_entry
from tangrad_export.report import Report, report_of
from tangrad_export.text.file import Module
from tangrad_export.text.names import identifier
from tangrad_export.writing import write_files

__all__ = ["c", "module_of"]

_IN_FILE = 4 << 20


def c(
    model: Any,
    example_inputs: Any,
    out: str | os.PathLike[str] = "model.c",
    *,
    dynamic_shapes: Any = None,
    training: bool = False,
    loss: Callable[..., Any] | None = None,
    targets: Any = None,
    optimizer: Any = None,
    weights: str = "auto",
    arena: str = "static",
    simd: str | None = "auto",
) -> Report:
    """Write a model as one C99 file and its header, which need nothing but libm.

    What `NAME_run` computes is the model in evaluation mode; a step of training runs it in the
    mode that it is in. The model, its optimizer and the state of the random numbers are left as
    they were.

    Args:
        model: a module, a function of tensors, or an `ExportedProgram`.
        example_inputs: a tuple of example arguments, or one tensor.
        out: the C file; the header stands beside it. The stem, made an identifier, is NAME.
        dynamic_shapes: as `tangrad.export.export` takes them; each size needs a greatest one.
        training: also write `NAME_train_step` and `NAME_weights`.
        loss: of training: called as `loss(model(*inputs), targets)`.
        targets: of training: an example tensor, or a tuple of them.
        optimizer: of training: one of `tangrad.optim` on the model's parameters.
        weights: "source": in the C file; "file": in `NAME_weights.bin` beside it, which
            `NAME_bind` takes; "auto": in the file above 4 MB.
        arena: "static", or "argument": functions get the memory as their first argument.
        simd: "auto": products and convolutions use vectors where the compiler has them; None: they
            do not.

    Returns:
        A report: bytes and work by layer, and the largest moment of the arena.

    Raises:
        ExportError: something cannot be expressed in C; nothing was written.
        OSError: a file cannot be written; there is no half of one.
        ValueError: an option is none of those; `out` names no file.
    """
    path = Path(out)
    if not path.name:
        raise ValueError(f"export.c: {os.fspath(out)!r} names no file to write")
    if path.suffix != ".c":
        path = path.with_name(path.name + ".c")
    module, entries = module_of(
        model,
        example_inputs,
        identifier(path.stem),
        dynamic_shapes=dynamic_shapes,
        training=training,
        loss=loss,
        targets=targets,
        optimizer=optimizer,
        weights=weights,
        arena=arena,
        simd=simd,
    )
    source, header = module.source(), module.header()
    # These characters end the name of a file that is included.
    plain = not set(path.stem) & set('"\n\r')
    header_name = f"{path.stem if plain else identifier(path.stem)}.h"
    source = source.replace(f'#include "{module.name}.h"', f'#include "{header_name}"', 1)
    files = {path: source.encode("utf-8"), path.with_name(header_name): header.encode("utf-8")}
    if module.in_file:
        files[path.with_name(f"{module.name}_weights.bin")] = module.file_bytes
    write_files(files)
    return report_of(module, entries)


def module_of(
    model: Any,
    example_inputs: Any,
    name: str,
    *,
    dynamic_shapes: Any,
    training: bool,
    loss: Any,
    targets: Any,
    optimizer: Any,
    weights: str,
    arena: str,
    simd: str | None,
) -> tuple[Module, list[Entry]]:
    """Return the files of a model, and its functions; see `c`."""
    _check_options(weights, arena, simd, training, loss, targets, optimizer)
    args = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    state: dict[str, Any] = {}
    with _left_as_it_is(model):
        program = _evaluated(model, args, dynamic_shapes)
        entries = [run_entry(program, training)]
    if training:
        entries.append(
            train_entry(model, args, dynamic_shapes, loss, targets, optimizer, entries[0])
        )
        state = dict(model.state_dict(keep_vars=True))
    kind = type(model).__name__
    module = Module(name, entries, state, False, arena, simd is not None, f"{name}: {kind}")
    if weights == "file" or (
        weights == "auto" and not training and module.flash_bytes() > _IN_FILE
    ):
        if training:
            raise ExportError("weights='file' and training=True: weights that change stay in RAM")
        module = Module(name, entries, state, True, arena, simd is not None, f"{name}: {kind}")
    return module, entries


def _check_options(
    weights: str, arena: str, simd: Any, training: bool, loss: Any, targets: Any, optimizer: Any
) -> None:
    if weights not in ("auto", "source", "file"):
        raise ValueError(f"weights is 'auto', 'source' or 'file', got {weights!r}")
    if arena not in ("static", "argument"):
        raise ValueError(f"arena is 'static' or 'argument', got {arena!r}")
    if simd not in ("auto", None):
        raise ValueError(f"simd is 'auto' or None, got {simd!r}")
    given = {"loss": loss, "targets": targets, "optimizer": optimizer}
    if training:
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise ValueError(f"training=True needs {', '.join(missing)}")
    else:
        present = [name for name, value in given.items() if value is not None]
        if present:
            raise ValueError(f"{', '.join(present)} belong to training=True")


class _Called(Model):
    """A function as a module.

    Args:
        function: of tensors.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function  # whose arguments keep their names


def _evaluated(model: Any, args: tuple[Any, ...], dynamic_shapes: Any) -> Any:
    """Return the program of a model in evaluation mode."""
    if isinstance(model, ExportedProgram):
        return model
    if not isinstance(model, Model):
        if not callable(model):
            raise TypeError(
                f"export.c: expected a module or a function, got {type(model).__name__}"
            )
        model = _Called(model)
    refuse_hooks(model)
    model = with_numbers(model)
    for part in model.modules():
        part.training = False
    with tangrad.no_grad():
        if any(".quantized." in type(part).__module__ for part in model.modules()):
            model(*args)  # so that it knows its scales as numbers: a trace may not read them
        return program_of(model, args, dynamic_shapes)


def refuse_hooks(model: Any) -> None:
    """Raise for modules with hooks: Python that runs beside the model.

    Raises:
        ExportError: a module has a hook.
    """
    for path, part in model.named_modules():
        for kind in ("_forward_hooks", "_forward_pre_hooks"):
            if getattr(part, kind, None):
                raise ExportError(
                    f"the module has {kind.strip('_').replace('_', ' ')}, which C cannot run: "
                    "remove them first",
                    module=path or type(part).__name__,
                )


@contextmanager
def _left_as_it_is(model: Any) -> Iterator[None]:
    modules = list(model.modules()) if isinstance(model, Model) else []
    flags = [module.training for module in modules]
    state = tangrad.get_rng_state()
    try:
        yield
    finally:
        for module, flag in zip(modules, flags, strict=True):
            module.training = flag
        tangrad.set_rng_state(state)
