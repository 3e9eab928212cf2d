"""`tangrad.export.c`: a model as one C file and its header."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.export import ExportedProgram
from tangrad.export import export as exported
from tangrad.nn import Module as Model
from tangrad.utils import _pytree
from tangrad_export.errors import ExportError
from tangrad_export.plan.arena import place
from tangrad_export.plan.cleaning import fold_norms, join_rectifiers, without_unused
from tangrad_export.plan.entry import (
    Entry,
    Parameter,
    Size,
    Variant,
    make_constants,
    refuse_written_inputs,
)
from tangrad_export.plan.fusion import fuse
from tangrad_export.plan.sizes import fitted, points_of, variants_of
from tangrad_export.program.running import LaidOut, lay_out
from tangrad_export.report import Report, report_of
from tangrad_export.steps.base import Step
from tangrad_export.text.file import Module
from tangrad_export.text.names import identifier, unique
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
    """
    path = Path(out)
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
    header_name = f"{path.stem}.h"
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
        from tangrad_export.program.training import train_entry

        entries.append(
            train_entry(model, args, dynamic_shapes, loss, targets, optimizer, entries[0])
        )
        state = dict(model.state_dict(keep_vars=True))
        state = {path: value.detach() for path, value in state.items()}
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
    for part in model.modules():
        part.training = False
    with tangrad.no_grad():
        return program_of(model, args, dynamic_shapes)


def program_of(model: Any, args: tuple[Any, ...], dynamic_shapes: Any) -> Any:
    """Return `tangrad.export.export` of a model; what it refuses is an `ExportError`."""
    try:
        return exported(model, args, dynamic_shapes=dynamic_shapes)
    except (RuntimeError, NotImplementedError) as error:
        if "export:" not in str(error):
            raise
        raise ExportError(str(error)) from error


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


# --- a function of the file -----------------------------------------------------------------------


def example_leaves(program: Any) -> list[Any]:
    """Return the leaves of a program's example."""
    if program.example_inputs is None:
        raise ExportError("the program has no example: export.c needs one for its self-test")
    return list(_pytree.tree_leaves(program.example_inputs))


def sizes_of(program: Any) -> list[Size]:
    """Return the sizes that vary, in the order of their first appearance.

    Raises:
        ExportError: one has no greatest value.
    """
    found = sorted(
        program.range_constraints.values(),
        key=lambda size: min((place.input, place.dim) for place in size.places),
    )
    taken: set[str] = set()
    made = []
    for size in found:
        if size.max is None:
            raise ExportError(
                f"the size {size.name!r} has no greatest value: the arena is static; give it one, "
                f"as in Dim({size.name!r}, min=1, max=8)"
            )
        made.append(Size(unique(identifier(size.name, True), taken), size.min, size.max))
    return made


def ordered_sizes(program: Any) -> list[Any]:
    """Return the program's own descriptions of the sizes that vary, in the same order."""
    return sorted(
        program.range_constraints.values(),
        key=lambda size: min((place.input, place.dim) for place in size.places),
    )


def leaves_at(program: Any, leaves: list[Any], point: tuple[int, ...]) -> list[Any]:
    """Return arguments without values, of other sizes."""
    shapes = {k: list(x.shape) for k, x in enumerate(leaves) if isinstance(x, Tensor)}
    for size, value in zip(ordered_sizes(program), point, strict=True):
        for at in size.places:
            shapes[at.input][at.dim] = at.of(value)
    return [
        tangrad.empty(shapes[k], dtype=x.dtype, device="meta") if k in shapes else x
        for k, x in enumerate(leaves)
    ]


def names_of(program: Any, leaves: list[Any], sizes: list[Size]) -> list[str]:
    """Return names of the inputs that are tensors, as identifiers."""
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    specs = program.graph_signature.input_specs
    taken = {size.name for size in sizes} | {"arena", "report", "bound", "bad", "g"}
    found = []
    users = (n for n, s in zip(nodes, specs, strict=True) if s.kind.name == "USER_INPUT")
    for node, leaf in zip(users, leaves, strict=True):
        if isinstance(leaf, Tensor):
            name = identifier(str(node.target), True)
            if len(name) == 1 or name.startswith(
                ("arena_", "w_", "c_", "op_", "out", "tg_", "tk_")
            ):
                name = f"in_{name}" if name != "x" else "x"
            found.append(unique(name, taken))
    return found


def settled(laid: LaidOut) -> list[Step]:
    """Return the steps of a program behind all passes."""
    results = {b for b, _, _ in laid.outputs}
    steps = without_unused(make_constants(laid.steps), results)
    steps = fold_norms(steps, results, laid.constant)
    steps = fuse(join_rectifiers(steps, results), results)
    for step in steps:
        step.settle()
    return steps


def run_entry(program: Any, trained: bool) -> Entry:
    """Return the function that runs a program.

    Args:
        program: what `tangrad.export.export` gives.
        trained: whether its weights change between two calls.
    """
    leaves, sizes = example_leaves(program), sizes_of(program)
    names = names_of(program, leaves, sizes)
    wanted = eager(program, leaves)
    given = [x for x in leaves if isinstance(x, Tensor)]
    run = partial(_run_at, program, leaves, names, len(sizes), trained)
    made = Entries(run, sizes)
    laid, variants = made.laid, made.variants
    shapes = made.shapes([[s for _, s, _ in kept.outputs] for kept in made.all])
    in_shapes = made.shapes(
        [
            [x.shape for x in leaves_at(program, leaves, p[: len(sizes)]) if isinstance(x, Tensor)]
            for p in made.points
        ]
    )
    reports = any(
        ref is not None and ref.buffer.kind == "error"
        for v in variants
        for s in v.steps
        for ref in s.refs
    )
    inputs = [
        Parameter(name, x.dtype.name, tuple(shape), x)
        for name, x, shape in zip(names, given, in_shapes, strict=True)
    ]
    outputs = [
        Parameter(f"out{k}" if len(shapes) > 1 else "out", dtype, tuple(shape), value)
        for k, ((_, _, dtype), shape, value) in enumerate(
            zip(laid.outputs, shapes, wanted, strict=True)
        )
    ]
    if len(shapes) == 1:
        for variant in variants:
            for step in variant.steps:
                for ref in step.refs:
                    if ref is not None and ref.buffer.kind == "output":
                        ref.buffer.name = "out"
    entry = Entry("run", sizes, inputs, outputs, variants, reports)
    entry.changing, entry.draws = made.changing, made.draws
    entry.example_sizes = [int(size.example) for size in ordered_sizes(program)]
    refuse_written_inputs(entry)
    return entry


def _run_at(
    program: Any,
    leaves: list[Any],
    names: list[str],
    count: int,
    trained: bool,
    point: Any,
    drawn: int,
    taken: int,
) -> LaidOut:
    given = leaves_at(program, leaves, point) if count else leaves
    return lay_out(program, given, names, drawn, trained)


class Entries:
    """A program laid out at as many sizes as it takes to know it at all.

    Args:
        lay_out: called with sizes, a place in the random stream, and how many steps were taken.
        sizes: those that vary.
        counts: whether the program depends on the number of steps taken.

    Attributes:
        laid: the program at the smallest sizes.
        all: the program at all `points`.
        variants: what is written.
        changing: what changes from call to call.
        draws: how many counters of the random stream a call takes: C, or a number.
    """

    def __init__(self, lay_out: Any, sizes: list[Size], counts: bool = False) -> None:
        smallest = tuple(size.min for size in sizes)
        self.laid = lay_out(smallest, 0, 0)
        self.changing = ["drawn"] * bool(self.laid.drawn) + ["taken"] * counts
        self.points, self.every = points_of(sizes, self.changing)
        self.names = [*(size.name for size in sizes), *self.changing]
        kept: dict[Any, LaidOut] = {}

        def at(point: Any) -> list[Step]:
            changes = dict(zip(self.changing, point[len(sizes) :], strict=True))
            drawn, taken = changes.get("drawn", 0), changes.get("taken", 0)
            kept[point] = lay_out(point[: len(sizes)], drawn, taken)
            return settled(kept[point])

        if sizes or self.changing:
            self.variants = variants_of(sizes, self.changing, at)
        else:
            kept[()] = self.laid
            steps = settled(self.laid)
            numbers = [list(step.numbers) for step in steps]
            offsets = [[0 if r is None else r.offset for r in step.refs] for step in steps]
            self.variants = [Variant("", steps, numbers, offsets, place(steps))]
        self.all = [kept[point] for point in self.points]
        self.draws = fitted(self.names, self.points, [x.drawn for x in self.all], self.every)

    def shapes(self, shapes: list[list[Any]]) -> list[list[Any]]:
        """Return shapes whose sizes may depend on sizes that vary, given those at all points."""
        made = []
        for k in range(len(shapes[0])):
            dims = [[int(s[k][d]) for s in shapes] for d in range(len(shapes[0][k]))]
            made.append([fitted(self.names, self.points, dim, self.every) for dim in dims])
        return made


def eager(program: Any, leaves: list[Any]) -> list[Any]:
    """Return what the program gives for its example, the results that are tensors."""
    args, kwargs = program.example_inputs
    with tangrad.no_grad(), tangrad.random.fork_rng(devices=[]):
        copies = _pytree.tree_map(
            lambda x: x.detach().clone() if isinstance(x, Tensor) else x, (args, kwargs)
        )
        result = program.module(check_guards=False)(*copies[0], **copies[1])
    found = [r for r in _pytree.tree_leaves(result) if isinstance(r, Tensor)]
    return [r.resolve_conj().resolve_neg().detach() for r in found]
